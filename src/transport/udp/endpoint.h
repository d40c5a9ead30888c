// One udp endpoint: a socket, connections, and the framed engine on top of them. Posting and polling are in
// endpoint.cpp, connecting and losing peers in connecting.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "datagram/socket.h"
#include "os/descriptor.h"
#include "transport/framed/endpoint.h"
#include "transport/framed/event_writer.h"
#include "transport/limited_log.h"
#include "transport/medium.h"
#include "transport/settings.h"
#include "transport/udp/hello.h"
#include "transport/udp/peer_state.h"

namespace incast::transport::udp {

inline constexpr Time deadline_unset = -1;  // the next poll, which knows the time, sets it

/// The parameters of udp (see udp.cpp), checked and in machine form.
struct EndpointSettings {
    Address bind;
    Address advertise;
    PortRange ports;
    std::uint32_t mtu = 0;  // 0: what the way to the peer has
    std::size_t window_bytes = 0;
    int socket_buffer_bytes = 0;
    std::size_t staging_bytes = 0;
    std::size_t send_buffer_bytes = 0;
    std::size_t copy_below_bytes = 0;
    std::uint64_t max_rate_bytes_per_s = 0;
    std::uint8_t dscp = 0;
    bool repairs = true;  // bodies, too
    Time connect_timeout = 0;
    Time deadline = 0;
    datagram::FaultRates faults;
    std::uint64_t fault_seed = 0;
    base::Versions versions = hello_versions;  // that it speaks
};

class Endpoint final : public framed::Endpoint {
public:
    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, os::Descriptor socket);
    ~Endpoint() override;
    [[nodiscard]] Blob address() const override;

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override;
    void disconnect(Peer peer) override;
    Result<Peer> dial(const Blob& blob, Bytes greeting) override;
    Post accept(Peer peer) override;
    void ended(Peer peer, std::uint32_t incarnation) override;
    [[nodiscard]] bool drained() const override;

    std::size_t poll(Time now, std::span<Event> span) override;
    [[nodiscard]] Time next_deadline() const override { return untimed_ > 0 ? last_now_ : next_deadline_; }
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return socket_.fd(); }

    [[nodiscard]] std::uint64_t copied_bytes() const override;
    [[nodiscard]] Datagrams datagrams() const override;

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
    [[nodiscard]] Event control_event(Event::Kind kind, Peer peer) const;

    // --- datagrams

    void receive(Time now, framed::EventWriter& events);
    void handle(Time now, Bytes datagram, framed::EventWriter& events);
    void take_packet(Time now, const reliable::Packet& packet, framed::EventWriter& events);
    /// Who sent a packet of no session that is known here may have one that he believes in.
    void answer_unknown(const reliable::Packet& packet);
    void take_unknown(Time now, const reliable::Packet& packet);
    /// Hands on what that peer's connection has received.
    void unpack(Peer peer, framed::EventWriter& events);
    void look_for_loss(Peer peer);
    void take_refused();
    void send_waiting(Time now, framed::EventWriter& events);
    /// Pieces of the next body. False: no more of anything may be sent to that peer now.
    bool add_pieces(Time now, PeerState& state, framed::EventWriter& events);
    void say(const Address& to, const Hello& hello, Bytes greeting = {});
    void answer(Answer answer, const Address& to);

    // --- connecting and losing

    void log_lost(Peer peer, std::string_view why) const;
    [[nodiscard]] std::uint32_t datagram_bytes_to(const Address& to) const;
    [[nodiscard]] std::uint32_t window_packets(std::uint32_t datagram_bytes) const;
    void start_dialling(Peer peer, const Hello& hello);
    void say_hello(PeerState& state, Time now);
    void fail_dial(Peer peer, std::string_view why);
    void take_hello(Time now, const Hello& hello, Bytes greeting);
    void take_withdrawal(const Hello& hello);
    void take_answer(const Answer& answer);
    void refuse(const Hello& hello, const Address& to, Verdict verdict);
    /// A node of this run dialled.
    void park(Time now, const Hello& hello);
    void hear_knock(Time now, const Hello& hello, Bytes greeting);
    /// Who has that group at that address. any_peer: nobody.
    [[nodiscard]] Peer dialler(const Hello& hello) const;
    /// any_peer: there is none.
    [[nodiscard]] Peer free_number() const;
    /// Both have called connect?
    void match(Peer peer);
    /// Whoever is parked is let in.
    void let_in(Peer peer);
    struct Agreed {
        std::uint64_t own_session = 0;
        std::uint64_t peer_session = 0;
        std::uint32_t datagram_bytes = 0;
        std::uint32_t peer_window = 0;
        std::uint32_t peer_max_posted = 0;
    };
    void go_up(Peer peer, const Agreed& agreed);
    /// Fences the peer: what still comes from it is a stranger's before anything is said about it.
    void lose(Peer peer, Status status);
    void announce(framed::EventWriter& events);
    void finish_losses(framed::EventWriter& events);
    void stop_timing(PeerState& state);
    void start_timing(PeerState& state);
    void handle_deadlines(Time now);

    EndpointSettings settings_;
    datagram::Socket socket_;
    Address address_;
    std::vector<PeerState> peers_;
    Cookies cookies_;
    LimitedLog strangers_;
    std::vector<Peer> active_;                       // have something to move
    std::vector<Peer> working_;                      // those of the poll in progress
    std::vector<Peer> raised_;                       // up, peer_up to be polled
    std::vector<Peer> down_;                         // lost, the rest to be polled
    std::vector<std::unique_ptr<Link>> lost_links_;  // since the last poll
    Peer stuck_ = any_peer;                          // nothing is received before what came from it is handed on
    bool has_slept_ = false;
    std::uint32_t serials_ = 0;
    std::uint64_t poll_number_ = 0;
    std::uint32_t untimed_ = 0;  // peers whose deadline is unset
    Time next_deadline_ = time_never;
    Time last_now_ = 0;
    std::uint32_t receive_buffer_bytes_ = 0;
    std::uint64_t moved_bytes_ = 0;      // of frames, through the socket
    std::uint64_t copied_for_lost_ = 0;  // by links that are gone
    Datagrams counted_for_lost_;
};

/// Error: one of them cannot be.
Result<EndpointSettings> read_settings(const Settings& given);
Result<std::unique_ptr<Transport>> make_endpoint(const EndpointSettings& settings, const EndpointOptions& options);

}  // namespace incast::transport::udp
