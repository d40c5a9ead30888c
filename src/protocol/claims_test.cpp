// What an event manager and a readout unit believe of others (PROTOCOL T8): their peers are played by hand, message by
// message, on inproc with a scripted clock.
#include "protocol/claims.h"

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/node.h"
#include "protocol/test_support.h"
#include "transport/inproc/inproc.h"
#include "wire/control.h"

namespace incast::protocol {
namespace {

using wire::AttemptEntry;
using wire::Change;
using wire::ControlKind;
using wire::ControlView;

TEST(Claims, StrikesCountOncePerPauseAndAreForgotten) {
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

TEST(Claims, AnAccusationNeedsASecondWitnessThatStillWaits) {
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

TEST(Claims, WhoGetsNothingWhileOthersDoIsTheOneToGo) {
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

/// A ledger that remembers who left, and how.
class Departures final : public Ledger {
public:
    void committed(const LedgerEntry& entry) override {
        ++commits;
        flagged += entry.flagged_sources > 0 ? 1 : 0;
    }
    void view_changed(Time, std::uint32_t, Peer node, std::uint32_t, Change change, Cause) override {
        if (change != Change::up) {
            left.emplace_back(node, change);
        }
    }
    std::vector<std::pair<Peer, Change>> left;
    std::uint64_t commits = 0;
    std::uint64_t flagged = 0;
};

/// Two readout units (0, 1) and two builder units (2, 3) by hand, and the event manager (4).
class ManagerAlone : public ::testing::Test {
protected:
    static constexpr std::uint32_t peers = 4;
    static constexpr Peer em{4};

    explicit ManagerAlone(std::uint64_t total_meps = 0) : total_meps_(total_meps) {}

    void SetUp() override {
        config_ = testing::make_config(2, 2, false, 1, 64);
        config_.late_after = 100 * ps_per_ms;
        config_.heartbeat = ps_per_ms;
        config_.detection_deadline = 50 * ps_per_ms;
        config_.suspect_grace = 5 * ps_per_ms;
        config_.max_attempts = 2;
        config_.credits = 8;
        config_.total_meps = total_meps_;
        for (std::uint32_t peer = 0; peer <= peers; ++peer) {
            transport::EndpointOptions options;
            options.self = Peer{peer};
            options.incarnation = 1;
            options.run = config_.run;
            options.max_peers = peers + 1;
            ends_.push_back(medium_->endpoint(options).value());
        }
        manager_ = std::make_unique<Node>(config_, em, 1, end(em), nullptr, nullptr, &ledger_);
        ASSERT_TRUE(manager_->start(now_).ok());
        for (std::uint32_t peer = 0; peer < peers; ++peer) {
            manager_->update_peer(now_, Peer{peer}, 1, end(Peer{peer}).address());
            step();
            ASSERT_NE(end(Peer{peer}).connect(em, end(em).address(), 1), Post::refused);
        }
        step();
        for (std::uint32_t peer = 0; peer < peers; ++peer) {
            wire::ControlMessage<ControlKind::hello> hello(config_.run, 0, 1);
            hello.set_body({fingerprint(config_), 0, config_.nodes[peer].roles, 0});
            ASSERT_EQ(end(Peer{peer}).send(em, hello.bytes()), Post::done);
            for (std::uint32_t other = 0; other < peers; ++other) {
                if ((peer < 2) != (other < 2)) {
                    say<ControlKind::connected>(Peer{peer}, {{other, 1}});
                }
            }
        }
        step();
        ASSERT_TRUE(manager_->all_joined());
        for (const Peer ru : {Peer{0}, Peer{1}}) {
            available(ru, config_.retention_meps);
        }
    }

    Transport& end(Peer peer) { return *ends_[static_cast<std::size_t>(peer)]; }
    /// Everybody is alive, whatever else it says.
    void step(Time pause = ps_per_us) {
        now_ += pause;
        if (manager_->all_joined()) {
            for (std::uint32_t peer = 0; peer < peers; ++peer) {
                wire::ControlMessage<ControlKind::beat> beat(config_.run, 0, 1);
                static_cast<void>(end(Peer{peer}).send(em, beat.bytes()));
            }
        }
        manager_->step(now_);
        listen();
    }
    void run_for(Time time) {
        for (const Time until = now_ + time; now_ < until;) {
            step(ps_per_ms);
        }
    }
    template <ControlKind kind>
    void say(Peer from, const std::vector<typename wire::Traits<kind>::Entry>& entries) {
        wire::ControlMessage<kind> message(config_.run, 0, 1);
        for (const auto& entry : entries) {
            ASSERT_TRUE(message.add(entry));
        }
        ASSERT_EQ(end(from).send(em, message.bytes()), Post::done);
    }
    void available(Peer ru, MepId below) {
        wire::ControlMessage<ControlKind::available> message(config_.run, 0, 1);
        message.set_body({below});
        ASSERT_EQ(end(ru).send(em, message.bytes()), Post::done);
    }
    void grant(Peer bu) {
        const std::uint16_t slot = granted_[static_cast<std::size_t>(bu)]++;
        say<ControlKind::grant>(bu, {{slot + 1U, slot, 0}});
        step();
    }
    void late(Peer bu, const AttemptEntry& attempt, const std::vector<std::uint32_t>& named) {
        wire::ControlMessage<ControlKind::late> message(config_.run, 0, 1);
        message.set_body({attempt});
        for (const std::uint32_t node : named) {
            ASSERT_TRUE(message.add({node}));
        }
        ASSERT_EQ(end(bu).send(em, message.bytes()), Post::done);
        step();
    }
    void listen() {
        std::array<Event, 64> events;
        for (std::uint32_t peer = 0; peer < peers; ++peer) {
            while (const std::size_t count = end(Peer{peer}).poll(now_, events)) {
                for (std::size_t index = 0; index < count; ++index) {
                    if (events[index].kind != Event::Kind::message) {
                        continue;
                    }
                    const auto message = ControlView::parse({events[index].data, events[index].size_or_value});
                    for (std::uint32_t each = 0; message && each < message->header().count; ++each) {
                        if (message->kind() == ControlKind::assign) {
                            assigned_[peer] = message->entry<ControlKind::assign>(each);
                        } else if (message->kind() == ControlKind::commit_verdict) {
                            verdict_[peer] = message->entry<ControlKind::commit_verdict>(each);
                        }
                    }
                }
            }
        }
    }
    /// What that BU was given last.
    AttemptEntry given(Peer bu) {
        const auto found = assigned_[static_cast<std::size_t>(bu)];
        EXPECT_TRUE(found.has_value());
        return found.value_or(AttemptEntry{});
    }
    [[nodiscard]] const Counters& counters() const { return manager_->counters(); }

    std::uint64_t total_meps_;
    Config config_;
    std::unique_ptr<transport::Medium> medium_ = transport::inproc::make({}).value();
    std::vector<std::unique_ptr<Transport>> ends_;
    Departures ledger_;
    std::unique_ptr<Node> manager_;
    Time now_ = 0;
    std::array<std::uint16_t, peers> granted_{};
    std::array<std::optional<AttemptEntry>, peers> assigned_;
    std::array<std::optional<AttemptEntry>, peers> verdict_;
};

class ManagerOfTwoMeps : public ManagerAlone {
protected:
    ManagerOfTwoMeps() : ManagerAlone(2) {}
};

TEST_F(ManagerAlone, WhatIsLateTooEarlyIsNotBelievedAndTheLiarIsNamed) {
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

TEST_F(ManagerOfTwoMeps, WhatIsLateInTimeIsGivenToTheOther) {
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

TEST_F(ManagerAlone, WhoSaysNothingOfWhatItWasGivenIsDropped) {
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
TEST_F(ManagerAlone, OneWitnessCostsNobodyAPlace) {
    for (std::uint16_t attempt = 1; attempt <= 5; ++attempt) {
        grant(Peer{2});
        EXPECT_EQ(given(Peer{2}).attempt, attempt);
        run_for(config_.late_after << std::max(0, attempt - 2));
        late(Peer{2}, given(Peer{2}), {0, 1});
    }
    EXPECT_EQ(counters().reassignments, 5U);
    EXPECT_TRUE(ledger_.left.empty());
}

TEST_F(ManagerAlone, TwoWitnessesAreBelieved) {
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

TEST_F(ManagerAlone, OneNodesComplaintCostsItselfItsPlace) {
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

TEST_F(ManagerAlone, AReadoutUnitCannotComplainABuilderAway) {
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

TEST_F(ManagerAlone, TwoThatComplainOfOneAreBelieved) {
    say<ControlKind::peer_lost>(Peer{2}, {{0, 1}});
    say<ControlKind::peer_lost>(Peer{3}, {{0, 1}});
    run_for(2 * config_.suspect_grace);
    ASSERT_EQ(ledger_.left.size(), 1U);
    EXPECT_EQ(ledger_.left.front().first, Peer{0});
}

TEST_F(ManagerAlone, MissingSourcesAndRejectionsThatCannotBeAreNotCommitted) {
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

TEST_F(ManagerAlone, AReadoutUnitHoldsNoMoreThanItsMemory) {
    available(Peer{0}, config_.retention_meps + 1);
    step();
    EXPECT_EQ(counters().bad_messages, 1U);
}

}  // namespace
}  // namespace incast::protocol
