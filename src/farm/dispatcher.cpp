#include "farm/dispatcher.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>

#include "base/units.h"
#include "consumer/handle.h"
#include "os/signals.h"

namespace incast::farm {

namespace {

constexpr Time look_interval = 100 * ps_per_ms;  // for builder units that come
constexpr Time linger = 3 * ps_per_s;            // for one that was lost to come back
constexpr Time settle_time = 300 * ps_per_ms;    // the kernel's list may lack one for a moment
constexpr std::size_t most_nodes = 1024;

void say(const std::string& line) {
    fmt::print(stderr, "incast dispatch: {}\n", line);
}

}  // namespace

Dispatcher::~Dispatcher() {
    for (const auto& builder : builders_) {
        incast_consumer_free(builder->handle);
    }
}

// --- builder units
// -------------------------------------------------------------------------------------------------------------------

bool Dispatcher::is_attached(std::uint32_t node) const {
    return std::ranges::any_of(builders_, [node](const auto& each) { return each->node == node && !each->has_ended; });
}

Result<Ok> Dispatcher::look_for_builders() {
    if (now_ < next_look_) {
        return Ok{};
    }
    next_look_ = now_ + look_interval;
    std::array<std::uint32_t, most_nodes> found;
    const int count = incast_consumer_builders(options_.name.c_str(), found.data(), static_cast<int>(found.size()));
    const std::span<const std::uint32_t> there(
        found.data(), static_cast<std::size_t>(std::clamp(count, 0, static_cast<int>(found.size()))));
    for (const std::uint32_t node : there) {
        if (!is_attached(node)) {
            attach(node);
        }
    }
    // While no farm node has a credit nothing is taken, so this is how the end is seen.
    for (const auto& builder : builders_) {
        const bool may_have_ended = !builder->has_ended && std::ranges::find(there, builder->node) == there.end();
        std::uint64_t ticket = 0;
        if (may_have_ended && !has_credit() && take_from(*builder, ticket) == 1) {
            book_.wait(ticket);
        }
    }
    std::erase_if(builders_, [](const std::unique_ptr<Builder>& each) {
        const bool is_over = each->has_ended && each->held == 0;
        if (is_over) incast_consumer_free(each->handle);
        return is_over;
    });
    const bool has_ended = std::ranges::all_of(builders_, [](const auto& each) { return each->has_ended; });
    if (count > 0 || !has_ended) {
        ended_since_ = 0;
    } else if (ended_since_ == 0) {
        ended_since_ = now_;
    }
    if (!had_builder_ && now_ - begin_ > options_.timeout) {
        return Error{
            fmt::format("no builder unit of this host takes consumers under the name '{}' (sink.name)", options_.name)};
    }
    return Ok{};
}

void Dispatcher::attach(std::uint32_t node) {
    incast_consumer* handle = nullptr;
    // It answers within a millisecond, or is looked for again.
    if (incast_consumer_attach(options_.name.c_str(), static_cast<int>(node), 20, &handle) != INCAST_CONSUMER_OK) {
        return;
    }
    const auto& about = handle->welcome;
    const std::uint64_t mep_bytes = about.payload_bytes / about.slots + std::uint64_t{about.n_sources} * body_align;
    if (!had_builder_) {
        const auto* entries = reinterpret_cast<const consumer::SourceEntry*>(&handle->record(0) + 1);
        for (std::uint32_t source = 0; source < about.n_sources; ++source) {
            numbers_.push_back(entries[source].source);
        }
        welcome_ = {.n_sources = about.n_sources, .run = about.run, .mep_bytes = mep_bytes};
    }
    const bool is_known = welcome_.run == about.run && welcome_.n_sources == about.n_sources;
    if (!is_known || mep_bytes > welcome_.mep_bytes) {
        say(fmt::format("the builder unit of node {} belongs to another run: left aside", node));
        incast_consumer_free(handle);
        next_look_ = now_ + linger;
        return;
    }
    builders_.push_back(std::make_unique<Builder>(Builder{.node = node, .handle = handle}));
    had_builder_ = true;
    say(fmt::format("attached to the builder unit of node {}", node));
}

/// As incast_consumer_next().
int Dispatcher::take_from(Builder& builder, std::uint64_t& ticket) {
    incast_consumer_event event;
    const int status = incast_consumer_next(builder.handle, 0, &event);
    if (status == 1) {
        ticket = book_.take({.builder = &builder, .event = event}, event.n_events,
                            (event.flags & INCAST_CONSUMER_REPEATED) != 0);
        ++builder.held;
    } else if (status == INCAST_CONSUMER_EJECTED) {
        failure_ = fmt::format("the builder unit of node {} dropped this consumer (sink.patience)", builder.node);
    } else if (status < 0) {
        builder.has_ended = true;
        lost_builder_ = lost_builder_ || status != INCAST_CONSUMER_ENDED;
        say(fmt::format("node {}: {}", builder.node, incast_consumer_text(status)));
    }
    return status;
}

/// The ticket of a MEP of any of them, in turn; 0: none has one.
std::uint64_t Dispatcher::take_next() {
    std::uint64_t ticket = 0;
    for (std::size_t looked = 0; looked < builders_.size() && ticket == 0; ++looked) {
        Builder& builder = *builders_[next_builder_++ % builders_.size()];
        if (!builder.has_ended) {
            (void)take_from(builder, ticket);
        }
    }
    return ticket;
}

void Dispatcher::give_back(const Book<Taken>::Finished& finished) {
    Builder& builder = *finished.load.builder;
    // What a builder unit that is gone thinks of it does not matter.
    if (finished.verdict == 0) {
        (void)incast_consumer_release(builder.handle, &finished.load.event);
    } else {
        const auto accepted = static_cast<std::uint32_t>(finished.verdict - 1);
        (void)incast_consumer_judge(builder.handle, &finished.load.event, accepted);
    }
    --builder.held;
}

// --- farm nodes
// -------------------------------------------------------------------------------------------------------------------

void Dispatcher::accept_all() {
    while (incast_channel* channel = wires_.accept()) {
        auto node = std::make_unique<Node>();
        node->channel = channel;
        node->rest = room_of(node->hello);
        node->meet(now_);
        incast_channel_set_user(channel, node.get());
        nodes_.push_back(std::move(node));
    }
}

void Dispatcher::welcome(Node& node) {
    node.is_welcomed = true;
    node.out.keep(bytes_of(welcome_));
    node.out.keep(std::as_bytes(std::span(numbers_)));
}

void Dispatcher::lose(Node& node, const std::string& why) {
    if (node.is_over) {
        return;
    }
    node.is_over = true;
    book_.lose(node);
    const bool is_in_order = node.is_leaving && node.held == 0;
    if (is_in_order) {
        incast_channel_close(node.channel);
    } else if (!wires_.give_up(node.channel)) {
        failure_ = fmt::format("farm node {}: the transport keeps memory that it sends from", node.name);
    }
    node.channel = nullptr;
    if (!node.is_greeted) {
        return;
    }
    if (is_in_order) {
        ++book_.counts.left_nodes;
        say(fmt::format("farm node {} has left", node.name));
    } else {
        ++book_.counts.lost_nodes;
        say(fmt::format("farm node {} is lost: {}; {} MEPs go to others", node.name, why, node.held));
    }
}

void Dispatcher::remove_ended() {
    std::erase_if(nodes_, [](const std::unique_ptr<Node>& node) { return node->is_over; });
}

void Dispatcher::hear(Node& node) {
    while (!node.is_over) {
        const Got got = take(node.channel, node.rest);
        if (got == Got::some) {
            node.may_read = false;
            return;
        }
        if (got != Got::all) {
            return lose(node, got == Got::end ? "it has ended" : incast_channel_state_message(node.channel));
        }
        node.heard = now_;
        if (node.is_greeted) {
            const Reply reply = node.reply;
            node.rest = room_of(node.reply);
            if (!heard(node, reply)) {
                return lose(node, "it broke the rules");
            }
            continue;
        }
        if (!is_sane(node.hello)) {
            return lose(node, "another version");
        }
        std::array<char, 48> text;
        node.name = name_of(node.hello, text);
        node.is_greeted = true;
        node.rest = room_of(node.reply);
        ++book_.counts.joined_nodes;
        say(fmt::format("farm node {} has joined", node.name));
    }
}

bool Dispatcher::heard(Node& node, const Reply& reply) {
    Book<Taken>::Finished finished;
    const auto heard = book_.hear(node, reply, now_, finished);
    if (heard == Book<Taken>::Heard::finished) {
        give_back(finished);
    }
    return heard != Book<Taken>::Heard::nonsense;
}

/// Silent ones, those that finish nothing, and strangers that never say who they are.
void Dispatcher::keep_alive() {
    for (const auto& node : nodes_) {
        switch (due(*node, now_, options_.limits)) {
            case Due::nothing:
                break;
            case Due::no_greeting:
                lose(*node, "no greeting");
                break;
            case Due::silent:
                lose(*node, "it said nothing for " + base::format_duration(options_.limits.silence));
                break;
            case Due::idle:
                lose(*node, "it finished nothing for too long");
                break;
            case Due::left:
                lose(*node, "");
                break;
            case Due::word:
                if (node->out.is_empty()) {
                    node->out.keep(bytes_of(MepFrame{}));
                    node->said = now_;
                }
                break;
        }
    }
}

// --- dispatching
// -------------------------------------------------------------------------------------------------------------------

Dispatcher::Node* Dispatcher::best_node() {
    const auto chosen = book_.choose(std::span<const std::unique_ptr<Node>>(nodes_));
    return chosen ? nodes_[*chosen].get() : nullptr;
}

bool Dispatcher::has_credit() const {
    return std::ranges::any_of(nodes_, [](const auto& node) { return node->may_get() && node->credits.free() > 0; });
}

void Dispatcher::send(std::uint64_t ticket, Node& node) {
    const Taken& taken = book_.at(ticket).load;
    const incast_consumer_event& event = taken.event;
    incast_consumer* handle = taken.builder->handle;
    const incast_consumer_source* sources = incast_consumer_sources(handle, &event);
    table_.clear();
    for (std::uint32_t index = 0; index < event.n_sources; ++index) {
        table_.push_back({sources[index].bytes, sources[index].source, sources[index].flag, 0});
    }
    MepFrame frame{.mep = event.mep,
                   .first_event = event.first_event,
                   .goodput_bytes = event.goodput_bytes,
                   .n_events = event.n_events,
                   .missing_sources = event.missing_sources,
                   .attempt = event.attempt,
                   .builder = taken.builder->node};
    if ((event.flags & INCAST_CONSUMER_REDELIVERED) != 0) frame.flags |= MepFrame::redelivered;
    book_.mark(ticket, frame);
    node.out.keep(bytes_of(frame));
    node.out.keep(std::as_bytes(std::span(table_)));
    for (std::uint32_t index = 0; index < event.n_sources; ++index) {
        incast_consumer_mfp mfp;
        if (incast_consumer_get_mfp(handle, &event, index, &mfp) == INCAST_CONSUMER_OK && mfp.bytes > 0) {
            node.out.show(std::as_bytes(std::span(mfp.data, mfp.bytes)));
            book_.counts.sent_bytes += mfp.bytes;
        }
    }
    book_.sent(ticket, node, now_);
}

/// True: something was sent.
bool Dispatcher::dispatch() {
    bool has_sent = false;
    for (const auto& node : nodes_) {
        if (!node->is_over && node->is_greeted && !node->is_welcomed && had_builder_) {
            welcome(*node);
            has_sent = true;
        }
    }
    while (Node* node = best_node()) {
        const std::uint64_t ticket = book_.has_waiting() ? book_.next_waiting() : take_next();
        if (ticket == 0) {
            return has_sent;
        }
        send(ticket, *node);
        has_sent = true;
        if (!node->out.push(node->channel, wires_.sends_in_place())) {
            lose(*node, incast_channel_state_message(node->channel));
        }
    }
    return has_sent;
}

void Dispatcher::push_all() {
    for (const auto& node : nodes_) {
        if (!node->is_over && !node->out.is_empty() && !node->out.push(node->channel, wires_.sends_in_place())) {
            lose(*node, incast_channel_state_message(node->channel));
        }
    }
}

// --- the loop
// -------------------------------------------------------------------------------------------------------------------

/// True: there is more to do.
bool Dispatcher::drive() {
    now_ = steady_now();
    wires_.poll(is_woken_);
    is_woken_ = false;
    while (incast_channel* channel = wires_.next_ready()) {
        if (auto* node = static_cast<Node*>(incast_channel_user(channel))) {
            node->may_read = true;
        }
    }
    accept_all();
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        if (nodes_[index]->may_read && !nodes_[index]->is_over) {
            hear(*nodes_[index]);
        }
    }
    keep_alive();
    const bool has_sent = dispatch();
    push_all();
    remove_ended();
    return has_sent;
}

void Dispatcher::wait() {
    std::vector<pollfd> watched{{wires_.fd(), POLLIN, 0}};
    if (has_credit() && !book_.has_waiting()) {
        for (const auto& builder : builders_) {
            if (builder->has_ended) {
                continue;
            }
            if (incast_consumer_arm(builder->handle) == 1) {
                return;
            }
            watched.push_back({incast_consumer_fd(builder->handle), POLLIN, 0});
        }
    }
    if (!wires_.prepare_wait()) {
        return;
    }
    (void)::poll(watched.data(), watched.size(), static_cast<int>(look_interval / ps_per_ms));
    is_woken_ = watched.front().revents != 0;
}

bool Dispatcher::is_done() const {
    if (!had_builder_ || ended_since_ == 0) {
        return false;
    }
    const Time since = now_ - ended_since_;
    const bool has_settled = builders_.empty() && book_.size() == 0 && since >= (lost_builder_ ? linger : settle_time);
    return has_settled || (nodes_.empty() && since >= options_.timeout);  // nobody will take the rest
}

Result<Ok> Dispatcher::run() {
    begin_ = now_ = steady_now();
    while (os::interrupts() == 0 && !is_done()) {
        if (const auto looked = look_for_builders(); !looked) {
            return looked.error();
        }
        const bool has_more = drive();
        if (!failure_.empty()) {
            return Error{failure_};
        }
        if (!has_more) {
            wait();
        }
    }
    finish();
    return Ok{};
}

/// Farm nodes see the end behind the last MEP.
void Dispatcher::finish() {
    for (const auto& node : nodes_) {
        if (!node->is_over) {
            incast_channel_close(node->channel);
        }
    }
    nodes_.clear();
    wires_.drain(drain_ms);
}

std::string Dispatcher::summary() const {
    return nlohmann::ordered_json{{"taken_meps", book_.counts.taken_meps},
                                  {"sent_meps", book_.counts.sent_meps},
                                  {"done_meps", book_.counts.done_meps},
                                  {"held_meps", book_.size()},
                                  {"repeated_meps", book_.counts.repeated_meps},
                                  {"refused_meps", book_.counts.refused_meps},
                                  {"judged_meps", book_.counts.judged_meps},
                                  {"accepted_events", book_.counts.accepted_events},
                                  {"rejected_events", book_.counts.rejected_events},
                                  {"sent_bytes", book_.counts.sent_bytes},
                                  {"joined_nodes", book_.counts.joined_nodes},
                                  {"left_nodes", book_.counts.left_nodes},
                                  {"lost_nodes", book_.counts.lost_nodes}}
        .dump();
}

}  // namespace incast::farm
