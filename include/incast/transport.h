// The transport contract: everything the event-building protocol asks of an interconnect, real or simulated.
//
// The clauses are numbered in docs/transport-contract.md and tested for every transport by tests/conformance. In short:
//
// - order: per ordered pair of endpoints, messages and notices arrive in posting order; a notice is polled only after
//   its own bytes and those of all earlier writes to that peer are visible. Writes without a notice are otherwise
//   unordered. A transport without that order holds the notice back.
// - completion: `done`: the local bytes may be reused now, no event follows. `pending`: exactly one `completed` event
//   follows for a non-zero token (ok, peer_lost, remote_fault or cancelled). It says nothing about the remote side; a
//   notice or a reply does.
// - notice: 16 bits, a slot index, reliable, exactly once, never merged. Staleness is decided by the head and the
//   incarnation. Where lossy_bodies, its status says whether bytes of a body are missing.
// - head: at most 64 bytes, copied by the call, lands at target.offset before the body, which lands right behind it.
//   In simulation the head is the only part that moves.
// - memory: the transport owns regions: a few large ones made at start-up, or by connection. A key lives as long as the
//   exposing incarnation, or until its region is released. An access outside a region never lands and gives
//   remote_fault; one outside of what was granted never lands, as far as `bounds` goes.
// - fence: after peer_down no byte of that connection may land here. Where a live peer cannot be fenced
//   (fences_live_peer false), peer_down waits for the end of that incarnation; until then its slots are quarantined by
//   the protocol.
// - dial: who is no node of the rendezvous is dialled, knocks there with a greeting, and is let in or turned away. Both
//   sides know the other by a number of their own, max_peers or above.
// - pressure: `again`: nothing happened, a `room` event for that peer follows. `refused`: caller's error, or the peer
//   is not up.
// - sizes: messages are 1..max_message_bytes everywhere; writes at most max_write_bytes, segmented inside; addresses at
//   most max_address_bytes, keys at most max_key_bytes.
// - threads: one owner thread per endpoint; a process may have several endpoints where many_per_process, in different
//   threads unless one_thread.
// - waiting: prepare_wait() arms, rechecks and returns true if sleeping on wait_fd() is safe; spurious wake-ups are
//   allowed, lost ones are not. wait_fd() -1: the driver sleeps at most min(next_deadline, 1 ms). poll() is the only
//   progress and flushes; it costs O(events + peers with work). flush() lets what was posted leave before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <incast/result.h>

namespace incast {

/// Picoseconds since an origin of the caller's, monotonic, real or virtual. int64: 106 days, which hosts are up longer.
using Time = std::int64_t;
inline constexpr Time time_never = std::numeric_limits<Time>::max();
inline constexpr Time ps_per_ns = 1'000;
inline constexpr Time ps_per_us = 1'000'000;
inline constexpr Time ps_per_ms = 1'000'000'000;
inline constexpr Time ps_per_s = 1'000'000'000'000;

/// The caller's name of an operation; 0 = no completion event wanted.
using Token = std::uint64_t;
using Bytes = std::span<const std::byte>;
/// The 16-bit value (a slot index) that surfaces at the target once a write is placed, or none. As std::optional, but
/// one word: that one is put together in memory from its parts and loaded whole to be passed, and such a load waits
/// until all stores before it, likely misses, are done.
class Notice {
public:
    constexpr Notice() = default;
    constexpr Notice(std::nullopt_t) {}
    constexpr Notice(std::uint16_t value) : word_(value) {}
    [[nodiscard]] constexpr bool has_value() const { return word_ != none; }
    /// Precondition: has_value().
    constexpr std::uint16_t operator*() const { return static_cast<std::uint16_t>(word_); }
    [[nodiscard]] constexpr std::uint16_t value_or(std::uint16_t other) const { return has_value() ? **this : other; }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    std::uint32_t word_ = none;
};

inline constexpr std::size_t max_message_bytes = 4000;  // RapidIO channelised messages carry 4076
inline constexpr std::size_t max_head_bytes = 64;       // one cache line
inline constexpr std::size_t max_write_bytes = std::size_t{1} << 30;
inline constexpr std::size_t max_address_bytes = std::size_t{16} << 10;
inline constexpr std::size_t max_key_bytes = 1024;  // UCX needs 215 with two interfaces
inline constexpr std::size_t max_greeting_bytes = 1024;

/// Opaque bytes, of any length up to its limit: an endpoint's address, carried to peers by the rendezvous, or the key
/// of a region, carried by a control message. Control path only.
struct Blob {
    std::vector<std::byte> bytes;
    [[nodiscard]] Bytes view() const { return bytes; }
};

enum class Peer : std::uint32_t {};    // a node, by its index in the run; from max_peers on: who dialled or was dialled
enum class Local : std::uint16_t {};   // a region of this endpoint
enum class Remote : std::uint32_t {};  // an imported region of a peer

/// `length` bytes at `offset` of an own region.
struct Slice {
    Local region{};
    std::uint32_t length = 0;
    std::uint64_t offset = 0;
};

/// A place in a peer's region.
struct Target {
    Remote region{};
    std::uint64_t offset = 0;
};

inline constexpr Peer any_peer{~std::uint32_t{0}};
inline constexpr std::uint64_t to_the_end = ~std::uint64_t{0};

/// Who may do what in an own region: `count` places of `length` bytes, the first at `offset`, each `stride` bytes
/// behind the one before. As it is made: everybody, everything.
struct Grant {
    Peer peer = any_peer;
    bool read = true;
    bool write = true;
    std::uint64_t offset = 0;
    std::uint64_t length = to_the_end;  // of the region; then there is one place
    std::uint64_t stride = 0;
    std::uint32_t count = 1;
    bool operator==(const Grant&) const = default;
};

/// What became of a posted operation. See `completion` and `pressure` above.
enum class Post : std::uint8_t { done, pending, again, refused };

enum class Status : std::uint8_t {
    ok,
    peer_lost,
    remote_fault,
    cancelled,
    damaged,  // a notice, where lossy_bodies: of the body of its write, or of one since the notice before, bytes are
              // missing, and none of them lands any more
};

struct Event {
    enum class Kind : std::uint8_t {
        completed,  // token, status
        message,    // data and size_or_value bytes, valid until the next poll
        notice,     // size_or_value: the notice of a write that is placed; status: ok, or damaged
        peer_up,    // messages and writes may be posted; incarnation is the peer's
        peer_down,  // fenced: nothing of that incarnation lands any more
        room,       // a post to that peer that answered `again` may be tried again
        knock,      // data and size_or_value bytes: the greeting, valid until the next poll; incarnation is the peer's
    };
    Kind kind;
    Status status;
    std::uint16_t size_or_value;
    Peer peer;
    std::uint32_t incarnation;  // of the peer: peer_up, peer_down and knock
    union {
        Token token;
        const std::byte* data;
    };
};

/// Who may write where in what is exposed.
enum class Bounds : std::uint8_t {
    trusted,  // whoever is connected, in the whole region
    region,   // only whom something of the region was granted to, in the whole of it
    strided,  // only whom places were granted to, in these
};
/// Who moves bodies from memory to memory.
enum class Copies : std::uint8_t { nobody, hardware, processor, kernel };
enum class Progress : std::uint8_t {
    independent,  // what a poll has sent lands whatever its target does
    manual,       // it lands while both sides poll
};

/// What an endpoint has sent in datagrams that may be lost on their way, and what became of them, as far as it knows by
/// itself. Only grows.
struct Datagrams {
    std::uint64_t sent = 0;      // each time
    std::uint64_t lost = 0;      // held for lost, though some may only have been late
    std::uint64_t repeated = 0;  // of those sent, again
    Datagrams& operator+=(const Datagrams& other) {
        sent += other.sent;
        lost += other.lost;
        repeated += other.repeated;
        return *this;
    }
};

/// What is the same for every endpoint of a transport, and known before there is one.
struct Nature {
    Bounds bounds = Bounds::trusted;
    Copies copies = Copies::hardware;  // nobody: bodies are phantom
    Progress progress = Progress::manual;
    bool one_host = false;    // its nodes are on one host
    bool launch = false;      // its nodes are started by a launcher of its own
    bool any_memory = false;  // write_from() takes bodies of no region; where processors copy: before it returns
    bool operator==(const Nature&) const = default;
};

/// What differs between transports; protocol and tests act on these, never on a transport's name.
struct Capabilities {
    Nature nature;
    std::uint32_t max_peers = 0;
    std::uint32_t max_dialled = 0;  // peers beside these that dialled, knock or were dialled; 0: dial() is an error
    std::uint32_t max_regions = 0;
    std::uint32_t max_posted = 0;  // operations per peer that may be pending before `again` is to be expected
    bool read = false;             // read() works
    bool view = false;             // view() works
    bool phantom_bodies = false;   // bodies do not move: memory() is empty and only heads land
    bool lossy_bodies = false;     // bytes of bodies may be lost: the notice says so; heads are not
    bool survives_peer_loss = true;
    bool fences_live_peer = true;
    bool has_wait_fd = false;
    bool many_per_process = true;
    bool one_thread = false;  // all endpoints of a medium share one owner thread, and so one process
    bool virtual_time = false;
};

/// One endpoint. Created by a Medium (transport/medium.h); destroying it closes every connection and fences its peers.
class Transport {
public:
    Transport() = default;
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;
    virtual ~Transport() = default;

    // --- control path: may allocate
    // -------------------------------------------------------------------------------------
    [[nodiscard]] virtual const Capabilities& capabilities() const = 0;
    /// Where peers connect to; valid while the endpoint lives.
    [[nodiscard]] virtual Blob address() const = 0;
    /// For one that is no node of this run, where dial() cannot be had: the address that it connects to, by any number
    /// of its own, while this endpoint connects to the one that it gave in the same way. `peer`: the number here, below
    /// max_peers, not this node's own and not in use; it is that one's until its peer_down. Empty: it cannot.
    [[nodiscard]] virtual Blob address_for(Peer /*peer*/) { return {}; }
    /// Both sides call it, with the peer's address and incarnation. `pending`: peer_up or peer_down follows; repeating
    /// it meanwhile changes nothing. `again`: an earlier incarnation or connection of that peer is not yet fenced (if
    /// it was of an older incarnation, this call drops it): try later, no room event. `refused`: the address is not
    /// understood, the peer is up already, or its incarnation is older than the connected one. A transport may refuse
    /// to connect a node with itself.
    virtual Post connect(Peer peer, const Blob& address, std::uint32_t incarnation) = 0;
    /// Drops the connection: pending operations complete as cancelled, then peer_down follows, once it is fenced. No-op
    /// if not known.
    virtual void disconnect(Peer peer) = 0;
    /// Knocks at another endpoint of this run, which need not know of this one: the number of the new peer. peer_up
    /// follows once its owner accepts, peer_down if it is turned away. The number is free again once its peer_down was
    /// polled; its imports, and what was granted to it, are gone by then. Capability `max_dialled`.
    virtual Result<Peer> dial(const Blob& /*address*/, Bytes /*greeting*/) {
        return Error{"dial: this endpoint has no room for peers that are dialled"};
    }
    /// Lets in who knocked; disconnect() turns it away. `pending`: peer_up or peer_down follows. `refused`: it does not
    /// knock.
    virtual Post accept(Peer) { return Post::refused; }
    /// The process that had that incarnation of the peer is gone, says who started it: what is known of that one ends
    /// as with any lost peer. For what a transport cannot find out by itself: a peer that cannot be fenced, or that
    /// will never call. Silence is no proof.
    virtual void ended(Peer, std::uint32_t /*incarnation*/) {}
    /// All that was posted arrives, should the endpoint go now. It becomes so while it is polled; destructors do not
    /// wait for it.
    [[nodiscard]] virtual bool drained() const = 0;
    /// A zeroed region, at least 64-byte aligned, owned by the endpoint and alive as long as it.
    virtual Result<Local> allocate(std::size_t bytes) = 0;
    /// The bytes of an own region, for sources to fill; empty where bodies are phantom.
    virtual std::span<std::byte> memory(Local region) = 0;
    /// A key with which the peer of the grant may do what it says, whether it is connected or not. A region may have
    /// any number of grants; nobody does anything in it that none of them allows, as far as `bounds` goes, and what was
    /// granted stays so until the region is released. Granting the same again changes nothing.
    virtual Result<Blob> expose(Local region, const Grant& grant) = 0;
    /// To everybody, for everything.
    Result<Blob> expose(Local region) { return expose(region, {}); }
    virtual Result<Remote> import_key(Peer peer, const Blob& key) = 0;
    /// Gives back an own region: its memory goes, and its number may come to name another one. Nothing that peers do
    /// through a key of it reaches anything from here on. The caller has nothing pending that uses the region, and has
    /// had its views given up.
    virtual Result<Ok> release(Local) { return Error{"release: the regions of this endpoint stay until its end"}; }
    /// Gives back an import, whose number may come to name another one. What was posted through it is carried out.
    virtual Result<Ok> release(Remote) { return Error{"release: the imports of this endpoint stay until its end"}; }
    /// An own region as a file descriptor, the caller's to close, that other processes may be handed: it can be mapped,
    /// for reading only. Error where the endpoint was not asked for shareable regions, or has no memory.
    virtual Result<int> share(Local) { return Error{"share: the memory of this endpoint cannot be shared"}; }

    // --- hot path: no allocation, lock or syscall without a reason written beside it
    // ---------------------------------------
    /// Copies the message: done | again | refused, never pending.
    virtual Post send(Peer peer, Bytes message) = 0;
    /// Writes head and body (either may be empty) to the peer. The body stays untouched by the caller until done or
    /// completed.
    virtual Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) = 0;
    /// The same with a body in any memory of this process. Capability `any_memory`.
    virtual Post write_from(Peer, Bytes /*head*/, Bytes /*body*/, Target, Notice, Token) { return Post::refused; }
    /// Reads `into.length` bytes of the peer's region. Capability `read`.
    virtual Post read(Peer peer, Target from, Slice into, Token token) = 0;
    /// What landed in an own region. Where bodies are phantom, `where` must be the place of a head: empty if none
    /// landed there.
    [[nodiscard]] virtual Bytes local(Slice where) const = 0;
    /// A peer's bytes in place, stable until the protocol releases them; empty without capability `view`.
    virtual Bytes view(Target where, std::uint32_t length) = 0;
    /// Progress. Fills `events` from the front and returns how many.
    virtual std::size_t poll(Time now, std::span<Event> events) = 0;
    /// A hint: no more is posted before the next poll, so that what was kept to leave together may leave now.
    virtual void flush() {}
    /// When poll must be called even if nothing arrives; time_never if not.
    [[nodiscard]] virtual Time next_deadline() const = 0;
    virtual bool prepare_wait() = 0;
    [[nodiscard]] virtual int wait_fd() const = 0;

    // --- measuring
    // -------------------------------------------------------------------------------------------------
    /// Bytes of bodies copied on this side since the endpoint was made, once per copy: by its own code, and by the
    /// kernel into and out of sockets (where whatever travels with the bodies is counted too). Only grows. 0 where
    /// bodies are phantom; a transport whose hardware moves bodies counts what processors copy besides.
    [[nodiscard]] virtual std::uint64_t copied_bytes() const { return 0; }
    /// None where nothing is lost on the way.
    [[nodiscard]] virtual Datagrams datagrams() const { return {}; }
};

}  // namespace incast
