// What the engine knows of verbs without its module.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "transport/descriptor.h"

namespace incast::transport::verbs {

inline constexpr std::string_view transport_name = "verbs";
inline constexpr Nature nature{.copies = Copies::hardware, .progress = Progress::independent};

std::span<const base::Setting> settings();
/// Why no endpoint can be made on this host; empty: it has an RDMA device.
std::string missing_here();
/// Without its make().
Descriptor describe();

}  // namespace incast::transport::verbs
