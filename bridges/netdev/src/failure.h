// What ends the program with one line.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>

namespace incast::netdev {

/// Caught in main() alone: everything that can fail so is done before the device is said to be up.
class Failure : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// `number`: of <errno.h>.
inline Failure system_failure(const std::string& what, int number) {
    return Failure(what + ": " + ::strerror(number));  // NOLINT(concurrency-mt-unsafe): of one thread, before others
}

}  // namespace incast::netdev
