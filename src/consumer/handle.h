// A consumer's handle (include/incast/consumer.h): attach.cpp makes and dissolves it, events.cpp takes events with it
// and gives them back, group.cpp makes one of several, for which it needs the functions below.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <incast/consumer.h>

#include "consumer/futex.h"
#include "consumer/layout.h"

namespace incast::consumer {

struct Area {
    std::byte* bytes = nullptr;
    std::size_t size = 0;
};

/// What the builder unit was told to wake.
enum class Sleep : std::uint8_t { none, on_socket, on_word };

/// While asleep on a word: a process that dies wakes nobody.
inline constexpr int look_for_ends_ms = 100;

struct Handle {
    Welcome welcome;
    Area payload;
    Area directory;
    Area queue;
    Area control;
    int socket = -1;
    Sleep sleep = Sleep::none;
    bool gone = false;           // the socket has ended
    bool quiet = true;           // nothing came since the queue was last found empty
    std::uint64_t position = 0;  // entries of the queue taken
    std::uint64_t sleeps = 0;
    std::atomic<std::uint64_t> rung = 0;  // the builder unit's sleep that it was last woken from here

    [[nodiscard]] const DirectoryHeader& directory_header() const {
        return *reinterpret_cast<const DirectoryHeader*>(directory.bytes);
    }
    [[nodiscard]] const QueueHeader& queue_header() const { return *reinterpret_cast<const QueueHeader*>(queue.bytes); }
    [[nodiscard]] const QueueEntry& entry(std::uint64_t number) const {
        return reinterpret_cast<const QueueEntry*>(queue.bytes + sizeof(QueueHeader))[number % welcome.window];
    }
    [[nodiscard]] Control& control_page() const { return *reinterpret_cast<Control*>(control.bytes); }
    [[nodiscard]] Cell& cell(std::uint32_t number) const {
        return reinterpret_cast<Cell*>(control.bytes + sizeof(Control))[number];
    }
    [[nodiscard]] Verdict& verdict(std::uint32_t number) const {
        return reinterpret_cast<Verdict*>(&cell(welcome.window))[number];
    }
    /// As the word `news` counts.
    [[nodiscard]] std::uint32_t taken() const { return static_cast<std::uint32_t>(position); }
    [[nodiscard]] const Record& record(std::uint32_t slot) const {
        return *reinterpret_cast<const Record*>(directory.bytes + sizeof(DirectoryHeader) +
                                                slot * record_bytes(welcome.n_sources));
    }
};

}  // namespace incast::consumer

struct incast_consumer : incast::consumer::Handle {};

namespace incast::consumer {

/// incast_consumer_next() has something to say: an event, or that there will be none.
bool has_something(const incast_consumer& consumer);
/// Looks, which is a system call, at the socket: takes a ring off it, of which there is one per sleep, or sees its end.
bool has_ended(incast_consumer& consumer);
/// Tells the builder unit that the process sleeps, and how. False: it should not, there is something.
bool may_sleep(incast_consumer& consumer, Sleep how);
inline Watched watch_news(const incast_consumer& consumer) {
    return watch(consumer.control_page().news, consumer.taken());
}

}  // namespace incast::consumer
