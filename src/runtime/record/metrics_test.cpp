#include "runtime/record/metrics.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace incast::runtime {
namespace {

NodeSample some_sample() {
    NodeSample sample;
    sample.node = 3;
    sample.incarnation = 2;
    sample.state = protocol::NodeState::running;
    sample.mark = Mark::window_end;
    sample.at = 5 * ps_per_s;
    sample.joined_at = ps_per_s;
    sample.cpu_wall_ns = 900;
    sample.rss_bytes = 1000;
    sample.peak_rss_bytes = 2000;
    std::uint64_t value = 1;
    for (const TotalsField& field : totals_fields()) {
        sample.totals.*field.member = value++;
    }
    sample.latency_ns.emplace();
    sample.latency_ns->record(100, 5);
    sample.latency_ns->record(123'456'789);
    sample.failure = "the disk is full";
    return sample;
}

nlohmann::json as_json(const NodeSample& sample) {
    return nlohmann::json::parse(to_json(sample).dump());
}

TEST(Metrics, ASampleTravelsWhole) {
    const NodeSample sent = some_sample();
    const Result<NodeSample> received = sample_from_json(as_json(sent));
    ASSERT_TRUE(received.ok()) << received.error().message;
    EXPECT_EQ(received->node, sent.node);
    EXPECT_EQ(received->incarnation, sent.incarnation);
    EXPECT_EQ(received->state, sent.state);
    EXPECT_EQ(received->mark, sent.mark);
    EXPECT_EQ(received->at, sent.at);
    EXPECT_EQ(received->joined_at, sent.joined_at);
    EXPECT_EQ(received->cpu_wall_ns, sent.cpu_wall_ns);
    EXPECT_EQ(received->failure, sent.failure);
    for (const TotalsField& field : totals_fields()) {
        EXPECT_EQ(received->totals.*field.member, sent.totals.*field.member) << field.name;
    }
    ASSERT_TRUE(received->latency_ns.has_value());
    EXPECT_EQ(received->latency_ns->counts(), sent.latency_ns->counts());
    EXPECT_EQ(received->latency_ns->max(), 123'456'789U);
}

TEST(Metrics, ASampleThatLacksAnythingIsRefused) {
    const nlohmann::json good = as_json(some_sample());
    for (const char* key : {"node", "incarnation", "state", "mark", "at_ps", "joined_at_ps", "cpu_wall_ns", "rss_bytes",
                            "peak_rss_bytes", "totals"}) {
        nlohmann::json bad = good;
        bad.erase(key);
        EXPECT_FALSE(sample_from_json(bad).ok()) << key;
        bad[key] = "seven";
        EXPECT_FALSE(sample_from_json(bad).ok()) << key;
        bad[key] = -7;
        EXPECT_FALSE(sample_from_json(bad).ok()) << key;
    }
    for (const TotalsField& field : totals_fields()) {
        nlohmann::json bad = good;
        bad["totals"][std::string(field.name)] = -1;
        EXPECT_FALSE(sample_from_json(bad).ok()) << field.name;
    }
    nlohmann::json bad = good;
    bad["node"] = std::uint64_t{1} << 40U;
    EXPECT_FALSE(sample_from_json(bad).ok()) << "does not fit";
    for (const char* buckets : {"[[9999999, 1]]", "[[1]]", "[5]", "{}", "[[1, -1]]", "[[1.5, 1]]"}) {
        bad = good;
        bad["latency_ns"]["buckets"] = nlohmann::json::parse(buckets);
        EXPECT_FALSE(sample_from_json(bad).ok()) << buckets;
    }
}

TEST(Metrics, DifferencesCountFromZeroWhereAProcessWasReplaced) {
    NodeTotals before;
    NodeTotals after;
    before.events_built = 100;
    after.events_built = 140;
    before.cpu_ns = 1000;
    after.cpu_ns = 10;
    const NodeTotals delta = difference(after, before);
    EXPECT_EQ(delta.events_built, 40U);
    EXPECT_EQ(delta.cpu_ns, 10U);
    NodeTotals sum = before;
    add(sum, delta);
    EXPECT_EQ(sum.events_built, 140U);
}

TEST(Metrics, TheTrafficOfASampleSurvivesTheJourney) {
    NodeSample sample;
    sample.mark = Mark::window_end;
    sample.net = NetSample{5, 9, {{3, 10, 20, 7, 100, 200, 300, 400}, {4, 11, 21, 0, 0, 0, 0, 0}}};
    nlohmann::json json = to_json(sample);
    const Result<NodeSample> again = sample_from_json(json);
    ASSERT_TRUE(again.ok()) << again.error().message;
    ASSERT_TRUE(again->net.has_value());
    EXPECT_EQ(again->net->began_at, 5);
    EXPECT_EQ(again->net->finished_at, 9);
    ASSERT_EQ(again->net->pairs.size(), 2U);
    EXPECT_EQ(again->net->pairs[0].peer, 3U);
    EXPECT_EQ(again->net->pairs[0].messages_received, 20U);
    EXPECT_EQ(again->net->pairs[0].max_ns, 400U);
    EXPECT_EQ(again->net->pairs[1].messages_sent, 11U);
    json["net"]["pairs"][1]["round_trips"] = -1;
    EXPECT_FALSE(sample_from_json(json).ok());
    json["net"]["pairs"] = 7;
    EXPECT_FALSE(sample_from_json(json).ok());
    json["net"] = "much";
    EXPECT_FALSE(sample_from_json(json).ok());
}

TEST(Metrics, ThePortsOfASampleSurviveTheJourney) {
    NodeSample sample;
    sample.host = "event-builder-7";
    sample.ports = {{"mlx5_0", 1, "eth2", {{"out_of_sequence", 12}, {"port_xmit_wait", 1ULL << 60U}}},
                    {"", 0, "lo", {}}};
    nlohmann::json json = nlohmann::json::parse(to_json(sample).dump());
    const Result<NodeSample> again = sample_from_json(json);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->host, "event-builder-7");
    ASSERT_EQ(again->ports.size(), 2U);
    EXPECT_EQ(again->ports[0].device, "mlx5_0");
    EXPECT_EQ(again->ports[0].port, 1U);
    EXPECT_EQ(again->ports[0].interface, "eth2");
    EXPECT_EQ(again->ports[0].grown, sample.ports[0].grown);
    EXPECT_EQ(again->ports[1].interface, "lo");
    for (const char* wrong : {"-1", "\"many\"", "1.5", "null"}) {
        nlohmann::json bad = json;
        bad["ports"][0]["grown"]["out_of_sequence"] = nlohmann::json::parse(wrong);
        EXPECT_FALSE(sample_from_json(bad).ok()) << wrong;
    }
    for (const char* wrong : {"7", "[7]", "[{}]", "[{\"device\":\"a\",\"port\":1,\"interface\":\"b\",\"grown\":[]}]"}) {
        nlohmann::json bad = json;
        bad["ports"] = nlohmann::json::parse(wrong);
        EXPECT_FALSE(sample_from_json(bad).ok()) << wrong;
    }
    json["ports"] = nlohmann::json::array();
    for (int port = 0; port < 65; ++port) {
        json["ports"].push_back(
            {{"device", "a"}, {"port", port}, {"interface", ""}, {"grown", nlohmann::json::object()}});
    }
    EXPECT_FALSE(sample_from_json(json).ok());
}

TEST(Metrics, ChangesOfTheViewTravel) {
    NodeSample sample;
    sample.changes = {{5, 1, 2, protocol::Cause::silent}, {7, 1, 3, protocol::Cause::joined}};
    const nlohmann::json json = nlohmann::json::parse(to_json(sample).dump());
    const Result<NodeSample> back = sample_from_json(json);
    ASSERT_TRUE(back.ok());
    ASSERT_EQ(back->changes.size(), 2U);
    EXPECT_EQ(back->changes[0].cause, protocol::Cause::silent);
    EXPECT_EQ(back->changes[1].incarnation, 3U);
    for (const char* bad : {"{}", "[1]", "[[1,2,3]]", "[[1,2,3,\"unheard of\"]]", "[[-1,2,3,\"silent\"]]",
                            "[[1,2,4294967296,\"silent\"]]"}) {
        nlohmann::json wrong = json;
        wrong["changes"] = nlohmann::json::parse(bad);
        EXPECT_FALSE(sample_from_json(wrong).ok()) << bad;
    }
}

}  // namespace
}  // namespace incast::runtime
