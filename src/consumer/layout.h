// What a builder unit and its consumers share: the memory, word for word, and the packet that hands it over.
//
// Four memory files, of fixed size. Payload, directory and queue are written by the builder unit alone and given to
// consumers for reading only; the control page is the consumer's, one each, and the builder unit reads in it two
// counters and one word per event it handed out, none of which it uses as a place, a length or an index.
//
//   payload    the slots that MEPs are built in (transport memory)
//   directory  what lies in each slot: DirectoryHeader, then one Record with its SourceEntries per slot
//   queue      what this consumer was handed: QueueHeader, then `window` QueueEntries, used in a ring
//   control    what this consumer gave back: Control, then `window` words, one per cell, then `window` verdicts
//
// An event is handed over by a QueueEntry, which says the slot, the serial number of the event and a cell: the word of
// the control page into which the consumer writes that number when it is done. Serials are never used twice, so
// an old or made-up word gives nothing back; and a slot's Record carries the serial of what lies there, or 0, so a
// reader sees whether it was overtaken.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "consumer/futex.h"

namespace incast::consumer {

inline constexpr std::uint64_t layout_magic = 0x31534E4F43434E49;  // "INCCONS1"
inline constexpr std::uint32_t layout_version = 3;
inline constexpr std::uint32_t max_window = 256;
inline constexpr std::uint32_t max_consumers = 64;
inline constexpr std::size_t line_bytes = 64;

/// A builder unit of node 3 listens at the abstract Unix address "incast-consumer/<name>/3".
inline constexpr std::string_view address_prefix = "incast-consumer/";
inline constexpr std::size_t max_name_bytes = 64;

/// Names go into addresses: letters, digits, '.', '_' and '-'.
constexpr bool is_name(std::string_view name) {
    for (const char c : name) {
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && c != '.' && c != '_' && c != '-') {
            return false;
        }
    }
    return !name.empty() && name.size() <= max_name_bytes;
}

enum class Answer : std::uint32_t { accepted = 0, full = 1 };

/// The builder unit's answer to a connection; with `accepted` come the descriptors, in this order. After it there are
/// only rings, packets of one byte: each side wakes the other from a sleep that it announced in the memory, once per
/// sleep. The end of the connection is the end of the consumer, or of the builder unit. (No eventfd: whether a write to
/// one blocks is a flag that both sides share, so a consumer could make its builder unit wait.)
struct Welcome {
    std::uint64_t magic = layout_magic;
    std::uint32_t version = layout_version;
    Answer answer = Answer::accepted;
    std::uint64_t run = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t directory_bytes = 0;
    std::uint64_t queue_bytes = 0;
    std::uint64_t control_bytes = 0;
    std::uint32_t node = 0;
    std::uint32_t incarnation = 0;
    std::uint32_t n_sources = 0;
    std::uint32_t slots = 0;
    std::uint32_t window = 0;
    std::uint32_t zero = 0;
};
static_assert(sizeof(Welcome) == 80);
enum class Handed : std::uint8_t { payload, directory, queue, control };
inline constexpr std::size_t handed_descriptors = 4;

struct alignas(line_bytes) DirectoryHeader {
    std::uint64_t magic = layout_magic;
    std::uint32_t version = layout_version;
    std::uint32_t slots = 0;
    std::atomic<std::uint64_t> asleep = 0;  // not 0: the builder unit sleeps; another number every time
};

/// One source of an event; the same as incast_consumer_source.
struct SourceEntry {
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    std::uint16_t source = 0;
    std::uint8_t flag = 0;
    std::uint8_t zero = 0;
};
static_assert(sizeof(SourceEntry) == 16);

struct alignas(line_bytes) Record {
    std::atomic<std::uint64_t> serial = 0;  // 0: nothing that may be read
    std::uint64_t mep = 0;
    std::uint64_t first_event = 0;
    std::uint64_t goodput_bytes = 0;
    std::uint32_t n_events = 0;
    std::uint32_t missing_sources = 0;
    std::uint32_t attempt = 0;
    std::uint32_t redelivered = 0;
};
static_assert(sizeof(Record) == line_bytes);

enum class State : std::uint32_t { attached = 0, ended = 1, ejected = 2 };

struct alignas(line_bytes) QueueHeader {
    std::uint64_t magic = layout_magic;
    std::uint32_t version = layout_version;
    std::uint32_t window = 0;
    std::atomic<State> state = State::attached;
    alignas(line_bytes) std::atomic<std::uint64_t> delivered = 0;  // entries ever written
};

struct QueueEntry {
    std::uint64_t serial = 0;
    std::uint64_t missed = 0;
    std::uint32_t slot = 0;
    std::uint32_t cell = 0;
    std::uint32_t repeated = 0;
    std::uint32_t zero = 0;
};
static_assert(sizeof(QueueEntry) == 32);

struct alignas(line_bytes) Control {
    std::atomic<std::uint64_t> releases = 0;  // words ever written to cells; follows the word
    std::atomic<std::uint64_t> waiting = 0;   // not 0: the consumer sleeps, see sleep_word
    /// Of the builder unit: entries ever written, and one more at the end, so a consumer that has taken as many has
    /// nothing to do and sleeps on it. Here, since sleeping on memory that is mapped for reading only takes the
    /// kernel 1.5 us more per event.
    Word news = 0;
};
/// Another one every time. On the word `news`, or on the socket, where a ring wakes it.
constexpr std::uint64_t sleep_word(std::uint64_t number, bool on_word) {
    return number * 2 + (on_word ? 1 : 0);
}
constexpr bool is_on_word(std::uint64_t waiting) {
    return waiting % 2 == 1;
}
using Cell = std::atomic<std::uint64_t>;
static_assert(Cell::is_always_lock_free && sizeof(Cell) == 8);
/// What is said of an event, written before its cell: 0, nothing; else one more than its events that are accepted.
using Verdict = std::atomic<std::uint64_t>;

constexpr std::size_t whole_lines(std::size_t bytes) {
    return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}
constexpr std::size_t record_bytes(std::size_t n_sources) {
    return whole_lines(sizeof(Record) + n_sources * sizeof(SourceEntry));
}
constexpr std::size_t directory_bytes(std::size_t slots, std::size_t n_sources) {
    return sizeof(DirectoryHeader) + slots * record_bytes(n_sources);
}
constexpr std::size_t queue_bytes(std::size_t window) {
    return sizeof(QueueHeader) + window * sizeof(QueueEntry);
}
constexpr std::size_t control_bytes(std::size_t window) {
    return sizeof(Control) + window * (sizeof(Cell) + sizeof(Verdict));
}

}  // namespace incast::consumer
