// How hubs find each other: a listener is a socket that tells whoever connects to it, at once, which hub this is and
// how its endpoint is reached. It keeps nothing of a caller that it has told so, unless the caller has to answer
// (card.h). Nothing here waits, but for the lookup of host names.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/socket.h>

#include <incast/transport.h>

#include "channel/api/address.h"
#include "channel/api/card.h"
#include "os/descriptor.h"
#include "os/poller.h"
#include "os/spare.h"

namespace incast::channel::api {

/// Of a Unix or TCP socket.
struct SocketName {
    sockaddr_storage storage{};
    socklen_t size = 0;
    [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
/// Where such an address leads; of a host name in the order of the system. Throws Failure.
std::vector<SocketName> look_up(const Address& address, bool to_listen);
/// The host of a socket's own end, in numbers.
std::string own_host(int socket);

/// A listening socket, and its address as it turned out. Throws EADDRINUSE, EADDRNOTAVAIL, EACCES and others.
struct Door {
    os::Descriptor socket;
    Address address;
    std::shared_ptr<void> keep = {};  // what brings callers to the socket
};
Door open_door(const Address& address);

class Directory {
public:
    /// What is said to a caller that came by that socket: the card of an offer, and the address.
    using Offer = std::function<WholeCard(const os::Descriptor& socket, const Address& door, std::uint32_t port)>;
    /// `has_answers`: both sides have to connect. Its events in `poller` have numbers from `first_id` on.
    Directory(os::Poller& poller, std::uint64_t first_id, bool has_answers, Offer offer)
        : poller_(poller), first_id_(first_id), has_answers_(has_answers), offer_(std::move(offer)) {}
    ~Directory();
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;

    /// From now on callers are told of that port. Throws Failure.
    void open(Door door, std::uint32_t port);
    void close(std::uint32_t port);
    /// Looks for a listener; an event says what came of it. Throws Failure.
    std::uint32_t call(const Address& address, Time now);
    /// By a socket that somebody connects.
    std::uint32_t call_by(os::Descriptor socket, const Address& address);
    void give_up(std::uint32_t call);
    /// To an offer.
    void answer(std::uint32_t call, const Card& card, const Blob& address);
    /// To an answer. The caller is told, and forgotten.
    void reply(std::uint32_t caller, const Card& card, const Blob& address);

    struct Event {
        enum class What : std::uint8_t { offered, replied, again, failed, answered };
        What what{};
        std::uint32_t number = 0;  // of the call; answered: of the caller
        WholeCard said;
        Failure failure;
    };
    std::optional<Event> next();

    /// That event of the poller is one of these.
    void ready(std::uint64_t id, Time now);
    void expire(Time now);
    [[nodiscard]] Time next_deadline() const;

private:
    struct Open {
        Door door;
        std::uint32_t port = 0;
    };
    struct Call {
        os::Descriptor socket;
        std::vector<SocketName> names;  // to be tried; the first is
        std::string text;
        std::vector<std::byte> received;
        os::Descriptor way = {};  // that came with it
        bool is_answered = false;
        Time again_at = time_never;
    };
    struct Caller {
        os::Descriptor socket;
        std::vector<std::byte> received;
        Time deadline = 0;
    };

    void accept_all(Open& open, Time now);
    void start(std::uint32_t number, Call& call, Time now);
    /// Of the name that is tried; the next one is, if there is one.
    void failed(std::uint32_t number, Call& call, int error, Time now);
    void end(std::uint32_t number, int error, const std::string& why);
    void hear(std::uint32_t number, Call& call, Time now);
    void hear(std::uint32_t number, Caller& caller);
    void drop_caller(std::uint32_t number);

    os::Poller& poller_;
    std::uint64_t first_id_;
    bool has_answers_;
    Offer offer_;
    os::Spare spare_;
    std::uint32_t next_number_ = 0;
    std::map<std::uint32_t, Open> open_;  // by port
    std::map<std::uint32_t, Call> calls_;
    std::map<std::uint32_t, Caller> callers_;
    std::deque<Event> events_;
};

}  // namespace incast::channel::api
