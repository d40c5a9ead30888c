// What the engine knows of ucx without its module.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "transport/descriptor.h"

namespace incast::transport::ucx {

inline constexpr std::string_view transport_name = "ucx";
/// Of what every host has; RDMA hardware does better than this says.
inline constexpr Nature nature{.copies = Copies::kernel, .progress = Progress::manual};

std::span<const base::Setting> settings();
/// Why no endpoint can be made on this host; empty: UCX is there.
std::string missing_here();
/// Without its make().
Descriptor describe();

}  // namespace incast::transport::ucx
