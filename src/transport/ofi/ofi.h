// libfabric: writes with completion data, or held back by a gate, over any of its providers. See
// docs/transports/ofi.md.
#pragma once

#include <memory>

#include "transport/medium.h"

namespace incast::transport::ofi {

Result<std::unique_ptr<Medium>> make(const Settings& given);

}  // namespace incast::transport::ofi
