// Doorbells. The truth is the queue in the receiver's memory; what wakes it (a futex for a thread that waits in
// get_event, a byte in a pipe for one that polls the descriptor) only says: look.
#include <algorithm>
#include <cerrno>
#include <ctime>

#include <fcntl.h>
#include <unistd.h>

#include "softrio/shm/port.h"

namespace incast::softrio::shm {

namespace {

constexpr unsigned doorbell_event = 1;
/// A sender that dies between queueing and waking leaves a doorbell that nobody was told of.
constexpr int look_again_ms = 100;

constexpr Filter filter_of(std::uint32_t destid, std::uint16_t first, std::uint16_t last) {
    return 1 | std::uint64_t{destid} << 16 | std::uint64_t{first} << 32 | std::uint64_t{last} << 48;
}

struct Range {
    std::uint16_t destid;
    std::uint16_t first;
    std::uint16_t last;
};

constexpr Range range_of(Filter filter) {
    return {static_cast<std::uint16_t>(filter >> 16), static_cast<std::uint16_t>(filter >> 32),
            static_cast<std::uint16_t>(filter >> 48)};
}

std::uint32_t source_of(std::uint32_t destid) {
    return destid == small_any_destid || destid > max_destid ? any_destid : destid;
}

// An entry: turn (32 bits), source (16), payload (16).
constexpr std::uint32_t turn_of(std::uint64_t entry) {
    return static_cast<std::uint32_t>(entry >> 32);
}
constexpr std::uint32_t full_turn(std::uint64_t position) {
    return static_cast<std::uint32_t>(position / doorbell_depth * 2 + 1);
}
constexpr std::uint32_t empty_turn(std::uint64_t position) {
    return full_turn(position) - 1;
}

enum class Queued : std::uint8_t { yes, full };

Queued queue(Sink& sink, const Doorbell& doorbell) {
    while (true) {
        std::uint64_t tail = sink.tail.load(std::memory_order_acquire);
        auto& place = sink.entries[tail % doorbell_depth];
        std::uint64_t entry = place.load(std::memory_order_acquire);
        const std::uint32_t turn = turn_of(entry);
        if (turn == empty_turn(tail)) {
            const std::uint64_t mine =
                std::uint64_t{full_turn(tail)} << 32 | std::uint64_t{doorbell.destid & 0xFFFF} << 16 | doorbell.payload;
            if (!place.compare_exchange_strong(entry, mine, std::memory_order_seq_cst)) continue;
            sink.tail.compare_exchange_strong(tail, tail + 1, std::memory_order_seq_cst);
            return Queued::yes;
        }
        // Another one is in that place; whoever put it there may have died before it moved the tail.
        if (turn == full_turn(tail)) {
            sink.tail.compare_exchange_strong(tail, tail + 1, std::memory_order_seq_cst);
        } else if (sink.tail.load(std::memory_order_acquire) == tail) {
            return Queued::full;
        }
    }
}

/// False: nobody waits for its futex.
bool wakes_sleeper(Sink& sink) {
    if (sink.sleepers.load(std::memory_order_seq_cst) == 0) return false;
    sink.signal.fetch_add(1);
    futex_wake(sink.signal);
    return true;
}

bool wants(const Sink& sink, const Doorbell& doorbell) {
    if (sink.open.load(std::memory_order_acquire) % 2 == 0 ||
        (sink.events.load(std::memory_order_relaxed) & doorbell_event) == 0) {
        return false;
    }
    for (const auto& each : sink.filters) {
        const Filter filter = each.load(std::memory_order_relaxed);
        if ((filter & 1) == 0) continue;
        const Range range = range_of(filter);
        if ((range.destid == any_destid || range.destid == doorbell.destid) && doorbell.payload >= range.first &&
            doorbell.payload <= range.last) {
            return true;
        }
    }
    return false;
}

}  // namespace

void Port::start_doorbells() {
    for (std::uint32_t sink = 0; sink < max_sinks; ++sink) {
        Sink& shared = block_->sinks[sink];
        shared.tail.store(first_doorbell);
        sinks_[sink].head.store(first_doorbell);
        for (std::uint64_t position = first_doorbell; position % doorbell_depth != 0; ++position)
            shared.entries[position % doorbell_depth].store(std::uint64_t{empty_turn(position)} << 32);
    }
}

int Port::open_sink(std::uint32_t& sink, bool on_demand) {
    const std::lock_guard lock(sinks_mutex_);
    for (sink = 0; sink < max_sinks; ++sink) {
        OwnSink& own = sinks_[sink];
        if (own.used) continue;
        int ends[2] = {-1, -1};
        if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -errno;
        own.bell = Descriptor(ends[0]);
        own.bell_end = Descriptor(ends[1]);
        own.used = true;
        own.on_demand = on_demand;
        Sink& shared = block_->sinks[sink];
        shared.events.store(0);
        shared.rung.store(on_demand ? 1 : 0);
        shared.sleepers.store(0);
        for (auto& each : shared.filters)
            each.store(0);
        shared.bell.number.store(static_cast<std::uint32_t>(ends[1]));
        shared.bell.inode.store(inode_of(own.bell_end));
        Doorbell stale;
        while (take(sink, stale)) {
        }
        shared.open.fetch_add(1);
        return 0;
    }
    return -EBUSY;
}

void Port::close_sink(std::uint32_t sink) {
    const std::lock_guard lock(sinks_mutex_);
    Sink& shared = block_->sinks[sink];
    shared.open.fetch_add(1);
    for (auto& each : shared.filters)
        each.store(0);
    shared.signal.fetch_add(1);
    futex_wake(shared.signal);
    OwnSink& own = sinks_[sink];
    const std::lock_guard taking(own.mutex);
    own.bell.close();
    own.bell_end.close();
    own.used = false;
}

int Port::enable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) {
    if (first > last) return -EINVAL;
    const std::lock_guard lock(sinks_mutex_);
    for (std::uint32_t number = 0; number < max_sinks; ++number) {
        if (!sinks_[number].used) continue;
        for (const auto& each : block_->sinks[number].filters) {
            const Filter filter = each.load();
            const Range range = range_of(filter);
            if ((filter & 1) != 0 && first <= range.last && range.first <= last) return -EBUSY;
        }
    }
    for (auto& each : block_->sinks[sink].filters) {
        if ((each.load() & 1) != 0) continue;
        each.store(filter_of(source_of(destid), first, last));
        return 0;
    }
    return -ENOMEM;
}

int Port::disable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) {
    const std::lock_guard lock(sinks_mutex_);
    for (auto& each : block_->sinks[sink].filters) {
        if (each.load() != filter_of(source_of(destid), first, last)) continue;
        each.store(0);
        return 0;
    }
    return -EINVAL;
}

bool Port::is_empty(std::uint32_t sink) const {
    const std::uint64_t head = sinks_[sink].head.load(std::memory_order_acquire);
    return turn_of(block_->sinks[sink].entries[head % doorbell_depth].load(std::memory_order_seq_cst)) !=
           full_turn(head);
}

bool Port::take(std::uint32_t sink, Doorbell& doorbell) {
    const std::uint64_t head = sinks_[sink].head.load(std::memory_order_relaxed);
    auto& place = block_->sinks[sink].entries[head % doorbell_depth];
    const std::uint64_t entry = place.load(std::memory_order_acquire);
    if (turn_of(entry) != full_turn(head)) return false;
    doorbell = {static_cast<std::uint32_t>(entry >> 16 & 0xFFFF), static_cast<std::uint16_t>(entry)};
    place.store(std::uint64_t{empty_turn(head + doorbell_depth)} << 32, std::memory_order_seq_cst);
    sinks_[sink].head.store(head + 1, std::memory_order_release);
    return true;
}

void Port::ring_own(std::uint32_t sink) {
    const char byte = 1;
    if (block_->sinks[sink].rung.exchange(1) == 0) (void)!::write(sinks_[sink].bell_end.fd(), &byte, 1);
}

void Port::empty_bell(std::uint32_t sink) {
    char bytes[8];
    // It never waits. NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
    while (::read(sinks_[sink].bell.fd(), bytes, sizeof bytes) == sizeof bytes) {
    }
}

int Port::arm(std::uint32_t sink) {
    const std::lock_guard lock(sinks_[sink].mutex);
    if (!sinks_[sink].on_demand) return -EINVAL;
    empty_bell(sink);
    sinks_[sink].armed = true;
    block_->sinks[sink].rung.store(0, std::memory_order_seq_cst);
    if (is_empty(sink)) return 0;
    block_->sinks[sink].rung.store(1);
    return 1;
}

void Port::settle_bell(std::uint32_t sink) {
    OwnSink& own = sinks_[sink];
    Sink& shared = block_->sinks[sink];
    if (own.on_demand) {
        if (own.armed && shared.rung.load(std::memory_order_relaxed) != 0) {
            empty_bell(sink);
            own.armed = false;
        }
        return;
    }
    if (!is_empty(sink)) {
        ring_own(sink);
        return;
    }
    if (shared.rung.load(std::memory_order_relaxed) == 0) return;
    empty_bell(sink);
    shared.rung.store(0, std::memory_order_seq_cst);
    if (!is_empty(sink)) ring_own(sink);
}

/// Its bell says what is true: settle_bell would do nothing.
bool Port::is_settled(std::uint32_t sink) const {
    const bool rung = block_->sinks[sink].rung.load(std::memory_order_relaxed) != 0;
    return !rung || (sinks_[sink].on_demand && !sinks_[sink].armed.load(std::memory_order_relaxed));
}

int Port::get_doorbell(std::uint32_t sink, bool wait, Doorbell& doorbell) {
    Sink& shared = block_->sinks[sink];
    // Whoever polls in vain takes no lock.
    if (!wait && is_empty(sink) && is_settled(sink)) return -EAGAIN;
    const std::uint64_t generation = shared.open.load();
    while (true) {
        const std::uint32_t signal = shared.signal.load();
        {
            const std::lock_guard lock(sinks_[sink].mutex);
            if (shared.open.load() != generation) return -EBADF;
            const bool taken = take(sink, doorbell);
            settle_bell(sink);
            if (taken) return 0;
        }
        if (!wait) return -EAGAIN;
        shared.sleepers.fetch_add(1);
        const bool nothing = is_empty(sink) && shared.open.load() == generation;
        const int error = nothing ? futex_wait(shared.signal, signal, look_again_ms) : 0;
        shared.sleepers.fetch_sub(1);
        if (error == EINTR) return -EINTR;
    }
}

int Port::queue_doorbell(const Doorbell& doorbell) {
    auto& sinks = block_->sinks;
    const auto found = std::ranges::find_if(sinks, [&](const Sink& each) { return wants(each, doorbell); });
    if (found == sinks.end()) return -ENOENT;
    if (queue(*found, doorbell) != Queued::yes) return -EAGAIN;
    if (wakes_sleeper(*found)) return 0;
    const auto sink = static_cast<std::uint32_t>(found - sinks.begin());
    const std::lock_guard taking(sinks_[sink].mutex);
    if (!sinks_[sink].used) return 0;
    // It may have been taken by now: then the bell must not ring.
    if (sinks_[sink].on_demand) {
        ring_own(sink);
    } else {
        settle_bell(sink);
    }
    return 0;
}

int Port::send_doorbell(const Doorbell& doorbell, bool wait) {
    const Doorbell sent{destid(), doorbell.payload};
    const std::int64_t until = wait ? now_ms() + options_.retry_ms : 0;
    while (true) {
        const auto target = peer(doorbell.destid);
        if (target == nullptr) return -ENODEV;
        auto& sinks = target->block().sinks;
        const auto found = std::ranges::find_if(sinks, [&](const Sink& each) { return wants(each, sent); });
        if (found == sinks.end()) {
            debug("endpoint " + std::to_string(sent.destid) + ": doorbell " + std::to_string(sent.payload) +
                  " to endpoint " + std::to_string(doorbell.destid) + ", where nobody has enabled it: lost");
            return 0;
        }
        if (queue(*found, sent) == Queued::yes) {
            if (!wakes_sleeper(*found) && found->rung.load(std::memory_order_seq_cst) == 0 &&
                found->rung.exchange(1) == 0) {
                target->ring(static_cast<std::uint32_t>(found - sinks.begin()));
            }
            return 0;
        }
        // The fabric's answer is RETRY: the sender tries again.
        if (!wait || now_ms() >= until) return -EAGAIN;
        const timespec moment{0, 100'000};
        ::nanosleep(&moment, nullptr);
    }
}

}  // namespace incast::softrio::shm
