// Shared memory between processes of one host.
#pragma once

#include <string_view>

#include "transport/medium.h"

namespace incast::transport::shm {

inline constexpr std::string_view transport_name = "shm";
inline constexpr Nature nature{.bounds = Bounds::region,
                               .copies = Copies::processor,
                               .progress = Progress::independent,
                               .one_host = true,
                               .any_memory = true};

std::span<const base::Setting> settings();
std::span<const base::FormerName> former_names();
Result<std::unique_ptr<Medium>> make(const Settings& given);

}  // namespace incast::transport::shm
