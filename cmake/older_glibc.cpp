// arc4random, for the C++ library inside of portable binaries: glibc has it from 2.36 on only. Nobody else sees this
// one.
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include <sys/random.h>

extern "C" [[gnu::visibility("hidden")]] std::uint32_t arc4random() noexcept {
    std::uint32_t word = 0;
    // So few bytes come whole or not at all, and without a signal in between once the kernel has random numbers.
    while (getrandom(&word, sizeof(word), 0) != sizeof(word))
        if (errno != EINTR) std::abort();
    return word;
}
