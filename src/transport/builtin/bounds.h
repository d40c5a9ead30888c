// Who may write where in what is exposed, where settings of a transport decide it.
#pragma once

#include <string_view>

#include <incast/transport.h>

#include "transport/medium.h"

namespace incast::transport {

/// Of a transport in the list, with these settings.
Bounds bounds_of(std::string_view name, const Settings& settings);

}  // namespace incast::transport
