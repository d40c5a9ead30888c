#include "runtime/phases/troubles.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"
#include "runtime/phases/run_control.h"

namespace incast::runtime {
namespace {

struct Counter {
    std::uint64_t NodeTotals::* member;
    const char* kind;
    const char* reason;
};
constexpr std::array<Counter, 5> all_counters{{
    {&NodeTotals::bad_messages, "bad_message",
     "control messages that it dropped: malformed, or of another run, view or incarnation"},
    {&NodeTotals::damaged_mfps, "damaged", "MFPs that arrived damaged: their checksum is not that of their bytes"},
    {&NodeTotals::barrier_expired, "barrier_expired", "phases of the schedule that ended without some readout unit"},
    {&NodeTotals::consumers_refused, "consumer_refused", "processes that the consumer sink refused"},
    {&NodeTotals::consumers_ejected, "consumer_ejected", "consumers ejected because they gave nothing back in time"},
}};
const std::string by_command = "taken out by command";

}  // namespace

std::string Troubles::name_of(std::uint32_t node) const {
    return node_name(node, plan_.protocol.nodes[node].roles);
}

void Troubles::changed(Time now, const ViewChange& change, bool known, Cost cost) {
    if (change.node >= out_.size()) {
        return;
    }
    Out& out = out_[change.node];
    say_dropped(now, change.node);
    em_clock_ = change.at;
    heard_ = now;
    if (change.cause == protocol::Cause::joined) {
        if (out.out && !out.length) {
            out.length = std::max<Time>(change.at - out.since, 0);
            // By then every builder unit has told of what it built without the node.
            out.told_at = now + 2 * plan_.sample_interval;
        }
        return;
    }
    if (out.out) {
        tell(now, change.node, cost, out.length.value_or(change.at - out.since));  // it was dropped again at once
    }
    switch (change.cause) {
        case protocol::Cause::silent:
            out.why = fmt::format("the event manager heard nothing of it for {}",
                                  base::format_duration(plan_.protocol.detection_deadline));
            break;
        case protocol::Cause::cut_off:
            out.why = "it and another node cannot reach each other";
            break;
        case protocol::Cause::late:
            out.why = fmt::format("{} builder units in turn did not get its fragments", plan_.protocol.max_attempts);
            break;
        case protocol::Cause::stuck:
            out.why = "it does not complete the MEPs that it is given";
            break;
        case protocol::Cause::distrusted:
            out.why = "it made claims that are not true";
            break;
        default:
            out.why = "its connection to the event manager ended";
    }
    out.out = true;
    out.since = change.at;
    out.before = cost;
    out.length.reset();
    out.told_at = time_never;
    const std::uint32_t roles = plan_.protocol.nodes[change.node].roles;
    out.unsaid = true;
    out.line.clear();
    if (!known) {
        out.line = fmt::format(
            "node {} dropped by the event manager: {}{}{}", name_of(change.node), out.why,
            (roles & protocol::role_bu) != 0 ? "; its MEPs are built by others" : "",
            (roles & protocol::role_ru) != 0 ? "; MEPs without its fragments are flagged until it is back" : "");
    }
    out.said_at = now + last_words_within;
    if (known || change.cause != protocol::Cause::connection_lost) {
        say_dropped(now, change.node);
    }
}

void Troubles::lost(Time now, std::uint32_t node) {
    out_[node].line.clear();
    say_dropped(now, node);
}

void Troubles::taken_out(Time now, std::uint32_t node) {
    lost(now, node);
    out_[node].by_command = true;
}

void Troubles::say_dropped(Time now, std::uint32_t node) {
    Out& out = out_[node];
    if (std::exchange(out.unsaid, false)) {
        audit_.say(now, Level::warning, out.line, {"dropped", node, "", out.why, nullptr});
    }
    out.said_at = time_never;
}

void Troubles::tell(Time now, std::uint32_t node, Cost cost, Time length) {
    Out& out = out_[node];
    const std::uint64_t events =
        cost.incomplete_events - std::min(cost.incomplete_events, out.before.incomplete_events);
    const std::string& why = out.by_command ? by_command : out.why;
    const std::uint64_t meps = cost.reassigned_meps - std::min(cost.reassigned_meps, out.before.reassigned_meps);
    audit_.say(
        now, out.by_command ? Level::info : Level::warning,
        fmt::format("node {} was out {} ({}): meanwhile {} events were built incomplete, {} MEPs given to others",
                    name_of(node),
                    out.length ? "for " + base::format_duration(length)
                               : fmt::format("until the end, {}", base::format_duration(length)),
                    why, events, meps),
        {out.length ? "back" : "stayed_out",
         node,
         "",
         why,
         {{"seconds", base::seconds(length)}, {"incomplete_events", events}, {"reassigned_meps", meps}}});
    out = {};
}

void Troubles::counted(Time now, std::uint32_t node, const NodeTotals& totals) {
    for (std::size_t counter = 0; counter < counters; ++counter) {
        Watched& watched = watched_[node];
        watched.now[counter] = totals.*all_counters[counter].member;
        if (watched.now[counter] > watched.told[counter] && now >= watched.quiet_until[counter]) {
            tell_counter(now, node, counter);
        }
    }
}

void Troubles::tell_counter(Time now, std::uint32_t node, std::size_t counter) {
    Watched& watched = watched_[node];
    const Counter& which = all_counters[counter];
    const std::uint64_t more = watched.now[counter] - watched.told[counter];
    watched.told[counter] = watched.now[counter];
    watched.quiet_until[counter] = now + counter_gap;
    audit_.say(now, Level::warning, fmt::format("node {}: {} {}", name_of(node), more, which.reason),
               {which.kind, node, "", which.reason, {{"number", more}}});
}

void Troubles::tick(Time now, Cost cost, bool over) {
    for (std::uint32_t node = 0; node < out_.size(); ++node) {
        const Out& out = out_[node];
        if (over || now >= out.said_at) {
            say_dropped(now, node);
        }
        if (out.out && (over || now >= out.told_at)) {
            tell(now, node, cost, out.length.value_or(std::max<Time>(em_clock_ + (now - heard_) - out.since, 0)));
        }
        for (std::size_t counter = 0; over && counter < counters; ++counter) {
            if (watched_[node].now[counter] > watched_[node].told[counter]) {
                tell_counter(now, node, counter);
            }
        }
    }
}

Time Troubles::next_deadline() const {
    Time next = time_never;
    for (const Out& out : out_) {
        next = std::min({next, out.out ? out.told_at : time_never, out.said_at});
    }
    return next;
}

}  // namespace incast::runtime
