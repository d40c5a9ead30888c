// Endpoints that a kernel does not know yet. Its rio_cm forgets a request to connect of whoever has no device object
// when the request is accepted, and a request reaches it once. So what such an endpoint says waits until its object is
// made. Without sockets or threads, for one lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

namespace incast::softrio::udp {

class Newcomers {
public:
    using Message = std::vector<std::byte>;

    /// False: the kernel knows that one, or there is no more room; the message is the caller's to hand in.
    bool keep(std::uint32_t source, std::span<const std::byte> message);
    /// Whose objects are to be made.
    [[nodiscard]] std::vector<std::uint32_t> waiting() const;
    /// Its object is there: what it said, in order, is the caller's to hand in.
    std::vector<Message> know(std::uint32_t source);
    /// It has gone, and what it said with it. An object stays.
    void forget(std::uint32_t source) { kept_.erase(source); }

private:
    static constexpr std::size_t max_messages = 64;  // of an endpoint
    static constexpr std::size_t max_sources = 64;

    std::set<std::uint32_t> known_;
    std::map<std::uint32_t, std::vector<Message>> kept_;
};

}  // namespace incast::softrio::udp
