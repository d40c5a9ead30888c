// What a dispatcher and a farm node say to each other over a channel of bytes (docs/farm.md): a greeting of either
// side, then MEPs one way and replies the other. Little-endian, as it lies in memory; all of it is checked by who reads
// it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace incast::farm {

static_assert(std::endian::native == std::endian::little, "frames lie in memory as they travel");

inline constexpr std::uint64_t frame_magic = 0x314D524146434E49;  // "INCFARM1"
inline constexpr std::uint32_t frame_version = 1;
inline constexpr std::uint32_t most_sources = 65535;
inline constexpr std::uint32_t most_window = 1024;  // MEPs that a farm node may have of one dispatcher
inline constexpr std::uint64_t most_mep_bytes = std::uint64_t{1} << 40U;
inline constexpr std::uint64_t body_align = 64;  // of an MFP at the farm node, as in a builder unit's slot

/// The farm node's first word.
struct Hello {
    std::uint64_t magic = frame_magic;
    std::uint32_t version = frame_version;
    std::uint32_t zero = 0;
    std::array<char, 48> name{};  // for people; ends with a 0
};
static_assert(sizeof(Hello) == 64);

/// The dispatcher's first word, once it knows its run. Behind it the detector's numbers of all sources, 16 bits each.
struct Welcome {
    std::uint64_t magic = frame_magic;
    std::uint32_t version = frame_version;
    std::uint32_t n_sources = 0;
    std::uint64_t run = 0;
    std::uint64_t mep_bytes = 0;  // the most that the MFPs of a MEP take, each aligned
};
static_assert(sizeof(Welcome) == 32);

enum class What : std::uint32_t { alive = 1, mep = 2 };

/// Of the dispatcher. Behind a MEP: a SourceFrame for each source, then their MFPs, back to back.
struct MepFrame {
    enum Flag : std::uint32_t { redelivered = 1, repeated = 2 };  // as a consumer's event has them
    What what = What::alive;
    std::uint32_t flags = 0;
    std::uint64_t ticket = 0;  // the dispatcher's, never used twice on a channel
    std::uint64_t mep = 0;
    std::uint64_t first_event = 0;
    std::uint64_t goodput_bytes = 0;
    std::uint32_t n_events = 0;
    std::uint32_t missing_sources = 0;
    std::uint32_t attempt = 0;
    std::uint32_t builder = 0;  // the builder unit's node
};
static_assert(sizeof(MepFrame) == 56);

struct SourceFrame {
    std::uint32_t bytes = 0;  // of its MFP; 0: there is none
    std::uint16_t source = 0;
    std::uint8_t flag = 0;
    std::uint8_t zero = 0;
};
static_assert(sizeof(SourceFrame) == 8);

enum class Says : std::uint32_t {
    alive = 1,
    credit = 2,   // value: MEPs that it has room for since the beginning, those that were sent included
    done = 3,     // value: the verdict, as in consumer/layout.h
    refused = 4,  // nobody there can take it; value 1: a program had it
    leave = 5,    // it wants no more; what it has it finishes
};

/// Of the farm node.
struct Reply {
    Says says = Says::alive;
    std::uint32_t zero = 0;
    std::uint64_t ticket = 0;
    std::uint64_t value = 0;
};
static_assert(sizeof(Reply) == 24);

template <typename Frame>
concept IsFrame = std::is_trivially_copyable_v<Frame>;
template <IsFrame Frame>
std::span<const std::byte> bytes_of(const Frame& frame) {
    return std::as_bytes(std::span(&frame, 1));
}
template <IsFrame Frame>
std::span<std::byte> room_of(Frame& frame) {
    return std::as_writable_bytes(std::span(&frame, 1));
}

constexpr std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + body_align - 1) / body_align * body_align;
}

inline bool is_sane(const Hello& hello) {
    return hello.magic == frame_magic && hello.version == frame_version;
}
inline bool is_sane(const Welcome& welcome) {
    return welcome.magic == frame_magic && welcome.version == frame_version && welcome.n_sources >= 1 &&
           welcome.n_sources <= most_sources && welcome.mep_bytes <= most_mep_bytes;
}
/// What the MFPs of that table take, each aligned. More than `most`: more than that.
inline std::uint64_t room_for(std::span<const SourceFrame> table, std::uint64_t most) {
    std::uint64_t bytes = 0;
    for (const SourceFrame& source : table) {
        bytes += aligned(source.bytes);
        if (bytes > most) {
            return most + 1;
        }
    }
    return bytes;
}
/// For a line to people: what is not printable is left out.
inline std::string_view name_of(const Hello& hello, std::array<char, 48>& into) {
    std::size_t length = 0;
    for (const char c : hello.name) {
        if (c == '\0') break;
        if (c > ' ' && c <= '~') into[length++] = c;
    }
    return {into.data(), length};
}

}  // namespace incast::farm
