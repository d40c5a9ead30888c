// What an event manager and a readout unit believe of others (EB-T8): their peers are played by hand, message by
// message, on inproc with a scripted clock.
#include "protocol/claims.h"

#include <gtest/gtest.h>

#include "support/event_manager.h"

namespace incast::protocol {
namespace {

using testing::ManagerAlone;
using testing::ManagerOfTwoMeps;
using wire::AttemptEntry;
using wire::Change;
using wire::ControlKind;

TEST(Claims, EB_T8_StrikesCountOncePerPauseAndAreForgotten) {
    Claims claims(3);
    Time now = ps_per_s;
    for (int repeat = 0; repeat < 100; ++repeat) {
        EXPECT_FALSE(claims.strike(now, Peer{1}, ps_per_ms)) << "all at once";
    }
    for (int strike = 2; strike < 5; ++strike) {
        EXPECT_FALSE(claims.strike(now += ps_per_ms, Peer{1}, ps_per_ms)) << strike;
    }
    EXPECT_FALSE(claims.strike(now + ps_per_ms, Peer{2}, ps_per_ms)) << "another one";
    EXPECT_TRUE(claims.strike(now += ps_per_ms, Peer{1}, ps_per_ms));
    claims.forget(Peer{1});
    EXPECT_FALSE(claims.strike(now += ps_per_ms, Peer{1}, ps_per_ms));
    for (int strike = 0; strike < 20; ++strike) {
        EXPECT_FALSE(claims.strike(now += 21 * ps_per_ms, Peer{1}, ps_per_ms)) << "now and then";
    }
}

TEST(Claims, EB_T8_AnAccusationNeedsASecondWitnessThatStillWaits) {
    Claims claims(5);
    claims.accuse(100, Peer{2}, Peer{0});
    claims.accuse(200, Peer{2}, Peer{0});
    EXPECT_FALSE(claims.confirmed(Peer{0})) << "one that says it twice";
    claims.accuse(300, Peer{3}, Peer{0});
    EXPECT_TRUE(claims.confirmed(Peer{0}));
    EXPECT_FALSE(claims.confirmed(Peer{1}));
    claims.vouch(Peer{3}, 250);
    EXPECT_TRUE(claims.confirmed(Peer{0})) << "given before it complained";
    claims.vouch(Peer{3}, 400);
    EXPECT_FALSE(claims.confirmed(Peer{0})) << "it got a whole MEP since";
    claims.accuse(500, Peer{4}, Peer{0});
    claims.accuse(600, Peer{3}, Peer{0});
    EXPECT_TRUE(claims.confirmed(Peer{0}));
    claims.forget(Peer{3});
    EXPECT_FALSE(claims.confirmed(Peer{0})) << "one of the two is gone";
}

TEST(Claims, EB_T8_WhoGetsNothingWhileOthersDoIsTheOneToGo) {
    Claims claims(2);
    EXPECT_FALSE(claims.fails(100, Peer{0}, 50, 10));
    for (Time now = 110; now < 200; now += 10) {
        EXPECT_FALSE(claims.fails(now, Peer{0}, 105, 10)) << "nobody gets anything";
    }
    claims.vouch(Peer{1}, 101);
    for (Time now = 210; now < 250; now += 10) {
        EXPECT_FALSE(claims.fails(now, Peer{0}, 105, 10));
    }
    claims.vouch(Peer{0}, 60);
    EXPECT_FALSE(claims.fails(250, Peer{0}, 205, 10)) << "it got one";
    claims.vouch(Peer{1}, 251);
    for (Time now = 260; now < 300; now += 10) {
        EXPECT_FALSE(claims.fails(now, Peer{0}, 249, 10)) << "given before it began to fail";
    }
    EXPECT_TRUE(claims.fails(300, Peer{0}, 255, 10));
}

TEST_F(ManagerAlone, EB_T8_WhatIsLateTooEarlyIsNotBelievedAndTheLiarIsNamed) {
    grant(Peer{2});
    const AttemptEntry attempt = given(Peer{2});
    for (int repeat = 0; repeat < 4; ++repeat) {
        late(Peer{2}, attempt, {0, 1});
        EXPECT_EQ(counters().reassignments, 0U);
        EXPECT_TRUE(ledger_.left.empty());
        step(ps_per_ms);
    }
    late(Peer{2}, attempt, {0, 1});
    ASSERT_EQ(ledger_.left.size(), 1U);
    EXPECT_EQ(ledger_.left.front(), (std::pair{Peer{2}, Change::distrusted}));
    EXPECT_EQ(counters().reassignments, 1U) << "what it was given goes to others";
    EXPECT_GE(counters().bad_messages, 5U);
}

TEST_F(ManagerOfTwoMeps, EB_F5_WhatIsLateInTimeIsGivenToTheOther) {
    for (const Peer bu : {Peer{2}, Peer{3}, Peer{2}, Peer{3}}) {
        grant(bu);
    }
    const AttemptEntry first = given(Peer{2});
    run_for(config_.late_after);
    late(Peer{2}, first, {0});
    EXPECT_EQ(counters().reassignments, 1U);
    EXPECT_EQ(given(Peer{3}).mep, first.mep) << "though the first one has credit";
    EXPECT_EQ(given(Peer{3}).attempt, 2U);
    EXPECT_TRUE(ledger_.left.empty());
}

TEST_F(ManagerAlone, EB_T8_WhoSaysNothingOfWhatItWasGivenIsDropped) {
    grant(Peer{2});
    grant(Peer{3});
    say<ControlKind::commit_request>(Peer{3}, {given(Peer{3})});
    run_for(4 * config_.late_after);
    EXPECT_TRUE(ledger_.left.empty());
    run_for(2 * config_.late_after + config_.decision_deadline);
    ASSERT_EQ(ledger_.left.size(), 1U);
    EXPECT_EQ(ledger_.left.front().first, Peer{2});
    EXPECT_EQ(counters().reassignments, 1U);
}

/// The other BU is asked for nothing, so only one says that a readout unit does not deliver.
TEST_F(ManagerAlone, EB_T8_OneWitnessCostsNobodyAPlace) {
    for (std::uint16_t attempt = 1; attempt <= 5; ++attempt) {
        grant(Peer{2});
        EXPECT_EQ(given(Peer{2}).attempt, attempt);
        run_for(config_.late_after << std::max(0, attempt - 2));
        late(Peer{2}, given(Peer{2}), {0, 1});
    }
    EXPECT_EQ(counters().reassignments, 5U);
    EXPECT_TRUE(ledger_.left.empty());
}

TEST_F(ManagerAlone, EB_F5_TwoWitnessesAreBelieved) {
    grant(Peer{2});
    run_for(config_.late_after);
    late(Peer{2}, given(Peer{2}), {0, 1});
    grant(Peer{3});
    EXPECT_EQ(given(Peer{3}).attempt, 2U);
    run_for(config_.late_after);
    late(Peer{3}, given(Peer{3}), {0});
    ASSERT_EQ(ledger_.left.size(), 1U);
    EXPECT_EQ(ledger_.left.front(), (std::pair{Peer{0}, Change::unreachable}));
}

TEST_F(ManagerAlone, EB_T8_OneNodesComplaintCostsItselfItsPlace) {
    for (int repeat = 0; repeat < 1000; ++repeat) {
        say<ControlKind::peer_lost>(Peer{2}, {{0, 1}, {0, 1}});
        step();
    }
    run_for(2 * config_.suspect_grace);
    EXPECT_TRUE(ledger_.left.empty()) << "the other may not know of it yet";
    run_for(config_.detection_deadline);
    ASSERT_EQ(ledger_.left.size(), 1U);
    EXPECT_EQ(ledger_.left.front().first, Peer{2});
}

TEST_F(ManagerAlone, EB_T8_AReadoutUnitCannotComplainABuilderAway) {
    say<ControlKind::peer_lost>(Peer{0}, {{2, 1}});
    say<ControlKind::peer_lost>(Peer{0}, {{1, 1}});  // no connection that carries data
    step();
    EXPECT_EQ(counters().bad_messages, 1U);
    run_for(2 * config_.detection_deadline);
    ASSERT_EQ(ledger_.left.size(), 1U);
    EXPECT_EQ(ledger_.left.front().first, Peer{0});
}

TEST_F(ManagerAlone, AConnectionThatBothLostCostsTheBuilderItsPlaceWithinTheGrace) {
    say<ControlKind::peer_lost>(Peer{0}, {{2, 1}});
    say<ControlKind::peer_lost>(Peer{2}, {{0, 1}});
    run_for(2 * config_.suspect_grace);
    ASSERT_EQ(ledger_.left.size(), 1U);
    EXPECT_EQ(ledger_.left.front().first, Peer{2});
}

TEST_F(ManagerAlone, EB_T8_TwoThatComplainOfOneAreBelieved) {
    say<ControlKind::peer_lost>(Peer{2}, {{0, 1}});
    say<ControlKind::peer_lost>(Peer{3}, {{0, 1}});
    run_for(2 * config_.suspect_grace);
    ASSERT_EQ(ledger_.left.size(), 1U);
    EXPECT_EQ(ledger_.left.front().first, Peer{0});
}

TEST_F(ManagerAlone, EB_F5_MissingSourcesAndRejectionsThatCannotBeAreNotCommitted) {
    grant(Peer{2});
    AttemptEntry attempt = given(Peer{2});
    attempt.value = 1;
    say<ControlKind::commit_request>(Peer{2}, {attempt});
    step();
    ASSERT_TRUE(verdict_[2].has_value());
    EXPECT_EQ(verdict_[2]->flags & wire::attempt_granted, 0);
    grant(Peer{3});
    attempt = given(Peer{3});
    EXPECT_EQ(attempt.attempt, 2U) << "given to the other";
    attempt.flags = wire::attempt_rejected;
    say<ControlKind::commit_request>(Peer{3}, {attempt});
    step();
    EXPECT_EQ(verdict_[3]->flags & wire::attempt_granted, 0) << "there is no filter";
    grant(Peer{2});
    say<ControlKind::commit_request>(Peer{2}, {given(Peer{2})});
    step();
    EXPECT_NE(verdict_[2]->flags & wire::attempt_granted, 0);
    AttemptEntry done = given(Peer{2});
    done.value = 2;
    say<ControlKind::committed>(Peer{2}, {done});
    step();
    EXPECT_EQ(ledger_.commits, 1U);
    EXPECT_EQ(ledger_.flagged, 0U) << "none is missing, whatever it says";
    EXPECT_EQ(counters().bad_messages, 2U);
}

/// Adversary, lie missing, seed 2160: one BU had the same MEP eleven times, and the next one was to wait for it 1024
/// times `late_after`.
TEST_F(ManagerAlone, EB_T8_WhatWasRefusedMakesNobodyPatient) {
    const auto late_before = [&](Peer bu) { return assigned_[static_cast<std::size_t>(bu)]->value; };
    grant(Peer{2});
    AttemptEntry attempt = given(Peer{2});
    for (std::uint16_t refused = 1; refused < 4; ++refused) {
        attempt.value = 1;
        say<ControlKind::commit_request>(Peer{2}, {attempt});
        step();
        grant(Peer{2});
        attempt = given(Peer{2});
        ASSERT_EQ(attempt.attempt, refused + 1U);
        EXPECT_EQ(late_before(Peer{2}), 0U);
    }
    run_for(config_.late_after);
    late(Peer{2}, attempt, {});
    grant(Peer{3});
    EXPECT_EQ(given(Peer{3}).mep, attempt.mep) << "it was late, by the time of a first attempt";
    EXPECT_EQ(late_before(Peer{3}), 1U);
}

TEST_F(ManagerAlone, EB_T8_AReadoutUnitHoldsNoMoreThanItsMemory) {
    available(Peer{0}, config_.retention_meps + 1);
    step();
    EXPECT_EQ(counters().bad_messages, 1U);
}

}  // namespace
}  // namespace incast::protocol
