// One tcp endpoint: epoll, connections, and the framed engine on top of them. Posting and polling are in endpoint.cpp,
// connecting and losing peers in connecting.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "os/descriptor.h"
#include "os/poller.h"
#include "transport/framed/endpoint.h"
#include "transport/framed/event_writer.h"
#include "transport/medium.h"
#include "transport/tcp/acceptor.h"
#include "transport/tcp/hello.h"
#include "transport/tcp/peer_state.h"
#include "transport/tcp/socket.h"

namespace incast::transport::tcp {

inline constexpr Time deadline_unset = -1;  // the next poll, which knows the time, sets it

// What an epoll event is about: a kind, a serial number that tells a stale event of a closed stream, and an index.
inline constexpr std::uint64_t kind_shift = 60;
inline constexpr std::uint64_t serial_shift = 32;
inline constexpr std::uint64_t serial_mask = (std::uint64_t{1} << (kind_shift - serial_shift)) - 1;
inline constexpr std::uint64_t listener_kind = std::uint64_t{1} << kind_shift;
inline constexpr std::uint64_t half_open_kind = std::uint64_t{2} << kind_shift;
inline constexpr std::uint64_t stream_kind = std::uint64_t{3} << kind_shift;

/// The parameters of tcp (see tcp.cpp), checked and in machine form.
struct EndpointSettings {
    SocketAddress bind;
    SocketAddress advertise;  // the port is the listener's
    PortRange ports;
    std::uint16_t streams = 1;
    SocketOptions socket;
    os::Poller::Kind wait = os::Poller::Kind::epoll;
    std::size_t staging_bytes = 0;
    std::size_t send_buffer_bytes = 0;
    std::size_t copy_below_bytes = 0;
    Time connect_timeout = 0;
    Time hello_timeout = 0;
    std::uint32_t half_open_max = 0;
    base::Versions versions = framed::frame_versions;  // that it speaks
};

class Endpoint final : public framed::Endpoint {
public:
    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, os::Poller poller,
             os::Descriptor listener);
    ~Endpoint() override;
    [[nodiscard]] Blob address() const override { return address_.to_blob(self(), options_.incarnation); }

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override;
    void disconnect(Peer peer) override;
    Result<Peer> dial(const Blob& blob, Bytes greeting) override;
    Post accept(Peer peer) override;
    void ended(Peer peer, std::uint32_t incarnation) override;
    [[nodiscard]] bool drained() const override;
    std::size_t poll(Time now, std::span<Event> span) override;
    [[nodiscard]] Time next_deadline() const override { return untimed_ > 0 ? last_now_ : next_deadline_; }

    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return poller_.fd(); }

    [[nodiscard]] std::uint64_t copied_bytes() const override;

private:
    [[nodiscard]] bool is_up(Peer peer) const {
        return index(peer) < peers_.size() && peers_[index(peer)].state == PeerState::State::up;
    }
    framed::Session* session_of(Peer peer) override {
        return is_up(peer) ? &peers_[index(peer)].link->session() : nullptr;
    }
    [[nodiscard]] bool exists(Peer peer) const override {
        return is_node(peer) || (index(peer) < peers_.size() && peers_[index(peer)].state != PeerState::State::idle);
    }
    [[nodiscard]] std::uint32_t node_of(Peer peer) const override { return peers_[index(peer)].node; }
    void activate(Peer peer) override {
        if (peers_[index(peer)].listed) return;
        peers_[index(peer)].listed = true;
        active_.push_back(peer);
    }
    [[nodiscard]] bool uses(Bytes memory) const override;
    os::Descriptor with_port(os::Descriptor listener);
    [[nodiscard]] Event control_event(Event::Kind kind, Peer peer) const;

    // --- connecting and losing

    void log_lost(Peer peer, std::string_view why) const;

    [[nodiscard]] std::uint64_t stream_id(Peer peer, std::size_t stream) const;
    [[nodiscard]] bool watch(Peer peer, std::size_t stream, const os::Descriptor& socket);
    void start_dialling(Peer peer);
    void fail_dial(Peer peer, std::string_view why);
    void advance_dial(Peer peer, std::size_t stream);
    /// A node of this run dialled.
    void park(Admitted admitted);
    /// any_peer: there is none.
    [[nodiscard]] Peer free_number() const;
    void hear_knock(Admitted admitted);
    [[nodiscard]] Parked parked_of(const Hello& hello) const;
    static bool is_older(const Hello& hello, const Parked& parked);
    /// Both have called connect?
    void match(Peer peer);
    /// The streams that are parked are let in.
    void let_in(Peer peer);
    void go_up(Peer peer, std::vector<os::Descriptor> sockets, std::uint32_t peer_max_posted);
    /// Fences the peer: every socket is closed before anything is said about it.
    void lose(Peer peer, Status status);
    void announce(framed::EventWriter& events);
    void finish_losses(framed::EventWriter& events);
    void handle_readiness(Time now);
    void stop_timing(PeerState& state);
    void handle_deadlines(Time now);
    EndpointSettings settings_;
    os::Poller poller_;
    std::vector<PeerState> peers_;
    std::vector<epoll_event> epoll_events_;
    SocketAddress address_;
    Acceptor acceptor_;
    std::vector<Peer> active_;                       // have something to move
    std::vector<Peer> working_;                      // those of the poll in progress
    std::vector<Peer> raised_;                       // up, peer_up to be polled
    std::vector<Peer> down_;                         // lost, the rest to be polled
    std::vector<std::unique_ptr<Link>> lost_links_;  // since the last poll
    std::uint64_t serials_ = 0;
    std::uint64_t poll_number_ = 0;
    std::uint32_t untimed_ = 0;  // peers whose deadline is unset
    Time next_deadline_ = time_never;
    Time last_now_ = 0;
    std::uint64_t copied_for_lost_ = 0;  // by links that are gone
};

/// Error: one of them cannot be.
Result<EndpointSettings> read_settings(const Settings& given);
Result<std::unique_ptr<Transport>> make_endpoint(const EndpointSettings& settings, const EndpointOptions& options);

}  // namespace incast::transport::tcp
