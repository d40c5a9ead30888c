// What this program can do here: `incast-node --info`.
#pragma once

#include <string>

namespace incast::runtime {

/// Transports and why one is not available, versions, machine.
[[nodiscard]] std::string info_json();
[[nodiscard]] std::string info_text();

}  // namespace incast::runtime
