#include "runtime/sinks/consumer/consumer_sink.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "os/memory_file.h"

namespace incast::sinks {

using consumer::DirectoryHeader;
using consumer::Record;
using consumer::SourceEntry;
using consumer::State;

namespace {

// How soon a process that comes or dies is noticed by a busy node: the look is a system call.
constexpr Time look_interval = ps_per_ms;

std::uint32_t slots_of(const protocol::Config& config) {
    return config.credits + config.quarantine_slots + config.held_slots;
}

}  // namespace

Result<std::unique_ptr<ConsumerSink>> ConsumerSink::open(const SinkOptions& options, const protocol::Config& config) {
    if (options.phantom_bodies) {
        return Error{
            "sink consumer: this transport moves no payload, so there is nothing to read; verify, touch and null work"};
    }
    if (config.self_traffic == protocol::SelfTraffic::pointer) {
        return Error{
            "sink consumer: fragments of a node for itself must lie in the slot; allowed: protocol.self_traffic = "
            "copy"};
    }
    auto door = ConsumerDoor::open(options.consumer.name, options.node);
    if (!door) {
        return door.error();
    }
    return std::unique_ptr<ConsumerSink>(new ConsumerSink(options, config, std::move(*door)));
}

ConsumerSink::ConsumerSink(const SinkOptions& options, const protocol::Config& config, ConsumerDoor door)
    : MeteredSink(options),
      options_(options.consumer),
      run_(config.run),
      node_(options.node),
      incarnation_(options.incarnation),
      window_(options.consumer.window),
      door_(std::move(door)),
      uses_(slots_of(config)),
      verdict_of_slot_(slots_of(config)),
      orphans_(slots_of(config)),
      returned_(slots_of(config)),
      durable_(slots_of(config)) {
    std::ranges::transform(config.sources, std::back_inserter(ids_), &protocol::SourceSpec::id);
    chosen_.reserve(options_.consumers);
    slots_.reserve(window_);
    verdicts_.reserve(window_);
}

ConsumerSink::~ConsumerSink() {
    for (const std::unique_ptr<Attached>& process : attached_) {
        process->queue.end(State::ended);
        process->wake_if_asleep();
    }
}

Result<Ok> ConsumerSink::attach(Transport& transport, Local slots) {
    const auto shared = transport.share(slots);
    if (!shared) {
        return Error{"sink consumer: " + shared.error().message};
    }
    return attach(os::Descriptor(*shared), transport.memory(slots));
}

Result<Ok> ConsumerSink::attach(os::Descriptor file, Bytes memory) {
    payload_ = memory;
    auto directory = SharedPages::make(consumer::directory_bytes(uses_.size(), ids_.size()));
    if (!directory) {
        return Error{"sink consumer: " + directory.error().message};
    }
    directory_ = std::move(*directory);
    auto* header = new (directory_.bytes().data()) DirectoryHeader;
    header->slots = static_cast<std::uint32_t>(uses_.size());
    for (std::uint32_t slot = 0; slot < uses_.size(); ++slot) {
        auto* entries = reinterpret_cast<SourceEntry*>(new (&record(slot)) Record + 1);
        for (std::size_t source = 0; source < ids_.size(); ++source) {
            entries[source].source = ids_[source];  // who attaches knows them before the first event
        }
    }
    auto to_read = os::open_for_reading(directory_.file());
    if (!to_read) {
        return Error{"sink consumer: " + to_read.error().message};
    }
    consumer::Welcome welcome;
    welcome.run = run_;
    welcome.payload_bytes = payload_.size();
    welcome.directory_bytes = directory_.bytes().size();
    welcome.queue_bytes = consumer::queue_bytes(window_);
    welcome.control_bytes = consumer::control_bytes(window_);
    welcome.node = node_;
    welcome.incarnation = incarnation_;
    welcome.n_sources = static_cast<std::uint32_t>(ids_.size());
    welcome.slots = static_cast<std::uint32_t>(uses_.size());
    welcome.window = window_;
    door_.furnish(welcome, std::move(file), std::move(*to_read));
    return Ok{};
}

Record& ConsumerSink::record(std::uint32_t slot) const {
    return *reinterpret_cast<Record*>(directory_.bytes().data() + sizeof(DirectoryHeader) +
                                      slot * consumer::record_bytes(ids_.size()));
}

DirectoryHeader& ConsumerSink::directory_header() const {
    return *reinterpret_cast<DirectoryHeader*>(directory_.bytes().data());
}

// --- handing out
// -------------------------------------------------------------------------------------------------------------------

bool ConsumerSink::describe(const protocol::BuiltMep& mep) {
    Record& to = record(mep.slot);
    auto* entries = reinterpret_cast<SourceEntry*>(&to + 1);
    for (std::size_t source = 0; source < mep.sources.size(); ++source) {
        const protocol::BuiltSource& built = mep.sources[source];
        SourceEntry entry{0, 0, ids_[source], static_cast<std::uint8_t>(built.flag), 0};
        if (!built.body.empty()) {
            if (built.body.data() < payload_.data() ||
                built.body.data() + built.body.size() > payload_.data() + payload_.size()) {
                failure_ = fmt::format("sink consumer: MEP {} source {} lies outside the slots", mep.mep, ids_[source]);
                return false;
            }
            entry.offset = static_cast<std::uint64_t>(built.body.data() - payload_.data());
            entry.bytes = static_cast<std::uint32_t>(built.body.size());
        }
        entries[source] = entry;
    }
    to.mep = mep.mep;
    to.first_event = mep.first_event;
    to.goodput_bytes = mep.goodput_bytes;
    to.n_events = mep.n_events;
    to.missing_sources = mep.missing_sources;
    to.attempt = mep.attempt;
    to.redelivered = mep.redelivered ? 1 : 0;
    return true;
}

/// Of those with room; among equals each in turn. Nobody: nullptr.
Attached* ConsumerSink::least_busy() {
    Attached* best = nullptr;
    const std::size_t n = attached_.size();
    for (std::size_t step = 0; step < n; ++step) {
        Attached& process = *attached_[(turn_ + step) % n];
        if (process.queue.has_room() && (best == nullptr || process.queue.outstanding() < best->queue.outstanding())) {
            best = &process;
        }
    }
    ++turn_;
    return best;
}

/// Who gets the next MEP; nobody if there is no room, as the policy sees it.
void ConsumerSink::choose() {
    chosen_.clear();
    if (options_.delivery == ConsumerOptions::Delivery::one) {
        if (Attached* process = least_busy(); process != nullptr) {
            chosen_.push_back(process);
        }
        return;
    }
    for (const std::unique_ptr<Attached>& process : attached_) {
        if (process->queue.has_room()) {
            chosen_.push_back(process.get());
        } else if (is_dropping()) {
            process->queue.miss();
            ++stats_.consumers.missed_meps;
        } else {
            chosen_.clear();
            return;
        }
    }
}

void ConsumerSink::hand_over(Attached& process, std::uint32_t slot) {
    if (process.queue.outstanding() == 0) {
        process.progress = now_;
    }
    process.queue.deliver(uses_[slot].serial, slot, uses_[slot].repeated);
    process.wake_if_asleep();
}

protocol::Sink::Taken ConsumerSink::hand_out(Time now, const protocol::BuiltMep& mep, bool repeated) {
    now_ = now;
    refused_ = true;
    if (!failure_.empty()) {
        return Taken::busy;
    }
    choose();
    if (chosen_.empty() && !is_dropping()) {
        return Taken::busy;
    }
    if (chosen_.empty()) {
        refused_ = false;
        ++stats_.consumers.dropped_meps;
        count(mep);
        count_latency(now, begin_of(mep));
        return Taken::done;
    }
    if (!describe(mep)) {
        return Taken::busy;
    }
    refused_ = false;
    Use& use = uses_[mep.slot];
    use = {++serials_, mep.mep,      static_cast<std::uint32_t>(chosen_.size()), false, repeated, mep.n_events,
           0,          begin_of(mep)};
    ++held_;
    record(mep.slot).serial.store(use.serial, std::memory_order_release);
    for (Attached* process : chosen_) {
        hand_over(*process, mep.slot);
    }
    ++stats_.consumers.taken_meps;
    count(mep);
    if (is_dropping()) {
        count_latency(now, use.begin);
        return Taken::held;
    }
    return Taken::held_pending;
}

// --- taking back
// -------------------------------------------------------------------------------------------------------------------

/// Nobody has it any more: the slot goes back to the builder unit.
void ConsumerSink::finish(std::uint32_t slot) {
    Use& use = uses_[slot];
    // Before anything can be written there again: a reader that was too slow must see it (layout.h).
    record(slot).serial.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    returned_.must_push(static_cast<std::uint16_t>(slot));
    --held_;
    if (!is_dropping()) {
        durable_.must_push(use.mep);
        count_latency(now_, use.begin);
    }
    verdict_of_slot_[slot] = use.verdict;
    use = {};
}

/// False: the verdict makes no sense. The event was given back all the same.
bool ConsumerSink::given_back(std::uint32_t slot, std::uint64_t verdict) {
    Use& use = uses_[slot];
    const bool is_sane = verdict <= std::uint64_t{use.n_events} + 1;
    stats_.consumers.done_meps += use.done ? 0 : 1;
    use.done = true;
    if (verdict != 0 && is_sane && use.verdict == 0) {
        use.verdict = verdict;
        ++stats_.consumers.judged_meps;
        stats_.consumers.accepted_events += verdict - 1;
        stats_.consumers.rejected_events += use.n_events - (verdict - 1);
    }
    if (--use.holders == 0) {
        finish(slot);
    }
    return is_sane;
}

/// False: what it says makes no sense.
bool ConsumerSink::collect_from(Attached& process) {
    slots_.clear();
    verdicts_.clear();
    bool is_sane = process.queue.collect(slots_, verdicts_) != ConsumerQueue::Said::nonsense;
    for (std::size_t index = 0; index < slots_.size(); ++index) {
        process.progress = now_;
        is_sane = given_back(slots_[index], verdicts_[index]) && is_sane;
    }
    return is_sane;
}

void ConsumerSink::offer_orphans() {
    while (!orphans_.empty()) {
        Attached* process = least_busy();
        if (process == nullptr) {
            return;
        }
        const std::uint32_t slot = orphans_.front();
        orphans_.pop();
        uses_[slot].repeated = true;
        uses_[slot].holders = 1;
        ++stats_.consumers.repeated_meps;
        hand_over(*process, slot);
    }
}

std::size_t ConsumerSink::surrender(std::span<std::uint16_t> slots) {
    std::size_t count = 0;
    for (; count < slots.size() && attached_.empty() && !orphans_.empty(); ++count) {
        const std::uint32_t slot = orphans_.front();
        orphans_.pop();
        record(slot).serial.store(0, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_release);
        uses_[slot] = {};
        --held_;
        slots[count] = static_cast<std::uint16_t>(slot);
    }
    return count;
}

void ConsumerSink::remove(std::size_t index, bool ejected) {
    Attached& process = *attached_[index];
    if (!ejected && !collect_from(process)) {  // what it gave back before it went counts
        ejected = true;
    }
    ++(ejected ? stats_.consumers.ejected : stats_.consumers.left);
    if (ejected) {
        // Before its events are anybody else's.
        process.queue.end(State::ejected);
        process.wake_if_asleep();
    }
    slots_.clear();
    process.queue.take_all(slots_);
    for (const std::uint32_t slot : slots_) {
        Use& use = uses_[slot];
        if (--use.holders > 0) {
            continue;
        }
        if (use.done) {
            finish(slot);
        } else if (is_dropping()) {
            ++stats_.consumers.abandoned_meps;
            finish(slot);
        } else {
            orphans_.must_push(slot);
        }
    }
    door_.forget(process);
    attached_.erase(attached_.begin() + static_cast<std::ptrdiff_t>(index));
}

void ConsumerSink::look_around() {
    news_.come.clear();
    news_.gone.clear();
    news_.noisy.clear();
    news_.refused = 0;
    door_.look(options_.consumers - attached_.size(), news_);
    stats_.consumers.refused += news_.refused;
    for (std::size_t index = attached_.size(); index > 0; --index) {
        const Attached& process = *attached_[index - 1];
        const bool gone = std::ranges::find(news_.gone, process.id) != news_.gone.end();
        const bool late =
            options_.patience > 0 && process.queue.outstanding() > 0 && now_ - process.progress > options_.patience;
        if (gone || late || std::ranges::find(news_.noisy, process.id) != news_.noisy.end()) {
            remove(index - 1, !gone);
        }
    }
    for (std::unique_ptr<Attached>& process : news_.come) {
        attached_.push_back(std::move(process));
        ++stats_.consumers.attached;
    }
}

void ConsumerSink::tick(Time now) {
    now_ = now;
    if (directory_.bytes().empty()) {
        return;
    }
    if (asleep_) {
        asleep_ = false;
        directory_header().asleep.store(0, std::memory_order_relaxed);
        next_look_ = now;
    }
    for (std::size_t index = attached_.size(); index > 0; --index) {
        if (!collect_from(*attached_[index - 1])) {
            remove(index - 1, true);
        }
    }
    if (now >= next_look_) {
        look_around();
        next_look_ = now + look_interval;
    }
    if (!orphans_.empty()) {
        offer_orphans();
    }
}

std::size_t ConsumerSink::returned(Time, std::span<std::uint16_t> slots) {
    std::size_t count = 0;
    for (; count < slots.size() && !returned_.empty(); ++count) {
        slots[count] = returned_.front();
        returned_.pop();
    }
    return count;
}

std::size_t ConsumerSink::durable(Time, std::span<protocol::MepId> meps) {
    std::size_t count = 0;
    for (; count < meps.size() && !durable_.empty(); ++count) {
        meps[count] = durable_.front();
        durable_.pop();
    }
    return count;
}

// --- waiting
// -------------------------------------------------------------------------------------------------------------------

Time ConsumerSink::next_deadline() const {
    if (!returned_.empty() || !durable_.empty()) {
        return now_;
    }
    // A ring wakes the driver; where nobody sleeps on wait_fd(), looking now and then does.
    return held_ > 0 || refused_ ? now_ + look_interval : time_never;
}

bool ConsumerSink::prepare_wait() {
    if (directory_.bytes().empty() || held_ == 0) {
        return true;  // whoever comes or goes makes wait_fd() readable
    }
    asleep_ = true;
    directory_header().asleep.store(++sleeps_, std::memory_order_relaxed);
    // A process gives back, then looks whether somebody sleeps: one of the two sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return std::ranges::all_of(attached_,
                               [](const std::unique_ptr<Attached>& process) { return !process->queue.has_news(); });
}

}  // namespace incast::sinks
