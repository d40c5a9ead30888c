// What traffic is: who sends to whom, how much of it, and where it lands. Every node derives the same from the same
// Config, so nothing of this travels.
#pragma once

#include <cstdint>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

namespace incast::net {

/// Who sends to whom, of n nodes; nobody sends to itself.
enum class Pattern : std::uint8_t {
    one_to_one,   // 0 to 1
    many_to_one,  // all others to 0
    one_to_many,  // 0 to all others
    pairs,        // i to i + n/2, for every i of the first half
    all_to_all,   // everybody to all others: event building with folded roles
    bipartite,    // the first `producers` to the last `consumers`: event building with split roles
};

enum class Measure : std::uint8_t {
    bandwidth,  // as much as credits allow
    latency,    // ping-pong: one message at a time and queue, answered by one as long
    loaded,     // a ping-pong on a queue of its own beside the others, which carry as much as credits allow
};

enum class Operation : std::uint8_t {
    write,  // the sender of a pair writes, with a notice
    read,   // the receiver of a pair reads; the sender's processor does nothing
};

enum class Buffers : std::uint8_t {
    cycled,  // a sender goes through a ring of bodies
    one,     // it sends one body again and again, which stays in its caches, as the tests of perftest and UCX do
};

struct Pair {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    friend auto operator<=>(const Pair&, const Pair&) = default;
};

struct PatternOptions {
    Pattern pattern = Pattern::all_to_all;
    std::uint32_t nodes = 0;
    std::uint32_t producers = 0;  // bipartite
    std::uint32_t consumers = 0;
    bool duplex = false;  // for every pair also its reverse
};

/// Sorted, each once.
[[nodiscard]] std::vector<Pair> make_pairs(const PatternOptions& options);

inline constexpr std::uint32_t max_queues = 64;
/// Slots of one pair, all queues together: a notice has 16 bits, one of which says that it is an answer.
inline constexpr std::uint32_t max_slots_per_pair = 32768;
/// Before every message in its slot, as in event building.
inline constexpr std::uint64_t head_bytes = max_head_bytes;

struct Config {
    std::uint64_t run = 1;
    std::uint32_t n_nodes = 0;
    std::vector<Pair> pairs;  // sorted
    Measure measure = Measure::bandwidth;
    Operation operation = Operation::write;
    std::uint32_t queues = 1;       // independent streams of every pair
    std::uint32_t outstanding = 1;  // messages a queue may have in flight; 1 for latency
    std::uint32_t sends = 0;        // of these, writes posted and not completed; 0: as many as are in flight
    std::uint32_t message_bytes = 0;
    std::uint32_t ping_bytes = 0;  // loaded
    std::uint64_t messages = 0;    // of every queue; 0: until stop()
    Buffers buffers = Buffers::cycled;
    std::uint64_t working_set_bytes = 0;  // that a sender cycles through; of no meaning with one buffer
    bool verify = false;                  // compare every byte that arrived
    Time connect_retry = 50 * ps_per_ms;
    Time loss_grace = 300 * ps_per_ms;  // between a lost connection and giving up: the launcher may know why
};

/// With the one of pings beside a load, which is the last.
[[nodiscard]] constexpr std::uint32_t all_queues(const Config& config) {
    return config.queues + (config.measure == Measure::loaded ? 1 : 0);
}
/// Whether messages of that queue are answered.
[[nodiscard]] constexpr bool is_ping(const Config& config, std::uint32_t queue) {
    return config.measure == Measure::latency || queue == config.queues;
}
[[nodiscard]] constexpr std::uint32_t bytes_of(const Config& config, std::uint32_t queue) {
    return queue == config.queues ? config.ping_bytes : config.message_bytes;
}

/// One clear line if the config cannot work; Node assumes it was checked.
[[nodiscard]] Result<Ok> validate(const Config& config);

/// Over everything the nodes must agree on.
[[nodiscard]] std::uint64_t fingerprint(const Config& config);

/// Bytes from one slot to the next.
[[nodiscard]] std::uint64_t slot_stride(const Config& config);
/// Of all slots of one pair at its receiver.
[[nodiscard]] std::uint64_t pair_slots_bytes(const Config& config);

/// Messages in a sender's ring. It has no common divisor with `outstanding` and is longer than it, so that what a slot
/// held before differs from what it should hold (EB-M4); with one buffer it is 1, and all slots always hold the same.
[[nodiscard]] std::uint64_t ring_messages(const Config& config);
[[nodiscard]] std::uint64_t ring_bytes(const Config& config);

/// A peer of a node: streams in both directions, and where they land. Slots of inbound streams come first in a node's
/// region, in the order of peer and queue; then one slot for the answers of every outbound stream that is answered.
struct Partner {
    Peer peer{};
    bool sends_to = false;            // this node sends to it
    bool hears_from = false;          // it sends to this node
    std::uint64_t area_here = 0;      // of what it sends to this node
    std::uint64_t area_there = 0;     // of what this node sends to it
    std::uint64_t answers_here = 0;   // of its answers
    std::uint64_t answers_there = 0;  // of this node's answers
};

struct Layout {
    std::vector<Partner> partners;  // by peer
    std::uint64_t region_bytes = 0;
};
[[nodiscard]] Layout layout_of(const Config& config, Peer self);

}  // namespace incast::net
