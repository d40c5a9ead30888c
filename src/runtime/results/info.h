// What this program can do here: `incast-node --info`.
#pragma once

#include <filesystem>
#include <string>

#include <incast/result.h>

namespace incast::runtime {

/// Transports and why one is not available, versions, machine.
[[nodiscard]] std::string info_json();
[[nodiscard]] std::string info_text();

/// A network described by a file, checked: hosts, switches and cables by name (docs/fabrics.md, "As JSON").
[[nodiscard]] Result<std::string> fabric_json(const std::filesystem::path& file);

}  // namespace incast::runtime
