#include "softrio/shm/system.h"

#include <algorithm>
#include <array>
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

#include "os/handing.h"
#include "softrio/port.h"

namespace incast::softrio::shm {

namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;

/// Files that lie at an endpoint, before it looks.
constexpr int files_unread = 4096;
constexpr std::size_t most_begun = 256;

/// A name without a file.
struct AbstractName {
    sockaddr_un address{};
    socklen_t size = 0;
    [[nodiscard]] const sockaddr* any() const { return reinterpret_cast<const sockaddr*>(&address); }
};
std::optional<AbstractName> abstract(const std::string& name) {
    AbstractName made;
    made.address.sun_family = AF_UNIX;
    if (name.size() >= sizeof made.address.sun_path) return std::nullopt;
    std::memcpy(made.address.sun_path + 1, name.data(), name.size());
    made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return made;
}

std::optional<ucred> of_other_end(const Descriptor& socket) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
    return credentials;
}

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

template <class Move>
int copy_all(std::size_t size, Move&& move) {
    for (std::size_t done = 0; done < size;) {
        const ssize_t moved = move(done);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) return moved < 0 && errno == EFAULT ? -EFAULT : -ENOMEM;
        done += static_cast<std::size_t>(moved);
    }
    return 0;
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

int copy_into(const Descriptor& file, std::span<const std::byte> bytes) {
    return copy_all(bytes.size(), [&](std::size_t done) {
        return ::pwrite(file.fd(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    });
}

int copy_out_of(const Descriptor& file, std::span<std::byte> bytes) {
    return copy_all(bytes.size(), [&](std::size_t done) {
        return ::pread(file.fd(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    });
}

bool is_sealed(const Descriptor& file, std::uint64_t bytes) {
    struct stat status{};
    const int has = ::fcntl(file.fd(), F_GET_SEALS);
    return has >= 0 && (has & seals) == seals && ::fstat(file.fd(), &status) == 0 && S_ISREG(status.st_mode) &&
           static_cast<std::uint64_t>(status.st_size) == bytes;
}

std::shared_ptr<Mapping> map_sealed(const Descriptor& file, std::uint64_t bytes, bool for_writing) {
    errno = ESTALE;
    if (!is_sealed(file, bytes)) return nullptr;
    void* at = ::mmap(nullptr, bytes, for_writing ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file.fd(), 0);
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
    const Descriptor file = open_of(process, number, inode, FileKind::memory);
    return file.is_open() ? map_sealed(file, whole_pages(wanted)) : nullptr;
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
    const auto at = abstract(name);
    if (!socket.is_open() || !at || ::bind(socket.fd(), at->any(), at->size) != 0) return {};
    return socket;
}

std::string files_name(const std::string& fabric, std::uint32_t destid) {
    return destid_name(fabric, destid) + "/files";
}

bool FileBox::listen(const std::string& name) {
    Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto at = abstract(name);
    if (!socket.is_open() || !at || ::bind(socket.fd(), at->any(), at->size) != 0 ||
        ::listen(socket.fd(), files_unread) != 0) {
        return false;
    }
    listener_ = std::move(socket);
    return true;
}

void FileBox::close() {
    listener_.close();
    begun_.clear();
}

int hand_file(const std::string& name, const Handed& what, const Descriptor& file) {
    const auto at = abstract(name);
    if (!at) return EAGAIN;
    for (int tries = 0; tries < 3; ++tries) {
        const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!socket.is_open()) return EAGAIN;
        if (::connect(socket.fd(), at->any(), at->size) != 0) return errno == EAGAIN ? EAGAIN : ENODEV;
        const auto credentials = of_other_end(socket);
        if (!credentials || credentials->uid != ::geteuid()) return ENODEV;
        Handed copy = what;
        const std::array parts{iovec{&copy, sizeof copy}};
        const int fd = file.fd();
        // It lies there after this end is closed, too.
        const ssize_t sent = os::send_handing(socket.fd(), parts, std::span(&fd, 1), MSG_DONTWAIT);
        if (sent == ssize_t{sizeof copy}) return 0;
        // Hung up upon: it has ended, as the next connect says, or has too many that have not sent yet.
        if (sent >= 0 || (errno != EPIPE && errno != ECONNRESET)) return EAGAIN;
    }
    return EAGAIN;
}

std::optional<HandedFile> FileBox::take() {
    for (int tries = 0; tries < files_unread; ++tries) {
        while (begun_.size() < most_begun) {
            Descriptor socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!socket.is_open()) break;
            const auto credentials = of_other_end(socket);
            if (credentials && credentials->uid == ::geteuid()) begun_.push_back(std::move(socket));
        }
        const bool is_full = begun_.size() == most_begun;
        if (auto taken = take_sent()) return taken;
        if (!is_full) break;
        // Who has taken longest to send makes room for others.
        if (begun_.size() == most_begun) begun_.erase(begun_.begin(), begun_.begin() + most_begun / 2);
    }
    return std::nullopt;
}

std::optional<HandedFile> FileBox::take_sent() {
    for (auto each = begun_.begin(); each != begun_.end();) {
        HandedFile taken;
        const std::array parts{iovec{&taken.what, sizeof taken.what}};
        const ssize_t got = os::receive_handed(each->fd(), parts, std::span(&taken.file, 1), MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN) {
            ++each;  // it is between connecting and sending
            continue;
        }
        const auto credentials = of_other_end(*each);
        each = begun_.erase(each);
        if (got != ssize_t{sizeof taken.what} || !taken.file.is_open() || !credentials ||
            taken.what.magic != Handed::expected_magic) {
            continue;
        }
        taken.process = static_cast<std::uint32_t>(credentials->pid);
        return taken;
    }
    return std::nullopt;
}

std::shared_ptr<Mapping> map_handed(const HandedFile& handed) {
    return map_sealed(handed.file, handed.what.file_bytes, (handed.what.access & may_write) != 0);
}

Descriptor for_reading(const Descriptor& file) {
    const std::string path = "/proc/self/fd/" + std::to_string(file.fd());
    return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
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
