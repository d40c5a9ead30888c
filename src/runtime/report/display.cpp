#include "runtime/report/display.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "os/signals.h"

namespace incast::runtime {
namespace {

constexpr std::size_t far_behind_bytes = 1U << 20U;
constexpr std::size_t never_blocks_bytes = 4096;  // for a pipe that poll calls writable
constexpr int look_again_ms = 1000;

}  // namespace

Display::~Display() {
    while (!waiting_.empty() && os::interrupts() < 2) {
        push(look_again_ms);
    }
}

void Display::line(std::string_view text, Worth worth) {
    push(0);
    if (gone_ || (worth == Worth::while_read && waiting_.size() > far_behind_bytes)) {
        return;
    }
    waiting_.append(text).push_back('\n');
    push(0);
}

void Display::push(int timeout_ms) {
    while (!waiting_.empty()) {
        pollfd ready{descriptor_, POLLOUT, 0};
        if (::poll(&ready, 1, timeout_ms) <= 0) {
            return;
        }
        const ssize_t written = ::write(descriptor_, waiting_.data(), std::min(waiting_.size(), never_blocks_bytes));
        if (written > 0) {
            waiting_.erase(0, static_cast<std::size_t>(written));
            continue;
        }
        const int error = written < 0 ? errno : 0;
        if (error == EINTR || error == EAGAIN) {
            return;
        }
        // A file on a full disk may have room again; a pipe or a terminal without its other end stays so.
        gone_ = error != ENOSPC && error != EDQUOT && error != EFBIG;
        waiting_.clear();
    }
}

void prepare_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(descriptor, F_GETFD) < 0) {
            (void)!::open("/dev/null", O_RDWR);  // the lowest number that is free: this one
        }
    }
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace incast::runtime
