// One endpoint of the shm transport: posting and polling (endpoint.cpp), connecting and losing peers (connecting.cpp).
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bitmap.h"
#include "os/poller.h"
#include "os/spare.h"
#include "transport/blob.h"
#include "transport/imports.h"
#include "transport/medium.h"
#include "transport/shm/peer_state.h"

namespace incast::transport::shm {

inline constexpr std::uint32_t max_regions = 1024;  // each is a descriptor, handed to every peer through its socket

// What an epoll event is about, and whom.
inline constexpr std::uint64_t kind_shift = 60;
inline constexpr std::uint64_t listener_kind = std::uint64_t{1} << kind_shift;
inline constexpr std::uint64_t half_open_kind = std::uint64_t{2} << kind_shift;
inline constexpr std::uint64_t peer_kind = std::uint64_t{3} << kind_shift;
inline constexpr std::uint64_t bell_kind = std::uint64_t{4} << kind_shift;

struct EndpointSettings {
    enum class Stores : std::uint8_t { automatic, plain, streaming };
    std::uint32_t ring_bytes = 0;  // of each lane, a power of two
    Stores stores = Stores::automatic;
    std::uint64_t cache_bytes = 0;  // what slots may take before stores stream
    Time connect_timeout = 0;
    Time hello_timeout = 0;
};

struct Address {
    static constexpr std::uint32_t expected_magic = 0x414D4853;  // "SHMA"
    std::uint32_t magic = expected_magic;
    std::uint32_t node = 0;
    SocketName name;
};

using Key = RegionKey<0x4B4D4853>;  // "SHMK"

struct Import {
    Peer peer{};
    Key key;
    std::span<std::byte> memory;  // while that incarnation is connected and its region is mapped
    bool written = false;
};

struct OwnRegion {
    Memory memory;
    std::size_t bytes = 0;  // 0: it was released
    std::uint32_t use = 0;  // how many regions of that number were released
    struct Granted {
        Peer peer{};
        bool write = false;
    };
    std::vector<Granted> granted;  // one of each, for writing if that was granted too
    /// nullptr: nothing of it.
    [[nodiscard]] const Granted* granted_to(Peer peer) const;
};

struct HalfOpen {
    os::Descriptor socket;
    std::uint32_t serial = 0;
    Time deadline = 0;
    bool is_handed = false;  // its other end was, to a caller
};

class Endpoint final : public Transport {
public:
    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, const SocketName& name,
             os::Descriptor listener, os::Descriptor bell, Memory inbox);

    ~Endpoint() override { publish_all(); }

    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
    [[nodiscard]] Blob address() const override {
        return to_blob(Address{.node = index(options_.self), .name = name_});
    }

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override;
    void disconnect(Peer peer) override;
    Result<Peer> dial(const Blob& address, Bytes greeting) override { return dial_by({}, address, greeting); }
    /// `way`: a socket whose other end that endpoint has, if it is open.
    Result<Peer> dial_by(os::Descriptor way, const Blob& address, Bytes greeting);
    os::Descriptor way_for_caller(Time now);
    Post accept(Peer peer) override;
    void ended(Peer peer, std::uint32_t incarnation) override;
    [[nodiscard]] bool drained() const override { return unpublished_.empty(); }
    Result<Local> allocate(std::size_t bytes) override;
    Result<int> share(Local region) override;

    std::span<std::byte> memory(Local region) override { return own(region); }

    Result<Blob> expose(Local region, const Grant& grant) override;
    Result<Remote> import_key(Peer peer, const Blob& blob) override;
    Result<Ok> release(Local region) override;
    Result<Ok> release(Remote import) override;
    Post send(Peer peer, Bytes message) override;
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override;
    Post write_from(Peer peer, Bytes head, Bytes body, Target target, Notice notice, Token token) override;
    Post read(Peer peer, Target from, Slice into, Token token) override;
    [[nodiscard]] Bytes local(Slice where) const override;
    Bytes view(Target where, std::uint32_t length) override;
    std::size_t poll(Time now, std::span<Event> events) override;

    [[nodiscard]] Time next_deadline() const override { return next_deadline_; }

    bool prepare_wait() override;
    void cancel_wait();

    [[nodiscard]] int wait_fd() const override { return poller_.fd(); }

    [[nodiscard]] std::uint64_t copied_bytes() const override { return copied_bytes_; }

private:
    static constexpr Time time_unset = -1;  // a deadline that the next poll, which knows the time, sets

    static std::uint32_t index(Peer peer) { return static_cast<std::uint32_t>(peer); }
    [[nodiscard]] bool is_up(Peer peer) const {
        return index(peer) < peers_.size() && peers_[index(peer)].state == PeerState::State::up;
    }
    [[nodiscard]] bool has(std::size_t region) const { return region < regions_.size() && regions_[region].bytes > 0; }
    [[nodiscard]] std::span<std::byte> own(Local region) const {
        const auto number = static_cast<std::size_t>(region);
        return number < regions_.size() ? regions_[number].memory.bytes() : std::span<std::byte>{};
    }

    // --- posting

    void posted(Peer peer, PeerState& state, std::uint64_t bytes);
    void publish(PeerState& state);
    void publish_all();
    static void ring(PeerState& state);
    Post back_pressure(Peer peer);
    Post fault(Peer peer, Token token);
    enum class Found : std::uint8_t { here, coming, gone };
    Found find(Import& import);
    void forget(Import& import);
    void note_written(Import& import);

    // --- polling

    void release_read();
    void take_bits();

    void give_room(Peer peer) {
        if (is_up(peer) && std::exchange(peers_[index(peer)].wants_room, false))
            own_events_.push_back(control_event(Event::Kind::room, peer));
    }

    std::size_t take_own(std::span<Event> events);
    /// Round robin over the lanes that have news, so that a busy one does not starve the others.
    std::size_t read_lanes(std::span<Event> events);
    std::size_t read_lane(Peer peer, std::span<Event> events);
    [[nodiscard]] Event control_event(Event::Kind kind, Peer peer) const;

    // --- connecting and losing

    void log(const std::string& line) const {
        if (options_.log) options_.log(line);
    }

    [[nodiscard]] Packet packet(Packet::Kind kind, Peer to) const;
    void watch(Peer peer);
    [[nodiscard]] bool is_node(Peer peer) const { return index(peer) < options_.max_peers; }
    [[nodiscard]] bool exists(Peer peer) const {
        return is_node(peer) || (index(peer) < peers_.size() && peers_[index(peer)].taken);
    }
    /// any_peer: there is none.
    [[nodiscard]] Peer free_number() const;
    void hear_knock(Received received, os::Descriptor socket);
    /// The hello that is parked is let in.
    void let_in(Peer peer);
    /// Its number is free: nobody who gets it next is taken for it.
    void forget_dialled(Peer peer);
    void start_dialling(Peer peer);
    [[nodiscard]] Verdict judge(const Packet& hello) const;
    void refuse(const os::Descriptor& socket, const Packet& hello, Verdict verdict);
    /// A node of this run dialled.
    void park(Received received, os::Descriptor socket);
    /// Both have called connect?
    void match(Peer peer);
    /// Maps what the peer's hello or answer brought. False: it makes no sense, and the peer is down.
    bool meet(Peer peer, const Packet& from_peer, const os::Descriptor& inbox, os::Descriptor bell);
    void go_up(Peer peer);
    Result<Ok> be_shared(std::size_t region);
    void tell(std::uint16_t region, Peer whom);
    void hand_over(Peer peer);
    /// All packets that are there.
    void receive(Peer peer);
    void answered(Peer peer, Received& received);
    void take_region(Peer peer, Received& received);
    /// Nothing of the peer lands from here on: it is gone, or has stopped before it said so.
    void stopped(Peer peer);
    /// Stops using the connection. The peer stops when it reads the end of the socket, and answers with its own.
    void give_up(Peer peer);
    void forget_memory(Peer peer);
    void finish(Peer peer);
    void fail(Peer peer, const std::string& why);

    // --- the kernel's part: sockets and deadlines, seldom looked at

    void look_around(Time now);
    void accept_all(Time now);
    void await_hello(os::Descriptor socket, Time now, bool is_handed);
    void hear_hello(std::uint32_t serial);
    void hear_bell();
    void note_left_over(Peer peer);
    void handle_deadlines(Time now);

    EndpointSettings settings_;
    EndpointOptions options_;
    Capabilities capabilities_;
    InboxShape shape_;
    SocketName name_;
    os::Poller poller_;
    os::Descriptor listener_;
    os::Spare spare_;
    os::Descriptor bell_;
    Memory inbox_memory_;
    Inbox inbox_;
    std::vector<OwnRegion> regions_;
    std::deque<std::uint16_t> released_;  // of these, the oldest first
    std::vector<PeerState> peers_;
    Imports<Import> imports_;
    std::vector<HalfOpen> half_open_;
    // What does not come out of a lane: connections, faults, room. Rare, and faults may be many at once: a ring for the
    // most there can be would be max_posted entries per peer, so this one allocates now and then.
    std::deque<Event> own_events_;
    /// A view of a peer's memory may be looked at until the poll after its peer_down: for each peer_down among
    /// own_events_ what was mapped of that peer, and what was of those in the last poll.
    std::deque<std::vector<PeerRegion>> lingering_;
    std::vector<std::vector<PeerRegion>> unmapped_next_;
    std::vector<Peer> unpublished_;  // posted to since the last poll
    std::vector<Peer> touched_;      // read from in the last poll
    base::Bitmap active_;            // lanes with news
    std::size_t first_lane_ = 0;
    std::uint64_t written_bytes_ = 0;  // of peers' regions that this endpoint writes to
    std::uint64_t copied_bytes_ = 0;
    bool streams_ = false;
    bool armed_ = false;
    bool look_at_control_ = false;
    int idle_polls_ = 0;
    std::uint32_t serials_ = 0;
    Time next_control_ = 0;
    Time next_deadline_ = time_never;
    std::vector<epoll_event> epoll_events_;
};

Result<std::unique_ptr<Transport>> make_endpoint(const EndpointSettings& settings, const EndpointOptions& options);

}  // namespace incast::transport::shm
