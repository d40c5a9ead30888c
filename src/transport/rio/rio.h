// RapidIO: rDMA for data; channelised messages, polled memory or doorbells for notices. See docs/transports/rio.md.
#pragma once

#include "transport/medium.h"

namespace incast::transport::rio {

std::span<const Parameter> parameters();
Result<std::unique_ptr<Medium>> make(const Settings& settings);

}  // namespace incast::transport::rio
