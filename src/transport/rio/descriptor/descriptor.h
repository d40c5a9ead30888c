// What the engine knows of rio without its module.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "transport/descriptor.h"

namespace incast::transport::rio {

inline constexpr std::string_view transport_name = "rio";
inline constexpr Nature nature{.bounds = Bounds::region, .copies = Copies::processor};
inline constexpr std::uint64_t max_window_bytes = std::uint64_t{1} << 31;

std::span<const base::Setting> settings();
/// Master ports of the kernel guard no windows (docs/rapidio.md).
Bounds bounds_with(const Settings& given);
/// Without its make().
Descriptor describe();

}  // namespace incast::transport::rio
