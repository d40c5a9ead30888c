// What the engine knows of mpi without its modules.
#pragma once

#include <span>
#include <string_view>

#include "transport/descriptor.h"

namespace incast::transport::mpi {

inline constexpr std::string_view transport_name = "mpi";
inline constexpr Nature nature{.bounds = Bounds::strided,
                               .copies = Copies::kernel,
                               .progress = Progress::manual,
                               .launch = true,
                               .any_memory = true};
/// Bodies below this are copied when they are posted, and so done at once; below copy_below, when they are sent.
inline constexpr std::size_t copied_at_once = 2048;

std::span<const base::Setting> settings();
/// Without its make().
Descriptor describe();

}  // namespace incast::transport::mpi
