// The sink and the library of its consumers, in one process; with real processes: tests/process/test_consumer.py.
#include "runtime/sinks/consumer_sink.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <incast/consumer.h>

#include "runtime/sources/fake_transport.h"
#include "transport/regions.h"

namespace incast::sinks {
namespace {

using Taken = protocol::Sink::Taken;
using Delivery = ConsumerOptions::Delivery;
using Policy = ConsumerOptions::Policy;

constexpr std::uint32_t n_sources = 3;
constexpr std::uint64_t slot_bytes = 4096;
constexpr std::uint64_t source_bytes = 1024;

/// Memory that can be shared, and nothing else.
class SharedTransport final : public sources::FakeTransport {
public:
    Result<Local> allocate(std::size_t bytes) override { return regions_.allocate(bytes); }
    std::span<std::byte> memory(Local region) override { return regions_.memory(region); }
    Result<int> share(Local region) override { return regions_.share(region); }

private:
    transport::Regions regions_{4, true};
};

struct Handle {
    explicit Handle(incast_consumer* raw_in = nullptr) : raw(raw_in) {}
    Handle(Handle&& other) noexcept : raw(std::exchange(other.raw, nullptr)) {}
    Handle& operator=(Handle&& other) noexcept {
        std::swap(raw, other.raw);
        return *this;
    }
    ~Handle() { incast_consumer_free(raw); }
    incast_consumer* raw;
};

/// A builder unit's slots and its sink.
class ConsumerSinkTest : public ::testing::Test {
protected:
    void make(Policy policy, std::uint32_t consumers, std::uint32_t window, Delivery delivery = Delivery::one,
              Time patience = 0) {
        config_.run = 42;
        config_.sources = {{10, Peer{0}, source_bytes}, {20, Peer{0}, source_bytes}, {30, Peer{0}, source_bytes}};
        config_.credits = 4;
        config_.quarantine_slots = 0;
        config_.held_slots = window * consumers;
        slots_ = config_.credits + config_.held_slots;
        options_.kind = SinkOptions::Kind::consumer;
        const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
        options_.consumer = {fmt::format("unit-{}-{}", ::getpid(), test).substr(0, consumer::max_name_bytes),
                             delivery,
                             policy,
                             consumers,
                             window,
                             patience};
        options_.node = 3;
        auto sink = make_sink(options_, config_);
        ASSERT_TRUE(sink.ok()) << sink.error().message;
        sink_ = std::move(*sink);
        region_ = transport_.allocate(slots_ * slot_bytes).value();
        memory_ = transport_.memory(region_);
        ASSERT_TRUE(sink_->attach(transport_, region_).ok());
        for (std::uint32_t slot = 0; slot < slots_; ++slot) {
            free_.push_back(static_cast<std::uint16_t>(slot));
        }
    }

    /// The sink answers from time to time, as a node's thread would.
    Handle attach(int timeout_ms = 10'000) {
        incast_consumer* raw = nullptr;
        int status = INCAST_CONSUMER_NOBODY;
        std::atomic<bool> answered = false;
        std::thread knocking([&] {
            status = incast_consumer_attach(options_.consumer.name.c_str(), 3, timeout_ms, &raw);
            answered = true;
        });
        while (!answered) {
            tick(ps_per_us);  // however often: nobody's patience may end meanwhile
            std::this_thread::yield();
        }
        knocking.join();
        last_status_ = status;
        return Handle(raw);
    }

    void tick(Time by = 2 * ps_per_ms) {
        now_ += by;
        sink_->tend(now_);
        std::array<std::uint16_t, 4> slots;
        for (std::size_t many = slots.size(); many == slots.size();) {
            many = sink_->returned(now_, slots);
            for (std::size_t index = 0; index < many; ++index) {
                free_.push_back(slots[index]);
                std::memset(memory_.data() + slots[index] * slot_bytes, 0xEE, slot_bytes);  // the next writer
            }
        }
        std::array<protocol::MepId, 4> meps;
        for (std::size_t many = meps.size(); many == meps.size();) {
            many = sink_->durable(now_, meps);
            durable_.insert(durable_.end(), meps.begin(), meps.begin() + static_cast<std::ptrdiff_t>(many));
        }
    }

    /// Offers the next MEP; source 20 of every fifth is missing.
    Taken offer() {
        const std::uint16_t slot = free_.front();
        protocol::BuiltMep mep;
        mep.mep = next_;
        mep.slot = slot;
        mep.first_event = next_ * 10;
        mep.n_events = 10;
        std::array<protocol::BuiltSource, n_sources> sources;
        for (std::uint32_t source = 0; source < n_sources; ++source) {
            if (source == 1 && next_ % 5 == 4) {
                sources[source].flag = wire::SourceFlag::missing_dead;
                ++mep.missing_sources;
                continue;
            }
            std::byte* body = memory_.data() + slot * slot_bytes + source * source_bytes;
            std::memset(body, content(next_, source), 100 + source);
            sources[source] = {wire::SourceFlag::ok, &head_, {body, 100 + source}};
        }
        mep.sources = sources;
        const Taken taken = sink_->take(now_, mep);
        if (taken != Taken::busy) {
            ++next_;
            if (taken != Taken::done) {
                free_.pop_front();
            }
        }
        return taken;
    }

    static int content(protocol::MepId mep, std::uint32_t source) { return static_cast<int>((mep * 7 + source) % 251); }

    /// Everything that can be read of it is what was offered as that MEP.
    static void expect_whole(const Handle& consumer, const incast_consumer_event& event) {
        EXPECT_EQ(event.first_event, event.mep * 10);
        ASSERT_EQ(event.n_sources, n_sources);
        for (std::uint32_t source = 0; source < n_sources; ++source) {
            incast_consumer_mfp mfp;
            ASSERT_EQ(incast_consumer_get_mfp(consumer.raw, &event, source, &mfp), INCAST_CONSUMER_OK);
            EXPECT_EQ(mfp.source, 10 * (source + 1));
            if (source == 1 && event.mep % 5 == 4) {
                EXPECT_EQ(mfp.flag, INCAST_CONSUMER_SOURCE_MISSING_DEAD);
                EXPECT_EQ(mfp.data, nullptr);
                continue;
            }
            ASSERT_EQ(mfp.bytes, 100 + source);
            const int byte = content(event.mep, source);
            EXPECT_TRUE(std::all_of(mfp.data, mfp.data + mfp.bytes, [&](std::uint8_t each) { return each == byte; }));
        }
        EXPECT_EQ(incast_consumer_intact(consumer.raw, &event), INCAST_CONSUMER_OK);
    }

    static incast_consumer_event next(const Handle& consumer) {
        incast_consumer_event event{};
        EXPECT_EQ(incast_consumer_next(consumer.raw, 5000, &event), 1);
        expect_whole(consumer, event);
        return event;
    }
    static int status_of_next(const Handle& consumer) {
        incast_consumer_event event{};
        return incast_consumer_next(consumer.raw, 0, &event);
    }

    [[nodiscard]] const ConsumerStats& stats() const { return sink_->stats().consumers; }

    protocol::Config config_;
    SinkOptions options_;
    SharedTransport transport_;
    std::unique_ptr<RuntimeSink> sink_;
    Local region_{};
    std::span<std::byte> memory_;
    std::uint32_t slots_ = 0;
    std::deque<std::uint16_t> free_;
    std::vector<protocol::MepId> durable_;
    wire::Head head_;
    protocol::MepId next_ = 0;
    Time now_ = ps_per_s;
    int last_status_ = 0;
};

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
    EXPECT_EQ(incast_consumer_release(consumer.raw, &second), INCAST_CONSUMER_OK);
    EXPECT_EQ(incast_consumer_release(consumer.raw, &second), INCAST_CONSUMER_ARGUMENT) << "twice";
    tick();
    EXPECT_EQ(durable_, std::vector<protocol::MepId>{1});
    expect_whole(consumer, first);
    EXPECT_EQ(incast_consumer_intact(consumer.raw, &second), INCAST_CONSUMER_OVERTAKEN);
    EXPECT_EQ(offer(), Taken::held_pending);
    EXPECT_EQ(incast_consumer_release(consumer.raw, &first), INCAST_CONSUMER_OK);
    tick();
    EXPECT_EQ(durable_, (std::vector<protocol::MepId>{1, 0}));
    EXPECT_EQ(stats().taken_meps, 3U);
    EXPECT_EQ(stats().done_meps, 2U);
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
    const Handle second = attach(1000);
    EXPECT_EQ(last_status_, INCAST_CONSUMER_FULL);
    EXPECT_EQ(second.raw, nullptr);
    EXPECT_GE(stats().refused, 1U);
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

/// Frees the group.
struct Group {
    Group() { EXPECT_EQ(incast_consumer_group_make(&raw), INCAST_CONSUMER_OK); }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    ~Group() { incast_consumer_group_free(raw); }
    void add(const Handle& consumer) const {
        EXPECT_EQ(incast_consumer_group_add(raw, consumer.raw), INCAST_CONSUMER_OK);
    }
    incast_consumer_group* raw = nullptr;
};

TEST_F(ConsumerSinkTest, AGroupTakesTheEventsOfAllItsMembersInTurn) {
    make(Policy::block, 2, 4);
    const Handle one = attach();
    const Handle two = attach();
    const Group group;
    group.add(one);
    group.add(two);
    EXPECT_EQ(incast_consumer_group_add(group.raw, two.raw), INCAST_CONSUMER_ARGUMENT) << "twice";
    incast_consumer_event event{};
    incast_consumer* whose = nullptr;
    EXPECT_EQ(incast_consumer_group_next(group.raw, 0, &event, &whose), 0);
    for (int count = 0; count < 4; ++count) {  // each is handed two of them
        ASSERT_EQ(offer(), Taken::held_pending);
    }
    incast_consumer* before = nullptr;
    for (int count = 0; count < 4; ++count) {
        ASSERT_EQ(incast_consumer_group_next(group.raw, 5000, &event, &whose), 1);
        EXPECT_TRUE(whose == one.raw || whose == two.raw);
        EXPECT_NE(whose, before);
        before = whose;
        expect_whole(whose == one.raw ? one : two, event);
        EXPECT_EQ(incast_consumer_release(whose, &event), INCAST_CONSUMER_OK);
    }
    tick();
    EXPECT_EQ(durable_.size(), 4U);
    EXPECT_EQ(incast_consumer_group_next(group.raw, 20, &event, &whose), 0) << "the limit is kept";
    EXPECT_EQ(whose, nullptr);
}

TEST_F(ConsumerSinkTest, AGroupGoesOnWithoutThoseThatEnded) {
    make(Policy::drop, 3, 1);
    const Handle one = attach();
    Handle two = attach();
    const Handle three = attach();
    const Group group;
    for (const Handle* each : {&one, static_cast<const Handle*>(&two), &three}) {
        group.add(*each);
    }
    EXPECT_EQ(incast_consumer_group_remove(group.raw, two.raw), INCAST_CONSUMER_OK);
    EXPECT_EQ(incast_consumer_group_remove(group.raw, two.raw), INCAST_CONSUMER_ARGUMENT) << "it is no member";
    two = Handle();
    for (int count = 0; count < 20; ++count) {
        (void)!::write(incast_consumer_fd(three.raw), "x", 1);  // who talks too much is ejected
    }
    tick();
    incast_consumer_event event{};
    incast_consumer* whose = nullptr;
    EXPECT_EQ(incast_consumer_group_next(group.raw, 5000, &event, &whose), INCAST_CONSUMER_EJECTED);
    EXPECT_EQ(whose, three.raw);
    ASSERT_EQ(offer(), Taken::held);
    ASSERT_EQ(incast_consumer_group_next(group.raw, 5000, &event, &whose), 1);
    EXPECT_EQ(whose, one.raw);
    sink_.reset();
    EXPECT_EQ(incast_consumer_group_next(group.raw, 5000, &event, &whose), INCAST_CONSUMER_ENDED);
    EXPECT_EQ(whose, one.raw);
    EXPECT_EQ(incast_consumer_group_next(group.raw, -1, &event, &whose), INCAST_CONSUMER_ENDED);
    EXPECT_EQ(whose, nullptr) << "nobody is left";
}

TEST_F(ConsumerSinkTest, ASleepingGroupIsWokenByAnyMember) {
    constexpr std::uint64_t total = 2000;
    make(Policy::block, 2, 2);
    const Handle one = attach();
    const Handle two = attach();
    std::atomic<std::uint64_t> seen = 0;
    std::thread consuming([&] {
        const Group group;
        group.add(one);
        group.add(two);
        incast_consumer_event event{};
        incast_consumer* whose = nullptr;
        while (incast_consumer_group_next(group.raw, -1, &event, &whose) == 1) {
            expect_whole(whose == one.raw ? one : two, event);
            incast_consumer_release(whose, &event);
            ++seen;
        }
    });
    while (durable_.size() < total) {
        tick(10 * ps_per_us);
        if (next_ < total) {
            (void)offer();  // one at a time: it falls asleep in between
        }
        if (sink_->prepare_wait()) {
            pollfd waiting{sink_->wait_fd(), POLLIN, 0};
            ::poll(&waiting, 1, 1);
        }
    }
    sink_.reset();
    consuming.join();
    EXPECT_EQ(seen, total);
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
