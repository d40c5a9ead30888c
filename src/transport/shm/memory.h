// Shared memory without names: memfds, sealed against shrinking, mapped by everybody who was handed the descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <incast/result.h>

#include "os/descriptor.h"
#include "os/mapping.h"
#include "os/memory_file.h"

namespace incast::transport::shm {

/// Endpoints of one process share the mapping of a memfd: they then see the same bytes at the same address, which also
/// lets a race detector see both sides.
struct Memory {
    os::Descriptor fd;
    std::shared_ptr<os::Mapping> mapping;
    [[nodiscard]] std::span<std::byte> bytes() const {
        return mapping != nullptr ? mapping->bytes() : std::span<std::byte>{};
    }
};

/// Zeroed memory that can be handed to peers. Its size never changes, so no peer can make an access to it fault.
Result<Memory> make_memory(std::size_t bytes);
/// Zeroed memory of this process alone, on huge pages where the kernel has them: shared memory mostly gets none, and a
/// ring of sources that only its RU reads needs no sharing.
Result<Memory> make_private_memory(std::size_t bytes);
/// Turns private memory into memory that can be handed to peers, with its contents, at the same address.
Result<Ok> make_shared(Memory& memory);
enum class Access : std::uint8_t { read, write };
/// Maps a descriptor that came from a peer; refuses what is no sealed memfd of exactly `bytes`.
Result<std::shared_ptr<os::Mapping>> map_memory(const os::Descriptor& fd, std::size_t bytes, Access access);

}  // namespace incast::transport::shm
