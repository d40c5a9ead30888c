#include "os/signals.h"

#include <cerrno>
#include <csignal>
#include <initializer_list>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/descriptor.h"

namespace incast::os {
namespace {

volatile std::sig_atomic_t count = 0;

constexpr Time between_looks = 200 * ps_per_ms;

/// A terminal that closes may say so twice, to its session and to the processes in the foreground.
void note(int signal) {
    if (signal != SIGHUP || count == 0) {
        count = count + 1;
    }
}

struct Watcher {
    os::Descriptor process;
    bool gone = false;
    Time gone_since = 0;
    Time next_look = 0;
};

/// Of this process there is one.
Watcher& watcher() {
    static Watcher the_one;
    return the_one;
}

}  // namespace

void count_interrupts() {
    struct sigaction action{};
    action.sa_handler = note;
    sigemptyset(&action.sa_mask);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction inherited{};
        sigaction(signal, nullptr, &inherited);
        if (signal != SIGHUP || inherited.sa_handler != SIG_IGN) {
            sigaction(signal, &action, nullptr);
        }
    }
}

int interrupts() {
    return count;
}

void watch_over(int pid) {
    if (pid != 0) {
        // glibc has had a wrapper since 2.36 only. Its descriptor is close-on-exec.
        watcher().process = os::Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0U)));
        if (!watcher().process.is_open() && errno == ESRCH) {
            watcher().gone = true;
            note(0);
        }
    }
}

bool watcher_is_gone(Time now) {
    Watcher& one = watcher();
    if (one.gone && one.gone_since == 0) {
        one.gone_since = now;
    }
    if (one.gone || !one.process.is_open() || now < one.next_look) {
        return one.gone;
    }
    one.next_look = now + between_looks;
    pollfd ended{one.process.fd(), POLLIN, 0};
    if (poll(&ended, 1, 0) > 0) {
        one.gone = true;
        one.gone_since = now;
        note(0);
    }
    return one.gone;
}

Time watcher_gone_for(Time now) {
    return watcher_is_gone(now) ? now - watcher().gone_since : 0;
}

void live_with_parent(int parent_pid) {
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before that call; then nobody would ever send the signal.
    if (getppid() != parent_pid) {
        _exit(1);
    }
}

}  // namespace incast::os
