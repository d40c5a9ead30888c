// Shared memory between processes of one host.
#pragma once

#include "transport/medium.h"

namespace incast::transport::shm {

std::span<const Parameter> parameters();
Result<std::unique_ptr<Medium>> make(const Settings& settings);

}  // namespace incast::transport::shm
