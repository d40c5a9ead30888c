// The enumerating host of a udp fabric: gives destination ids to the endpoints that join, and tells each who else is
// there. It is asked over TCP, in lines:
//
//   an endpoint says                  the host says
//   softrio-join 1 WANTED UDP-PORT    there ID ADDRESS:PORT, for each of the others; then you ID, or refused WHY
//   change WANTED                     you ID, or refused WHY
//   sync NUMBER                       synced NUMBER, behind everything that it has known before
//                                     there ID ADDRESS:PORT and gone ID, when somebody joins, changes or leaves
//
// WANTED 0 is any id; the 1 is the version of these lines. An endpoint is at the address it connects from, and leaves
// by closing its connection, or by ending. A host of RapidIO hardware finds endpoints by maintenance requests along its
// links; here nobody has links that could be followed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <incast/result.h>

#include "softrio/udp/address.h"
#include "softrio/udp/lines.h"
#include "transport/descriptor.h"

namespace incast::softrio::udp {

inline constexpr std::string_view join_word = "softrio-join";
inline constexpr std::string_view join_version = "1";

/// For one thread.
class Enumerator {
public:
    struct Observer {
        /// An endpoint has joined or moved to that id, or, without an address, left it.
        std::function<void(std::uint32_t destid, const Address* at)> changed = [](std::uint32_t, const Address*) {};
        /// Somebody was refused: one line.
        std::function<void(const std::string& line)> refused = [](const std::string&) {};
    };

    /// `first`: the lowest id that is given to who wants any. A port of 0: any that is free.
    static Result<std::unique_ptr<Enumerator>> listen(const Address& at, std::uint32_t first, Observer observer);
    ~Enumerator();
    Enumerator(const Enumerator&) = delete;
    Enumerator& operator=(const Enumerator&) = delete;

    /// Where it listens.
    [[nodiscard]] const Address& address() const { return address_; }
    /// Does what there is to do, once something is there, or the time is over.
    void serve(int timeout_ms);

private:
    struct Member {
        Lines lines;
        Address at;                 // of its endpoint, once it has joined
        std::uint32_t destid = 0;   // 0: it has not
        std::int64_t since_ms = 0;  // connected
    };

    Enumerator(transport::Descriptor listener, const Address& at, std::uint32_t first, Observer observer);
    void accept();
    void take_line(Member& member, std::string_view line);
    void join(Member& member, std::string_view line);
    void change(Member& member, std::string_view wanted);
    /// The id that it may have; 0: none, and it was told why.
    std::uint32_t choose(Member& member, std::string_view wanted);
    void place(Member& member, std::uint32_t destid);
    void leave(const Member& member);
    void tell_others(const Member& member, const std::string& line);
    void refuse(Member& member, const std::string& why);
    void drop_ended();

    transport::Descriptor listener_;
    Address address_;
    std::uint32_t first_;
    Observer observer_;
    std::map<int, Member> members_;               // by descriptor
    std::map<std::uint32_t, Address> endpoints_;  // those that have joined
};

}  // namespace incast::softrio::udp
