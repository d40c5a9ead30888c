// What the system lets this process have, and one line for whoever runs into it: which limit, its value, what is
// needed.
#pragma once

#include <cstdint>
#include <string>

#include <incast/result.h>

namespace incast::runtime {

/// As many open files as there may be without asking anybody: the soft limit becomes the hard one.
void raise_file_limit();

struct MemoryLimit {
    std::uint64_t bytes = 0;  // 0: none is known
    std::string what;         // "this machine has"
};
/// The least of the machine's memory, that of its cgroups, and the limit of address space.
MemoryLimit memory_limit();

/// Whether this process may open that many files beside its own. Error: the line; `who`: "8 nodes over tcp".
Result<Ok> check_file_limit(std::uint64_t files, const std::string& who);

/// The exception that is being handled, as a line: which limit it ran into.
std::string shortage_now();

/// With the limit, if it is memory that was missing.
Error with_memory_limit(Error error);

/// Calls it; an exception of a limit that was reached becomes an error.
template <class Call>
auto within_limits(Call call) -> decltype(call()) {
    try {
        return call();
    } catch (...) {
        return Error{shortage_now()};
    }
}

/// Whatever still escapes, also of another thread, is one line and exit_failed, never "terminate called".
void say_so_at_the_end();

}  // namespace incast::runtime
