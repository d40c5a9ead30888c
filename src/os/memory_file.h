// Memory without a name: memfds of fixed size, which processes hand to each other.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <incast/result.h>

#include "os/descriptor.h"

namespace incast::os {

inline Error memory_error(const char* what) {
    std::string error = "shared memory: ";
    return Error{error.append(what).append(": ").append(std::generic_category().message(errno))};
}

/// Zeroed memory of that many bytes. Its size never changes, so nobody who has it can make an access of others fault.
inline Result<Descriptor> make_memory_file(std::size_t bytes) {
    Descriptor file(::memfd_create("incast", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file.is_open()) return memory_error("memfd_create");
    // Whoever is given it for reading cannot open it anew for writing, unless it is root or changes the mode on
    // purpose.
    if (::fchmod(file.fd(), S_IRUSR) != 0) return memory_error("fchmod");
    if (::ftruncate(file.fd(), static_cast<off_t>(bytes)) != 0) return memory_error("ftruncate");
    if (::fcntl(file.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return memory_error("sealing");
    return file;
}

/// The same memory, through a descriptor that allows no mapping for writing.
inline Result<Descriptor> open_for_reading(const Descriptor& file) {
    const std::string path = "/proc/self/fd/" + std::to_string(file.fd());
    Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened.is_open()) return memory_error("opening it for reading");
    return opened;
}

/// Moves a mapping to that place, whose own one goes. False: errno. Not by libc's mremap(): UCX, once it is in a
/// process, puts a function of four arguments in its place, and the place is the fifth (1.13).
inline bool move_mapping(void* from, std::size_t bytes, void* to) {
    return ::syscall(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != -1;
}

}  // namespace incast::os
