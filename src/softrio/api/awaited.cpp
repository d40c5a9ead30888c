#include "softrio/api/awaited.h"

#include <cerrno>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/mman.h>

#include "os/descriptor.h"

namespace incast::softrio::api {

namespace {

constexpr int look_again_ms = 2;

struct Awaited {
    std::weak_ptr<Port> port;
    std::uint64_t local = 0;
    std::size_t bytes = 0;
    void* at = nullptr;
};

/// Never destroyed: its thread ends with the process.
struct All {
    std::mutex mutex;
    std::vector<Awaited> waiting;
    bool is_running = false;
};

All& all() {
    static auto& instance = *new All;
    return instance;
}

/// True: it is not waited for any more.
bool settle(const Awaited& each) {
    const auto port = each.port.lock();
    if (port == nullptr) return true;
    std::uint64_t offset = 0;
    const os::Descriptor file(port->open_memory(each.local, each.bytes, offset));
    if (!file.is_open()) return file.fd() == -EINVAL;  // the outbound window is closed
    return ::mmap(each.at, each.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd(),
                  static_cast<off_t>(offset)) != MAP_FAILED;
}

void run() {
    while (true) {
        {
            const std::lock_guard lock(all().mutex);
            std::erase_if(all().waiting, settle);
            if (all().waiting.empty()) {
                all().is_running = false;
                return;
            }
        }
        ::poll(nullptr, 0, look_again_ms);
    }
}

/// With the lock.
bool start() {
    if (all().is_running) return true;
    sigset_t every;
    sigset_t before;
    ::sigfillset(&every);
    ::pthread_sigmask(SIG_SETMASK, &every, &before);
    try {
        std::thread(run).detach();
        all().is_running = true;
    } catch (const std::system_error&) {
        all().is_running = false;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return all().is_running;
}

}  // namespace

int map_awaited(const std::shared_ptr<Port>& port, std::uint64_t local, std::size_t bytes, void*& at) {
    void* made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return -errno;
    const std::lock_guard lock(all().mutex);
    all().waiting.push_back({port, local, bytes, made});
    if (!start()) {
        all().waiting.pop_back();
        ::munmap(made, bytes);
        return -EAGAIN;
    }
    at = made;
    return 0;
}

void forget_awaited(const void* at, std::size_t bytes) {
    const auto* first = static_cast<const std::byte*>(at);
    const std::lock_guard lock(all().mutex);
    std::erase_if(all().waiting, [&](const Awaited& each) {
        const auto* its = static_cast<const std::byte*>(each.at);
        return its < first + bytes && first < its + each.bytes;
    });
}

}  // namespace incast::softrio::api
