// A descriptor that is readable exactly while something is so.
#pragma once

#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

#include "os/descriptor.h"

namespace incast::channel {

class Level {
public:
    /// False: the system has no descriptor left.
    [[nodiscard]] bool open() {
        if (!event_.is_open()) event_ = os::Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        return event_.is_open();
    }
    [[nodiscard]] bool is_open() const { return event_.is_open(); }
    [[nodiscard]] int fd() const { return event_.fd(); }

    /// A system call where it changes, none else.
    void set(bool is_so) {
        if (is_so == is_so_ || !event_.is_open()) return;
        std::uint64_t count = 1;
        // Neither can fail or block: the counter is 0 or 1, and the descriptor is non-blocking.
        if (is_so)
            (void)!::write(fd(), &count, sizeof count);
        else
            (void)!::read(fd(), &count, sizeof count);  // NOLINT(clang-analyzer-unix.BlockInCriticalSection)
        is_so_ = is_so;
    }

private:
    os::Descriptor event_;
    bool is_so_ = false;
};

}  // namespace incast::channel
