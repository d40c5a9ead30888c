// What the engine knows of ofi without its module.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "transport/descriptor.h"

namespace incast::transport::ofi {

inline constexpr std::string_view transport_name = "ofi";
/// Of the providers that every host has; one on hardware does better than this says.
inline constexpr Nature nature{.copies = Copies::kernel, .progress = Progress::manual};

std::span<const base::Setting> settings();
/// Why no endpoint can be made on this host; empty: libfabric is there.
std::string missing_here();
/// Without its make().
Descriptor describe();

}  // namespace incast::transport::ofi
