// Makes a transport as unkind as the contract allows, from a seed: back-pressure on any post, late polls, lost
// connections.
#pragma once

#include <cstdint>
#include <memory>

#include <incast/transport.h>

namespace incast::transport::decorator {

/// Rates are out of a million.
struct FaultOptions {
    std::uint64_t seed = 1;
    std::uint32_t again_per_million = 0;  // of posts: answered `again`; a room event follows
    std::uint32_t delay_per_million = 0;  // of polls: nothing is polled for up to delay_max
    Time delay_max = 0;
    std::uint32_t drop_per_million = 0;  // of polls: one connected peer, drawn at random, is disconnected
};

std::unique_ptr<Transport> make_fault(std::unique_ptr<Transport> inner, const FaultOptions& options);

}  // namespace incast::transport::decorator
