#include "transport/shm/memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace incast::transport::shm {

namespace {

constexpr int wanted_seals = F_SEAL_SHRINK | F_SEAL_GROW;

/// What this process has mapped, by inode and for what. Control path only.
struct Registry {
    std::mutex mutex;
    std::map<std::tuple<dev_t, ino_t, Access>, std::weak_ptr<os::Mapping>> mappings;
};

Registry& registry() {
    static Registry instance;
    return instance;
}

}  // namespace

Result<std::shared_ptr<os::Mapping>> map_memory(const os::Descriptor& fd, std::size_t bytes, Access access) {
    struct stat status{};
    if (::fstat(fd.fd(), &status) != 0) return os::memory_error("fstat");
    const int seals = ::fcntl(fd.fd(), F_GET_SEALS);
    if (seals < 0 || (seals & wanted_seals) != wanted_seals || static_cast<std::size_t>(status.st_size) != bytes)
        return Error{"shared memory: the descriptor is no sealed memory of " + std::to_string(bytes) + " bytes"};
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    // What is mapped for writing serves a reader too.
    if (auto mapping = known.mappings[{status.st_dev, status.st_ino, Access::write}].lock()) return mapping;
    std::weak_ptr<os::Mapping>& entry = known.mappings[{status.st_dev, status.st_ino, access}];
    if (auto mapping = entry.lock()) return mapping;
    const int protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
    void* memory = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd.fd(), 0);
    if (memory == MAP_FAILED) return os::memory_error("mmap");
    auto mapping = std::make_shared<os::Mapping>(std::span(static_cast<std::byte*>(memory), bytes));
    entry = mapping;
    std::erase_if(known.mappings, [](const auto& each) { return each.second.expired(); });
    return mapping;
}

Result<Memory> make_memory(std::size_t bytes) {
    Memory memory;
    auto file = os::make_memory_file(bytes);
    if (!file) return file.error();
    memory.fd = std::move(*file);
    auto mapping = map_memory(memory.fd, bytes, Access::write);
    if (!mapping) return mapping.error();
    memory.mapping = std::move(*mapping);
    return memory;
}

Result<Memory> make_private_memory(std::size_t bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return os::memory_error("mmap");
    (void)::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
    Memory made;
    made.mapping = std::make_shared<os::Mapping>(std::span(static_cast<std::byte*>(memory), bytes));
    return made;
}

Result<Ok> make_shared(Memory& memory) {
    const std::span<std::byte> bytes = memory.bytes();
    auto file = os::make_memory_file(bytes.size());
    if (!file) return file.error();
    void* fresh = ::mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file->fd(), 0);
    if (fresh == MAP_FAILED) return os::memory_error("mmap");
    // What was never written is not touched, so that it goes on taking no memory.
    constexpr std::size_t page_bytes = 4096;
    static constexpr std::array<std::byte, page_bytes> zeros{};
    for (std::size_t at = 0; at < bytes.size(); at += page_bytes) {
        const auto page = bytes.subspan(at, std::min(page_bytes, bytes.size() - at));
        if (std::memcmp(page.data(), zeros.data(), page.size()) != 0)
            std::memcpy(static_cast<std::byte*>(fresh) + at, page.data(), page.size());
    }
    if (!os::move_mapping(fresh, bytes.size(), bytes.data())) {
        const Error error = os::memory_error("mremap");
        ::munmap(fresh, bytes.size());
        return error;
    }
    struct stat status{};
    if (::fstat(file->fd(), &status) != 0) return os::memory_error("fstat");
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    known.mappings[{status.st_dev, status.st_ino, Access::write}] = memory.mapping;
    memory.fd = std::move(*file);
    return Ok{};
}

}  // namespace incast::transport::shm
