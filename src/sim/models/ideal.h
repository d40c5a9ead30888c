// The ideal network: every endpoint has one link out and one link in, each first-in-first-out at `rate`; between them a
// fixed latency and no contention. Cut-through: an unhindered transfer of B bytes takes latency + B / rate. Connections
// take one latency to come up and to end. Self traffic passes both links like any other.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model.h"

namespace incast::sim {

struct IdealSettings {
    std::uint64_t rate_bytes_per_s = 12'500'000'000;  // 100 Gb/s
    Time latency = 1 * ps_per_us;
};

class IdealModel final : public Model {
public:
    explicit IdealModel(const IdealSettings& settings) : settings_(settings) {}

    [[nodiscard]] Capabilities capabilities() const override;
    void endpoint_added(World& world, EndpointId id) override;
    Post posted(World& world, TransferId transfer) override;
    void due(World& world, TransferId transfer, std::uint16_t step) override;
    void connecting(World& world, ConnectionId connection) override;
    void disconnecting(World& world, ConnectionId connection, std::uint8_t side) override;
    void ended(World& world, ConnectionId connection, std::uint8_t side) override;
    [[nodiscard]] Time give_up_after(World& world) override;

    /// How long a link is busy with so many bytes, rounded to the nearest picosecond.
    [[nodiscard]] Time serialisation(std::uint64_t bytes) const;

private:
    struct Links {
        Time out_free = 0;
        Time in_free = 0;
    };
    IdealSettings settings_;
    std::vector<Links> links_;  // by EndpointId
};

}  // namespace incast::sim
