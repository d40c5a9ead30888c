// What the event manager promises, with everybody else played by hand.
#include "support/event_manager.h"

#include <gtest/gtest.h>

namespace incast::protocol {
namespace {

using testing::ManagerAlone;
using wire::AttemptEntry;
using wire::ControlKind;

constexpr Peer one{2};  // builder units
constexpr Peer other{3};

class Managing : public ManagerAlone {
protected:
    /// A whole MEP is delivered.
    void ask(Peer bu, const AttemptEntry& attempt) {
        say<ControlKind::commit_request>(bu, {attempt});
        step();
    }
    [[nodiscard]] bool is_granted(Peer bu) const {
        const auto& verdict = verdict_[static_cast<std::size_t>(bu)];
        return verdict.has_value() && (verdict->flags & wire::attempt_granted) != 0;
    }
    [[nodiscard]] bool is_repeat(Peer bu) const {
        return (verdict_[static_cast<std::size_t>(bu)]->flags & wire::attempt_redelivered) != 0;
    }
    void commit(Peer bu, const AttemptEntry& attempt) {
        say<ControlKind::committed>(bu, {attempt});
        step();
    }
    void call_late(Peer bu, const AttemptEntry& attempt) {
        run_for(config_.late_after << std::max(0, attempt.attempt - 2));
        late(bu, attempt, {});
    }
};

TEST_F(Managing, EB_C1_ARepeatedGrantChangesNothingAndAGapIsRefused) {
    grant(one);
    EXPECT_EQ(given(one).credit, 1U);
    say<ControlKind::grant>(one, {{1, 0, 0}});
    say<ControlKind::grant>(one, {{3, 2, 0}});
    step();
    EXPECT_EQ(given(one).credit, 1U);
    EXPECT_EQ(counters().meps_admitted, 1U);
    EXPECT_EQ(counters().bad_messages, 2U);
    grant(one, 2);
    EXPECT_EQ(given(one).credit, 3U);
    EXPECT_EQ(counters().meps_admitted, 3U);
}

class WithLittleReadOut : public Managing {
protected:
    WithLittleReadOut() { holds_at_first_ = 2; }
};

TEST_F(WithLittleReadOut, EB_C3_AMepIsAdmittedOnceEveryReadoutUnitHoldsIt) {
    grant(one, 6);
    EXPECT_EQ(counters().meps_admitted, 2U);
    available(Peer{0}, 6);
    step();
    EXPECT_EQ(counters().meps_admitted, 2U) << "the other one has it not";
    available(Peer{1}, 4);
    step();
    EXPECT_EQ(counters().meps_admitted, 4U);
    EXPECT_EQ(given(one).mep, 3U);
}

TEST_F(Managing, EB_C3_WhatWasAdmittedComesBeforeAnythingNew) {
    grant(one);
    const AttemptEntry first = given(one);
    call_late(one, first);
    grant(other);
    EXPECT_EQ(given(other).mep, first.mep);
    EXPECT_EQ(given(other).attempt, 2U);
    grant(other);
    EXPECT_EQ(given(other).mep, first.mep + 1);
}

TEST_F(Managing, EB_C4_ConsecutiveMepsOfOneAttemptAreOneMessage) {
    grant(one, 5);
    EXPECT_EQ(runs_[0], (std::vector<Run>{{0, 5}}));
    EXPECT_EQ(runs_[1], runs_[0]);
    runs_[0].clear();
    AttemptEntry attempt = given(one);  // the last of them
    attempt.mep = 1;
    attempt.credit = 2;
    attempt.slot = 1;
    ask(one, attempt);
    ASSERT_TRUE(is_granted(one));
    run_for(config_.late_after);
    for (const std::uint16_t mep : {std::uint16_t{0}, std::uint16_t{2}}) {
        attempt.mep = mep;
        attempt.credit = mep + 1U;
        attempt.slot = mep;
        late(one, attempt, {});
    }
    grant(other, 2);
    EXPECT_EQ(runs_[0], (std::vector<Run>{{0, 1}, {2, 1}})) << "the one between them is no part of it";
}

TEST_F(Managing, EB_F1_ReadoutUnitsForgetOnlyWhatIsCommitted) {
    const std::uint16_t meps = 5;  // at fewer the EM would not tell, as long as there is something else to do
    grant(one, meps);
    const AttemptEntry last = given(one);
    std::vector<AttemptEntry> all;
    for (std::uint16_t mep = 0; mep < meps; ++mep) {
        AttemptEntry& attempt = all.emplace_back(last);
        attempt.mep = mep;
        attempt.credit = mep + 1U;
        attempt.slot = mep;
    }
    say<ControlKind::commit_request>(one, all);
    step();
    ASSERT_TRUE(is_granted(one));
    EXPECT_EQ(released_[0], 0U) << "granted is not committed";
    for (std::size_t mep = meps - 1U; mep > 0; --mep) {
        commit(one, all[mep]);
    }
    EXPECT_EQ(ledger_.commits, meps - 1U);
    EXPECT_EQ(released_[0], 0U) << "the first one is not";
    commit(one, all[0]);
    EXPECT_EQ(released_[0], meps);
    EXPECT_EQ(released_[1], meps);
}

TEST_F(Managing, EB_F2_OneAttemptGetsTheVerdict) {
    grant(one);
    const AttemptEntry first = given(one);
    call_late(one, first);
    grant(other);
    ASSERT_EQ(given(other).mep, first.mep);
    ask(one, first);
    EXPECT_FALSE(is_granted(one)) << "its attempt is void";
    AttemptEntry wrong = given(other);
    wrong.attempt = 1;
    ask(other, wrong);
    EXPECT_FALSE(is_granted(other));
    ask(other, given(other));
    EXPECT_TRUE(is_granted(other));
    EXPECT_FALSE(is_repeat(other)) << "no sink can have it";
    commit(other, given(other));
    commit(other, given(other));
    EXPECT_EQ(ledger_.commits, 1U);
    ask(other, given(other));
    EXPECT_FALSE(is_granted(other)) << "it is committed";
}

TEST_F(Managing, EB_F2_WhatMayHaveReachedASinkStaysARepeat) {
    grant(one);
    const AttemptEntry first = given(one);
    ask(one, first);
    ASSERT_TRUE(is_granted(one));
    end(one).disconnect(em);
    grant(other, 2);
    ASSERT_EQ(given(other).mep, 1U) << "first the one that was lost, then the next";
    AttemptEntry again = given(other);
    again = {.mep = 0, .credit = again.credit - 1, .bu = again.bu, .slot = 0, .attempt = 2};
    call_late(other, again);
    grant(other);
    ASSERT_EQ(given(other).mep, 0U);
    EXPECT_EQ(given(other).attempt, 3U);
    ask(other, given(other));
    ASSERT_TRUE(is_granted(other));
    EXPECT_TRUE(is_repeat(other)) << "the first of three attempts may have reached a sink";
}

TEST_F(Managing, EB_F4_WhoIsSilentForTheDeadlineIsDead) {
    grant(one);
    silent_ = one;
    run_for(config_.detection_deadline - 2 * config_.heartbeat);
    EXPECT_TRUE(ledger_.left.empty());
    run_for(4 * config_.heartbeat);
    ASSERT_EQ(ledger_.left.size(), 1U);
    EXPECT_EQ(ledger_.left.front(), (std::pair{one, wire::Change::dead}));
    EXPECT_EQ(counters().reassignments, 1U) << "what it was given goes to others";
}

TEST_F(Managing, EB_F6_NoIncarnationComesTwiceAndOtherRunsAreNotHeard) {
    wire::ControlMessage<ControlKind::beat> foreign(config_.run + 1, 0, 1);
    ASSERT_EQ(end(Peer{0}).send(em, foreign.bytes()), Post::done);
    wire::ControlMessage<ControlKind::beat> stale(config_.run, 0, 7);
    ASSERT_EQ(end(Peer{0}).send(em, stale.bytes()), Post::done);
    step();
    EXPECT_EQ(counters().bad_messages, 2U);
    wire::ControlMessage<ControlKind::hello> again(config_.run, 0, 1);
    again.set_body({fingerprint(config_), 0, config_.nodes[0].roles, 0});
    ASSERT_EQ(end(Peer{0}).send(em, again.bytes()), Post::done);
    step();
    EXPECT_EQ(counters().bad_messages, 3U) << "it is in the view already";
    EXPECT_TRUE(manager_->all_joined());
}

class Closing : public Managing {
protected:
    Closing() { holds_at_first_ = 0; }
    void configure(Config& config) override {
        config.packing = 10;
        config.max_wait = ps_per_ms;
    }
    void open(Peer ru, MepId mep, std::uint32_t events) {
        wire::ControlMessage<ControlKind::open> message(config_.run, 0, 1);
        message.set_body({mep, events, 0});
        ASSERT_EQ(end(ru).send(em, message.bytes()), Post::done);
        step();
    }
};

TEST_F(Closing, EB_C8_AMepEndsForAllWithTheFewestEvents) {
    open(Peer{0}, 0, 3);
    EXPECT_FALSE(closed_[0].has_value()) << "the other may still get a full one";
    open(Peer{1}, 0, 4);
    for (const std::size_t ru : {std::size_t{0}, std::size_t{1}}) {
        ASSERT_TRUE(closed_[ru].has_value());
        EXPECT_EQ(closed_[ru]->mep, 0U);
        EXPECT_EQ(closed_[ru]->events, 3U);
    }
    available(Peer{0}, 1);
    available(Peer{1}, 1);
    grant(one);
    EXPECT_EQ(counters().events_admitted, 3U);
}

TEST_F(Closing, EB_C8_WhatOneHasWholeIsFilledByTheOthers) {
    available(Peer{0}, 1);
    open(Peer{1}, 0, 4);
    ASSERT_TRUE(closed_[1].has_value());
    EXPECT_EQ(closed_[1]->events, 0U) << "it is to be filled";
}

TEST_F(Closing, EB_C9_WhoHasNothingIsToldOnceAnotherHasAll) {
    open(Peer{0}, 0, 0);
    open(Peer{1}, 0, 0);
    EXPECT_FALSE(closed_[0].has_value()) << "nobody knows that there is anything";
    EXPECT_EQ(counters().bad_messages, 0U);
    available(Peer{1}, 1);
    step();
    ASSERT_TRUE(closed_[0].has_value());
    EXPECT_EQ(closed_[0]->mep, 0U);
    EXPECT_EQ(closed_[0]->events, 0U) << "it is to be filled";
}

}  // namespace
}  // namespace incast::protocol
