// Taking events and giving them back: what libincast_consumer does per event. It uses the kernel and the C library
// only, allocates nothing, and believes the builder unit no more than it must: what it reads of it is checked before it
// is used.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <sys/socket.h>

#include <incast/consumer.h>

#include "consumer/handle.h"
#include "consumer/layout.h"
#include "consumer/limit.h"

namespace layout = incast::consumer;
using layout::Limit;
using layout::Sleep;

static_assert(sizeof(incast_consumer_source) == sizeof(layout::SourceEntry) &&
              offsetof(incast_consumer_source, flag) == offsetof(layout::SourceEntry, flag));

// --- sleeping
// -------------------------------------------------------------------------------------------------------------------

namespace {

bool has_news(const incast_consumer& consumer) {
    return consumer.control_page().news.load(std::memory_order_acquire) != consumer.taken();
}

}  // namespace

bool layout::has_something(const incast_consumer& consumer) {
    return has_news(consumer) || consumer.gone;
}

bool layout::has_ended(incast_consumer& consumer) {
    if (!consumer.gone) {
        char ring = 0;
        const ssize_t got = ::recv(consumer.socket, &ring, sizeof ring, MSG_DONTWAIT);
        consumer.gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    }
    return consumer.gone;
}

bool layout::may_sleep(incast_consumer& consumer, Sleep how) {
    if (consumer.sleep != how) {
        consumer.sleep = how;
        consumer.control_page().waiting.store(sleep_word(++consumer.sleeps, how == Sleep::on_word),
                                              std::memory_order_relaxed);
        // The builder unit delivers, then looks whether somebody sleeps: one of the two sees the other.
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    return !has_something(consumer);
}

namespace {

void wake_up(incast_consumer& consumer) {
    const Sleep from = std::exchange(consumer.sleep, Sleep::none);
    if (from != Sleep::none) {
        consumer.control_page().waiting.store(0, std::memory_order_relaxed);
    }
    if (from == Sleep::on_socket) {
        (void)layout::has_ended(consumer);  // takes the ring
    }
}

// --- events
// -------------------------------------------------------------------------------------------------------------------

bool belongs(const incast_consumer& consumer, const incast_consumer_event& event) {
    return event.serial != 0 && event.internal[0] < consumer.welcome.slots &&
           event.internal[1] < consumer.welcome.window && event.n_sources == consumer.welcome.n_sources;
}

/// 1: taken; 0: none; or why there will be none.
int take(incast_consumer& consumer, incast_consumer_event& event) {
    const layout::QueueHeader& header = consumer.queue_header();
    for (bool looked_for_end = false;; looked_for_end = true) {
        // In this order: after its last event the builder unit writes that it ended.
        const layout::State state = header.state.load(std::memory_order_acquire);
        if (state == layout::State::ejected) {
            return INCAST_CONSUMER_EJECTED;
        }
        // Nothing is taken before `news` tells of it: that word says whether there is more.
        if (has_news(consumer) && header.delivered.load(std::memory_order_relaxed) != consumer.position) {
            break;
        }
        if (state == layout::State::ended) {
            return INCAST_CONSUMER_ENDED;
        }
        if (looked_for_end) {
            return INCAST_CONSUMER_LOST;
        }
        // An event came since the last time: that the socket has ended can wait, looking at it is a system call.
        if (!std::exchange(consumer.quiet, true) || !layout::has_ended(consumer)) {
            return 0;
        }
        // Closed between the two looks: once more, it may have said why.
    }
    const layout::QueueEntry entry = consumer.entry(consumer.position);
    if (entry.serial == 0 || entry.slot >= consumer.welcome.slots || entry.cell >= consumer.welcome.window) {
        return INCAST_CONSUMER_LOST;  // no builder unit writes that
    }
    ++consumer.position;
    consumer.quiet = false;
    const layout::Record& record = consumer.record(entry.slot);
    event = {};
    event.serial = entry.serial;
    event.mep = record.mep;
    event.first_event = record.first_event;
    event.goodput_bytes = record.goodput_bytes;
    event.missed = entry.missed;
    event.n_events = record.n_events;
    event.n_sources = consumer.welcome.n_sources;
    event.missing_sources = record.missing_sources;
    event.attempt = record.attempt;
    if (record.redelivered != 0) {
        event.flags |= INCAST_CONSUMER_REDELIVERED;
    }
    if (entry.repeated != 0) {
        event.flags |= INCAST_CONSUMER_REPEATED;
    }
    event.internal[0] = entry.slot;
    event.internal[1] = entry.cell;
    return 1;
}

}  // namespace

// --- the public functions
// -------------------------------------------------------------------------------------------------------------------

int incast_consumer_get_info(const incast_consumer* consumer, incast_consumer_info* info) {
    if (consumer == nullptr || info == nullptr) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    const layout::Welcome& welcome = consumer->welcome;
    *info = {welcome.run, welcome.payload_bytes, welcome.node, welcome.incarnation, welcome.n_sources, welcome.window};
    return INCAST_CONSUMER_OK;
}

int incast_consumer_next(incast_consumer* consumer, int timeout_ms, incast_consumer_event* event) {
    if (consumer == nullptr || event == nullptr) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    wake_up(*consumer);
    int status = take(*consumer, *event);
    if (status != 0 || timeout_ms == 0) {
        return status;
    }
    for (const Limit limit(timeout_ms); status == 0 && limit.left() != 0; status = take(*consumer, *event)) {
        const layout::Watched news = layout::watch_news(*consumer);
        const int error = layout::may_sleep(*consumer, Sleep::on_word)
                              ? layout::sleep_on(&news, 1, limit.left_of(layout::look_for_ends_ms))
                              : 0;
        wake_up(*consumer);
        if (error != 0) {
            errno = error;
            return error == EINTR ? 0 : INCAST_CONSUMER_SYSTEM;
        }
    }
    return status;
}

int incast_consumer_get_mfp(const incast_consumer* consumer, const incast_consumer_event* event, std::uint32_t index,
                            incast_consumer_mfp* mfp) {
    const incast_consumer_source* sources = incast_consumer_sources(consumer, event);
    if (sources == nullptr || mfp == nullptr || index >= event->n_sources) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    const incast_consumer_source source = sources[index];
    const std::uint64_t size = consumer->welcome.payload_bytes;
    if (source.bytes > size || source.offset > size - source.bytes) {
        return INCAST_CONSUMER_OVERTAKEN;
    }
    const auto* data = reinterpret_cast<const std::uint8_t*>(consumer->payload.bytes + source.offset);
    *mfp = {source.bytes > 0 ? data : nullptr, source.bytes, source.source, source.flag, 0};
    return INCAST_CONSUMER_OK;
}

const incast_consumer_source* incast_consumer_sources(const incast_consumer* consumer,
                                                      const incast_consumer_event* event) {
    if (consumer == nullptr || event == nullptr || !belongs(*consumer, *event)) {
        return nullptr;
    }
    return reinterpret_cast<const incast_consumer_source*>(&consumer->record(event->internal[0]) + 1);
}

const std::uint8_t* incast_consumer_payload(const incast_consumer* consumer) {
    return consumer == nullptr ? nullptr : reinterpret_cast<const std::uint8_t*>(consumer->payload.bytes);
}

int incast_consumer_intact(const incast_consumer* consumer, const incast_consumer_event* event) {
    if (consumer == nullptr || event == nullptr || !belongs(*consumer, *event)) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    // What was read of the event was read before the serial is.
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t serial = consumer->record(event->internal[0]).serial.load(std::memory_order_relaxed);
    return serial == event->serial ? INCAST_CONSUMER_OK : INCAST_CONSUMER_OVERTAKEN;
}

namespace {

int give_back(incast_consumer* consumer, const incast_consumer_event* event, std::uint64_t verdict) {
    if (consumer == nullptr || event == nullptr || !belongs(*consumer, *event)) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    layout::Cell& cell = consumer->cell(event->internal[1]);
    if (cell.load(std::memory_order_relaxed) == event->serial) {
        return INCAST_CONSUMER_ARGUMENT;  // given back before
    }
    if (consumer->queue_header().state.load(std::memory_order_acquire) == layout::State::ejected ||
        incast_consumer_intact(consumer, event) != INCAST_CONSUMER_OK) {
        return INCAST_CONSUMER_OVERTAKEN;
    }
    consumer->verdict(event->internal[1]).store(verdict, std::memory_order_relaxed);
    // Everything that was read of the event was read before this is seen, and its verdict was written.
    cell.store(event->serial, std::memory_order_release);
    consumer->control_page().releases.fetch_add(1, std::memory_order_release);
    // The builder unit says that it sleeps, then looks at `releases` once more: one of the two sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::uint64_t asleep = consumer->directory_header().asleep.load(std::memory_order_relaxed);
    if (asleep != 0 && consumer->rung.exchange(asleep, std::memory_order_relaxed) != asleep) {
        const char ring = 0;
        (void)::send(consumer->socket, &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return INCAST_CONSUMER_OK;
}

}  // namespace

int incast_consumer_release(incast_consumer* consumer, const incast_consumer_event* event) {
    return give_back(consumer, event, 0);
}

int incast_consumer_judge(incast_consumer* consumer, const incast_consumer_event* event, std::uint32_t accepted) {
    if (event == nullptr || accepted > event->n_events) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    return give_back(consumer, event, std::uint64_t{accepted} + 1);
}

int incast_consumer_fd(const incast_consumer* consumer) {
    return consumer == nullptr ? INCAST_CONSUMER_ARGUMENT : consumer->socket;
}

int incast_consumer_arm(incast_consumer* consumer) {
    if (consumer == nullptr) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    consumer->sleep = Sleep::none;  // another sleep, which is rung for again
    return layout::may_sleep(*consumer, Sleep::on_socket) ? 0 : 1;
}

const char* incast_consumer_text(int status) {
    switch (status) {
        case INCAST_CONSUMER_OK:
            return "success";
        case INCAST_CONSUMER_ENDED:
            return "the builder unit ended";
        case INCAST_CONSUMER_LOST:
            return "the builder unit was lost";
        case INCAST_CONSUMER_EJECTED:
            return "the builder unit ejected this consumer";
        case INCAST_CONSUMER_OVERTAKEN:
            return "the builder unit took the event back";
        case INCAST_CONSUMER_NOBODY:
            return "no builder unit takes consumers under that name";
        case INCAST_CONSUMER_FULL:
            return "the builder unit has all the consumers it may have";
        case INCAST_CONSUMER_REFUSED:
            return "the builder unit is of another user or another version of Incast";
        case INCAST_CONSUMER_SYSTEM:
            return "a system call failed";
        case INCAST_CONSUMER_ARGUMENT:
            return "bad argument";
        default:
            return status > 0 ? "success" : "unknown status";
    }
}
