// What a readout unit and the program of one of its sources share: a memory file, word for word, and the packet that
// hands it over.
//
// The file is made by the readout unit for each program that comes: RingHeader, then `ring_bytes` of records, used in a
// ring. The program writes records and counts their bytes; the readout unit reads them, and counts what it has taken. A
// record is a head, the packet (an MFP) from `start` on, and padding to whole lines; none goes over the end of the
// ring, where a record without a packet fills what is left.
//
// Both sides can write all of it, and neither believes the other. The readout unit keeps its own counts, checks what it
// reads, and copies a packet before it looks into it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "consumer/futex.h"
#include "consumer/layout.h"

namespace incast::source {

using consumer::Word;

inline constexpr std::uint64_t layout_magic = 0x3143525343434E49;  // "INCCSRC1"
inline constexpr std::uint32_t layout_version = 1;
inline constexpr std::size_t line_bytes = consumer::line_bytes;

/// The readout unit that has source 3 listens at the abstract Unix address "incast-source/<name>/3".
inline constexpr std::string_view address_prefix = "incast-source/";
inline constexpr std::size_t max_name_bytes = consumer::max_name_bytes;

/// As those of consumers.
constexpr bool is_name(std::string_view name) {
    return consumer::is_name(name);
}

enum class Answer : std::uint32_t { accepted = 0, taken = 1 };

/// The readout unit's answer to a connection; with `accepted` comes the memory's descriptor. Nothing else goes over the
/// connection: its end is the end of the program, or of the readout unit.
struct Welcome {
    std::uint64_t magic = layout_magic;
    std::uint32_t version = layout_version;
    Answer answer = Answer::accepted;
    std::uint64_t run = 0;
    std::uint64_t total_events = 0;
    std::uint64_t ring_bytes = 0;
    std::uint32_t node = 0;
    std::uint32_t packing = 0;
    std::uint32_t source = 0;
    std::uint32_t zero = 0;
};
static_assert(sizeof(Welcome) == 56);

enum class State : std::uint32_t { attached = 0, ended = 1, ejected = 2 };

struct alignas(line_bytes) RingHeader {
    std::uint64_t magic = layout_magic;
    std::uint32_t version = layout_version;
    std::uint32_t zero = 0;
    std::uint64_t ring_bytes = 0;
    // The program's.
    alignas(line_bytes) std::atomic<std::uint64_t> committed = 0;  // bytes of records ever written
    Word asleep = 0;                                               // not 0: it sleeps on `news`
    Word closed = 0;                                               // not 0: it left in order
    // The readout unit's.
    alignas(line_bytes) std::atomic<std::uint64_t> taken = 0;  // bytes of records ever taken
    std::atomic<std::uint64_t> next_event = 0;                 // of the MEP that is made next
    Word news = 0;                                             // another number after something changed
    std::atomic<State> state = State::attached;
};
static_assert(sizeof(RingHeader) == 3 * line_bytes);

/// Every record begins with it, and with a line.
struct RecordHead {
    std::uint64_t packet_bytes = 0;  // 0: none, the record fills the ring to its end
    std::uint32_t start = 0;         // of the packet, from the head on
    std::uint32_t zero = 0;
};
static_assert(sizeof(RecordHead) == 16);

/// Packets begin where the fragment in them is aligned.
inline constexpr std::uint32_t least_start = sizeof(RecordHead);
inline constexpr std::uint32_t most_start = line_bytes;

constexpr std::uint64_t whole_lines(std::uint64_t bytes) {
    return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}
constexpr std::uint64_t record_bytes(std::uint32_t start, std::uint64_t packet_bytes) {
    return whole_lines(start + packet_bytes);
}
/// So a record fits whatever the place of the one before it.
constexpr std::uint64_t most_record_bytes(std::uint64_t ring_bytes) {
    return ring_bytes / 2 / line_bytes * line_bytes;
}
/// Room for some packets of the largest size.
constexpr std::uint64_t ring_bytes_for(std::uint64_t packet_bytes) {
    constexpr std::uint64_t least = std::uint64_t{1} << 20U;
    const std::uint64_t wanted = 4 * record_bytes(most_start, packet_bytes);
    return wanted < least ? least : whole_lines(wanted);
}
inline constexpr std::uint64_t most_ring_bytes = std::uint64_t{1} << 36U;
constexpr std::uint64_t file_bytes(std::uint64_t ring_bytes) {
    return sizeof(RingHeader) + ring_bytes;
}

}  // namespace incast::source
