#include "runtime/signals.h"

#include <csignal>
#include <initializer_list>

#include <sys/prctl.h>
#include <unistd.h>

namespace incast::runtime {
namespace {

volatile std::sig_atomic_t count = 0;

void note(int /*signal*/) {
    count = count + 1;
}

}  // namespace

void count_interrupts() {
    struct sigaction action{};
    action.sa_handler = note;
    sigemptyset(&action.sa_mask);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        sigaction(signal, &action, nullptr);
    }
    std::signal(SIGPIPE, SIG_IGN);
}

int interrupts() {
    return count;
}

void live_with_parent(int parent_pid) {
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);
    std::signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before that call; then nobody would ever send the signal.
    if (getppid() != parent_pid) {
        _exit(1);
    }
}

}  // namespace incast::runtime
