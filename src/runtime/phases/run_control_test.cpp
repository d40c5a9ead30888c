#include "runtime/phases/run_control.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/machine/run_clock.h"
#include "runtime/results/results.h"

namespace incast::runtime {
namespace {

class RecordingNodes final : public RunNodes {
public:
    void take_samples(Mark mark) override { marks.push_back(mark); }
    void stop_admission() override { ++stops; }
    void start_triggers(Time origin) override { origins.push_back(origin); }
    std::vector<Mark> marks;
    std::vector<Time> origins;
    int stops = 0;
};

/// A split run of one RU, two BUs and the event manager on a node of its own, whose clock is moved by hand.
class Conducting : public testing::Test {
public:
    ~Conducting() override {
        reporter_.reset();
        std::filesystem::remove_all(folder_);
    }

protected:
    static constexpr std::uint32_t ru = 0;
    static constexpr std::uint32_t bu = 1;
    static constexpr std::uint32_t other_bu = 2;
    static constexpr std::uint32_t em = 3;

    Conducting() {
        std::string name = (std::filesystem::temp_directory_path() / "incast-run-control-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        Result<std::unique_ptr<Reporter>> reporter = Reporter::open(folder_, Progress::none);
        reporter_ = std::move(*reporter);
    }
    void begin(std::initializer_list<const char*> settings = {}) {
        ConfigText text;
        for (const char* setting :
             {"run.roles=split", "run.nodes=3", "run.readout_units=1", "run.em=own", "run.duration=10s"}) {
            ASSERT_TRUE(text.assign(setting).ok());
        }
        for (const char* setting : settings) {
            ASSERT_TRUE(text.assign(setting).ok());
        }
        Result<Plan> plan = resolve(text, Machine{});
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        plan_ = std::move(*plan);
        control_ = std::make_unique<RunControl>(plan_, run_nodes_, *reporter_, now_);
    }
    /// Raw traffic between three nodes.
    void begin_net(std::initializer_list<const char*> settings) {
        ConfigText text;
        for (const char* setting : {"run.task=net", "run.nodes=3", "net.pattern=one-to-many"}) {
            ASSERT_TRUE(text.assign(setting).ok());
        }
        for (const char* setting : settings) {
            ASSERT_TRUE(text.assign(setting).ok());
        }
        Result<Plan> plan = resolve(text, Machine{});
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        plan_ = std::move(*plan);
        control_ = std::make_unique<RunControl>(plan_, run_nodes_, *reporter_, now_);
    }
    void report(std::uint32_t node, protocol::NodeState state, Mark mark = Mark::interval) {
        NodeSample sample;
        sample.node = node;
        sample.incarnation = 1;
        sample.state = state;
        sample.mark = mark;
        sample.at = now_;
        sample.joined_at = node == em && state != protocol::NodeState::joining ? now_ : 0;
        control_->sample(now_, sample);
    }
    void join() {
        for (const std::uint32_t node : {ru, bu, other_bu, em}) {
            report(node, protocol::NodeState::running);
        }
    }
    [[nodiscard]] std::string log() const {
        std::ifstream file(folder_ / "log.txt");
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
    void pass(Time time) {
        now_ += time;
        control_->tick(now_);
    }
    void give_last_samples(protocol::NodeState state) {
        for (std::uint32_t node = 0; node < 4; ++node) {
            if (!control_->nodes()[node].lost) {
                report(node, state, Mark::last);
            }
        }
    }

    std::filesystem::path folder_;
    std::unique_ptr<Reporter> reporter_;
    Plan plan_;
    RecordingNodes run_nodes_;
    Time now_ = 100 * ps_per_s;
    std::unique_ptr<RunControl> control_;
};

TEST_F(Conducting, SamplesSayHowMuchTimeIsLeft) {
    const auto left = [this] {
        std::ifstream file(folder_ / "samples.jsonl");
        std::string line;
        std::string last;
        while (std::getline(file, line)) {
            last = line;
        }
        return nlohmann::json::parse(last)["left_s"];
    };
    begin({"run.warm_up=1s"});
    join();
    EXPECT_EQ(left(), 11.0);
    pass(ps_per_s);
    pass(4 * ps_per_s);
    report(bu, protocol::NodeState::running);
    EXPECT_EQ(left(), 6.0) << "of the measured time";
    begin({"run.events=100", "run.duration=auto"});
    join();
    report(bu, protocol::NodeState::running);
    EXPECT_TRUE(left().is_null()) << "nothing is built";
    now_ += 2 * ps_per_s;
    NodeSample sample;
    sample.node = bu;
    sample.incarnation = 1;
    sample.state = protocol::NodeState::running;
    sample.at = now_;
    sample.totals.events_built = 25;
    control_->sample(now_, sample);
    report(ru, protocol::NodeState::running);
    EXPECT_EQ(left(), 6.0) << "as fast as before";
}

TEST_F(Conducting, WhoHasNoConsumerIsSaidOnceAndWhenAllHaveOneToo) {
    begin({"sink.kind=consumer", "sink.name=farm", "transport.name=shm", "run.warm_up=1h"});
    join();
    const auto attached = [this](std::uint32_t node, std::uint64_t come, std::uint64_t left) {
        NodeSample sample;
        sample.node = node;
        sample.incarnation = 1;
        sample.state = protocol::NodeState::running;
        sample.at = now_;
        sample.totals.consumers_attached = come;
        sample.totals.consumers_left = left;
        control_->sample(now_, sample);
    };
    attached(bu, 1, 0);
    pass(plan_.sample_interval);
    EXPECT_THAT(log(), testing::HasSubstr("no consumer of 'farm' is attached to node 2: its events wait"));
    const std::size_t length = log().size();
    pass(plan_.sample_interval);
    EXPECT_EQ(log().size(), length) << "said once";
    attached(other_bu, 1, 0);
    pass(plan_.sample_interval);
    EXPECT_THAT(log().substr(length), testing::HasSubstr("every builder unit has a consumer"));
    attached(bu, 1, 1);
    pass(plan_.sample_interval);
    EXPECT_THAT(log().substr(length), testing::HasSubstr("is attached to node 1: its events wait"));
}

TEST_F(Conducting, PhasesFollowEachOther) {
    begin();
    EXPECT_EQ(control_->phase(), Phase::joining);
    report(em, protocol::NodeState::joining);
    EXPECT_EQ(control_->phase(), Phase::joining);
    join();
    EXPECT_EQ(control_->phase(), Phase::warm_up);
    pass(ps_per_s - 1);
    EXPECT_EQ(control_->phase(), Phase::warm_up);
    pass(1);
    EXPECT_EQ(control_->phase(), Phase::measuring);
    EXPECT_EQ(run_nodes_.marks, std::vector{Mark::window_begin});
    EXPECT_EQ(run_nodes_.stops, 0);
    pass(10 * ps_per_s);
    EXPECT_EQ(control_->phase(), Phase::draining);
    EXPECT_EQ(run_nodes_.stops, 1);
    report(em, protocol::NodeState::finished);
    EXPECT_EQ(control_->phase(), Phase::closing);
    EXPECT_EQ(run_nodes_.marks, (std::vector{Mark::window_begin, Mark::window_end, Mark::last}));
    give_last_samples(protocol::NodeState::finished);
    EXPECT_EQ(control_->phase(), Phase::done);
    EXPECT_EQ(control_->outcome(), Outcome::complete);
}

TEST_F(Conducting, ARunWithAnEndIsMeasuredWhole) {
    begin({"run.events=1000", "run.duration=auto"});
    join();
    EXPECT_EQ(control_->phase(), Phase::measuring);
    now_ += 3 * ps_per_s;
    report(em, protocol::NodeState::finished);
    EXPECT_EQ(run_nodes_.marks, std::vector{Mark::last});
    EXPECT_EQ(control_->whole_window(), 3 * ps_per_s);
}

TEST_F(Conducting, NextDeadlineIsWhenSomethingIsDue) {
    begin({"run.sample_interval=1h"});
    EXPECT_EQ(control_->next_deadline(), now_ + 60 * ps_per_s);
    join();
    EXPECT_EQ(control_->next_deadline(), now_ + ps_per_s);
    pass(ps_per_s);
    EXPECT_EQ(control_->next_deadline(), now_ + 10 * ps_per_s);
    pass(10 * ps_per_s);
    EXPECT_EQ(control_->next_deadline(), now_ + 30 * ps_per_s);
}

TEST_F(Conducting, ALostBuilderIsNoReasonToStop) {
    begin();
    join();
    control_->lost(now_, bu, "killed");
    EXPECT_EQ(control_->phase(), Phase::warm_up);
    EXPECT_TRUE(control_->nodes()[bu].lost);
    control_->lost(now_, other_bu, "killed");
    EXPECT_EQ(control_->outcome(), Outcome::node_lost) << "nobody is left to build";
    give_last_samples(protocol::NodeState::running);
    EXPECT_EQ(control_->phase(), Phase::done);
}

TEST_F(Conducting, ALossStopsARunThatSaysSo) {
    begin({"run.on_loss=stop"});
    join();
    pass(ps_per_s);
    control_->lost(now_, bu, "killed");
    EXPECT_EQ(control_->phase(), Phase::draining);
    EXPECT_EQ(run_nodes_.stops, 1);
    report(em, protocol::NodeState::finished);
    give_last_samples(protocol::NodeState::finished);
    EXPECT_EQ(control_->outcome(), Outcome::node_lost);
}

TEST_F(Conducting, WithoutTheEventManagerItEndsAtOnce) {
    begin();
    join();
    pass(ps_per_s);
    control_->lost(now_, em, "killed");
    EXPECT_EQ(control_->phase(), Phase::closing);
    EXPECT_EQ(run_nodes_.marks, (std::vector{Mark::window_begin, Mark::window_end, Mark::last}));
    give_last_samples(protocol::NodeState::em_silent);
    EXPECT_EQ(control_->phase(), Phase::done);
    EXPECT_EQ(control_->outcome(), Outcome::event_manager_lost);
}

TEST_F(Conducting, SilentNodesDoNotHoldUpTheEnd) {
    begin();
    join();
    control_->lost(now_, em, "killed");
    report(ru, protocol::NodeState::em_silent, Mark::last);
    EXPECT_EQ(control_->phase(), Phase::closing);
    pass(3 * ps_per_s);
    EXPECT_EQ(control_->phase(), Phase::done);
}

TEST_F(Conducting, WhoeverIsLostWhileNodesJoinTheyHaveNotJoined) {
    begin();
    report(em, protocol::NodeState::joining);
    control_->lost(now_, em, "no port is free");
    EXPECT_EQ(control_->outcome(), Outcome::not_joined);
    EXPECT_THAT(log(), ::testing::HasSubstr("no port is free; not all nodes had joined"));

    begin_net({});
    control_->lost(now_, 0, "no port is free");
    EXPECT_EQ(control_->outcome(), Outcome::not_joined);
}

TEST_F(Conducting, DeadlinesEndWhatDoesNotEnd) {
    begin({"run.join_deadline=5s"});
    pass(5 * ps_per_s);
    EXPECT_EQ(control_->outcome(), Outcome::not_joined);
    begin({"run.drain_deadline=5s"});
    join();
    pass(ps_per_s);
    pass(10 * ps_per_s);
    pass(5 * ps_per_s);
    EXPECT_EQ(control_->outcome(), Outcome::not_drained);
}

TEST_F(Conducting, APauseOfItsOwnIsForgiven) {
    begin({"run.join_deadline=10s"});
    report(em, protocol::NodeState::joining);
    now_ += 20 * ps_per_s;
    control_->forgive(15 * ps_per_s);
    pass(0);
    EXPECT_EQ(control_->phase(), Phase::joining);
    pass(5 * ps_per_s);
    EXPECT_EQ(control_->outcome(), Outcome::not_joined);
}

TEST_F(Conducting, ARunEndsBeforeItsClock) {
    begin({"run.events=1000000", "run.duration=auto"});
    join();
    constexpr Time day = 86400 * ps_per_s;
    pass(99 * day);
    EXPECT_EQ(control_->phase(), Phase::measuring);
    pass(day);
    EXPECT_EQ(control_->phase(), Phase::draining);
    EXPECT_EQ(control_->outcome(), Outcome::complete);
}

TEST(RunClock, CountsFromItsOrigin) {
    const RunClock fresh;
    EXPECT_LT(fresh.now(), 60 * ps_per_s);
    const RunClock older(fresh.origin_ns() - 3'000'000'000);
    const Time before = fresh.now();
    EXPECT_GE(older.now() - before, 3 * ps_per_s);
}

TEST_F(Conducting, AnInterruptDrains) {
    begin();
    join();
    pass(ps_per_s);
    control_->interrupt(now_);
    EXPECT_EQ(control_->phase(), Phase::draining);
    control_->interrupt(now_);
    EXPECT_EQ(run_nodes_.stops, 1);
    report(em, protocol::NodeState::finished);
    give_last_samples(protocol::NodeState::finished);
    EXPECT_EQ(control_->outcome(), Outcome::interrupted);
}

TEST_F(Conducting, AnInterruptWhileJoiningEnds) {
    begin();
    control_->interrupt(now_);
    EXPECT_EQ(control_->phase(), Phase::closing);
    EXPECT_EQ(control_->outcome(), Outcome::interrupted);
}

TEST_F(Conducting, ANodeThatCannotGoOnEndsTheRun) {
    begin();
    join();
    NodeSample sample;
    sample.node = bu;
    sample.failure = "the disk is full";
    control_->sample(now_, sample);
    EXPECT_EQ(control_->outcome(), Outcome::failed);
    EXPECT_NE(control_->reason().find("1 (BU)"), std::string::npos);
    EXPECT_NE(control_->reason().find("the disk is full"), std::string::npos);
}

TEST_F(Conducting, AReplacedProcessKeepsItsNodesTotals) {
    begin();
    join();
    NodeSample sample;
    sample.node = bu;
    sample.incarnation = 1;
    sample.totals.events_built = 1000;
    control_->sample(now_, sample);
    control_->lost(now_, bu, "killed");
    control_->replaced(bu);
    EXPECT_FALSE(control_->nodes()[bu].lost);
    sample.incarnation = 2;
    sample.totals.events_built = 30;
    control_->sample(now_, sample);
    EXPECT_EQ(control_->nodes()[bu].latest->totals.events_built, 1030U);
}

TEST_F(Conducting, NodesThatDoNotExistAreIgnored) {
    begin();
    NodeSample sample;
    sample.node = 77;
    control_->sample(now_, sample);
    control_->lost(now_, 77, "killed");
    EXPECT_EQ(control_->phase(), Phase::joining);
}

TEST_F(Conducting, RawTrafficBeginsWhenAllNodesAreThereAndEndsWhenAllHaveFinished) {
    begin_net({"run.duration=10s", "run.warm_up=2s"});
    report(0, protocol::NodeState::running);
    report(1, protocol::NodeState::running);
    EXPECT_EQ(control_->phase(), Phase::joining);
    report(2, protocol::NodeState::running);
    EXPECT_EQ(control_->phase(), Phase::warm_up);
    ASSERT_EQ(run_nodes_.origins.size(), 1U);
    EXPECT_GT(run_nodes_.origins[0], now_);
    pass(2 * ps_per_s);
    EXPECT_EQ(control_->phase(), Phase::warm_up) << "the warm-up counts from when there is something to warm up with";
    pass(run_nodes_.origins[0] - (now_ - 2 * ps_per_s));
    EXPECT_EQ(control_->phase(), Phase::measuring);
    pass(10 * ps_per_s);
    EXPECT_EQ(control_->phase(), Phase::draining);
    EXPECT_EQ(run_nodes_.stops, 1);
    EXPECT_EQ(run_nodes_.marks, (std::vector{Mark::window_begin, Mark::window_end}));
    report(0, protocol::NodeState::finished);
    report(1, protocol::NodeState::finished);
    EXPECT_EQ(control_->phase(), Phase::draining);
    report(2, protocol::NodeState::finished);
    EXPECT_EQ(control_->phase(), Phase::closing);
    for (std::uint32_t node = 0; node < 3; ++node) {
        report(node, protocol::NodeState::finished, Mark::last);
    }
    EXPECT_EQ(control_->phase(), Phase::done);
    EXPECT_EQ(control_->outcome(), Outcome::complete);
}

TEST_F(Conducting, RawTrafficEndsWithTheFirstNodeThatIsLost) {
    begin_net({"net.messages=100"});
    for (std::uint32_t node = 0; node < 3; ++node) {
        report(node, protocol::NodeState::running);
    }
    EXPECT_EQ(control_->phase(), Phase::measuring);
    control_->lost(now_, 2, "killed");
    EXPECT_EQ(control_->phase(), Phase::closing);
    EXPECT_EQ(control_->outcome(), Outcome::node_lost);
    EXPECT_NE(control_->reason().find("node 2 (receives) lost: killed"), std::string::npos);
}

/// Of two hosts beside the coordinator's, of which one made up the trigger's time and the other the commit's.
TEST_F(Conducting, NoLatencyIsShownThatIsNotKnownToATenth) {
    for (const std::uint64_t error_ns : {0U, 5000U, 5001U, 5'000'000U}) {
        begin({"source.trigger_rate=1kHz", "run.warm_up=0s"});
        join();
        base::Histogram latency;
        latency.record(100'000, 1000);
        for (const std::uint32_t node : {em, ru, bu, other_bu}) {
            NodeSample sample;
            sample.node = node;
            sample.incarnation = 1;
            sample.state = protocol::NodeState::running;
            sample.at = now_;
            sample.joined_at = node == em ? now_ : 0;
            sample.clock_error_ns = node == ru || node == bu ? error_ns : 0;
            sample.totals.timed_meps = node == bu ? 1000 : 0;
            sample.totals.delay_ns = node == bu ? 100'000'000 : 0;
            if (node == bu) sample.latency_ns = latency;
            for (const Mark mark : {Mark::window_begin, Mark::window_end}) {
                sample.mark = mark;
                control_->sample(now_, sample);
            }
        }
        const std::uint64_t median = latency.quantile(0.5);
        const bool known = 2 * error_ns <= median / 10;
        EXPECT_EQ(known, error_ns <= 5000);
        EXPECT_EQ(is_latency_known(median, control_->clock_error_ns()), known);
        const Machine machine{};
        const RunResult result = make_result({.plan = plan_,
                                              .machine = machine,
                                              .control = *control_,
                                              .trace_hash = {},
                                              .ledger = {},
                                              .ledger_error = {}});
        const auto json = nlohmann::json::parse(result.json)["latency_ns"];
        EXPECT_EQ(json["kind"], "trigger");
        EXPECT_EQ(json["count"], 1000);
        EXPECT_EQ(json["clock_error"], 2 * error_ns);
        for (const char* key : {"p50", "p99", "p999", "max"}) {
            EXPECT_EQ(json[key].is_number(), known) << key << error_ns;
        }
        EXPECT_EQ(json.contains("reason"), !known);
        EXPECT_EQ(result.summary.find("latency p50 10") != std::string::npos, known) << result.summary;
        EXPECT_EQ(result.summary.find("latency not shown: clocks of hosts may be") == std::string::npos, known);
    }
}

TEST_F(Conducting, WhatADroppedNodeCostIsSaidWhenItIsBack) {
    begin({"run.sample_interval=1s"});
    join();
    const auto changed = [this](protocol::Cause cause, std::uint32_t incarnation) {
        NodeSample sample;
        sample.node = em;
        sample.incarnation = 1;
        sample.state = protocol::NodeState::running;
        sample.at = now_;
        sample.joined_at = 1;
        sample.changes = {{now_, ru, incarnation, cause}};
        control_->sample(now_, sample);
    };
    const auto built = [this](std::uint64_t incomplete) {
        NodeSample sample;
        sample.node = bu;
        sample.incarnation = 1;
        sample.state = protocol::NodeState::running;
        sample.at = now_;
        sample.totals.incomplete_events = incomplete;
        control_->sample(now_, sample);
    };
    built(10);
    changed(protocol::Cause::silent, 1);
    EXPECT_NE(log().find("node 0 (RU) dropped by the event manager: the event manager heard nothing of it for"),
              std::string::npos);
    pass(3 * ps_per_s);
    changed(protocol::Cause::joined, 2);
    pass(ps_per_s);
    built(510);
    EXPECT_EQ(log().find("was out for"), std::string::npos) << "builder units have not told of all yet";
    pass(ps_per_s);
    EXPECT_NE(log().find("node 0 (RU) was out for 3.00 s"), std::string::npos) << log();
    EXPECT_NE(log().find("meanwhile 500 events were built incomplete, 0 MEPs given to others"), std::string::npos)
        << log();
}

TEST_F(Conducting, AConnectionThatEndedIsNoLineOfItsOwnWhereTheProcessIsGone) {
    for (const bool is_lost : {true, false}) {
        begin();
        join();
        NodeSample sample;
        sample.node = em;
        sample.incarnation = 1;
        sample.state = protocol::NodeState::running;
        sample.at = now_;
        sample.joined_at = 1;
        sample.changes = {{now_, other_bu, 1, protocol::Cause::connection_lost}};
        control_->sample(now_, sample);
        pass(Troubles::last_words_within / 2);
        EXPECT_EQ(log().find("dropped by the event manager"), std::string::npos) << log();
        if (is_lost) {
            control_->lost(now_, other_bu, "its device was removed");
        }
        pass(Troubles::last_words_within);
        EXPECT_EQ(log().find("node 2 (BU) dropped by the event manager: its connection") == std::string::npos, is_lost)
            << log();
        EXPECT_NE(log().find("node 2 (BU) lost: its device was removed"), std::string::npos) << log();
    }
}

}  // namespace
}  // namespace incast::runtime
