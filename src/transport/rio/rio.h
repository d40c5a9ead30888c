// RapidIO: rDMA for data; channelised messages, polled memory or doorbells for notices. See docs/transports/rio.md.
#pragma once

#include <string_view>

#include "transport/medium.h"

namespace incast::transport::rio {

inline constexpr std::string_view transport_name = "rio";

std::span<const base::Setting> settings();
Result<std::unique_ptr<Medium>> make(const Settings& given);

}  // namespace incast::transport::rio
