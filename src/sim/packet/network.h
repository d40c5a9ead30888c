// A network of hosts and switches at the level of packets, for predicting what a real one does to traffic. Usable
// without the event builder: docs/packet-model.md, src/sim/packet/example/incast_example.cpp.
//
// A Network belongs to one thread and has no globals: several may run in parallel threads. Time is virtual, in
// picoseconds, and moves only in advance() and advance_to_outcome(). The same topology, settings and calls give the
// same trace_hash(), whatever the compiler. Nothing calls back: the caller advances, takes the outcomes, and posts.
// Once warm, posting and advancing allocate nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "sim/packet/settings.h"
#include "sim/packet/topology.h"
#include "sim/packet/types.h"

namespace incast::sim::packet {

class Core;

struct Outcome {
    enum class What : std::uint8_t {
        delivered,     // the last byte is in the memory of the destination
        acknowledged,  // and the source knows; not for datagrams
        incomplete     // of a message of datagrams some are lost; `bytes` is what came
    };
    Time time = 0;
    std::uint64_t token = 0;  // as posted
    std::uint64_t bytes = 0;
    FlowIndex flow = 0;
    What what = What::delivered;
};

/// Of one direction of a cable, since the start or reset_counters().
struct PortCounters {
    std::uint64_t packets = 0;  // put on the cable, of all kinds
    std::uint64_t bytes = 0;
    std::uint64_t data_packets = 0;
    std::uint64_t marked = 0;    // congestion experienced, set in front of this port
    std::uint64_t dropped = 0;   // for want of memory in front of this port, or at its receiver's input
    std::uint64_t lost = 0;      // on the cable: down or corrupted
    std::uint64_t repeated = 0;  // put on it again by a link that repeats
    // PFC frames that asked for at least one class more to be quiet, or again before it expired.
    std::uint64_t pauses_sent = 0;
    std::uint64_t pauses_heard = 0;  // that asked for one class more, as they reached this port
    Time paused_time = 0;            // any class quiet because of them
};

/// Of the packets that wait in front of one egress port, of one class. At a switch with input memories: of all inputs
/// together. Bytes as stored.
struct QueueCounters {
    std::uint64_t bytes = 0;  // now
    std::uint64_t peak_bytes = 0;
    double mean_bytes = 0;  // over time
    double byte_ps = 0;     // its integral over time
};

/// Ports of which each waits for the next one, and the last for the first, and none will ever move.
struct Deadlock {
    std::uint8_t traffic_class = 0;
    std::vector<PortIndex> ports;
};

/// Packets of all kinds but pause frames, and their bytes with headers.
struct Tally {
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;

    void add(std::uint64_t wire_bytes) {
        ++packets;
        bytes += wire_bytes;
    }
    friend bool operator==(const Tally&, const Tally&) = default;
};

/// Where everything is that hosts have made since the start: made = ended + dropped + lost + in_flight, always.
struct Balance {
    Tally made;       // by hosts
    Tally ended;      // taken out by hosts
    Tally dropped;    // for want of memory
    Tally lost;       // on cables
    Tally in_flight;  // found by looking at every cable and every memory
};

class Network {
public:
    /// Error: one line that names what is wrong, its value and what would be right.
    static Result<std::unique_ptr<Network>> make(const Topology& topology, const NetworkSettings& settings);
    ~Network();
    Network(const Network&) = delete;
    Network& operator=(const Network&) = delete;

    /// Another draw of all that is random, in place of the settings' seed. Only before the first flow is opened.
    void reseed(std::uint64_t seed);
    /// A one-way stream of messages; kept until the end. Allocates.
    Result<FlowIndex> open(const FlowSettings& settings);
    /// A new stream between the same two hosts in place of one that has ended: as newly opened, with other routes, and
    /// nothing learned about congestion. What still travels of the old one is known as such, as packets are numbered
    /// on. `entropy` is what ECMP hashes. False, and nothing is done: not all that was posted has ended.
    bool restart(FlowIndex flow, std::uint32_t entropy);
    /// A hint: something will be posted to that flow, which may be one of a million.
    void prefetch(FlowIndex flow) const;
    /// Sends `bytes` (0 is one empty packet) from the flow's source; `token` comes back in its outcomes.
    void post(FlowIndex flow, std::uint64_t bytes, std::uint64_t token);
    /// The flow's *destination* asks for `bytes`, which the source then sends: an RDMA read. `delivered` ends it.
    /// Requests are not repeated: for classes that lose nothing.
    void post_read(FlowIndex flow, std::uint64_t bytes, std::uint64_t token);
    /// From now on, beside what congestion control allows; 0 bit/s: no limit.
    void limit_rate(FlowIndex flow, Rate rate);

    [[nodiscard]] Time now() const;
    /// Of the next event, time_never without one.
    [[nodiscard]] Time next_time();
    /// Everything that happens up to and including `until`, which is then now().
    void advance(Time until);
    /// The same, but stops after the first event that leaves an outcome; false if there was none.
    bool advance_to_outcome(Time until);
    /// The oldest outcome not yet taken; false without one.
    bool take_outcome(Outcome& outcome);
    /// One of those behind it, for looking ahead: `distance` 0 is the oldest. nullptr: there are not so many.
    [[nodiscard]] const Outcome* peek_outcome(std::uint32_t distance) const;

    [[nodiscard]] std::uint64_t hops() const;    // data packets put on a cable
    [[nodiscard]] std::uint64_t events() const;  // that the engine has handled
    /// Over every event so far.
    [[nodiscard]] std::uint64_t trace_hash() const;
    [[nodiscard]] std::uint32_t ports() const;
    [[nodiscard]] PortCounters counters(PortIndex port) const;
    [[nodiscard]] QueueCounters queue(PortIndex port, std::uint8_t traffic_class) const;
    [[nodiscard]] PortCounters totals() const;
    /// Packets sent again by the source of this flow.
    [[nodiscard]] std::uint64_t repeated(FlowIndex flow) const;
    /// What congestion control allows the flow now; its link's rate without.
    [[nodiscard]] Rate allowed_rate(FlowIndex flow) const;
    /// Packets somewhere between source and destination, of all kinds.
    [[nodiscard]] std::uint64_t packets_in_flight() const;
    /// Walks through the whole network: for tests and doubts.
    [[nodiscard]] Balance balance() const;
    /// For a Recorder: bytes now; and their peak since the last call, which then begins anew.
    [[nodiscard]] std::uint64_t queued_bytes(PortIndex port, std::uint8_t traffic_class) const;
    std::uint64_t take_peak(PortIndex port, std::uint8_t traffic_class);
    void reset_counters();

    /// Queues that wait for each other in a circle at this moment: see docs/packet-model.md for what is decided how.
    [[nodiscard]] std::vector<Deadlock> find_deadlocks() const;
    /// "leaf3 to spine1 (cable 17)": for messages.
    [[nodiscard]] std::string name(PortIndex port) const;

private:
    explicit Network(std::unique_ptr<Core> core);
    std::unique_ptr<Core> core_;
};

}  // namespace incast::sim::packet
