#include "runtime/metrics.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace incast::runtime {
namespace {

#define INCAST_TOTAL(NAME)       \
    TotalsField {                \
        #NAME, &NodeTotals::NAME \
    }
// clang-format off: one a line, whatever their number
constexpr std::array fields{
    INCAST_TOTAL(meps_produced),
    INCAST_TOTAL(contributions_sent),
    INCAST_TOTAL(mfps_sent),
    INCAST_TOTAL(sent_goodput_bytes),
    INCAST_TOTAL(sent_self_bytes),
    INCAST_TOTAL(aborts_acknowledged),
    INCAST_TOTAL(slot_overruns),
    INCAST_TOTAL(unguarded_slots),
    INCAST_TOTAL(meps_built),
    INCAST_TOTAL(events_built),
    INCAST_TOTAL(mfps_received),
    INCAST_TOTAL(built_goodput_bytes),
    INCAST_TOTAL(built_self_bytes),
    INCAST_TOTAL(incomplete_meps),
    INCAST_TOTAL(incomplete_events),
    INCAST_TOTAL(redelivered_meps),
    INCAST_TOTAL(redelivered_events),
    INCAST_TOTAL(stale_contributions),
    INCAST_TOTAL(late_reports),
    INCAST_TOTAL(quarantined_slots),
    INCAST_TOTAL(denied_commits),
    INCAST_TOTAL(meps_filtered),
    INCAST_TOTAL(events_filtered),
    INCAST_TOTAL(undecided_meps),
    INCAST_TOTAL(meps_admitted),
    INCAST_TOTAL(meps_committed),
    INCAST_TOTAL(meps_flagged),
    INCAST_TOTAL(meps_rejected),
    INCAST_TOTAL(events_committed),
    INCAST_TOTAL(reassignments),
    INCAST_TOTAL(evictions),
    INCAST_TOTAL(views),
    INCAST_TOTAL(phases),
    INCAST_TOTAL(barrier_expired),
    INCAST_TOTAL(messages_sent),
    INCAST_TOTAL(messages_received),
    INCAST_TOTAL(bad_messages),
    INCAST_TOTAL(back_pressure),
    INCAST_TOTAL(copied_bytes),
    INCAST_TOTAL(bu_waiting_ns),
    INCAST_TOTAL(offered_events),
    INCAST_TOTAL(accepted_events),
    INCAST_TOTAL(dead_time_ns),
    INCAST_TOTAL(inhibited_events),
    INCAST_TOTAL(dropped_events),
    INCAST_TOTAL(dropped_mfps),
    INCAST_TOTAL(held_mep_ns),
    INCAST_TOTAL(received_dropped_mfps),
    INCAST_TOTAL(events_with_drops),
    INCAST_TOTAL(undelivered_meps),
    INCAST_TOTAL(delay_ns),
    INCAST_TOTAL(truncated_mfps),
    INCAST_TOTAL(desync_mfps),
    INCAST_TOTAL(structure_checked_mfps),
    INCAST_TOTAL(lines_checked_meps),
    INCAST_TOTAL(verify_errors),
    INCAST_TOTAL(sink_cpu_ns),
    INCAST_TOTAL(consumers_attached),
    INCAST_TOTAL(consumers_left),
    INCAST_TOTAL(consumers_ejected),
    INCAST_TOTAL(consumers_refused),
    INCAST_TOTAL(consumer_taken_meps),
    INCAST_TOTAL(consumer_done_meps),
    INCAST_TOTAL(consumer_dropped_meps),
    INCAST_TOTAL(consumer_abandoned_meps),
    INCAST_TOTAL(consumer_repeated_meps),
    INCAST_TOTAL(consumer_missed_meps),
    INCAST_TOTAL(cpu_ns),
    INCAST_TOTAL(polling_cpu_ns),
    INCAST_TOTAL(steps),
    INCAST_TOTAL(useful_steps),
    INCAST_TOTAL(sleeps),
};
// clang-format on
#undef INCAST_TOTAL
// A counter that is added to Counters or NodeTotals without a line here would be lost between processes.
static_assert(sizeof(NodeTotals) == fields.size() * sizeof(std::uint64_t));

constexpr std::array<std::string_view, 5> state_names{"joining", "running", "finished", "evicted", "em_silent"};
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
    into = found->get<std::string>().substr(0, 500);
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

#define INCAST_PAIR(NAME)                                      \
    std::pair<std::string_view, std::uint64_t PairSample::*> { \
        #NAME, &PairSample::NAME                               \
    }
constexpr std::array pair_fields{
    INCAST_PAIR(messages_sent), INCAST_PAIR(messages_received), INCAST_PAIR(round_trips), INCAST_PAIR(p50_ns),
    INCAST_PAIR(p99_ns),        INCAST_PAIR(p999_ns),           INCAST_PAIR(max_ns),
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

nlohmann::ordered_json to_json(const NodeSample& sample) {
    nlohmann::ordered_json json{{"node", sample.node},
                                {"incarnation", sample.incarnation},
                                {"state", to_text(sample.state)},
                                {"mark", mark_names[static_cast<std::size_t>(sample.mark)]},
                                {"at_ps", static_cast<std::uint64_t>(sample.at)},
                                {"joined_at_ps", static_cast<std::uint64_t>(sample.joined_at)},
                                {"rss_bytes", sample.rss_bytes},
                                {"peak_rss_bytes", sample.peak_rss_bytes},
                                {"peak_held_meps", sample.peak_held_meps},
                                {"trigger_spread_ns", sample.trigger_spread_ns},
                                {"totals", to_json(sample.totals)}};
    if (sample.latency_ns) {
        json["latency_ns"] = histogram_json(*sample.latency_ns);
    }
    if (sample.net) {
        json["net"] = net_json(*sample.net);
    }
    if (!sample.failure.empty()) {
        json["failure"] = sample.failure;
    }
    if (!sample.note.empty()) {
        json["note"] = sample.note;
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
        !read_number(json, "peak_rss_bytes", sample.peak_rss_bytes) ||
        !read_number(json, "peak_held_meps", sample.peak_held_meps) ||
        !read_number(json, "trigger_spread_ns", sample.trigger_spread_ns) ||
        !read_text(json, "failure", sample.failure) || !read_text(json, "note", sample.note)) {
        return Error{"a sample lacks a field, or one has the wrong type"};
    }
    for (const TotalsField& field : fields) {
        if (!read_number(*totals, std::string(field.name).c_str(), sample.totals.*field.member)) {
            return Error{fmt::format("a sample lacks its total '{}'", field.name)};
        }
    }
    if (const auto latency = json.find("latency_ns"); latency != json.end()) {
        if (!read_histogram(*latency, sample.latency_ns.emplace())) {
            return Error{"the latency histogram of a sample is malformed"};
        }
    }
    if (const auto net = json.find("net"); net != json.end() && !read_net(*net, sample.net.emplace())) {
        return Error{"the traffic of a sample is malformed"};
    }
    return sample;
}

}  // namespace incast::runtime
