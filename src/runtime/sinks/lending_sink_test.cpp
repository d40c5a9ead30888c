#include "runtime/sinks/lending_sink.h"

#include <array>
#include <memory>

#include <gtest/gtest.h>

namespace incast::sinks {
namespace {

using Taken = protocol::Sink::Taken;

class LendingSinkTest : public ::testing::Test {
protected:
    LendingSinkTest() {
        head_.body_bytes = 100;
        config_.credits = 2;
        config_.quarantine_slots = 0;
        config_.held_slots = 2;
        sink_ = std::make_unique<LendingSink>(SinkOptions{}, config_);
        sink_->on_lent([this] { ++calls_; });
    }
    Taken take(protocol::MepId mep, std::uint16_t slot) {
        protocol::BuiltMep built;
        built.mep = mep;
        built.slot = slot;
        built.n_events = 10;
        built.sources = sources_;
        return sink_->take(5, built);
    }

    protocol::Config config_;
    std::unique_ptr<LendingSink> sink_;
    wire::Head head_;
    std::array<protocol::BuiltSource, 2> sources_{protocol::BuiltSource{wire::SourceFlag::ok, &head_, {}},
                                                  protocol::BuiltSource{wire::SourceFlag::ok, &head_, {}}};
    int calls_ = 0;
};

TEST_F(LendingSinkTest, AMepIsCommittedAndItsSlotFreeOnceItWasGivenBack) {
    std::array<protocol::MepId, 4> meps{};
    std::array<std::uint16_t, 4> slots{};
    EXPECT_FALSE(sink_->has_next());
    EXPECT_EQ(take(7, 3), Taken::held_pending);
    EXPECT_EQ(calls_, 1);
    ASSERT_TRUE(sink_->has_next());
    const auto lent = sink_->next();
    EXPECT_EQ(lent.mep, 7U);
    EXPECT_EQ(lent.body_bytes, 200U);
    EXPECT_EQ(sink_->durable(5, meps), 0U);
    EXPECT_EQ(sink_->returned(5, slots), 0U);
    EXPECT_EQ(sink_->next_deadline(), time_never);
    sink_->give_back(9, lent, 4);
    EXPECT_LE(sink_->next_deadline(), 9);
    EXPECT_EQ(sink_->durable(9, meps), 1U);
    EXPECT_EQ(meps[0], 7U);
    EXPECT_EQ(sink_->returned(9, slots), 1U);
    EXPECT_EQ(slots[0], 3U);
    EXPECT_EQ(sink_->stats().consumers.accepted_events, 3U);
    EXPECT_EQ(sink_->stats().consumers.rejected_events, 7U);
}

TEST_F(LendingSinkTest, NoMoreIsLentThanThereAreSlotsForIt) {
    std::array<std::uint16_t, 4> slots{};
    EXPECT_EQ(take(1, 0), Taken::held_pending);
    EXPECT_EQ(take(2, 1), Taken::held_pending);
    EXPECT_EQ(take(3, 2), Taken::busy);
    sink_->give_back(6, sink_->next(), 0);
    EXPECT_EQ(take(3, 2), Taken::busy) << "the builder unit has not heard of it";
    EXPECT_EQ(sink_->returned(6, slots), 1U);
    EXPECT_EQ(take(3, 2), Taken::held_pending);
}

}  // namespace
}  // namespace incast::sinks
