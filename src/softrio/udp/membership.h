// An endpoint's side of enumeration (enumerator.h): the host gave it its destination id, and says who else is there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

#include "softrio/options.h"
#include "softrio/udp/address.h"
#include "softrio/udp/lines.h"

namespace incast::softrio::udp {

/// For one thread, or one lock. Only connect() and join() wait.
class Membership {
public:
    /// Who is where, or, without an address, not there any more.
    using Changed = std::function<void(std::uint32_t destid, const std::optional<Address>& at)>;

    static Result<Membership> connect(const Address& host, int timeout_ms);
    /// The address by which the host knows this endpoint, with no port.
    [[nodiscard]] Address own_ip() const;
    /// `wanted`: 0: any id. `udp_port`: where this endpoint is. Returns its id.
    Result<std::uint32_t> join(std::uint32_t wanted, std::uint16_t udp_port, int timeout_ms, const Changed& changed);

    /// Polls readable when there is something to take in; -1: the host has gone. Those who are there stay so.
    [[nodiscard]] int fd() const { return lines_.fd(); }
    void take_in(const Changed& changed);
    void close() { lines_.close(); }

    /// Asks to be told of all who are there by now; is_synced() says when that has been done.
    std::uint32_t sync();
    [[nodiscard]] bool is_synced(std::uint32_t number) const { return synced_ == number || !lines_.is_open(); }
    /// Asks for another id; is_answered() says when, and destid() what came of it.
    void change(std::uint32_t wanted);
    [[nodiscard]] bool is_answered() const { return answered_ || !lines_.is_open(); }
    [[nodiscard]] std::uint32_t destid() const { return destid_; }
    /// Multicast groups, as far as it has been told.
    [[nodiscard]] const std::vector<MulticastGroup>& groups() const { return groups_; }

private:
    void take_line(std::string_view line, const Changed& changed);
    bool take_group(std::uint32_t destid, std::string_view members);

    Lines lines_;
    std::uint32_t destid_ = 0;
    std::vector<MulticastGroup> groups_;
    std::string refusal_;
    bool answered_ = true;
    std::uint32_t asked_ = 0;
    std::uint32_t synced_ = 0;
};

}  // namespace incast::softrio::udp
