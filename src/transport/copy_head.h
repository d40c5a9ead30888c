// Copying the head of a write into the slot.
#pragma once

#include <cstdint>
#include <cstring>

#include <incast/transport.h>

namespace incast::transport {

/// Whoever looks at a word without having been told of it sees all that happened before it was stored. A plain store on
/// x86-64.
inline void store_word(std::byte* to, std::uint64_t word) {
    asm volatile("" : "+r"(word));  // keeps the compiler from joining words
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof word == 0)
        __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), word, __ATOMIC_RELEASE);
    else
        std::memcpy(to, &word, sizeof word);
}

/// As memcpy, but word by word: a head was stored a moment ago, in words at most. A wider load than those stores could
/// not be served from the store buffer; it would wait until they reach the cache, behind every earlier store, and the
/// one before them is likely a cache miss on another slot (measured: 60 ns per MFP with 64 peers).
inline void copy_head(std::byte* to, Bytes head) {
    const auto copy_word = [&](std::size_t at) {
        std::uint64_t word = 0;
        std::memcpy(&word, head.data() + at, sizeof word);
        store_word(to + at, word);
    };
    if (head.size() == max_head_bytes) [[likely]] {
#pragma GCC unroll 8
        for (std::size_t at = 0; at < max_head_bytes; at += sizeof(std::uint64_t))
            copy_word(at);
        return;
    }
    std::size_t offset = 0;
    for (; offset + sizeof(std::uint64_t) <= head.size(); offset += sizeof(std::uint64_t))
        copy_word(offset);
    for (; offset < head.size(); ++offset)
        to[offset] = head[offset];
}

}  // namespace incast::transport
