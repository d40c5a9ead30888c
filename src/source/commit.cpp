// Asking for space and handing fragments over: what libincast_source does per event. It uses the kernel and the C
// library only, and allocates nothing.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <sys/socket.h>

#include <incast/source.h>

#include "consumer/futex.h"
#include "consumer/limit.h"
#include "source/handle.h"
#include "source/layout.h"
#include "wire/mfp.h"

namespace layout = incast::source;
namespace wire = incast::wire;
using incast::consumer::Limit;

namespace {

/// While asleep on a word: a process that dies wakes nobody.
constexpr int look_for_ends_ms = 100;
constexpr std::uint8_t first_reserved_type = 0xF0;

constexpr std::uint64_t prefix_of(bool wide) {
    return wire::mfp_prefix_bytes(1, wide);
}
static_assert(prefix_of(true) <= layout::most_start - layout::least_start);

/// Looks, which is a system call, at the socket.
bool has_ended(incast_source& source) {
    if (!source.gone) {
        char ring = 0;
        const ssize_t got = ::recv(source.socket, &ring, sizeof ring, MSG_DONTWAIT);
        source.gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    }
    return source.gone;
}

/// 0: it goes on; else why it does not.
int end_of(const incast_source& source) {
    if (source.left) return INCAST_SOURCE_ENDED;
    switch (source.header().state.load(std::memory_order_acquire)) {
        case layout::State::ended:
            return INCAST_SOURCE_ENDED;
        case layout::State::ejected:
            return INCAST_SOURCE_EJECTED;
        default:
            return 0;
    }
}

/// Of the ring. What makes no sense is no room.
std::uint64_t free_bytes(const incast_source& source) {
    const std::uint64_t used = source.committed - source.header().taken.load(std::memory_order_acquire);
    return used > source.welcome.ring_bytes ? 0 : source.welcome.ring_bytes - used;
}

/// Sleeps until the readout unit has taken so much that `is_met`: 1; 0: in time it did not.
template <class IsMet>
int wait_until(incast_source& source, int timeout_ms, IsMet&& is_met) {
    layout::RingHeader& header = source.header();
    const Limit limit(timeout_ms);
    for (;;) {
        const std::uint32_t news = header.news.load(std::memory_order_acquire);
        if (const int end = end_of(source); end != 0) return end;
        if (is_met()) return 1;
        if (has_ended(source)) {
            const int end = end_of(source);  // closed between the two looks: it may have said why
            return end != 0 ? end : INCAST_SOURCE_LOST;
        }
        const int left = limit.left_of(look_for_ends_ms);
        if (left == 0) return 0;
        header.asleep.store(1, std::memory_order_relaxed);
        // The readout unit takes, then looks whether somebody sleeps: one of the two sees the other.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        int slept = 0;
        if (!is_met() && end_of(source) == 0) {
            const incast::consumer::Watched watched = incast::consumer::watch(header.news, news);
            slept = incast::consumer::sleep_on(&watched, 1, left);
        }
        header.asleep.store(0, std::memory_order_relaxed);
        if (slept == EINTR) return is_met() ? 1 : 0;
    }
}

/// Hands over the record of `bytes` that lies behind the last one.
void publish(incast_source& source, std::uint32_t start, std::uint64_t packet_bytes, std::uint64_t bytes) {
    layout::RecordHead head;
    head.packet_bytes = packet_bytes;
    head.start = start;
    std::memcpy(source.record(), &head, sizeof head);
    source.committed += bytes;
    source.has_space = false;
    source.header().committed.store(source.committed, std::memory_order_release);
}

/// Before the fragment, which lies where it was written: the header and the tables of an MFP that holds it alone.
void write_prefix(wire::MutableBytes out, bool wide, std::uint16_t source, std::uint64_t event, std::uint8_t type,
                  std::uint64_t bytes) {
    constexpr std::uint8_t align_log2 = 3;
    const std::uint64_t packet_bytes = prefix_of(wide) + bytes;
    std::memset(out.data(), 0, out.size());
    wire::store(out, 0, wide ? wire::mfp_wide_magic : wire::mfp_magic);
    wire::store(out, 2, std::uint16_t{1});
    wire::store(out, 8, event);
    if (wide) {
        wire::store(out, 4, wire::mfp_wide_version);
        wire::store(out, 5, align_log2);
        wire::store(out, 16, packet_bytes);
        wire::store(out, 24, source);
        wire::store(out, wire::mfp_wide_header_bytes, type);
        wire::store(out, wire::mfp_wide_header_bytes + 4, static_cast<std::uint32_t>(bytes));
    } else {
        wire::store(out, 4, static_cast<std::uint32_t>(packet_bytes));
        wire::store(out, 16, source);
        wire::store(out, 18, align_log2);
        wire::store(out, wire::mfp_header_bytes, type);
        wire::store(out, wire::mfp_header_bytes + 4, static_cast<std::uint16_t>(bytes));
    }
}

}  // namespace

int incast_source_get_info(const incast_source* source, incast_source_info* info) {
    if (source == nullptr || info == nullptr) return INCAST_SOURCE_ARGUMENT;
    const layout::Welcome& welcome = source->welcome;
    *info = {};
    info->run = welcome.run;
    info->total_events = welcome.total_events;
    info->most_bytes = layout::most_record_bytes(welcome.ring_bytes) - layout::line_bytes;
    info->node = welcome.node;
    info->packing = welcome.packing;
    info->source = static_cast<std::uint16_t>(welcome.source);
    return INCAST_SOURCE_OK;
}

int incast_source_space(incast_source* source, std::uint64_t bytes, int timeout_ms, void** space) {
    if (source == nullptr || space == nullptr) return INCAST_SOURCE_ARGUMENT;
    *space = nullptr;
    source->has_space = false;
    const std::uint64_t ring = source->welcome.ring_bytes;
    if (bytes > layout::most_record_bytes(ring) - layout::line_bytes) return INCAST_SOURCE_TOO_LARGE;
    const std::uint64_t record = layout::record_bytes(layout::most_start, bytes);
    const std::uint64_t to_end = ring - source->committed % ring;
    const std::uint64_t skipped = to_end < record ? to_end : 0;
    const int status = wait_until(*source, timeout_ms, [&] { return free_bytes(*source) >= skipped + record; });
    if (status <= 0) return status;
    if (skipped > 0) publish(*source, 0, 0, skipped);
    source->space = bytes;
    source->has_space = true;
    *space = source->record() + layout::most_start;
    return 1;
}

int incast_source_commit(incast_source* source, std::uint64_t event, std::uint8_t type, std::uint8_t what,
                         std::uint64_t bytes) {
    if (source == nullptr || !source->has_space || bytes > source->space ||
        event == std::numeric_limits<std::uint64_t>::max()) {
        return INCAST_SOURCE_ARGUMENT;
    }
    const bool there = what == INCAST_SOURCE_THERE;
    if (there ? type >= first_reserved_type : what < INCAST_SOURCE_LATE || what > INCAST_SOURCE_DROPPED || bytes != 0) {
        return INCAST_SOURCE_ARGUMENT;
    }
    if (const int end = end_of(*source); end != 0) return end;
    const bool wide = bytes > wire::mfp_max_fragment_bytes;
    const auto start = static_cast<std::uint32_t>(layout::most_start - prefix_of(wide));
    const std::uint8_t said = there ? type : wire::flag_type(static_cast<wire::SourceFlag>(what));
    const std::uint64_t packet_bytes = prefix_of(wide) + bytes;
    write_prefix({source->record() + start, prefix_of(wide)}, wide, static_cast<std::uint16_t>(source->welcome.source),
                 event, said, bytes);
    publish(*source, start, packet_bytes, layout::record_bytes(start, packet_bytes));
    return INCAST_SOURCE_OK;
}

int incast_source_commit_mfp(incast_source* source, std::uint64_t bytes) {
    if (source == nullptr || !source->has_space || bytes == 0 || bytes > source->space) return INCAST_SOURCE_ARGUMENT;
    if (const int end = end_of(*source); end != 0) return end;
    publish(*source, layout::most_start, bytes, layout::record_bytes(layout::most_start, bytes));
    return INCAST_SOURCE_OK;
}

std::uint64_t incast_source_next_event(const incast_source* source) {
    return source == nullptr ? 0 : source->header().next_event.load(std::memory_order_acquire);
}

int incast_source_flush(incast_source* source, int timeout_ms) {
    if (source == nullptr) return INCAST_SOURCE_ARGUMENT;
    return wait_until(*source, timeout_ms, [&] { return free_bytes(*source) == source->welcome.ring_bytes; });
}

const char* incast_source_text(int status) {
    switch (status) {
        case INCAST_SOURCE_ENDED:
            return "the run has ended";
        case INCAST_SOURCE_LOST:
            return "the readout unit's process died";
        case INCAST_SOURCE_EJECTED:
            return "the readout unit dropped this program: what it wrote made no sense";
        case INCAST_SOURCE_NOBODY:
            return "no readout unit has that source under that name on this host";
        case INCAST_SOURCE_TAKEN:
            return "another program is that source";
        case INCAST_SOURCE_REFUSED:
            return "the readout unit belongs to another user, or is of another version";
        case INCAST_SOURCE_SYSTEM:
            return "a system call failed";
        case INCAST_SOURCE_ARGUMENT:
            return "an argument that cannot be";
        case INCAST_SOURCE_TOO_LARGE:
            return "more than the memory ever has at once";
        default:
            return status < 0 ? "an unknown status" : "ok";
    }
}
