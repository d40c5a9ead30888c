// UCX: writes, then a flush, then an active message as notice, over whatever UCX_TLS allows. See
// docs/transports/ucx.md.
#pragma once

#include <memory>

#include "transport/medium.h"

namespace incast::transport::ucx {

Result<std::unique_ptr<Medium>> make(const Settings& given);

}  // namespace incast::transport::ucx
