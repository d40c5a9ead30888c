// Whether words are UTF-8, as JSON and whoever reads a file wants them.
#pragma once

#include <string>
#include <string_view>

namespace incast::base {

/// As RFC 3629 has it.
bool is_utf8(std::string_view text);
/// For a line to a person: control characters, and all that is not ASCII where it is not UTF-8, as \xNN.
std::string shown(std::string_view text);

}  // namespace incast::base
