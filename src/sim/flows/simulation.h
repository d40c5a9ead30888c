// Flows on a network that a file describes, without the event builder: each is a stream of its own, with one message,
// from its start until the source knows that all of it has arrived.
//
// A flow takes memory of the network from its start to its end only; then the next one between the same hosts takes its
// place (packet::Network::restart). So a network holds as many streams as there were at a time, or pairs of hosts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include <incast/result.h>

#include "sim/fabric/fabric.h"
#include "sim/flows/trace.h"
#include "sim/packet/network.h"
#include "sim/packet/recorder.h"

namespace incast::sim::flows {

struct FlowRecord {
    Time delivered = time_never;     // the last byte is in the memory of the destination
    Time acknowledged = time_never;  // and the source knows; of datagrams never
    std::uint64_t repeated = 0;      // packets that were sent again
};

enum class State : std::uint8_t {
    running,
    ended,        // every flow
    stuck,        // some have not, and nothing will ever happen again
    out_of_time,  // some have not by the time that was given
};

class Simulation {
public:
    /// Fabric and flows outlive it. Without a seed in the fabric's file what is random follows from `seed`. Error, one
    /// line: the fabric carries no flows of such a class.
    static Result<std::unique_ptr<Simulation>> make(const fabric::Fabric& fabric, std::span<const Flow> flows,
                                                    std::uint64_t seed);

    /// Records from now on, until the last flow has ended.
    void record(const packet::RecorderSettings& settings);
    /// Goes on for about `time`, or longer if nothing happens meanwhile, and never beyond `until`.
    State advance(Time time, Time until);

    [[nodiscard]] packet::Network& network() { return *network_; }
    /// nullptr: nothing is recorded.
    [[nodiscard]] packet::Recorder* recorder() { return recorder_.get(); }
    /// By flow.
    [[nodiscard]] const std::vector<FlowRecord>& records() const { return records_; }
    [[nodiscard]] std::uint64_t ended() const { return ended_; }
    [[nodiscard]] std::uint64_t delivered_bytes() const { return delivered_bytes_; }
    /// That the network holds.
    [[nodiscard]] std::uint64_t streams() const { return repeated_before_.size(); }

private:
    struct Idle {
        Time since;
        packet::FlowIndex stream;
    };
    Simulation(const fabric::Fabric& fabric, std::span<const Flow> flows, std::uint64_t seed,
               std::unique_ptr<packet::Network> network);
    void start(std::uint32_t flow);
    packet::FlowIndex stream_for(std::uint32_t flow);
    void take(const packet::Outcome& outcome);
    void run(Time until);

    const fabric::Fabric& fabric_;
    std::span<const Flow> flows_;
    std::unique_ptr<packet::Network> network_;
    std::unique_ptr<packet::Recorder> recorder_;
    std::uint64_t seed_;
    std::vector<std::uint32_t> order_;  // flows by their start
    std::size_t next_ = 0;              // in it
    std::vector<FlowRecord> records_;
    std::vector<std::uint64_t> repeated_before_;                 // by stream, when its flow started
    std::unordered_map<std::uint64_t, std::vector<Idle>> idle_;  // streams by key_of(); looked up only
    std::uint64_t ended_ = 0;
    std::uint64_t delivered_bytes_ = 0;
};

/// How long each of these flows takes alone in the network, from its start to its delivery: empty, without faults,
/// time_never where it does not arrive. Flows of the same hosts, bytes and class take the same; of several paths of
/// equal length it has the one that the first of them draws. Uses so many threads, which ask `stop` whether to end
/// early; what is left then has time_never.
std::vector<Time> times_alone(const fabric::Fabric& fabric, std::span<const Flow> flows, std::uint64_t seed,
                              unsigned threads, const std::function<bool()>& stop);

}  // namespace incast::sim::flows
