// RDMA verbs: reliable connections by rdma_cm, writes with immediate data, sends into a shared receive queue. See
// docs/transports/verbs.md.
#pragma once

#include <memory>

#include "transport/medium.h"

namespace incast::transport::verbs {

Result<std::unique_ptr<Medium>> make(const Settings& given);

}  // namespace incast::transport::verbs
