#include "farm/farm_node.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include <incast/consumer.h>

#include "base/units.h"
#include "os/memory_file.h"
#include "os/signals.h"
#include "wire/source_flag.h"

namespace incast::farm {

namespace {

constexpr Time call_interval = 200 * ps_per_ms;
constexpr Time longest_sleep = 100 * ps_per_ms;
constexpr std::uint32_t most_doors = 1024;

void tell(const std::string& line) {
    fmt::print(stderr, "incast consume: {}\n", line);
}

/// The lowest number that no builder unit or farm node of this host has under that name.
std::uint32_t free_node(const std::string& name) {
    std::array<std::uint32_t, most_doors> taken;
    const int count = incast_consumer_builders(name.c_str(), taken.data(), static_cast<int>(taken.size()));
    std::uint32_t node = 0;
    while (std::find(taken.begin(), taken.begin() + std::clamp(count, 0, static_cast<int>(most_doors)), node) !=
           taken.begin() + std::clamp(count, 0, static_cast<int>(most_doors))) {
        ++node;
    }
    return node;
}

}  // namespace

FarmNode::FarmNode(FarmNodeOptions options, Wires wires) : options_(std::move(options)), wires_(std::move(wires)) {
    slots_.resize(slots());
    for (std::uint32_t index = 0; index < options_.addresses.size(); ++index) {
        auto link = std::make_unique<Link>();
        link->address = options_.addresses[index];
        for (std::uint32_t slot = 0; slot < options_.window; ++slot) {
            link->supply.add_slot(index * options_.window + slot);
        }
        links_.push_back(std::move(link));
    }
}

FarmNode::~FarmNode() = default;

// --- the run
// -------------------------------------------------------------------------------------------------------------------

/// The run is known: processes may attach from now on.
Result<Ok> FarmNode::open(const Link& link) {
    welcome_ = link.welcome;
    numbers_ = link.numbers;
    for (Slot& slot : slots_) {
        slot.sources.resize(welcome_.n_sources);
    }
    // Address space: of a slot only what MEPs fill is ever there.
    const std::uint64_t slot_bytes = aligned(std::max<std::uint64_t>(welcome_.mep_bytes, 1));
    auto memory = sinks::SharedPages::make(slot_bytes * slots());
    if (!memory) {
        return memory.error();
    }
    memory_ = std::move(*memory);
    slot_bytes_ = slot_bytes;
    return options_.drop ? Ok{} : open_sink();
}

Result<Ok> FarmNode::open_sink() {
    config_.run = welcome_.run;
    for (const std::uint16_t number : numbers_) {
        config_.sources.push_back({.id = number});
    }
    config_.credits = slots();
    config_.quarantine_slots = 0;
    config_.held_slots = 0;
    config_.retention_meps = slots();
    config_.self_traffic = protocol::SelfTraffic::copy;
    sinks::SinkOptions options;
    options.node = options_.node >= 0 ? static_cast<std::uint32_t>(options_.node) : free_node(options_.name);
    if (options_.once) {
        options.files.path = options_.files;
        auto sink = OnceSink::open(options, config_);
        if (!sink) {
            return sink.error();
        }
        once_ = sink->get();
        sink_ = std::move(*sink);
        return Ok{};
    }
    if (!options_.files.empty() || !options_.command.empty()) {
        options.kind = options_.files.empty() ? sinks::Kind::command : sinks::Kind::mep;
        options.files.path = options_.files;
        options.command.command = options_.command;
        // Files of an earlier farm node stay as they are.
        const auto is_taken = [&] {
            return std::filesystem::exists(std::filesystem::path(options_.files) /
                                           fmt::format("manifest-{}-{}.jsonl", options.node, options.incarnation));
        };
        while (!options_.files.empty() && is_taken()) {
            ++options.incarnation;
        }
        auto sink = sinks::make_sink(options, config_);
        if (!sink) {
            return sink.error();
        }
        sink_ = std::move(*sink);
        return Ok{};
    }
    options.kind = sinks::Kind::consumer;
    options.consumer.name = options_.name;
    options.consumer.consumers = options_.processes;
    options.consumer.window = options_.process_window;
    options.consumer.patience = options_.patience;
    auto sink = sinks::ConsumerSink::open(options, config_);
    if (!sink) {
        return sink.error();
    }
    auto file = os::open_for_reading(memory_.file());
    if (!file) {
        return file.error();
    }
    if (auto attached = (*sink)->attach(std::move(*file), memory_.bytes()); !attached) {
        return attached.error();
    }
    door_ = sink->get();
    sink_ = std::move(*sink);
    fmt::print("processes attach to {} {}\n", options_.name, options.node);
    std::fflush(stdout);
    return Ok{};
}

// --- dispatchers
// -------------------------------------------------------------------------------------------------------------------

Result<Ok> FarmNode::call_all() {
    for (const auto& link : links_) {
        if (link->has_ended) {
            continue;
        }
        if (is_leaving_ && !link->is_welcomed) {
            if (link->channel != nullptr) lose(*link, "");
            link->has_ended = true;
            continue;
        }
        if (link->channel == nullptr && now_ >= link->next_call) {
            call(*link);
        }
        if (!link->is_welcomed && now_ - link->gone_since > options_.timeout) {
            return Error{
                fmt::format("{}: no dispatcher for {}", link->address, base::format_duration(options_.timeout))};
        }
        if (link->is_welcomed && now_ - link->heard > options_.silence) {
            lose(*link, "it said nothing for " + base::format_duration(options_.silence));
        }
        if (link->channel != nullptr && now_ - link->said > alive_interval && link->out.is_empty()) {
            reply(*link, {.says = Says::alive});
        }
        if (link->is_welcomed && is_leaving_ && !link->is_leaving) {
            link->is_leaving = true;
            reply(*link, {.says = Says::leave});
        }
    }
    return Ok{};
}

void FarmNode::call(Link& link) {
    link.next_call = now_ + call_interval;
    const auto made = wires_.connect(link.address);
    if (!made) {
        failure_ = made.error().message;  // no matter of the network
        return;
    }
    link.channel = *made;
    ++link.life;
    link.out.clear();
    link.reads = Reads::welcome;
    link.rest = room_of(link.welcome);
    link.supply.begin();
    link.is_welcomed = link.is_leaving = false;
    link.may_read = true;
    link.heard = link.said = now_;
    incast_channel_set_user(link.channel, &link);
    Hello hello;
    std::array<char, 32> host{};
    (void)::gethostname(host.data(), host.size() - 1);
    const auto text = fmt::format("{}:{}", host.data(), ::getpid());
    std::memcpy(hello.name.data(), text.data(), std::min(text.size(), hello.name.size() - 1));
    link.out.keep(bytes_of(hello));
}

void FarmNode::lose(Link& link, const std::string& why) {
    if (link.is_welcomed) {
        tell(fmt::format("{}: {}", link.address, why));
    }
    incast_channel_abort(link.channel);
    link.channel = nullptr;
    link.out.clear();
    if (link.is_welcomed) {
        link.gone_since = now_;
    }
    link.is_welcomed = false;
    if (link.reads == Reads::table || link.reads == Reads::bodies) {
        link.supply.give_back(link.slot);
    }
    link.reads = Reads::welcome;
    // What waits is the dispatcher's again; what processes have they may finish.
    std::erase_if(waiting_, [&](std::uint32_t slot) {
        const bool is_its = slots_[slot].link == &link;
        if (is_its) link.supply.give_back(slot);
        return is_its;
    });
}

void FarmNode::reply(Link& link, const Reply& what) {
    link.out.keep(bytes_of(what));
    link.said = now_;
}

void FarmNode::hear(Link& link) {
    while (link.channel != nullptr) {
        const Got got = take(link.channel, link.rest);
        if (got == Got::some) {
            link.may_read = false;
            return;
        }
        if (got == Got::end && link.reads == Reads::frame) {
            incast_channel_close(link.channel);
            link.channel = nullptr;
            link.is_welcomed = false;
            link.has_ended = true;
            tell(fmt::format("{}: the dispatcher has ended", link.address));
            return;
        }
        if (got != Got::all) {
            return lose(link, got == Got::end ? "it ended" : incast_channel_state_message(link.channel));
        }
        link.heard = now_;
        if (!took(link)) {
            return lose(link, "the dispatcher is of another version or run, or broke the rules");
        }
    }
}

bool FarmNode::took(Link& link) {
    switch (link.reads) {
        case Reads::welcome:
            return take_welcome(link);
        case Reads::numbers:
            return take_numbers(link);
        case Reads::frame:
            return take_frame(link);
        case Reads::table:
            return take_table(link);
        case Reads::bodies:
            ++link.source;
            return next_body(link);
    }
    return false;
}

bool FarmNode::take_welcome(Link& link) {
    if (!is_sane(link.welcome)) {
        return false;
    }
    link.numbers.resize(link.welcome.n_sources);
    link.reads = Reads::numbers;
    link.rest = std::as_writable_bytes(std::span(link.numbers));
    return true;
}

bool FarmNode::take_numbers(Link& link) {
    if (slot_bytes_ == 0) {
        if (const auto opened = open(link); !opened) {
            failure_ = opened.error().message;
            return false;
        }
    }
    if (link.welcome.run != welcome_.run || link.welcome.n_sources != welcome_.n_sources ||
        link.welcome.mep_bytes > slot_bytes_ || link.numbers != numbers_) {
        return false;
    }
    tell(fmt::format("{}: joined", link.address));
    link.is_welcomed = true;
    link.reads = Reads::frame;
    link.rest = room_of(link.frame);
    return true;
}

bool FarmNode::take_frame(Link& link) {
    if (link.frame.what == What::alive) {
        link.rest = room_of(link.frame);
        return true;
    }
    const auto slot = link.supply.take(link.frame);
    if (!slot) {
        return false;
    }
    link.slot = *slot;
    link.table.resize(welcome_.n_sources);
    link.reads = Reads::table;
    link.rest = std::as_writable_bytes(std::span(link.table));
    return true;
}

bool FarmNode::take_table(Link& link) {
    if (room_for(link.table, slot_bytes_) > slot_bytes_) {
        return false;
    }
    Slot& slot = slots_[link.slot];
    std::uint64_t at = slot_bytes_ * link.slot;
    for (std::size_t index = 0; index < link.table.size(); ++index) {
        const SourceFrame& source = link.table[index];
        slot.sources[index] = {static_cast<wire::SourceFlag>(source.flag), nullptr,
                               memory_.bytes().subspan(at, source.bytes)};
        at += aligned(source.bytes);
    }
    link.reads = Reads::bodies;
    link.source = 0;
    return next_body(link);
}

/// Sources without an MFP are passed over.
bool FarmNode::next_body(Link& link) {
    while (link.source < link.table.size() && link.table[link.source].bytes == 0) {
        ++link.source;
    }
    if (link.source == link.table.size()) {
        came(link);
        link.reads = Reads::frame;
        link.rest = room_of(link.frame);
        return true;
    }
    const Bytes body = slots_[link.slot].sources[link.source].body;
    link.rest = {memory_.bytes().data() + (body.data() - memory_.bytes().data()), body.size()};
    return true;
}

void FarmNode::came(Link& link) {
    const MepFrame& frame = link.frame;
    Slot& slot = slots_[link.slot];
    slot.link = &link;
    slot.life = link.life;
    slot.ticket = frame.ticket;
    slot.is_repeated = (frame.flags & MepFrame::repeated) != 0;
    slot.mep = {};
    slot.mep.mep = frame.mep;
    slot.mep.attempt = frame.attempt;
    // Processes are told the one from the other; files and commands, that there may be another one.
    slot.mep.redelivered = (frame.flags & MepFrame::redelivered) != 0 || (door_ == nullptr && slot.is_repeated);
    slot.mep.slot = static_cast<std::uint16_t>(link.slot);
    slot.mep.first_event = frame.first_event;
    slot.mep.n_events = frame.n_events;
    slot.mep.goodput_bytes = frame.goodput_bytes;
    slot.mep.missing_sources = frame.missing_sources;
    slot.mep.flagged_sources = static_cast<std::uint32_t>(std::ranges::count_if(
        slot.sources, [](const protocol::BuiltSource& source) { return wire::is_defect(source.flag); }));
    slot.mep.assigned = slot.mep.completed = now_;
    slot.mep.sources = slot.sources;
    ++counts_.meps;
    counts_.events += frame.n_events;
    counts_.goodput_bytes += frame.goodput_bytes;
    counts_.repeated_meps += slot.is_repeated ? 1 : 0;
    if (options_.drop) {
        settle(link.slot, Says::done, 0);
    } else {
        waiting_.push_back(link.slot);
    }
}

// --- processes
// -------------------------------------------------------------------------------------------------------------------

void FarmNode::hand_out() {
    while (!waiting_.empty()) {
        const std::uint32_t slot = waiting_.front();
        if (takers() == 0) {
            refuse(slot, false);
            waiting_.pop_front();
            continue;
        }
        const protocol::BuiltMep& mep = slots_[slot].mep;
        const auto taken =
            door_ != nullptr ? door_->hand_out(now_, mep, slots_[slot].is_repeated) : sink_->take(now_, mep);
        if (taken == protocol::Sink::Taken::busy) {
            return;
        }
        waiting_.pop_front();
        if (taken == protocol::Sink::Taken::done) {
            settle(slot, Says::done, 0);
        } else if (taken == protocol::Sink::Taken::pending) {
            pending_.push_back(slot);
        }
    }
}

void FarmNode::refuse(std::uint32_t slot, bool was_seen) {
    ++counts_.refused_meps;
    settle(slot, Says::refused, was_seen ? 1 : 0);
}

/// The slot is free, and its dispatcher hears of it, unless it is another one by now.
void FarmNode::settle(std::uint32_t slot, Says says, std::uint64_t value) {
    Slot& each = slots_[slot];
    Link& link = *each.link;
    link.supply.give_back(slot);
    counts_.done_meps += says == Says::done ? 1 : 0;
    if (link.channel != nullptr && link.life == each.life) {
        reply(link, {.says = says, .ticket = each.ticket, .value = value});
    } else if (says == Says::done) {
        ++counts_.late_meps;
    }
}

void FarmNode::collect() {
    if (sink_ == nullptr) {
        return;
    }
    sink_->tick(now_);
    failure_ = failure_.empty() ? sink_->failure() : failure_;
    std::array<std::uint16_t, 64> slots;
    std::array<protocol::MepId, 64> meps;
    for (std::size_t many = meps.size(); many == meps.size();) {
        many = sink_->durable(now_, meps);
        for (std::size_t index = 0; index < many; ++index) {
            const auto found =
                std::ranges::find(pending_, meps[index], [&](std::uint32_t slot) { return slots_[slot].mep.mep; });
            if (found != pending_.end()) {
                settle(*found, Says::done, 0);
                pending_.erase(found);
            }
        }
    }
    if (door_ == nullptr) {
        return;
    }
    for (std::size_t many = slots.size(); many == slots.size();) {
        many = door_->returned(now_, slots);
        for (std::size_t index = 0; index < many; ++index) {
            settle(slots[index], Says::done, door_->verdict_of(slots[index]));
        }
    }
    for (std::size_t many = slots.size(); many == slots.size();) {
        many = door_->surrender(slots);
        for (std::size_t index = 0; index < many; ++index) {
            refuse(slots[index], true);
        }
    }
}

/// As many as there are slots, while there is somebody to take them.
void FarmNode::grant_all() {
    for (const auto& link : links_) {
        if (!link->is_welcomed || is_leaving_ || takers() == 0) {
            continue;
        }
        if (const auto credit = link->supply.grant()) {
            reply(*link, *credit);
        }
    }
}

// --- the loop
// -------------------------------------------------------------------------------------------------------------------

/// True: something came.
bool FarmNode::drive() {
    now_ = steady_now();
    wires_.poll(is_woken_);
    is_woken_ = false;
    while (incast_channel* channel = wires_.next_ready()) {
        if (auto* link = static_cast<Link*>(incast_channel_user(channel))) {
            link->may_read = true;
        }
    }
    const std::uint64_t before = counts_.meps;
    for (const auto& link : links_) {
        if (link->channel != nullptr && link->may_read) {
            hear(*link);
        }
    }
    collect();
    hand_out();
    grant_all();
    for (const auto& link : links_) {
        if (link->channel != nullptr && !link->out.is_empty() && !link->out.push(link->channel, false)) {
            lose(*link, incast_channel_state_message(link->channel));
        }
    }
    return counts_.meps != before;
}

void FarmNode::wait() {
    std::vector<pollfd> watched{{wires_.fd(), POLLIN, 0}};
    if (sink_ != nullptr) {
        if (!sink_->prepare_wait()) {
            return;
        }
        watched.push_back({sink_->wait_fd(), POLLIN, 0});  // -1 is passed over
    }
    if (!wires_.prepare_wait()) {
        return;
    }
    // A sink that is no process is looked at now and then, as it says.
    const Time until = sink_ == nullptr ? time_never : sink_->next_deadline();
    const Time sleep = std::clamp<Time>(until == time_never ? longest_sleep : until - now_, 0, longest_sleep);
    const timespec limit{0, static_cast<long>(sleep / ps_per_ns)};
    (void)::ppoll(watched.data(), watched.size(), &limit, nullptr);
    is_woken_ = watched.front().revents != 0;
}

bool FarmNode::is_done() const {
    const bool is_alone = std::ranges::all_of(links_, [](const auto& link) { return link->has_ended; });
    const bool has_none =
        std::ranges::all_of(links_, [&](const auto& link) { return link->supply.free() == options_.window; });
    return is_alone && (has_none || takers() == 0);
}

Result<Ok> FarmNode::run() {
    now_ = steady_now();
    for (const auto& link : links_) {
        link->gone_since = now_;
    }
    while (!is_done()) {
        const bool has_more = drive();
        is_leaving_ = os::interrupts() > 0;
        if (os::interrupts() > 1) {
            return Error{"interrupted twice: what it had goes to other farm nodes"};
        }
        if (const auto called = call_all(); !called) {
            return called.error();
        }
        if (!failure_.empty()) {
            return Error{failure_};
        }
        if (!has_more) {
            wait();
        }
    }
    wires_.drain(drain_ms);
    if (sink_ != nullptr) {
        sink_->close();
        failure_ = sink_->failure();
    }
    return failure_.empty() ? Result<Ok>(Ok{}) : Error{failure_};
}

std::string FarmNode::summary() const {
    nlohmann::ordered_json json{{"meps", counts_.meps},
                                {"events", counts_.events},
                                {"goodput_bytes", counts_.goodput_bytes},
                                {"repeated_meps", counts_.repeated_meps},
                                {"done_meps", counts_.done_meps},
                                {"refused_meps", counts_.refused_meps},
                                {"late_meps", counts_.late_meps}};
    if (once_ != nullptr) {
        json["already_meps"] = once_->already_meps();
    }
    if (door_ != nullptr) {
        const sinks::ConsumerStats& stats = sink_->stats().consumers;
        json["processes"] = {{"attached", stats.attached},
                             {"left", stats.left},
                             {"ejected", stats.ejected},
                             {"refused", stats.refused},
                             {"repeated_meps", stats.repeated_meps}};
        json["accepted_events"] = stats.accepted_events;
        json["rejected_events"] = stats.rejected_events;
    }
    return json.dump();
}

}  // namespace incast::farm
