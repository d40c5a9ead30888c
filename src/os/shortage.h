// What to say where no process or thread can be started.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include <sys/resource.h>

namespace incast::os {

/// "Resource temporarily unavailable; the limit of ... is ...".
inline std::string process_shortage(int error) {
    std::string text = std::generic_category().message(error);
    if (error == EAGAIN) {
        rlimit limit{};
        getrlimit(RLIMIT_NPROC, &limit);
        text += "; the limit of processes and threads of this user (ulimit -u) is " +
                (limit.rlim_cur == RLIM_INFINITY ? "not set, look at pids.max of the control group"
                                                 : std::to_string(limit.rlim_cur)) +
                "; at least one more is needed";
    }
    return text;
}

}  // namespace incast::os
