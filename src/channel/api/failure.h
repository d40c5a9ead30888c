// What goes wrong within the C interface: an errno value, and a line for a person. Thrown on control paths, and caught
// where C begins.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace incast::channel::api {

struct Failure {
    int error;
    std::string line;
};

/// WHAT: why.
inline Failure system_failure(int error, const std::string& what) {
    return {error, what + ": " + std::generic_category().message(error)};
}

/// Of what needs a device or a network: there is none, unless `error` says that this process has no more memory or
/// descriptors.
inline Failure lack_failure(int error, std::string line) {
    const bool is_of_process = error == ENOMEM || error == EMFILE || error == ENFILE;
    return {is_of_process ? error : ENODEV, std::move(line)};
}

}  // namespace incast::channel::api
