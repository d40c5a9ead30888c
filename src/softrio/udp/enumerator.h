// The enumerating host of a udp fabric: gives destination ids to the endpoints that join, and tells each who else is
// there. It is asked over TCP, in lines:
//
//   an endpoint says                  the host says
//   softrio-join 1 WANTED UDP-PORT    there ID ADDRESS:PORT, for each of the others; then you ID, or refused WHY
//   change WANTED                     you ID, or refused WHY
//   sync NUMBER                       synced NUMBER, behind everything that it has known before
//                                     there ID ADDRESS:PORT and gone ID, when somebody joins, changes or leaves
//                                     group ID MEMBER..., before `you` and when it changes: a multicast group, and the
//                                     ids that it stands for; without any, there is no such group any more
//
// WANTED 0 is any id; the 1 is the version of these lines. An endpoint is at the address it connects from, and leaves
// by closing its connection, or by ending. If the host is the switch, too, it says of each endpoint, instead of where
// that is, where the switch takes what is for it (data_plane.h). A host of RapidIO hardware finds endpoints by
// maintenance requests along its links; here nobody has links that could be followed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

#include "os/descriptor.h"
#include "softrio/udp/address.h"
#include "softrio/udp/data_plane.h"
#include "softrio/udp/lines.h"
#include "softrio/udp/routing.h"

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

    /// `first`: the lowest id that is given to who wants any. A port of 0: any that is free. With a data plane, all
    /// that endpoints send each other goes through it.
    static Result<std::unique_ptr<Enumerator>> listen(const Address& at, std::uint32_t first, Observer observer,
                                                      std::unique_ptr<DataPlane> plane = nullptr);
    ~Enumerator();
    Enumerator(const Enumerator&) = delete;
    Enumerator& operator=(const Enumerator&) = delete;

    /// Where it listens.
    [[nodiscard]] const Address& address() const { return address_; }
    /// Goes by that table from now on. An error: one of its groups has the id of an endpoint; then nothing changes.
    Result<Ok> program(RoutingTable table);
    [[nodiscard]] const DataPlane* plane() const { return plane_.get(); }
    /// Does what there is to do, once something is there, or the time is over.
    void serve(int timeout_ms);

private:
    struct Member {
        Lines lines;
        Address at;                 // of its endpoint, once it has joined
        std::uint32_t destid = 0;   // 0: it has not
        std::int64_t since_ms = 0;  // connected
    };

    Enumerator(os::Descriptor listener, os::Descriptor poll, const Address& at, std::uint32_t first, Observer observer,
               std::unique_ptr<DataPlane> plane);
    void watch(int fd);
    void accept();
    void take_line(Member& member, std::string_view line);
    void join(Member& member, std::string_view line);
    void change(Member& member, std::string_view wanted);
    /// The id that it may have; 0: none, and it was told why.
    std::uint32_t choose(Member& member, std::string_view wanted);
    /// Where the others find it under that id: its address, or, of a switch, a port there. An error: nowhere.
    Result<Address> link(const Member& member, std::uint32_t destid);
    void place(Member& member, std::uint32_t destid, const Address& seen);
    void leave(const Member& member);
    /// The line that says so to `member`.
    [[nodiscard]] std::string there(const Member& member, std::uint32_t destid, const Address& seen) const;
    [[nodiscard]] const MulticastGroup* group(std::uint32_t destid) const;
    void refuse(Member& member, const std::string& why);
    void drop_ended();

    os::Descriptor listener_;
    os::Descriptor poll_;  // the listener, members, the data plane
    Address address_;
    std::uint32_t first_;
    Observer observer_;
    std::unique_ptr<DataPlane> plane_;            // nullptr: endpoints send directly
    std::map<int, Member> members_;               // by descriptor
    std::map<std::uint32_t, Address> endpoints_;  // those that have joined, as link() says
    std::vector<MulticastGroup> groups_;
};

}  // namespace incast::softrio::udp
