#include "transport/shm/memory.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace incast::transport::shm {

namespace {

constexpr int wanted_seals = F_SEAL_SHRINK | F_SEAL_GROW;

/// What this process has mapped, by inode. Control path only.
struct Registry {
    std::mutex mutex;
    std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Mapping>> mappings;
};

Registry& registry() {
    static Registry instance;
    return instance;
}

}  // namespace

Mapping::~Mapping() {
    ::munmap(bytes_.data(), bytes_.size());
}

Result<std::shared_ptr<Mapping>> map_memory(const Descriptor& fd, std::size_t bytes) {
    struct stat status{};
    if (::fstat(fd.fd(), &status) != 0) return memory_error("fstat");
    const int seals = ::fcntl(fd.fd(), F_GET_SEALS);
    if (seals < 0 || (seals & wanted_seals) != wanted_seals || static_cast<std::size_t>(status.st_size) != bytes)
        return Error{"shared memory: the descriptor is no sealed memory of " + std::to_string(bytes) + " bytes"};
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    std::weak_ptr<Mapping>& entry = known.mappings[{status.st_dev, status.st_ino}];
    if (auto mapping = entry.lock()) return mapping;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.fd(), 0);
    if (memory == MAP_FAILED) return memory_error("mmap");
    auto mapping = std::make_shared<Mapping>(std::span(static_cast<std::byte*>(memory), bytes));
    entry = mapping;
    std::erase_if(known.mappings, [](const auto& each) { return each.second.expired(); });
    return mapping;
}

Result<Memory> make_memory(std::size_t bytes) {
    Memory memory;
    auto file = make_memory_file(bytes);
    if (!file) return file.error();
    memory.fd = std::move(*file);
    auto mapping = map_memory(memory.fd, bytes);
    if (!mapping) return mapping.error();
    memory.mapping = std::move(*mapping);
    return memory;
}

}  // namespace incast::transport::shm
