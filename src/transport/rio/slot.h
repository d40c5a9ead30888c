// What an endpoint shows to its peers besides its regions: one window with a slot for every node, into which only that
// node writes, by rDMA: who it is and whether it calls, how far it has written and read, and, unless messages go by CM,
// the ring of its messages and notices.
//
// What lies there is looked at while it may be written. Words of 8 bytes come as a whole (they are positions, which
// only grow, so one that was overwritten is not missed). A hello carries a check sum and comes again if it was torn.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <incast/transport.h>

namespace incast::transport::rio {

enum class Verdict : std::uint32_t {
    accepted = 0,
    malformed,
    wrong_run,
    wrong_token,
    wrong_node,
    stale_incarnation,
};
const char* to_string(Verdict verdict);

struct Hello {
    static constexpr std::uint64_t expected_magic = 0x314F495254534143;  // "CASTRIO1"
    enum class Kind : std::uint32_t {
        none = 0,
        call,     // wants to connect, or is connected
        bye,      // has stopped writing, and will not again in this attempt
        refusal,  // of the attempt `seen`
    };
    std::uint64_t magic = expected_magic;
    Kind kind = Kind::none;
    Verdict verdict = Verdict::accepted;  // refusal
    std::uint64_t run = 0;
    std::uint64_t token = 0;
    std::uint32_t from = 0;
    std::uint32_t from_incarnation = 0;
    std::uint32_t to = 0;
    std::uint32_t to_incarnation = 0;
    std::uint64_t attempt = 0;     // of the writer to connect: no two are the same
    std::uint64_t seen = 0;        // the reader's attempt that this answers; 0: none
    std::uint64_t lane_start = 0;  // the position from which the writer's lane counts
    std::uint64_t check = 0;       // of all before

    /// FNV-1a by words: it has to tell halves of two hellos from one.
    [[nodiscard]] std::uint64_t sum() const {
        std::array<std::uint64_t, 9> words{};
        std::memcpy(words.data(), this, sizeof words);
        std::uint64_t sum = 0xCBF29CE484222325;
        for (const std::uint64_t word : words)
            sum = (sum ^ word) * 0x100000001B3;
        return sum | 1;  // never that of an empty slot
    }
};
static_assert(sizeof(Hello) == 80 && offsetof(Hello, check) == 72);

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

struct Slot {
    alignas(64) Hello hello;
    alignas(64) Word written;  // the writer's lane to the owner
    alignas(64) Word read;     // what the writer has read of the owner's lane to it
    alignas(64) Word beat;     // written to see whether the owner is there
    alignas(64) std::array<std::byte, 64> ring_start;

    [[nodiscard]] std::byte* ring() { return reinterpret_cast<std::byte*>(this) + offsetof(Slot, ring_start); }
};

/// `ring_bytes`: a multiple of 64.
constexpr std::uint64_t slot_bytes(std::uint64_t ring_bytes) {
    return offsetof(Slot, ring_start) + ring_bytes;
}

}  // namespace incast::transport::rio
