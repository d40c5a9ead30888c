// One rds endpoint: a socket for calls, one for each peer, and the framed engine on top of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/poller.h"
#include "transport/connect_rule.h"
#include "transport/framed/endpoint.h"
#include "transport/limited_log.h"
#include "transport/rds/link.h"
#include "transport/rds/socket.h"

namespace incast::transport::rds {

/// The settings of rds (see rds.cpp), checked and in machine form.
struct EndpointSettings {
    std::vector<SocketAddress> bind;  // node i takes the i-th, in turn
    SocketOptions socket;
    std::uint32_t message_bytes = 0;
    std::size_t staging_bytes = 0;
    std::size_t send_buffer_bytes = 0;
    std::size_t copy_below_bytes = 0;
    Time connect_timeout = 0;
    Time deadline = 0;
};

struct PeerState {
    enum class State : std::uint8_t {
        idle,
        waiting,  // for the peer to say hello: it has the lower number
        calling,
        up,
        down,  // closed; completions and peer_down still have to be polled
    };
    [[nodiscard]] Connection connection() const {
        if (state == State::idle) return Connection::none;
        if (state == State::up) return Connection::up;
        return state == State::down ? Connection::ending : Connection::opening;
    }
    State state = State::idle;
    bool announced = false;  // its peer_up was polled
    bool listed = false;     // in active_
    Status lost_as = Status::peer_lost;
    std::uint32_t incarnation = 0;
    std::uint32_t complained_of = 0;  // incarnation for which a failure to connect was logged
    Time deadline = time_never;       // of connecting
    Time repeat = 0;                  // the hello
    Time wait = 0;
    SocketAddress address;  // where it hears calls
    Call own;               // that this side says: hello, or accept
    os::Descriptor socket;  // for the connection, until there is one
    std::unique_ptr<Link> link;

    struct Parked {
        Call call;
        SocketAddress from;
    };
    std::optional<Parked> parked;  // it said hello, before connect() was called here
    std::uint32_t let_in_incarnation = 0;
    std::uint32_t let_in_dial = 0;
};

class Endpoint final : public framed::Endpoint {
public:
    static Result<std::unique_ptr<Transport>> make(const EndpointSettings& settings, const EndpointOptions& options);
    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, os::Poller poller,
             const SocketAddress& address, os::Descriptor socket);
    ~Endpoint() override;

    [[nodiscard]] Blob address() const override;
    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override;
    void disconnect(Peer peer) override;
    void ended(Peer peer, std::uint32_t incarnation) override;
    [[nodiscard]] bool drained() const override;
    std::size_t poll(Time now, std::span<Event> span) override;
    [[nodiscard]] Time next_deadline() const override { return untimed_ > 0 ? last_now_ : next_deadline_; }
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return poller_.fd(); }
    [[nodiscard]] std::uint64_t copied_bytes() const override;

private:
    [[nodiscard]] bool is_up(Peer peer) const {
        return is_node(peer) && peers_[index(peer)].state == PeerState::State::up;
    }
    framed::Session* session_of(Peer peer) override {
        return is_up(peer) ? &peers_[index(peer)].link->session() : nullptr;
    }
    [[nodiscard]] bool exists(Peer peer) const override { return is_node(peer); }
    [[nodiscard]] std::uint32_t node_of(Peer peer) const override { return index(peer); }
    void activate(Peer peer) override {
        if (peers_[index(peer)].listed) return;
        peers_[index(peer)].listed = true;
        active_.push_back(peer);
    }
    [[nodiscard]] bool uses(Bytes memory) const override;
    [[nodiscard]] Event control_event(Event::Kind kind, Peer peer) const;

    void handle_readiness(Time now);
    void hear_calls(Time now);
    void hear(const Call& call, const SocketAddress& from);
    void hear_hello(const Call& call, const SocketAddress& from, Verdict verdict);
    void say(const SocketAddress& to, const Call& call);
    void say_hello(Peer peer, Time now);
    void refuse(const Call& call, const SocketAddress& to, Verdict verdict);
    void match(Peer peer);
    void go_up(Peer peer, const Call& theirs, const SocketAddress& from);
    /// One line for each carrier that there is, by the first node.
    void tell_carrier(const SocketAddress& to);
    void fail(Peer peer, std::string_view why);
    /// Fences the peer: its socket is closed before anything is said about it.
    void lose(Peer peer, Status status);
    void stop_timing(PeerState& state);
    void handle_deadlines(Time now);
    void work(Time now, framed::EventWriter& events);
    void announce(framed::EventWriter& events);
    void finish_losses(framed::EventWriter& events);

    EndpointSettings settings_;
    os::Poller poller_;
    SocketAddress address_;
    os::Descriptor socket_;  // for calls
    LimitedLog strangers_;
    std::vector<epoll_event> epoll_events_;
    std::vector<PeerState> peers_;
    std::vector<Peer> active_;                       // have something to move
    std::vector<Peer> working_;                      // those of the poll in progress
    std::vector<Peer> raised_;                       // up, peer_up to be polled
    std::vector<Peer> down_;                         // lost, the rest to be polled
    std::vector<std::unique_ptr<Link>> lost_links_;  // since the last poll
    std::vector<std::string> carriers_;              // that were told
    std::uint32_t dials_ = 0;
    std::uint64_t poll_number_ = 0;
    std::uint32_t untimed_ = 0;  // peers whose deadline is unset
    Time next_deadline_ = time_never;
    Time last_now_ = 0;
    std::uint64_t copied_for_lost_ = 0;  // by links that are gone
};

/// Error: one of them cannot be.
Result<EndpointSettings> read_settings(const Settings& given);

}  // namespace incast::transport::rds
