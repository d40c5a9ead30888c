// For tests: a limit on the size of files stands for a full disk. There is room for a part of a record, and then an
// error.
#pragma once

#include <csignal>

#include <sys/resource.h>

namespace incast::sinks {

class FullDisk {
public:
    /// Of a new file; until the end of this object.
    explicit FullDisk(rlim_t bytes) {
        std::signal(SIGXFSZ, SIG_IGN);
        allow(bytes);
    }
    ~FullDisk() { allow(RLIM_INFINITY); }
    FullDisk(const FullDisk&) = delete;
    FullDisk& operator=(const FullDisk&) = delete;

private:
    static void allow(rlim_t bytes) {
        rlimit limit{};
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
};

}  // namespace incast::sinks
