// What a generated fragment contains (EB-M4): every 64-bit word, hence every 64-byte line, is a function of (run,
// source, event, position).
//
// Word i of a fragment is start + i * step modulo 2^64, little-endian, the last one cut to the fragment's size; `start`
// is a hash of (run, source, event) and `step` is odd. So a line of another event, run or source, or one that moved
// within its fragment, does not verify, and both directions run at the speed of memory: one addition per word, no
// multiplication, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <incast/transport.h>

namespace incast::sources {

/// What all fragments of one source in one run share.
[[nodiscard]] std::uint64_t content_stream(std::uint64_t run, std::uint16_t source);

struct ContentKey {
    std::uint64_t stream = 0;  // of content_stream
    std::uint64_t event = 0;
};

void fill_content(const ContentKey& key, std::span<std::byte> fragment);

/// The first byte that differs from what fill_content writes; nothing if all agree.
[[nodiscard]] std::optional<std::size_t> find_difference(const ContentKey& key, Bytes fragment);

/// The byte that belongs at `offset`.
[[nodiscard]] std::byte content_byte(const ContentKey& key, std::size_t offset);

}  // namespace incast::sources
