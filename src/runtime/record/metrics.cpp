#include "runtime/record/metrics.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace incast::runtime {
namespace {

#define INCAST_TOTAL(NAME, HELP)       \
    TotalsField {                      \
        #NAME, &NodeTotals::NAME, HELP \
    }
// clang-format off: one a line, whatever their number
constexpr std::array fields{
    INCAST_TOTAL(meps_produced, "MEPs whose fragments this readout unit has read out"),
    INCAST_TOTAL(contributions_sent, "MEPs of this readout unit that were written, once per attempt"),
    INCAST_TOTAL(mfps_sent, "MFPs sent; of raw traffic, messages"),
    INCAST_TOTAL(sent_goodput_bytes, "Fragment bytes sent, counted when posted; of raw traffic, message bodies"),
    INCAST_TOTAL(sent_self_bytes, "Of the bytes sent, those for the node itself"),
    INCAST_TOTAL(aborts_acknowledged, "Attempts given up by this readout unit because it was told to"),
    INCAST_TOTAL(slot_overruns, "Contributions not placed (overlap: not handed over) by the end of their time slot"),
    INCAST_TOTAL(unguarded_slots, "Contributions in time slots shorter than twice the error of the clock"),
    INCAST_TOTAL(meps_built, "MEPs delivered to the sink"),
    INCAST_TOTAL(events_built, "Events delivered to the sink; of raw traffic, messages received"),
    INCAST_TOTAL(mfps_received, "MFPs received; of raw traffic, messages"),
    INCAST_TOTAL(built_goodput_bytes, "Fragment bytes built; of raw traffic, message bodies received"),
    INCAST_TOTAL(built_self_bytes, "Of the bytes built, those from the node itself"),
    INCAST_TOTAL(incomplete_meps, "MEPs delivered with at least one source flagged"),
    INCAST_TOTAL(incomplete_events, "Events in MEPs delivered with at least one source flagged"),
    INCAST_TOTAL(flagged_missing_dead_mfps, "MFPs of built MEPs flagged missing-dead"),
    INCAST_TOTAL(flagged_missing_dead_events, "Events of built MEPs with such MFPs"),
    INCAST_TOTAL(flagged_missing_unreachable_mfps, "MFPs of built MEPs flagged missing-unreachable"),
    INCAST_TOTAL(flagged_missing_unreachable_events, "Events of built MEPs with such MFPs"),
    INCAST_TOTAL(flagged_late_mfps, "MFPs of built MEPs flagged late"),
    INCAST_TOTAL(flagged_late_events, "Events of built MEPs with such MFPs"),
    INCAST_TOTAL(flagged_truncated_mfps, "MFPs of built MEPs flagged truncated"),
    INCAST_TOTAL(flagged_truncated_events, "Events of built MEPs with such MFPs"),
    INCAST_TOTAL(flagged_bad_checksum_mfps, "MFPs of built MEPs flagged bad-checksum"),
    INCAST_TOTAL(flagged_bad_checksum_events, "Events of built MEPs with such MFPs"),
    INCAST_TOTAL(flagged_desync_mfps, "MFPs of built MEPs flagged desync"),
    INCAST_TOTAL(flagged_desync_events, "Events of built MEPs with such MFPs"),
    INCAST_TOTAL(flagged_dropped_mfps, "MFPs of built MEPs flagged dropped"),
    INCAST_TOTAL(flagged_dropped_events, "Events of built MEPs with such MFPs"),
    INCAST_TOTAL(redelivered_meps, "MEPs that a sink may have seen twice, marked"),
    INCAST_TOTAL(redelivered_events, "Events in MEPs that a sink may have seen twice"),
    INCAST_TOTAL(stale_contributions, "Contributions dropped: wrong credit, attempt, incarnation or run"),
    INCAST_TOTAL(damaged_mfps, "MFPs whose bytes are not those of their checksum, delivered flagged bad-checksum"),
    INCAST_TOTAL(torn_mfps, "MFPs of which bytes were lost on the way, delivered flagged bad-checksum"),
    INCAST_TOTAL(late_reports, "Reports of sources that are late"),
    INCAST_TOTAL(quarantined_slots, "Slots set aside while a silent writer may still write to them"),
    INCAST_TOTAL(denied_commits, "Commits that the event manager refused"),
    INCAST_TOTAL(meps_filtered, "MEPs rejected by the filter"),
    INCAST_TOTAL(events_filtered, "Events in MEPs rejected by the filter"),
    INCAST_TOTAL(undecided_meps, "MEPs accepted because the filter did not decide in time, or ended"),
    INCAST_TOTAL(meps_admitted, "MEPs that the event manager admitted"),
    INCAST_TOTAL(meps_committed, "MEPs that the event manager committed"),
    INCAST_TOTAL(meps_flagged, "Of the MEPs committed, those delivered with at least one source flagged"),
    INCAST_TOTAL(meps_rejected, "Of the MEPs committed, those not delivered because a filter rejected them"),
    INCAST_TOTAL(events_admitted, "Events in admitted MEPs, where the event manager counts them"),
    INCAST_TOTAL(events_committed, "Events in committed MEPs"),
    INCAST_TOTAL(reassignments, "MEPs given to another builder unit"),
    INCAST_TOTAL(evictions, "Nodes dropped by the event manager"),
    INCAST_TOTAL(views, "Views of the run's members that the event manager announced"),
    INCAST_TOTAL(phases, "Phases of the schedule"),
    INCAST_TOTAL(barrier_expired, "Of the phases, those that ended without some readout unit"),
    INCAST_TOTAL(messages_sent, "Control messages sent"),
    INCAST_TOTAL(messages_received, "Control messages received"),
    INCAST_TOTAL(bad_messages, "Control messages dropped: malformed, or of the wrong run, view or incarnation"),
    INCAST_TOTAL(back_pressure, "Posts that the transport could not take at once"),
    INCAST_TOTAL(copied_bytes, "Bytes of fragments copied in memory on their way into a slot"),
    INCAST_TOTAL(bu_waiting_ns, "Time in which the builder unit had free credits and nothing to build"),
    INCAST_TOTAL(offered_events, "Open loop: events that were meant to happen"),
    INCAST_TOTAL(accepted_events, "Open loop: events that were read out"),
    INCAST_TOTAL(dead_time_ns, "Open loop: time in which a due event found no room"),
    INCAST_TOTAL(inhibited_events, "Open loop, throttle: events that never happened"),
    INCAST_TOTAL(dropped_events, "Open loop, drop: events without this readout unit's fragments"),
    INCAST_TOTAL(dropped_mfps, "Open loop, drop: MFPs that were left empty because of that"),
    INCAST_TOTAL(held_mep_ns, "Open loop: MEPs with data in the readout unit's memory, integrated over time"),
    INCAST_TOTAL(datagrams_sent, "Datagrams sent that may be lost, each time"),
    INCAST_TOTAL(datagrams_lost, "Datagrams held for lost"),
    INCAST_TOTAL(datagrams_repeated, "Of the datagrams sent, those sent again"),
    INCAST_TOTAL(undelivered_meps, "MEPs committed though the sink's command or consumer was gone"),
    INCAST_TOTAL(delay_ns, "Latency of MEPs, summed up"),
    INCAST_TOTAL(timed_meps, "MEPs whose latency is in that sum: the sink has done with them"),
    INCAST_TOTAL(truncated_mfps, "MFPs that did not fit into their place in the slot"),
    INCAST_TOTAL(desync_mfps, "MFPs of sources that were numbered wrongly or ended early"),
    INCAST_TOTAL(board_datagrams, "Datagrams of boards of this readout unit"),
    INCAST_TOTAL(board_events, "Fragments in them that were taken"),
    INCAST_TOTAL(board_duplicate_events, "Fragments of boards that had come before"),
    INCAST_TOTAL(board_late_events, "Fragments of boards whose MEP had been made without them"),
    INCAST_TOTAL(board_stray_events, "Fragments of boards with ids that do not fit the run"),
    INCAST_TOTAL(board_lost_events, "Fragments of boards that are missing in MEPs"),
    INCAST_TOTAL(board_restarts, "Boards that counted from 0 again"),
    INCAST_TOTAL(board_refused_datagrams, "Datagrams that are damaged or of another readout unit's boards"),
    INCAST_TOTAL(board_overflow_datagrams, "Datagrams of boards that the kernel had no room for"),
    INCAST_TOTAL(structure_checked_mfps, "MFPs whose headers the sink has compared"),
    INCAST_TOTAL(lines_checked_meps, "MEPs of which the sink has compared every byte; of raw traffic, messages"),
    INCAST_TOTAL(verify_errors, "Contents that were not what was sent"),
    INCAST_TOTAL(sink_cpu_ns, "CPU time of checking, touching or writing built events"),
    INCAST_TOTAL(consumers_attached, "Processes that attached to the consumer sink"),
    INCAST_TOTAL(consumers_left, "Consumers that detached or ended"),
    INCAST_TOTAL(consumers_ejected, "Consumers ejected because they gave nothing back in time"),
    INCAST_TOTAL(consumers_refused, "Processes that the consumer sink refused"),
    INCAST_TOTAL(consumer_taken_meps, "MEPs taken by consumers"),
    INCAST_TOTAL(consumer_done_meps, "MEPs that consumers gave back"),
    INCAST_TOTAL(consumer_dropped_meps, "MEPs dropped because no consumer had room"),
    INCAST_TOTAL(consumer_abandoned_meps, "MEPs that consumers had when they ended"),
    INCAST_TOTAL(consumer_repeated_meps, "MEPs given to another consumer after that"),
    INCAST_TOTAL(consumer_missed_meps, "MEPs that a consumer did not get because it had no room"),
    INCAST_TOTAL(consumer_judged_meps, "MEPs that a consumer gave back with a verdict"),
    INCAST_TOTAL(consumer_accepted_events, "Events of these that the verdict accepts"),
    INCAST_TOTAL(consumer_rejected_events, "Events of these that it rejects"),
    INCAST_TOTAL(cpu_ns, "CPU time of the process, user and system, since its memory was set up"),
    INCAST_TOTAL(polling_cpu_ns, "Of the CPU time, looking for work in vain (an estimate)"),
    INCAST_TOTAL(steps, "Steps of the node's loop"),
    INCAST_TOTAL(useful_steps, "Of the steps, those that found something to do"),
    INCAST_TOTAL(sleeps, "Sleeps of the node's loop for want of work"),
};
// clang-format on
#undef INCAST_TOTAL
// A counter that is added to Counters or NodeTotals without a line here would be lost between processes.
static_assert(sizeof(protocol::CounterFields) + sizeof(RuntimeTotals) == fields.size() * sizeof(std::uint64_t));

constexpr std::array<std::string_view, all_states.size()> state_names{"joining", "running", "finished", "evicted",
                                                                      "em_silent"};
constexpr std::array<std::string_view, 7> cause_names{"joined", "connection_lost", "silent",    "cut_off",
                                                      "late",   "stuck",           "distrusted"};
constexpr std::size_t max_words = 500;  // of a text in a sample
constexpr std::size_t most_ports = 64;  // of a host, and what each counts
constexpr std::size_t most_counters = 1024;
constexpr std::array<std::string_view, 4> mark_names{"interval", "window_begin", "window_end", "last"};

template <class Enum, std::size_t N>
bool read_word(const nlohmann::json& json, const char* key, const std::array<std::string_view, N>& names, Enum& into) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) {
        return false;
    }
    const auto* const name = std::ranges::find(names, found->get_ref<const std::string&>());
    if (name == names.end()) {
        return false;
    }
    into = static_cast<Enum>(name - names.begin());
    return true;
}

template <class Number>
bool read_number(const nlohmann::json& json, const char* key, Number& into) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_unsigned()) {
        return false;
    }
    const auto value = found->get<std::uint64_t>();
    into = static_cast<Number>(value);
    return static_cast<std::uint64_t>(into) == value && into >= 0;
}

bool read_text(const nlohmann::json& json, const char* key, std::string& into) {
    const auto found = json.find(key);
    if (found == json.end()) {
        return true;
    }
    if (!found->is_string()) {
        return false;
    }
    into = found->get<std::string>().substr(0, max_words);
    std::ranges::replace_if(into, [](unsigned char letter) { return letter < 0x20 || letter == 0x7F; }, ' ');
    return true;
}

nlohmann::ordered_json histogram_json(const base::Histogram& histogram) {
    nlohmann::ordered_json buckets = nlohmann::ordered_json::array();
    const auto& counts = histogram.counts();
    for (std::size_t index = 0; index < counts.size(); ++index) {
        if (counts[index] != 0) {
            buckets.push_back({index, counts[index]});
        }
    }
    return {{"max", histogram.max()}, {"buckets", std::move(buckets)}};
}

bool read_histogram(const nlohmann::json& json, base::Histogram& histogram) {
    std::uint64_t max = 0;
    const auto buckets = json.find("buckets");
    if (!read_number(json, "max", max) || buckets == json.end() || !buckets->is_array()) {
        return false;
    }
    for (const nlohmann::json& bucket : *buckets) {
        if (!bucket.is_array() || bucket.size() != 2 || !bucket[0].is_number_unsigned() ||
            !bucket[1].is_number_unsigned() || bucket[0].get<std::uint64_t>() >= base::Histogram::buckets) {
            return false;
        }
        histogram.add_bucket(bucket[0].get<std::size_t>(), bucket[1].get<std::uint64_t>(), max);
    }
    return true;
}

bool read_changes(const nlohmann::json& json, std::vector<ViewChange>& changes) {
    if (!json.is_array() || json.size() > most_view_changes) {
        return false;
    }
    for (const nlohmann::json& entry : json) {
        constexpr std::size_t numbers = 3;
        if (!entry.is_array() || entry.size() != numbers + 1 || !entry[numbers].is_string() ||
            !std::all_of(entry.begin(), entry.begin() + numbers,
                         [](const nlohmann::json& each) { return each.is_number_unsigned(); })) {
            return false;
        }
        const auto* const cause = std::ranges::find(cause_names, entry[numbers].get_ref<const std::string&>());
        const auto at = entry[0].get<std::uint64_t>();
        const auto node = entry[1].get<std::uint64_t>();
        const auto incarnation = entry[2].get<std::uint64_t>();
        if (cause == cause_names.end() || at > static_cast<std::uint64_t>(time_never) || node > UINT32_MAX ||
            incarnation > UINT32_MAX) {
            return false;
        }
        changes.push_back({static_cast<Time>(at), static_cast<std::uint32_t>(node),
                           static_cast<std::uint32_t>(incarnation),
                           static_cast<protocol::Cause>(cause - cause_names.begin())});
    }
    return true;
}

#define INCAST_PAIR(NAME)                                      \
    std::pair<std::string_view, std::uint64_t PairSample::*> { \
        #NAME, &PairSample::NAME                               \
    }
constexpr std::array pair_fields{
    INCAST_PAIR(messages_sent), INCAST_PAIR(messages_received),
    INCAST_PAIR(round_trips),   INCAST_PAIR(min_ns),
    INCAST_PAIR(p50_ns),        INCAST_PAIR(p99_ns),
    INCAST_PAIR(p999_ns),       INCAST_PAIR(max_ns),
};
#undef INCAST_PAIR

nlohmann::ordered_json net_json(const NetSample& net) {
    nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
    for (const PairSample& pair : net.pairs) {
        nlohmann::ordered_json& json = pairs.emplace_back();
        json["peer"] = pair.peer;
        for (const auto& [name, member] : pair_fields) {
            json[std::string(name)] = pair.*member;
        }
    }
    return {{"began_at_ps", static_cast<std::uint64_t>(net.began_at)},
            {"finished_at_ps", static_cast<std::uint64_t>(net.finished_at)},
            {"pairs", std::move(pairs)}};
}

bool read_net(const nlohmann::json& json, NetSample& net) {
    const auto pairs = json.find("pairs");
    if (!json.is_object() || !read_number(json, "began_at_ps", net.began_at) ||
        !read_number(json, "finished_at_ps", net.finished_at) || pairs == json.end() || !pairs->is_array()) {
        return false;
    }
    for (const nlohmann::json& entry : *pairs) {
        PairSample& pair = net.pairs.emplace_back();
        if (!entry.is_object() || !read_number(entry, "peer", pair.peer)) {
            return false;
        }
        for (const auto& [name, member] : pair_fields) {
            if (!read_number(entry, std::string(name).c_str(), pair.*member)) {
                return false;
            }
        }
    }
    return true;
}

#define INCAST_BOARD(NAME)                                         \
    std::pair<std::string_view, std::uint64_t ingest::Counts::*> { \
        #NAME, &ingest::Counts::NAME                               \
    }
constexpr std::array board_fields{
    INCAST_BOARD(packets),      INCAST_BOARD(taken_events), INCAST_BOARD(duplicate_events), INCAST_BOARD(late_events),
    INCAST_BOARD(stray_events), INCAST_BOARD(lost_events),  INCAST_BOARD(truncated_events), INCAST_BOARD(restarts),
    INCAST_BOARD(jumps),        INCAST_BOARD(size_changes)};
#undef INCAST_BOARD
static_assert(sizeof(ingest::Counts) == board_fields.size() * sizeof(std::uint64_t));

/// Numbers in the order of the fields: there may be many.
nlohmann::ordered_json boards_json(const std::vector<ingest::Counts>& boards) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const ingest::Counts& counts : boards) {
        nlohmann::ordered_json& numbers = list.emplace_back();
        for (const auto& [name, member] : board_fields) {
            numbers.push_back(counts.*member);
        }
    }
    return list;
}

bool read_boards(const nlohmann::json& json, std::vector<ingest::Counts>& boards) {
    if (!json.is_array() || json.size() > most_boards_told) {
        return false;
    }
    for (const nlohmann::json& numbers : json) {
        ingest::Counts& counts = boards.emplace_back();
        if (!numbers.is_array() || numbers.size() != board_fields.size()) {
            return false;
        }
        for (std::size_t index = 0; index < board_fields.size(); ++index) {
            if (!numbers[index].is_number_unsigned()) {
                return false;
            }
            counts.*board_fields[index].second = numbers[index].get<std::uint64_t>();
        }
    }
    return true;
}

nlohmann::ordered_json ports_json(const std::vector<PortChange>& ports) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const PortChange& port : ports) {
        list.push_back(
            {{"device", port.device}, {"port", port.port}, {"interface", port.interface}, {"grown", port.grown}});
    }
    return list;
}

bool read_ports(const nlohmann::json& json, std::vector<PortChange>& ports) {
    if (!json.is_array() || json.size() > most_ports) {
        return false;
    }
    for (const nlohmann::json& entry : json) {
        PortChange& port = ports.emplace_back();
        const auto grown = entry.find("grown");
        if (!entry.is_object() || !read_text(entry, "device", port.device) || !read_number(entry, "port", port.port) ||
            !read_text(entry, "interface", port.interface) || grown == entry.end() || !grown->is_object() ||
            grown->size() > most_counters) {
            return false;
        }
        for (const auto& [name, value] : grown->items()) {
            if (name.size() > max_words || !value.is_number_unsigned()) {
                return false;
            }
            port.grown[name] = value.get<std::uint64_t>();
        }
    }
    return true;
}

}  // namespace

std::span<const TotalsField> totals_fields() {
    return fields;
}

NodeTotals difference(const NodeTotals& later, const NodeTotals& earlier) {
    NodeTotals result;
    for (const TotalsField& field : fields) {
        const std::uint64_t before = earlier.*field.member;
        const std::uint64_t after = later.*field.member;
        result.*field.member = after >= before ? after - before : after;
    }
    return result;
}

void add(NodeTotals& to, const NodeTotals& more) {
    for (const TotalsField& field : fields) {
        to.*field.member += more.*field.member;
    }
}

std::string_view to_text(protocol::NodeState state) {
    return state_names[static_cast<std::size_t>(state)];
}

nlohmann::ordered_json to_json(const NodeTotals& totals) {
    nlohmann::ordered_json json;
    for (const TotalsField& field : fields) {
        json[std::string(field.name)] = totals.*field.member;
    }
    return json;
}

nlohmann::ordered_json to_json(const ingest::Counts& counts) {
    nlohmann::ordered_json json;
    for (const auto& [name, member] : board_fields) {
        json[std::string(name)] = counts.*member;
    }
    return json;
}

nlohmann::ordered_json to_json(const NodeSample& sample) {
    nlohmann::ordered_json json{{"node", sample.node},
                                {"incarnation", sample.incarnation},
                                {"state", to_text(sample.state)},
                                {"mark", mark_names[static_cast<std::size_t>(sample.mark)]},
                                {"at_ps", static_cast<std::uint64_t>(sample.at)},
                                {"joined_at_ps", static_cast<std::uint64_t>(sample.joined_at)},
                                {"cpu_wall_ns", sample.cpu_wall_ns},
                                {"rss_bytes", sample.rss_bytes},
                                {"peak_rss_bytes", sample.peak_rss_bytes},
                                {"peak_held_meps", sample.peak_held_meps},
                                {"trigger_spread_ns", sample.trigger_spread_ns},
                                {"clock_error_ns", sample.clock_error_ns},
                                {"totals", to_json(sample.totals)}};
    if (sample.latency_ns) {
        json["latency_ns"] = histogram_json(*sample.latency_ns);
    }
    if (sample.net) {
        json["net"] = net_json(*sample.net);
    }
    if (!sample.boards.empty()) {
        json["boards"] = boards_json(sample.boards);
    }
    for (const ViewChange& change : sample.changes) {
        json["changes"].push_back({static_cast<std::uint64_t>(change.at), change.node, change.incarnation,
                                   cause_names[static_cast<std::size_t>(change.cause)]});
    }
    if (!sample.ports.empty()) {
        json["host"] = sample.host.substr(0, max_words);
        json["ports"] = ports_json(sample.ports);
    }
    if (!sample.failure.empty()) {
        json["failure"] = sample.failure.substr(0, max_words);
    }
    if (!sample.note.empty()) {
        json["note"] = sample.note.substr(0, max_words);
    }
    return json;
}

Result<NodeSample> sample_from_json(const nlohmann::json& json) {
    NodeSample sample;
    const auto totals = json.find("totals");
    if (!json.is_object() || totals == json.end() || !totals->is_object() || !read_number(json, "node", sample.node) ||
        !read_number(json, "incarnation", sample.incarnation) || !read_word(json, "state", state_names, sample.state) ||
        !read_word(json, "mark", mark_names, sample.mark) || !read_number(json, "at_ps", sample.at) ||
        !read_number(json, "joined_at_ps", sample.joined_at) || !read_number(json, "rss_bytes", sample.rss_bytes) ||
        !read_number(json, "cpu_wall_ns", sample.cpu_wall_ns) ||
        !read_number(json, "peak_rss_bytes", sample.peak_rss_bytes) ||
        !read_number(json, "peak_held_meps", sample.peak_held_meps) ||
        !read_number(json, "trigger_spread_ns", sample.trigger_spread_ns) ||
        !read_number(json, "clock_error_ns", sample.clock_error_ns) || !read_text(json, "failure", sample.failure) ||
        !read_text(json, "note", sample.note) || !read_text(json, "host", sample.host)) {
        return Error{"a sample lacks a field, or one has the wrong type"};
    }
    for (const TotalsField& field : fields) {
        const std::string name(field.name);  // what an older program does not count is not there
        if (totals->contains(name) && !read_number(*totals, name.c_str(), sample.totals.*field.member)) {
            return Error{fmt::format("the total '{}' of a sample is no count", field.name)};
        }
    }
    if (const auto latency = json.find("latency_ns"); latency != json.end()) {
        if (!read_histogram(*latency, sample.latency_ns.emplace())) {
            return Error{"the latency histogram of a sample is malformed"};
        }
    }
    if (const auto changes = json.find("changes"); changes != json.end() && !read_changes(*changes, sample.changes)) {
        return Error{"the changes of the view in a sample are malformed"};
    }
    if (const auto boards = json.find("boards"); boards != json.end() && !read_boards(*boards, sample.boards)) {
        return Error{"the boards of a sample are malformed"};
    }
    if (const auto net = json.find("net"); net != json.end() && !read_net(*net, sample.net.emplace())) {
        return Error{"the traffic of a sample is malformed"};
    }
    if (const auto ports = json.find("ports"); ports != json.end() && !read_ports(*ports, sample.ports)) {
        return Error{"the ports of a sample are malformed"};
    }
    return sample;
}

}  // namespace incast::runtime
