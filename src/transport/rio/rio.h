// RapidIO: rDMA for data; channelised messages, polled memory or doorbells for notices. See docs/transports/rio.md.
#pragma once

#include <memory>

#include "transport/medium.h"

namespace incast::transport::rio {

Result<std::unique_ptr<Medium>> make(const Settings& given);

}  // namespace incast::transport::rio
