// What goes wrong within the C interface: an errno value, and a line for a person. Thrown on control paths, and caught
// where C begins.
#pragma once

#include <string>
#include <system_error>

namespace incast::channel::api {

struct Failure {
    int error;
    std::string line;
};

/// WHAT: why.
inline Failure system_failure(int error, const std::string& what) {
    return {error, what + ": " + std::generic_category().message(error)};
}

}  // namespace incast::channel::api
