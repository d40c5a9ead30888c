#include "softrio/shm/system.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string_view>

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace incast::softrio::shm {

namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;

std::string prefix_of(const std::string& fabric) {
    return "softrio/" + fabric + "/";
}

/// DESTID/PID/FD/INODE
std::optional<Place> parse_place(std::string_view text) {
    std::uint64_t value[4] = {};
    for (std::size_t index = 0; index < 4; ++index) {
        const std::string_view field = text.substr(0, text.find('/'));
        const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value[index]);
        const bool is_last = field.size() == text.size();
        if (error != std::errc{} || end != field.data() + field.size() || is_last != (index == 3)) return std::nullopt;
        if (!is_last) text.remove_prefix(field.size() + 1);
    }
    if (value[0] > UINT16_MAX || value[1] > INT_MAX || value[2] > INT_MAX) return std::nullopt;
    return Place{static_cast<std::uint32_t>(value[0]), static_cast<std::uint32_t>(value[1]),
                 static_cast<std::uint32_t>(value[2]), value[3]};
}

}  // namespace

std::optional<SharedMemory> make_memory(std::uint64_t bytes) {
    SharedMemory memory;
    memory.bytes = whole_pages(bytes);
    memory.file = Descriptor(::memfd_create("softrio", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory.file.is_open() || ::fchmod(memory.file.fd(), S_IRUSR | S_IWUSR) != 0 ||
        ::ftruncate(memory.file.fd(), static_cast<off_t>(memory.bytes)) != 0 ||
        ::fcntl(memory.file.fd(), F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) {
        return std::nullopt;
    }
    memory.inode = inode_of(memory.file);
    return memory;
}

std::shared_ptr<Mapping> map(const Descriptor& file, std::uint64_t bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
    if (at == MAP_FAILED) return nullptr;
    return std::make_shared<Mapping>(std::span(static_cast<std::byte*>(at), bytes));
}

std::uint64_t inode_of(const Descriptor& file) {
    struct stat status{};
    return ::fstat(file.fd(), &status) == 0 ? status.st_ino : 0;
}

Descriptor open_of(std::uint32_t process, std::uint32_t number, std::uint64_t inode, FileKind kind) {
    const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(number);
    // Looked at before it is opened: by now it may be anything that other process has, a device that blocks included.
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) return {};
    const auto is_it = [&] {
        return status.st_ino == inode && (kind == FileKind::pipe ? S_ISFIFO(status.st_mode) : S_ISREG(status.st_mode));
    };
    errno = ESTALE;
    if (!is_it()) return {};
    Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!file.is_open()) return {};
    if (::fstat(file.fd(), &status) != 0 || !is_it()) {
        errno = ESTALE;
        return {};
    }
    return file;
}

std::shared_ptr<Mapping> map_of(std::uint32_t process, std::uint32_t number, std::uint64_t inode,
                                std::uint64_t wanted) {
    const std::uint64_t bytes = whole_pages(wanted);
    const Descriptor file = open_of(process, number, inode, FileKind::memory);
    if (!file.is_open()) return nullptr;
    struct stat status{};
    const int has = ::fcntl(file.fd(), F_GET_SEALS);
    if (has < 0 || (has & seals) != seals || ::fstat(file.fd(), &status) != 0 ||
        static_cast<std::uint64_t>(status.st_size) != bytes) {
        errno = ESTALE;
        return nullptr;
    }
    return map(file, bytes);
}

std::string destid_name(const std::string& fabric, std::uint32_t destid) {
    return prefix_of(fabric) + std::to_string(destid);
}

std::string place_name(const std::string& fabric, const Place& place) {
    return destid_name(fabric, place.destid) + "/" + std::to_string(place.process) + "/" +
           std::to_string(place.number) + "/" + std::to_string(place.inode);
}

std::vector<Place> places(const std::string& fabric) {
    const std::string wanted = "@" + prefix_of(fabric);
    std::vector<Place> found;
    std::ifstream list("/proc/net/unix");
    for (std::string line; std::getline(list, line);) {
        const std::size_t at = line.find(wanted);
        if (at == std::string::npos) continue;
        if (const auto place = parse_place(std::string_view(line).substr(at + wanted.size()))) found.push_back(*place);
    }
    std::ranges::sort(found, {}, &Place::destid);
    return found;
}

std::optional<Place> place_of(const std::string& fabric, std::uint32_t destid) {
    for (const Place& place : places(fabric)) {
        if (place.destid == destid) return place;
    }
    return std::nullopt;
}

Descriptor take_name(const std::string& name) {
    Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (!socket.is_open() || name.size() >= sizeof address.sun_path) return {};
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
    return socket;
}

Descriptor watch_process(std::uint32_t process) {
    return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
}

bool has_ended(const Descriptor& watch) {
    pollfd one{watch.fd(), POLLIN, 0};
    return !watch.is_open() || ::poll(&one, 1, 0) != 0;
}

bool process_is_gone(std::uint32_t process) {
    const Descriptor watch = watch_process(process);
    return watch.is_open() ? has_ended(watch) : errno == ESRCH;
}

int futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, int timeout_ms) {
    const timespec limit{timeout_ms / 1000, static_cast<long>(timeout_ms % 1000) * 1'000'000};
    const long result = ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, value,
                                  timeout_ms < 0 ? nullptr : &limit, nullptr, 0);
    return result == 0 ? 0 : errno;
}

void futex_wake(std::atomic<std::uint32_t>& word) {
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::int64_t now_ns() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

std::int64_t now_us() {
    return now_ns() / 1000;
}

std::int64_t now_ms() {
    return now_us() / 1000;
}

}  // namespace incast::softrio::shm
