// What an endpoint shares with its peers: one block of memory, which they map when they first deal with it.
//
// The rules that make it survive the death of anybody at any instruction:
// - What a peer publishes is published by one atomic operation on one word; there is no lock, and nothing that is
//   claimed first and filled in later.
// - Nobody believes what a peer wrote: positions and lengths are checked, descriptors are checked by inode.
// - Entries that come and go (Window, Sink) carry a generation: `open` is odd while they are open, and even between.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softrio/limits.h"

namespace incast::softrio::shm {

inline constexpr std::uint64_t layout_magic = 0x344F495254464F53;  // "SOFTRIO4"
inline constexpr std::uint32_t max_writers = 256;                  // processes that write to one endpoint

template <class T>
using Atomic = std::atomic<T>;
static_assert(Atomic<std::uint64_t>::is_always_lock_free && Atomic<std::uint32_t>::is_always_lock_free);

/// How to open what another process has: /proc/PID/fd/NUMBER, which must be that inode.
struct SharedFile {
    Atomic<std::uint32_t> number;
    Atomic<std::uint64_t> inode;
    Atomic<std::uint64_t> bytes;
};

/// Of a guarded one peers are told no more than its generation: where it lies, and its file, is handed over (Handed).
struct Window {
    Atomic<std::uint64_t> open;  // generation
    Atomic<std::uint64_t> base;  // RapidIO address
    Atomic<std::uint64_t> bytes;
    Atomic<std::uint64_t> offset;  // of it in the file
    SharedFile file;
};

/// One process that writes here. busy: number of the window a DMA channel is writing to, plus one. The owner of a
/// window waits for these before it takes the memory back.
struct alignas(64) Writer {
    Atomic<std::uint64_t> process;  // 0: nobody
    std::array<Atomic<std::uint32_t>, dma_channels> busy;
};

/// A doorbell range: bit 0: valid, 16 bits each from bit 16 on: source, first, last payload.
using Filter = std::uint64_t;

/// The queue of one handle. An entry holds turn (32 bits), source and payload; 2 * round is empty, 2 * round + 1 full.
/// Filling it is one compare-and-swap, so a sender that dies leaves either nothing or a whole doorbell; `tail` is a
/// hint that the next sender puts right.
struct Sink {
    Atomic<std::uint64_t> open;      // generation
    Atomic<std::uint32_t> events;    // mask of event kinds
    Atomic<std::uint32_t> rung;      // 1: there is, or will be at once, a byte in the bell, or nobody wants one
    Atomic<std::uint32_t> sleepers;  // threads that wait for an event
    Atomic<std::uint32_t> signal;    // their futex
    SharedFile bell;                 // a pipe
    std::array<Atomic<Filter>, max_filters> filters;
    alignas(64) Atomic<std::uint64_t> tail;
    alignas(64) std::array<Atomic<std::uint64_t>, doorbell_depth> entries;
};

/// One side of a CM connection. state: kind (8 bits), remote channel (16), remote destination id (16), serial (24).
struct Channel {
    enum Kind : std::uint8_t { idle = 0, bound, listening, connecting, connected };
    Atomic<std::uint32_t> wake;  // futex: something has changed here
    Atomic<std::uint64_t> state;
    SharedFile ring;  // what is sent to this side
    /// Listening: who wants to connect: 1 (bit 0), channel (16 bits from 8 on), destination id (16), serial (24).
    std::array<Atomic<std::uint64_t>, accept_depth> pending;
};

/// What goes with the file of a guarded window to an endpoint that is permitted to reach it.
struct Handed {
    static constexpr std::uint64_t expected_magic = 0x31444E41484F4952;  // "RIOHAND1"
    std::uint64_t magic = expected_magic;
    std::uint32_t destid = 0;  // of the owner
    std::uint32_t window = 0;
    std::uint64_t generation = 0;
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;      // of it in the file
    std::uint64_t file_bytes = 0;  // whole pages
    std::uint32_t access = 0;
    std::uint32_t zero = 0;
};

struct Registers {
    Atomic<std::uint32_t> component_tag;
    Atomic<std::uint32_t> host_lock;
};

struct Block {
    Atomic<std::uint64_t> magic;
    Atomic<std::uint32_t> destid;
    Atomic<std::uint32_t> gone;     // 1: closed in order
    Atomic<std::uint64_t> dropped;  // writes that fell outside all windows
    // With an emulated link: until when each direction is taken, on the host's monotonic clock.
    Atomic<std::int64_t> sends_until_ns;
    Atomic<std::int64_t> receives_until_ns;
    Registers registers;
    std::array<Window, max_windows + max_guarded> windows;  // the guarded ones behind the others
    std::array<Writer, max_writers> writers;
    std::array<Sink, max_sinks> sinks;
    std::array<Atomic<std::uint32_t>, max_channels> channel_ids;  // numbers of the channels below; 0: free
    std::array<Channel, max_channels> channels;
};

struct Message {
    std::uint32_t bytes;
    std::uint32_t unused;
    std::array<std::byte, max_message> data;
};

/// Where positions begin: shortly before 32 bits, of a position in a ring or of a doorbell's turn, begin anew. So every
/// use crosses that, not only one of days.
inline constexpr std::uint32_t first_message = 0U - 8;
inline constexpr std::uint64_t first_doorbell = (std::uint64_t{doorbell_depth} << 31U) - 8;

/// Messages to one side of a connection, in a file of their own: one writer, one reader. Positions only grow (and
/// wrap).
struct Ring {
    void start() {
        written.store(first_message);
        read.store(first_message);
    }

    alignas(64) Atomic<std::uint32_t> written;  // futex of the reader
    Atomic<std::uint32_t> writer_closed;
    Atomic<std::uint32_t> reader_sleeps;
    alignas(64) Atomic<std::uint32_t> read;  // futex of the writer
    Atomic<std::uint32_t> reader_closed;
    Atomic<std::uint32_t> writer_sleeps;
    alignas(64) std::array<Message, ring_depth> messages;
};

}  // namespace incast::softrio::shm
