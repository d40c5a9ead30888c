// The sink and the library of its consumers, in one process; with real processes: tests/process/test_consumer.py.
#include "support/consumer_sink.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <incast/consumer.h>

namespace incast::sinks {
namespace {

TEST_F(ConsumerSinkTest, AnEventIsCommittedOnceItIsGivenBack) {
    make(Policy::block, 1, 2);
    EXPECT_EQ(offer(), Taken::busy) << "nobody is there";
    const Handle consumer = attach();
    incast_consumer_info info;
    ASSERT_EQ(incast_consumer_get_info(consumer.raw, &info), INCAST_CONSUMER_OK);
    EXPECT_EQ(info.run, 42U);
    EXPECT_EQ(info.node, 3U);
    EXPECT_EQ(info.n_sources, n_sources);
    EXPECT_EQ(info.window, 2U);
    EXPECT_EQ(status_of_next(consumer), 0);
    EXPECT_EQ(offer(), Taken::held_pending);
    EXPECT_EQ(offer(), Taken::held_pending);
    EXPECT_EQ(offer(), Taken::busy) << "the window is full";
    const incast_consumer_event first = next(consumer);
    const incast_consumer_event second = next(consumer);
    tick();
    EXPECT_TRUE(durable_.empty());
    EXPECT_EQ(sink_->stats().timed_meps, 0U) << "their latency goes on";
    EXPECT_EQ(incast_consumer_release(consumer.raw, &second), INCAST_CONSUMER_OK);
    EXPECT_EQ(incast_consumer_release(consumer.raw, &second), INCAST_CONSUMER_ARGUMENT) << "twice";
    tick();
    EXPECT_EQ(durable_, std::vector<protocol::MepId>{1});
    EXPECT_EQ(sink_->stats().timed_meps, 1U);
    expect_whole(consumer, first);
    EXPECT_EQ(incast_consumer_intact(consumer.raw, &second), INCAST_CONSUMER_OVERTAKEN);
    EXPECT_EQ(offer(), Taken::held_pending);
    EXPECT_EQ(incast_consumer_release(consumer.raw, &first), INCAST_CONSUMER_OK);
    tick();
    EXPECT_EQ(durable_, (std::vector<protocol::MepId>{1, 0}));
    EXPECT_EQ(stats().taken_meps, 3U);
    EXPECT_EQ(stats().done_meps, 2U);
}

TEST_F(ConsumerSinkTest, VerdictsAreCounted) {
    make(Policy::block, 1, 3);
    const Handle consumer = attach();
    ASSERT_EQ(offer(), Taken::held_pending);
    ASSERT_EQ(offer(), Taken::held_pending);
    ASSERT_EQ(offer(), Taken::held_pending);
    const incast_consumer_event some = next(consumer);
    const incast_consumer_event none = next(consumer);
    const incast_consumer_event plain = next(consumer);
    ASSERT_GT(some.n_events, 1U);
    EXPECT_EQ(incast_consumer_judge(consumer.raw, &some, some.n_events + 1), INCAST_CONSUMER_ARGUMENT);
    EXPECT_EQ(incast_consumer_judge(consumer.raw, &some, 1), INCAST_CONSUMER_OK);
    EXPECT_EQ(incast_consumer_judge(consumer.raw, &some, 1), INCAST_CONSUMER_ARGUMENT) << "twice";
    EXPECT_EQ(incast_consumer_judge(consumer.raw, &none, 0), INCAST_CONSUMER_OK);
    EXPECT_EQ(incast_consumer_release(consumer.raw, &plain), INCAST_CONSUMER_OK);
    tick();
    EXPECT_EQ(durable_.size(), 3U) << "a MEP is committed whatever is said of it";
    EXPECT_EQ(stats().judged_meps, 2U);
    EXPECT_EQ(stats().accepted_events, 1U);
    EXPECT_EQ(stats().rejected_events, some.n_events - 1 + none.n_events);
    EXPECT_EQ(stats().done_meps, 3U);
}

TEST_F(ConsumerSinkTest, WhatNobodyHasRoomForIsDropped) {
    make(Policy::drop, 1, 1);
    EXPECT_EQ(offer(), Taken::done);
    const Handle consumer = attach();
    EXPECT_EQ(offer(), Taken::held);
    EXPECT_EQ(offer(), Taken::done);
    EXPECT_EQ(stats().dropped_meps, 2U);
    const incast_consumer_event event = next(consumer);
    EXPECT_EQ(event.mep, 1U);
    EXPECT_EQ(incast_consumer_release(consumer.raw, &event), INCAST_CONSUMER_OK);
    const std::size_t free = free_.size();
    tick();
    EXPECT_EQ(free_.size(), free + 1);
    EXPECT_TRUE(durable_.empty()) << "it was committed when it was handed out";
    EXPECT_EQ(sink_->stats().meps, 3U);
}

TEST_F(ConsumerSinkTest, EverybodyGetsEverything) {
    make(Policy::block, 2, 2, Delivery::all);
    const Handle one = attach();
    const Handle two = attach();
    ASSERT_EQ(offer(), Taken::held_pending);
    const incast_consumer_event mine = next(one);
    const incast_consumer_event yours = next(two);
    EXPECT_EQ(mine.mep, yours.mep);
    incast_consumer_release(one.raw, &mine);
    tick();
    EXPECT_TRUE(durable_.empty()) << "the other still reads it";
    expect_whole(two, yours);
    incast_consumer_release(two.raw, &yours);
    tick();
    EXPECT_EQ(durable_.size(), 1U);
    EXPECT_EQ(stats().done_meps, 1U);
}

TEST_F(ConsumerSinkTest, ALaggardMissesWhatOthersGet) {
    make(Policy::drop, 2, 1, Delivery::all);
    const Handle laggard = attach();
    const Handle other = attach();
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(offer(), Taken::held);
        const incast_consumer_event event = next(other);
        incast_consumer_release(other.raw, &event);
        tick();
    }
    const incast_consumer_event old = next(laggard);
    EXPECT_EQ(old.mep, 0U);
    incast_consumer_release(laggard.raw, &old);
    tick();
    ASSERT_EQ(offer(), Taken::held);
    EXPECT_EQ(next(laggard).missed, 2U);
    EXPECT_EQ(stats().missed_meps, 2U);
    EXPECT_EQ(stats().dropped_meps, 0U);
}

TEST_F(ConsumerSinkTest, WhatADeadConsumerHadGoesToAnother) {
    make(Policy::block, 2, 2);
    Handle victim = attach();
    ASSERT_EQ(offer(), Taken::held_pending);
    ASSERT_EQ(offer(), Taken::held_pending);
    const incast_consumer_event first = next(victim);
    incast_consumer_release(victim.raw, &first);
    victim = Handle();
    tick();
    EXPECT_EQ(durable_, std::vector<protocol::MepId>{0}) << "what it gave back before counts";
    EXPECT_EQ(stats().left, 1U);
    EXPECT_EQ(offer(), Taken::busy);
    const Handle heir = attach();
    const incast_consumer_event repeat = next(heir);
    EXPECT_EQ(repeat.mep, 1U);
    EXPECT_EQ(repeat.flags, static_cast<std::uint32_t>(INCAST_CONSUMER_REPEATED));
    incast_consumer_release(heir.raw, &repeat);
    tick();
    EXPECT_EQ(durable_, (std::vector<protocol::MepId>{0, 1}));
    EXPECT_EQ(stats().repeated_meps, 1U);
    EXPECT_EQ(stats().done_meps, 2U);
}

TEST_F(ConsumerSinkTest, WhatADeadConsumerHadIsCountedIfEventsMayBeDropped) {
    make(Policy::drop, 2, 2);
    Handle victim = attach();
    ASSERT_EQ(offer(), Taken::held);
    const std::size_t free = free_.size();
    victim = Handle();
    tick();
    EXPECT_EQ(free_.size(), free + 1);
    EXPECT_EQ(stats().abandoned_meps, 1U);
}

TEST_F(ConsumerSinkTest, PatienceEnds) {
    make(Policy::block, 2, 1, Delivery::one, 50 * ps_per_ms);
    const Handle sleeper = attach();
    ASSERT_EQ(offer(), Taken::held_pending);
    const incast_consumer_event event = next(sleeper);
    tick(40 * ps_per_ms);
    EXPECT_EQ(stats().ejected, 0U);
    tick(40 * ps_per_ms);
    EXPECT_EQ(stats().ejected, 1U);
    EXPECT_EQ(incast_consumer_release(sleeper.raw, &event), INCAST_CONSUMER_OVERTAKEN);
    EXPECT_EQ(status_of_next(sleeper), INCAST_CONSUMER_EJECTED);
    const Handle heir = attach();
    const incast_consumer_event repeat = next(heir);
    incast_consumer_release(heir.raw, &repeat);
    EXPECT_EQ(incast_consumer_intact(sleeper.raw, &event), INCAST_CONSUMER_OK) << "nobody wrote there yet";
    tick();
    EXPECT_EQ(incast_consumer_intact(sleeper.raw, &event), INCAST_CONSUMER_OVERTAKEN);
}

TEST_F(ConsumerSinkTest, AtMostSoManyAttach) {
    make(Policy::drop, 1, 1);
    const Handle first = attach();
    // It asks until its time is over; on a busy host no answer may come in time.
    for (int timeout_ms = 200; last_status_ != INCAST_CONSUMER_FULL && timeout_ms < 30'000; timeout_ms *= 2)
        EXPECT_EQ(attach(timeout_ms).raw, nullptr);
    EXPECT_EQ(stats().refused, 1U) << "one process, however often it asks";
    EXPECT_EQ(last_status_, INCAST_CONSUMER_FULL);
}

TEST_F(ConsumerSinkTest, TheEndComesAfterTheLastEvent) {
    make(Policy::drop, 1, 2);
    const Handle consumer = attach();
    ASSERT_EQ(offer(), Taken::held);
    sink_.reset();
    const incast_consumer_event event = next(consumer);
    EXPECT_EQ(incast_consumer_release(consumer.raw, &event), INCAST_CONSUMER_OK);
    EXPECT_EQ(status_of_next(consumer), INCAST_CONSUMER_ENDED);
    incast_consumer_event none;
    EXPECT_EQ(incast_consumer_next(consumer.raw, -1, &none), INCAST_CONSUMER_ENDED);
    incast_consumer* raw = nullptr;
    EXPECT_EQ(incast_consumer_attach(options_.consumer.name.c_str(), 3, 0, &raw), INCAST_CONSUMER_NOBODY);
}

TEST_F(ConsumerSinkTest, TheNameIsOfOneBuilderUnitAtATime) {
    make(Policy::drop, 1, 1);
    const auto second = make_sink(options_, config_);
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.error().message.find("another run on this host takes consumers for node 3"), std::string::npos);
    std::uint32_t nodes[4];
    ASSERT_EQ(incast_consumer_builders(options_.consumer.name.c_str(), nodes, 4), 1);
    EXPECT_EQ(nodes[0], 3U);
    options_.node = 1;
    const auto other = make_sink(options_, config_);
    ASSERT_TRUE(other.ok());
    ASSERT_EQ(incast_consumer_builders(options_.consumer.name.c_str(), nodes, 4), 2);
    EXPECT_EQ(nodes[0], 1U);
}

TEST_F(ConsumerSinkTest, ASleepingBuilderIsWokenByARelease) {
    make(Policy::block, 1, 1);
    const Handle consumer = attach();
    ASSERT_EQ(offer(), Taken::held_pending);
    const incast_consumer_event event = next(consumer);
    tick();
    ASSERT_TRUE(sink_->prepare_wait());
    pollfd waiting{sink_->wait_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&waiting, 1, 0), 0);
    incast_consumer_release(consumer.raw, &event);
    EXPECT_EQ(::poll(&waiting, 1, 5000), 1);
    EXPECT_FALSE(sink_->prepare_wait()) << "there is something to tend";
    tick();
    EXPECT_EQ(durable_.size(), 1U);
    EXPECT_EQ(::poll(&waiting, 1, 0), 0);
}

TEST_F(ConsumerSinkTest, ASleepingConsumerIsWokenByAnEvent) {
    make(Policy::block, 1, 1);
    const Handle consumer = attach();
    EXPECT_EQ(incast_consumer_arm(consumer.raw), 0);
    pollfd waiting{incast_consumer_fd(consumer.raw), POLLIN, 0};
    EXPECT_EQ(::poll(&waiting, 1, 0), 0);
    ASSERT_EQ(offer(), Taken::held_pending);
    EXPECT_EQ(::poll(&waiting, 1, 5000), 1);
    const incast_consumer_event event = next(consumer);
    incast_consumer_release(consumer.raw, &event);
    EXPECT_EQ(::poll(&waiting, 1, 0), 0);
    sink_.reset();
    EXPECT_EQ(incast_consumer_arm(consumer.raw), 1) << "the end is something too";
}

TEST_F(ConsumerSinkTest, WhoTalksTooMuchIsEjected) {
    make(Policy::drop, 1, 1);
    const Handle consumer = attach();
    for (int count = 0; count < 20; ++count) {
        (void)!::write(incast_consumer_fd(consumer.raw), "x", 1);
    }
    tick();
    EXPECT_EQ(stats().ejected, 1U);
    EXPECT_EQ(status_of_next(consumer), INCAST_CONSUMER_EJECTED);
}

TEST_F(ConsumerSinkTest, TwoThreadsPassThousandsOfEvents) {
    constexpr std::uint64_t total = 3000;
    make(Policy::block, 2, 3);
    std::vector<Handle> consumers;
    consumers.push_back(attach());
    consumers.push_back(attach());
    std::atomic<std::uint64_t> seen = 0;
    std::vector<std::thread> threads;
    for (const Handle& consumer : consumers) {
        threads.emplace_back([&] {
            incast_consumer_event event;
            while (incast_consumer_next(consumer.raw, -1, &event) == 1) {
                expect_whole(consumer, event);
                incast_consumer_release(consumer.raw, &event);
                ++seen;
            }
        });
    }
    while (durable_.size() < total) {
        tick(10 * ps_per_us);
        while (next_ < total && offer() != Taken::busy) {
        }
        if (sink_->prepare_wait()) {
            pollfd waiting{sink_->wait_fd(), POLLIN, 0};
            ::poll(&waiting, 1, 1);
        }
    }
    sink_.reset();
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(seen, total);
    std::ranges::sort(durable_);
    for (std::uint64_t mep = 0; mep < total; ++mep) {
        ASSERT_EQ(durable_[mep], mep);
    }
}

}  // namespace
}  // namespace incast::sinks
