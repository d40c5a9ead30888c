// One mpi endpoint: connections by calls, and the framed engine on links of messages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "transport/connect_rule.h"
#include "transport/framed/endpoint.h"
#include "transport/mpi/hub.h"

namespace incast::transport::mpi {

/// The settings of mpi, checked and in machine form.
struct EndpointSettings {
    std::uint32_t streams = 1;
    std::uint32_t chunks = 1;
    std::uint32_t chunk_bytes = 0;
    std::uint32_t copy_below_bytes = 0;
    Time connect_timeout = 0;
};

struct PeerState {
    enum class State : std::uint8_t {
        idle,
        waiting,  // for the peer to say hello: it has the lower number
        calling,
        up,
        ending,  // lost, and what is under way is waited for
        down,    // completions and peer_down still have to be polled
    };
    [[nodiscard]] Connection connection() const {
        if (state == State::idle) return Connection::none;
        if (state == State::up) return Connection::up;
        return state == State::waiting || state == State::calling ? Connection::opening : Connection::ending;
    }
    State state = State::idle;
    bool announced = false;  // its peer_up was polled
    bool listed = false;     // in active_
    bool is_gone = false;    // its process is
    Status lost_as = Status::peer_lost;
    std::uint32_t incarnation = 0;
    std::uint32_t complained_of = 0;  // incarnation for which a failure to connect was logged
    std::uint32_t dial = 0;           // of the present attempt, or connection
    std::uint32_t first_tag = 0;
    Time deadline = time_never;
    Address address;
    std::uint32_t number = 0;  // of the link
    std::unique_ptr<Link> link;
    std::optional<Call> parked;  // it said hello, before connect() was called here
};

class Endpoint final : public framed::Endpoint {
public:
    static Result<std::unique_ptr<Transport>> make(const EndpointSettings& settings, const EndpointOptions& options);
    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, Hub& hub);
    ~Endpoint() override;

    [[nodiscard]] Blob address() const override;
    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override;
    void disconnect(Peer peer) override;
    void ended(Peer peer, std::uint32_t incarnation) override;
    [[nodiscard]] bool drained() const override;
    std::size_t poll(Time now, std::span<Event> span) override;
    [[nodiscard]] Time next_deadline() const override { return untimed_ > 0 ? last_now_ : next_deadline_; }
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return -1; }
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

    [[nodiscard]] Call call_to(const PeerState& peer, CallKind kind) const;
    [[nodiscard]] static Event control_event(Event::Kind kind, Peer peer, std::uint32_t incarnation);
    void hear(const Call& call);
    void hear_hello(const Call& call);
    void refuse(const Call& call, Verdict verdict);
    [[nodiscard]] std::optional<Verdict> judge(const Call& call) const;
    void match(Peer peer);
    void go_up(Peer peer, std::uint32_t peer_tag, std::uint32_t peer_max_posted);
    void fail(Peer peer, std::string_view why);
    void lose(Peer peer, Status status);
    /// Nothing is heard of its connection any more, and nothing is waited for.
    void lose_gone(Peer peer);
    void stop_timing(PeerState& state);
    void handle_deadlines(Time now);
    void announce(framed::EventWriter& events);
    void finish_losses(framed::EventWriter& events);

    EndpointSettings settings_;
    Hub& hub_;
    Mailbox mailbox_;
    std::vector<PeerState> peers_;
    std::vector<Peer> active_;                       // have something to move
    std::vector<Peer> working_;                      // those of the poll in progress
    std::vector<Peer> raised_;                       // up, peer_up to be polled
    std::vector<Peer> down_;                         // lost, the rest to be polled
    std::vector<std::unique_ptr<Link>> lost_links_;  // since the last poll
    struct Abandoned {
        std::uint32_t number = 0;
        std::unique_ptr<Link> link;
    };
    std::vector<Abandoned> abandoned_;  // of processes that are gone: their requests may never end
    std::uint32_t dials_ = 0;
    std::uint64_t poll_number_ = 0;
    std::uint32_t untimed_ = 0;  // peers whose deadline is unset
    Time next_deadline_ = time_never;
    Time last_now_ = 0;
    std::uint64_t copied_for_lost_ = 0;
};

}  // namespace incast::transport::mpi
