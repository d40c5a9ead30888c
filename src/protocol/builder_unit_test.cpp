// A builder unit alone: RU and EM are played by hand, message by message, on inproc with a scripted clock.
#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/node.h"
#include "protocol/test_support.h"
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

/// Source-credits; the RU is connected, and in the view only if the EM says so.
class BuilderAlone : public ::testing::Test {
protected:
    void start(Scheme scheme, std::uint32_t credits, Sink& sink) {
        config_ = testing::make_config(1, 1, false, 1, 64);
        config_.assignment = Assignment::source_credits;
        config_.scheme = scheme;
        config_.credits = credits;
        config_.quarantine_slots = 0;
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
        builder_ = std::make_unique<Node>(config_, bu, 1, end(bu), nullptr, &sink, nullptr);
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
    void say(const std::vector<typename wire::Traits<kind>::Entry>& entries) {
        wire::ControlMessage<kind> message(config_.run, 1, 1);
        for (const auto& entry : entries) {
            ASSERT_TRUE(message.add(entry));
        }
        ASSERT_EQ(end(em).send(bu, message.bytes()), Post::done);
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
    std::uint32_t held_slots_ = 0;
    Time reuse_wait_ = 0;
    std::unique_ptr<Node> builder_;
};

/// Adversary seeds 5615 and 96938: the request of an attempt that was void kept its place, of as many as there are
/// slots, and a MEP that was complete was never committed.
TEST_F(BuilderAlone, AsksForEveryCommitThoughAnAttemptIsVoidBeforeItsOwnRequestWasSent) {
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

class Told : public BuilderAlone, public ::testing::WithParamInterface<MepId> {};

/// Adversary seed 11023: an RU that could not be told for a while was told of credits that were over.
TEST_P(Told, OfNoCreditThatIsOver) {
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

INSTANTIATE_TEST_SUITE_P(EvenAndOdd, Told, ::testing::Values(300, 301));

}  // namespace
}  // namespace incast::protocol
