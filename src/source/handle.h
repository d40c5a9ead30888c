// A program's handle (include/incast/source.h): attach.cpp makes and dissolves it, commit.cpp hands fragments over.
#pragma once

#include <cstddef>
#include <cstdint>

#include <incast/source.h>

#include "source/layout.h"

namespace incast::source {

struct Handle {
    Welcome welcome;
    std::byte* memory = nullptr;
    std::size_t memory_bytes = 0;
    int socket = -1;
    bool gone = false;            // the socket has ended
    bool left = false;            // incast_source_leave() was called
    std::uint64_t committed = 0;  // bytes of records
    std::uint64_t space = 0;      // bytes that may be written behind the head of the next record; 0: none
    bool has_space = false;

    [[nodiscard]] RingHeader& header() const { return *reinterpret_cast<RingHeader*>(memory); }
    [[nodiscard]] std::byte* ring() const { return memory + sizeof(RingHeader); }
    [[nodiscard]] std::byte* record() const { return ring() + committed % welcome.ring_bytes; }
};

}  // namespace incast::source

struct incast_source : incast::source::Handle {};
