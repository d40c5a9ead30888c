// The packet network: nodes are the hosts of a fabric, and what they post travels as packets through its switches
// (docs/packet-model.md, docs/fabrics.md).
//
// Node n of a run is host n of the fabric. Every ordered pair of hosts has one reliable queue pair, as verbs would, so
// control messages share the queues with data. A write completes when its last packet is acknowledged, lands and is
// noticed when its last packet is in memory. What the contract orders is handed out in order also where packets are
// sprayed. A read's bytes are taken from their owner as they arrive; there are reads only where nothing is dropped, as
// their requests are not repeated. Connections take `connect_time` to come up and to
// end, outside the network.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/fabric/fabric.h"
#include "sim/model.h"
#include "sim/packet/network.h"
#include "sim/packet/recorder.h"

namespace incast::sim {

class PacketModel final : public Model {
public:
    static constexpr Time connect_time = 10 * ps_per_us;

    /// Error: the fabric makes no network, or its queue pairs can lose messages.
    static Result<std::unique_ptr<PacketModel>> make(const fabric::Fabric& fabric);

    [[nodiscard]] Capabilities capabilities() const override;
    Result<Ok> admits(const transport::EndpointOptions& options) override;
    void endpoint_added(World& world, EndpointId id) override;
    Post posted(World& world, TransferId transfer) override;
    void due(World& world, TransferId transfer, std::uint16_t step) override;
    Time run_network(Time until, bool to_arrival) override;
    Time network_time() override;
    void arrivals(World& world) override;
    void connecting(World& world, ConnectionId connection) override;
    void disconnecting(World& world, ConnectionId connection, std::uint8_t side) override;
    void ended(World& world, ConnectionId connection, std::uint8_t side) override;
    [[nodiscard]] Time give_up_after(World& world) override;

    /// What the network draws (routes by hash, sprayed packets, marks, corruption) follows from the run's seed, unless
    /// the fabric's file fixes one. Before anything is posted.
    void seed(std::uint64_t run_seed);
    /// Records from now on.
    void record(const packet::RecorderSettings& settings);
    /// Of a model that records; `now` is the world's.
    void begin_window(Time now);
    void end_window(Time now);
    /// nullptr: nothing is recorded.
    [[nodiscard]] const packet::Recorder* recorder() const { return recorder_.get(); }
    /// Packets sent again in the window, by host that sent them.
    [[nodiscard]] const std::vector<std::uint64_t>& repeated() const { return repeated_; }

    [[nodiscard]] packet::Network& network() { return *network_; }
    [[nodiscard]] const fabric::Fabric& fabric() const { return fabric_; }

private:
    PacketModel(const fabric::Fabric& fabric, std::unique_ptr<packet::Network> network, bool lossless);
    packet::FlowIndex flow_of(packet::HostIndex from, packet::HostIndex to);
    void arrived(World& world, TransferId id);
    void advance(Time until);
    [[nodiscard]] std::vector<std::uint64_t> all_repeated() const;

    fabric::Fabric fabric_;
    std::unique_ptr<packet::Network> network_;
    std::unique_ptr<packet::Recorder> recorder_;
    std::vector<std::uint64_t> repeated_before_;  // by host, when the window began
    std::vector<std::uint64_t> repeated_;         // in the window, once it has ended
    std::uint32_t hosts_ = 0;
    bool lossless_ = false;
    std::vector<packet::HostIndex> host_of_;  // by endpoint
    std::vector<packet::FlowIndex, base::LargePages<packet::FlowIndex>>
        flows_;                     // by ordered pair of hosts; nil until it is used
    std::uint64_t travelling_ = 0;  // outcomes that are still to come
};

}  // namespace incast::sim
