// A builder unit alone: RU and EM are played by hand, message by message, on inproc with a scripted clock.
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/node.h"
#include "protocol/reader.h"
#include "support/protocol.h"
#include "transport/inproc/inproc.h"
#include "wire/control.h"

namespace incast::protocol {
namespace {

using wire::AttemptEntry;
using wire::ControlKind;
using wire::ControlView;

constexpr Peer ru{0};
constexpr Peer bu{1};
constexpr Peer em{2};

/// Holds every MEP until it is told to give it back.
class HoldingSink final : public Sink {
public:
    Taken take(Time, const BuiltMep& mep) override {
        held.push_back(mep.slot);
        return Taken::held;
    }
    std::size_t durable(Time, std::span<MepId>) override { return 0; }
    std::size_t returned(Time, std::span<std::uint16_t> slots) override {
        const std::size_t count = gives_back && !held.empty() ? 1 : 0;
        if (count > 0) {
            slots.front() = held.front();
            held.erase(held.begin());
        }
        return count;
    }
    [[nodiscard]] Time next_deadline() const override { return time_never; }

    std::vector<std::uint16_t> held;
    bool gives_back = false;
};

/// Undecided until it is told.
class SlowFilter final : public Filter {
public:
    Verdict decide(Time, const BuiltMep&) override { return decides ? Verdict::accept : Verdict::undecided; }
    [[nodiscard]] Time next_deadline() const override { return 0; }

    bool decides = false;
};

/// Source-credits; the RU is connected, and in the view only if the EM says so.
class BuilderAlone : public ::testing::Test {
protected:
    void start(Scheme scheme, std::uint32_t credits, Sink& sink) {
        config_ = testing::make_config(1, 1, false, 1, 64);
        config_.assignment = Assignment::source_credits;
        config_.scheme = scheme;
        config_.first_stage_rus = two_stages(scheme) ? 1 : 0;
        config_.second_stage_all = two_stages(scheme);
        config_.credits = credits;
        config_.quarantine_slots = 0;
        config_.parallel_requests = parallel_requests_;
        config_.held_slots = held_slots_;
        config_.reuse_wait = reuse_wait_;
        ASSERT_TRUE(validate(config_).ok()) << validate(config_).error().message;
        for (const Peer peer : {ru, bu, em}) {
            transport::EndpointOptions options;
            options.self = peer;
            options.incarnation = 1;
            options.run = config_.run;
            options.max_peers = 3;
            options.max_posted = 1;  // room for little more than two messages of the largest size
            ends_.push_back(medium_->endpoint(options).value());
        }
        builder_ = std::make_unique<Node>(config_, bu, 1, end(bu), nullptr, &sink, nullptr, &filter_);
        ASSERT_TRUE(builder_->start(now_).ok());
        for (const Peer peer : {ru, em}) {
            builder_->update_peer(now_, peer, 1, end(peer).address());
            step();
            ASSERT_NE(end(peer).connect(bu, end(bu).address(), 1), Post::refused);
        }
        step();
    }

    void start(Scheme scheme, std::uint32_t credits) { start(scheme, credits, null_); }

    /// The RU is not in the view, so a MEP is complete as soon as it is assigned; the EM grants its commit.
    void build(MepId mep) {
        say<ControlKind::assign>({attempt(mep)});
        step();
        const std::vector<AttemptEntry> requests = heard<ControlKind::commit_request>(em);
        ASSERT_EQ(requests.size(), 1U);
        AttemptEntry verdict = requests.front();
        verdict.flags = wire::attempt_granted;
        say<ControlKind::commit_verdict>({verdict});
        step();
        ASSERT_EQ(heard<ControlKind::committed>(em).size(), 1U);
    }

    Transport& end(Peer peer) { return *ends_[static_cast<std::size_t>(peer)]; }
    void step() { builder_->step(now_ += ps_per_us); }

    template <ControlKind kind>
    void say(const std::vector<typename wire::Traits<kind>::Entry>& entries, Peer from = em) {
        wire::ControlMessage<kind> message(config_.run, 1, 1);
        for (const auto& entry : entries) {
            ASSERT_TRUE(message.add(entry));
        }
        ASSERT_EQ(end(from).send(bu, message.bytes()), Post::done);
    }
    static AttemptEntry attempt(MepId mep, std::uint16_t slot = wire::unknown_slot) {
        return {.mep = mep,
                .credit = static_cast<std::uint32_t>(mep) + 1,
                .bu = static_cast<std::uint16_t>(bu),
                .slot = slot,
                .attempt = 1};
    }

    /// What that peer was told since it last looked: all entries of one kind of message.
    template <ControlKind kind>
    std::vector<typename wire::Traits<kind>::Entry> heard(Peer peer) {
        std::vector<typename wire::Traits<kind>::Entry> all;
        std::array<Event, 16> events;
        while (const std::size_t count = end(peer).poll(now_, events)) {
            for (std::size_t index = 0; index < count; ++index) {
                if (events[index].kind != Event::Kind::message) {
                    continue;
                }
                const auto message = ControlView::parse({events[index].data, events[index].size_or_value});
                for (std::uint32_t entry = 0; message->kind() == kind && entry < message->header().count; ++entry) {
                    all.push_back(message->template entry<kind>(entry));
                }
            }
        }
        return all;
    }

    Config config_;
    Time now_ = 0;
    std::unique_ptr<transport::Medium> medium_ = transport::inproc::make({}).value();
    std::vector<std::unique_ptr<Transport>> ends_;
    NullSink null_;
    SlowFilter filter_;
    std::uint32_t parallel_requests_ = 0;
    std::uint32_t held_slots_ = 0;
    Time reuse_wait_ = 0;
    std::unique_ptr<Node> builder_;
};

/// Adversary seeds 5615 and 96938: the request of an attempt that was void kept its place, of as many as there are
/// slots, and a MEP that was complete was never committed.
TEST_F(BuilderAlone, EB_F4_AsksForEveryCommitThoughAnAttemptIsVoidBeforeItsOwnRequestWasSent) {
    start(Scheme::pull_write, 2);
    say<ControlKind::view>({{0, 1, role_ru, wire::Change::up, 0}, {1, 1, role_bu, wire::Change::up, 0}});
    say<ControlKind::assign>({attempt(0), attempt(1), attempt(2)});
    step();
    const std::vector<AttemptEntry> requests = heard<ControlKind::request>(ru);
    ASSERT_EQ(requests.size(), 2U) << "as many as there are slots";
    const std::uint16_t slot_of_first = requests[requests[0].mep == 0 ? 0 : 1].slot;

    end(ru).disconnect(bu);
    step();
    // In one look: without its RU everything is complete, and the first is void.
    say<ControlKind::view>({{0, 1, role_ru, wire::Change::dead, 0}});
    say<ControlKind::commit_verdict>({attempt(0, slot_of_first)});
    step();
    step();
    std::vector<MepId> asked;
    for (const AttemptEntry& entry : heard<ControlKind::commit_request>(em)) {
        asked.push_back(entry.mep);
    }
    EXPECT_EQ(asked, (std::vector<MepId>{1, 2}));
    EXPECT_EQ(builder_->counters().bad_messages, 0U);
}

/// Remembers what it was told of the one source of the last MEP.
class FlagSink final : public Sink {
public:
    Taken take(Time, const BuiltMep& mep) override {
        flag = mep.sources.front().flag;
        return Taken::done;
    }
    std::size_t durable(Time, std::span<MepId>) override { return 0; }
    [[nodiscard]] Time next_deadline() const override { return time_never; }

    wire::SourceFlag flag = wire::SourceFlag::ok;
};

TEST_F(BuilderAlone, EB_F5_AMepSaysWhyASourceIsMissing) {
    FlagSink sink;
    start(Scheme::push, 4, sink);
    MepId mep = 0;
    for (const auto& [change, flag] : {std::pair{wire::Change::dead, wire::SourceFlag::missing_dead},
                                       std::pair{wire::Change::unreachable, wire::SourceFlag::missing_unreachable}}) {
        say<ControlKind::view>({{0, 1, role_ru, wire::Change::up, 0}});
        step();
        say<ControlKind::view>({{0, 1, role_ru, change, 0}});
        step();
        build(mep++);
        EXPECT_EQ(sink.flag, flag);
    }
}

TEST(Reader, EB_T1_AContributionOfWhichOneReadFailedIsNotThere) {
    Config config = testing::make_config(1, 1, false, 2, 64);
    config.scheme = Scheme::pull_read;
    const Shape shape(config);
    const auto medium = transport::inproc::make({}).value();
    transport::EndpointOptions options;
    options.max_peers = 3;
    const auto endpoint = medium->endpoint(options).value();
    Port port(config, bu, 1, *endpoint);
    const auto read = [&](Status first, Status second) {
        Reader reader(port, shape);
        reader.expect(0, 0);
        reader.begin(0, 0);
        EXPECT_EQ(reader.on_completed(Reader::token_bit | 0U, first).done, Reader::Done::no);
        return reader.on_completed(Reader::token_bit | 1U, second).done;
    };
    EXPECT_EQ(read(Status::ok, Status::ok), Reader::Done::placed);
    EXPECT_EQ(read(Status::remote_fault, Status::ok), Reader::Done::failed);
    EXPECT_EQ(read(Status::ok, Status::remote_fault), Reader::Done::failed);
}

class Told : public BuilderAlone, public ::testing::WithParamInterface<MepId> {};

/// Adversary seed 11023: an RU that could not be told for a while was told of credits that were over.
TEST_P(Told, EB_C1_OfNoCreditThatIsOver) {
    start(Scheme::push, 1);
    const MepId meps = GetParam();
    for (MepId mep = 0; mep < meps; ++mep) {
        build(mep);
    }
    ASSERT_GT(builder_->counters().back_pressure, 0U) << "the RU, which did not look, had room for everything";
    const std::size_t told_in_time = heard<ControlKind::grant>(ru).size();
    EXPECT_LT(told_in_time, meps);
    step();
    const std::vector<wire::CreditEntry> told = heard<ControlKind::grant>(ru);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told.front().credit, meps + 1);
}

class Holding : public BuilderAlone {
protected:
    void start_holding(Time reuse_wait) {
        held_slots_ = 2;
        reuse_wait_ = reuse_wait;
        start(Scheme::push, 1, sink_);
        first_ = granted();
        ASSERT_NE(first_, none);
    }
    /// The slot of the credit that was granted since the last call.
    int granted() {
        const std::vector<wire::CreditEntry> told = heard<ControlKind::grant>(ru);
        EXPECT_LE(told.size(), 1U);
        return told.empty() ? none : static_cast<int>(told.front().slot);
    }

    static constexpr int none = -1;
    HoldingSink sink_;
    int first_ = none;
};

TEST_F(Holding, AFurtherSlotIsUsedAtOnceIfThereIsNothingToWaitFor) {
    start_holding(0);
    build(0);
    EXPECT_NE(granted(), none);
    EXPECT_EQ(sink_.held.size(), 1U);
}

TEST_F(Holding, ASlotThatComesBackSoonIsUsedAgain) {
    start_holding(10 * ps_per_us);
    for (MepId mep = 0; mep < 20; ++mep) {
        sink_.gives_back = false;
        build(mep);
        step();
        ASSERT_EQ(granted(), none) << "it waits for the one that the sink has";
        ASSERT_GT(builder_->next_deadline(), now_);
        sink_.gives_back = true;
        step();
        ASSERT_EQ(granted(), first_);
    }
}

TEST_F(Holding, WaitingEndsAndIsNotRepeatedWhileTheSinkTakesLong) {
    start_holding(10 * ps_per_us);
    build(0);
    ASSERT_EQ(granted(), none);
    const Time deadline = builder_->next_deadline();
    EXPECT_LE(deadline, now_ + 10 * ps_per_us);
    now_ = deadline - ps_per_us;
    step();
    const int second = granted();
    ASSERT_NE(second, none);
    EXPECT_NE(second, first_);
    sink_.gives_back = true;  // late
    step();
    sink_.gives_back = false;
    build(1);
    EXPECT_NE(granted(), none) << "the last one came back late, so this one is not waited for";
    sink_.gives_back = true;  // soon
    step();
    sink_.gives_back = false;
    build(2);
    EXPECT_EQ(granted(), none) << "the last one came back soon: waiting is worth it again";
}

/// The RU is in the view, and writes what the test wants.
class WrittenTo : public BuilderAlone {
protected:
    void start_written(std::uint32_t credits, Scheme scheme = Scheme::push) {
        start(scheme, credits);
        say<ControlKind::view>({{0, 1, role_ru, wire::Change::up, 0}, {1, 1, role_bu, wire::Change::up, 0}});
        step();
        std::array<Event, 16> events;
        const std::size_t count = end(ru).poll(now_, events);
        for (std::size_t index = 0; index < count; ++index) {
            if (events[index].kind != Event::Kind::message) {
                continue;
            }
            const auto message = ControlView::parse({events[index].data, events[index].size_or_value});
            if (message->kind() == ControlKind::region) {
                slots_ = end(ru).import_key(bu, *wire::key_in<ControlKind::region>(*message)).value();
            } else if (message->kind() == ControlKind::grant) {
                slot_of_first_ = message->entry<ControlKind::grant>(0).slot;
            }
        }
        say<ControlKind::assign>({attempt(0)});
        step();
    }
    /// What an RU writes for MEP 0, unless a test changes it.
    [[nodiscard]] wire::Head head() const {
        wire::Head head;
        head.attempt = 1;
        head.run = config_.run;
        head.incarnation = 1;
        head.credit = 1;
        head.n_events = 1;
        return head;
    }
    void write(const wire::Head& head, Notice notice) {
        const Target place{slots_, slot_of_first_ * slot_layout(config_).slot_bytes};
        ASSERT_EQ(end(ru).write(bu, std::as_bytes(std::span(&head, 1)), {}, place, notice, 0), Post::done);
        step();
    }
    [[nodiscard]] bool asks_for_its_commit() { return !heard<ControlKind::commit_request>(em).empty(); }

    Remote slots_{};
    std::uint16_t slot_of_first_ = 0;
};

TEST_F(WrittenTo, EB_T1_AContributionIsThereWhenItsNoticeIs) {
    start_written(1);
    write(head(), {});
    EXPECT_FALSE(asks_for_its_commit()) << "it lies in the slot, but nobody has said so";
    write(head(), slot_of_first_);
    EXPECT_TRUE(asks_for_its_commit());
}

TEST_F(WrittenTo, EB_F6_WhatIsOfAnotherAttemptIsNoContribution) {
    start_written(1);
    std::uint64_t stale = 0;
    const auto refused = [&](auto change) {
        wire::Head other = head();
        change(other);
        write(other, slot_of_first_);
        EXPECT_FALSE(asks_for_its_commit());
        EXPECT_EQ(builder_->counters().stale_contributions, ++stale);
    };
    refused([](wire::Head& other) { ++other.run; });
    refused([](wire::Head& other) { ++other.incarnation; });
    refused([](wire::Head& other) { ++other.mep; });
    refused([](wire::Head& other) { ++other.attempt; });
    refused([](wire::Head& other) { ++other.credit; });
    refused([](wire::Head& other) { ++other.source; });
    refused([](wire::Head& other) { ++other.version; });
    write(head(), slot_of_first_);
    EXPECT_TRUE(asks_for_its_commit());
}

TEST_F(WrittenTo, EB_F3_ASlotIsGrantedAgainWhenNobodyMayWriteIt) {
    start_written(1);
    say<ControlKind::commit_verdict>({attempt(0, slot_of_first_)});  // not granted: the attempt is void
    step();
    step();
    EXPECT_TRUE(heard<ControlKind::grant>(ru).empty()) << "the RU may still write";
    EXPECT_EQ(builder_->counters().quarantined_slots, 1U);
    say<ControlKind::abort_ack>({{7, slot_of_first_, 0}}, ru);
    step();
    EXPECT_TRUE(heard<ControlKind::grant>(ru).empty()) << "of another credit";
    say<ControlKind::abort_ack>({{1, slot_of_first_, 0}}, ru);
    step();
    const std::vector<wire::CreditEntry> granted = heard<ControlKind::grant>(ru);
    ASSERT_EQ(granted.size(), 1U);
    EXPECT_EQ(granted.front().credit, 2U);
    EXPECT_EQ(granted.front().slot, slot_of_first_);
}

/// Adversary, lie missing, seed 2160: it was asked once more, and waited for until the MEP was late.
TEST_F(WrittenTo, EB_F5_AReadoutUnitThatIsLostWhileTheFilterDecidesIsMissing) {
    start_written(1, Scheme::pull_pull);
    const std::vector<AttemptEntry> asked = heard<ControlKind::request>(ru);
    ASSERT_EQ(asked.size(), 1U);
    slot_of_first_ = asked.front().slot;
    write(head(), slot_of_first_);
    end(ru).disconnect(bu);
    say<ControlKind::view>({{0, 1, role_ru, wire::Change::dead, 0}});
    step();
    EXPECT_FALSE(asks_for_its_commit()) << "the filter has not decided";
    filter_.decides = true;
    step();
    step();
    const std::vector<AttemptEntry> commits = heard<ControlKind::commit_request>(em);
    ASSERT_EQ(commits.size(), 1U);
    EXPECT_EQ(wire::missing_sources(commits.front()), 1U);
}

TEST_F(WrittenTo, EB_M6_WaitingIsTimeWithCreditsAndNothingAssigned) {
    start_written(1);
    EXPECT_EQ(builder_->bu_waiting(), now_) << "since it was started";
    const Time before = builder_->bu_waiting();
    now_ += ps_per_ms;
    write(head(), slot_of_first_);
    AttemptEntry verdict = attempt(0, slot_of_first_);
    verdict.flags = wire::attempt_granted;
    say<ControlKind::commit_verdict>({verdict});
    step();
    EXPECT_EQ(builder_->bu_waiting(), before) << "it had a MEP";
    const Time done = now_;
    now_ += 2 * ps_per_ms;
    say<ControlKind::assign>({attempt(1)});
    step();
    EXPECT_EQ(builder_->bu_waiting(), before + now_ - done);
}

TEST_F(BuilderAlone, EB_C1_NoMoreSlotsAreInServiceThanThereAreCredits) {
    held_slots_ = 3;  // of slots there are more
    start(Scheme::push, 2);
    EXPECT_EQ(heard<ControlKind::grant>(ru).size(), 2U);
    step();
    EXPECT_TRUE(heard<ControlKind::grant>(ru).empty());
    build(0);
    step();
    EXPECT_EQ(heard<ControlKind::grant>(ru).size(), 1U);
}

TEST_F(BuilderAlone, EB_C2_RequestsAreLimitedOverAllMepsOldestFirst) {
    parallel_requests_ = 2;
    start(Scheme::pull_write, 4);
    say<ControlKind::view>({{0, 1, role_ru, wire::Change::up, 0}, {1, 1, role_bu, wire::Change::up, 0}});
    say<ControlKind::assign>({attempt(0), attempt(1), attempt(2), attempt(3)});
    step();
    step();
    const std::vector<AttemptEntry> requests = heard<ControlKind::request>(ru);
    ASSERT_EQ(requests.size(), 2U);
    EXPECT_EQ(requests[0].mep, 0U);
    EXPECT_EQ(requests[1].mep, 1U);
}

INSTANTIATE_TEST_SUITE_P(EvenAndOdd, Told, ::testing::Values(300, 301));

}  // namespace
}  // namespace incast::protocol
