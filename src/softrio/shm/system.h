// The kernel's part: memory without a name, names without a file, and whether a process is there.
//
// Every endpoint binds two abstract Unix sockets: `softrio/FABRIC/DESTID`, which makes the id its own, and
// `softrio/FABRIC/DESTID/PID/FD/INODE`, which says where its block is. The kernel drops both with the process, however
// it ends, and lists them in /proc/net/unix. Peers then open /proc/PID/fd/FD: that needs nothing of the other process,
// which may compute, or be stopped, as real DMA needs nothing of a CPU; hence no thread and no daemon.
//
// What is not for all goes another way: at `softrio/FABRIC/DESTID/files` an endpoint is handed the files of guarded
// windows. They lie there until it looks, which it does when it knows of no window that it was asked to reach.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "os/descriptor.h"
#include "os/mapping.h"
#include "softrio/shm/layout.h"

namespace incast::softrio::shm {

using os::Descriptor;

using os::Mapping;

inline constexpr std::uint64_t page_bytes = 4096;
inline std::uint64_t whole_pages(std::uint64_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/// Memory of this process that others may map: zeroed, sealed against resizing, for this user alone.
struct SharedMemory {
    Descriptor file;
    std::uint64_t inode = 0;
    std::uint64_t bytes = 0;  // whole pages
};
/// Nothing: errno says why.
std::optional<SharedMemory> make_memory(std::uint64_t bytes);
std::shared_ptr<Mapping> map(const Descriptor& file, std::uint64_t bytes);
/// Between those bytes and the start of the file. 0, or -ENOMEM, or -EFAULT: they are not all of this process.
int copy_into(const Descriptor& file, std::span<const std::byte> bytes);
int copy_out_of(const Descriptor& file, std::span<std::byte> bytes);
/// Memory that another process made is used only if it is sealed and has exactly the size that was said: then it stays
/// whole as long as it is used.
bool is_sealed(const Descriptor& file, std::uint64_t bytes);
/// nullptr, and errno ESTALE: it is not.
std::shared_ptr<Mapping> map_sealed(const Descriptor& file, std::uint64_t bytes, bool for_writing = true);

/// The file of another process; not open: it is gone, another file by now, or not ours to open (errno).
enum class FileKind : std::uint8_t { memory, pipe };
Descriptor open_of(std::uint32_t process, std::uint32_t number, std::uint64_t inode, FileKind kind);
/// Opens and maps memory of another process, if it is sealed and has exactly that size (in whole pages).
std::shared_ptr<Mapping> map_of(std::uint32_t process, std::uint32_t number, std::uint64_t inode, std::uint64_t wanted);
std::uint64_t inode_of(const Descriptor& file);

/// Where an endpoint's block is.
struct Place {
    std::uint32_t destid = 0;
    std::uint32_t process = 0;
    std::uint32_t number = 0;
    std::uint64_t inode = 0;
};
/// All endpoints of a fabric, by ascending destination id.
std::vector<Place> places(const std::string& fabric);
std::optional<Place> place_of(const std::string& fabric, std::uint32_t destid);

/// Takes a name, as long as the descriptor is open. Not open: errno, EADDRINUSE if it is taken.
Descriptor take_name(const std::string& name);
std::string destid_name(const std::string& fabric, std::uint32_t destid);
std::string place_name(const std::string& fabric, const Place& place);

std::string files_name(const std::string& fabric, std::uint32_t destid);
/// To whom of this user listens there. Returns 0, or an errno: ENODEV, or EAGAIN, if too much lies there unread.
int hand_file(const std::string& name, const Handed& what, const Descriptor& file);
struct HandedFile {
    Handed what;
    Descriptor file;
    std::uint32_t process = 0;  // who handed it over, by the kernel's word
};
/// Where an endpoint is handed files.
class FileBox {
public:
    /// Files come under this name from now on. False: errno.
    bool listen(const std::string& name);
    /// The next one; nothing: there is none. Whoever hands over anything else is not heard.
    std::optional<HandedFile> take();
    void close();

private:
    std::optional<HandedFile> take_sent();

    Descriptor listener_;
    std::vector<Descriptor> begun_;  // who has connected and not sent yet
};
/// Maps what was handed over, if it is sealed and as large as was said.
std::shared_ptr<Mapping> map_handed(const HandedFile& handed);
/// The same file, for reading only.
Descriptor for_reading(const Descriptor& file);

/// Polls readable once the process has ended. Not open: it has.
Descriptor watch_process(std::uint32_t process);
/// Has the watched process ended?
bool has_ended(const Descriptor& watch);
bool process_is_gone(std::uint32_t process);

/// Waits while the word has that value, at most `timeout_ms` (< 0: no limit). Returns 0 or an errno: EAGAIN, EINTR,
/// ETIMEDOUT.
int futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, int timeout_ms);
void futex_wake(std::atomic<std::uint32_t>& word);

std::int64_t now_ns();
std::int64_t now_us();
std::int64_t now_ms();
/// A counter that costs every transfer and doorbell less than the clock does, and how far that counts in 1 ms or less.
#if defined(__x86_64__)
inline std::uint64_t ticks() {
    return __builtin_ia32_rdtsc();
}
inline constexpr std::uint64_t ticks_of_1_ms = 1'000'000;
#else
inline std::uint64_t ticks() {
    return static_cast<std::uint64_t>(now_us());
}
inline constexpr std::uint64_t ticks_of_1_ms = 1'000;
#endif

}  // namespace incast::softrio::shm
