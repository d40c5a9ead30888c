// What a flow is to the network that carries it, for the files of this folder.
#pragma once

#include <cstdint>

#include "base/prng.h"
#include "sim/fabric/fabric.h"
#include "sim/flows/trace.h"

namespace incast::sim::flows {

/// A stream that ended can serve flows with the same key.
inline std::uint64_t key_of(const Flow& flow) {
    return (std::uint64_t{flow.source} << 34U) | (std::uint64_t{flow.destination} << 3U) | flow.traffic_class;
}

/// What ECMP hashes, of flow number `flow`: another draw with each seed.
inline std::uint32_t entropy_of(const fabric::Fabric& fabric, std::uint64_t seed, std::uint32_t flow) {
    const std::uint64_t draw = base::mix64(fabric.fixes_seed ? fabric.settings.seed : seed);
    return static_cast<std::uint32_t>(base::mix64(draw + flow) >> 33U);  // never packet::nil
}

inline packet::FlowSettings settings_of(const fabric::Fabric& fabric, const Flow& flow, std::uint32_t entropy) {
    packet::FlowSettings settings = fabric.flow;
    settings.source = flow.source;
    settings.destination = flow.destination;
    settings.traffic_class = flow.traffic_class;
    settings.entropy = entropy;
    return settings;
}

}  // namespace incast::sim::flows
