// Whose turn it is, without the units around it.
#include "protocol/schedule.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "base/bitmap.h"
#include "protocol/barrier.h"
#include "protocol/shape.h"

namespace incast::protocol {
namespace {

constexpr std::size_t none = SendSchedule::none;

Config config_of(Schedule schedule) {
    Config config;
    config.schedule = schedule;
    config.slot_time = 100;
    return config;
}

base::Bitmap all(std::size_t size) {
    base::Bitmap set(size);
    for (std::size_t each = 0; each < size; ++each) {
        set.set(each);
    }
    return set;
}

std::vector<std::size_t> serve(SendSchedule& schedule, const base::Bitmap& runnable, std::size_t many) {
    std::vector<std::size_t> order;
    while (order.size() < many) {
        const std::size_t queue = schedule.next(0, runnable);
        if (queue == none) {
            break;
        }
        schedule.sent(0, queue, true);
        order.push_back(queue);
    }
    return order;
}

TEST(Shape, OnlyManyReadoutUnitsAreToldInHeaps) {
    const auto shape_of = [](std::size_t rus) {
        Config config;
        config.nodes.assign(rus, {});
        for (auto& node : config.nodes) {
            node.roles = role_ru;
        }
        return Shape(config);
    };
    EXPECT_EQ(shape_of(128).lazy_interval(), 0);
    EXPECT_EQ(shape_of(128).announce_interval(), 0);
    EXPECT_EQ(shape_of(1000).lazy_interval(), 500 * ps_per_us);
    EXPECT_EQ(shape_of(1000).announce_interval(), 100 * ps_per_us);
}

TEST(Shape, EB_S2_AReadoutUnitServesItsSourcesInOrder) {
    Config config;
    config.nodes = {{role_ru}, {role_ru}, {role_ru}, {role_bu}, {role_em}};
    const std::array<std::uint32_t, 3> sources{3, 2, 2};
    for (std::uint32_t unit = 0; unit < sources.size(); ++unit) {
        config.sources.resize(config.sources.size() + sources[unit], {.id = 0, .ru = Peer{unit}, .cap_bytes = 64});
    }
    const Shape shape(config);
    ASSERT_EQ(shape.rus.size(), 3U);
    EXPECT_EQ(shape.rus[0].first_source, 0U);
    EXPECT_EQ(shape.rus[0].sources, 3U);
    EXPECT_EQ(shape.rus[1].first_source, 3U);
    EXPECT_EQ(shape.rus[2].first_source, 5U);
    EXPECT_EQ(shape.rus[2].sources, 2U);
    EXPECT_EQ(shape.layout.source_offset.size(), 7U);
}

TEST(Order, EB_C6_LinearShiftBeginsBehindItself) {
    SendSchedule schedule(config_of(Schedule::linear_shift), 1, 4, 4, false);
    EXPECT_EQ(serve(schedule, all(4), 6), (std::vector<std::size_t>{2, 3, 0, 1, 2, 3}));
}

TEST(Order, SequentialHasOneQueue) {
    SendSchedule schedule(config_of(Schedule::sequential), 1, 4, 4, false);
    EXPECT_EQ(schedule.queues(), 1U);
    EXPECT_EQ(serve(schedule, all(1), 3), (std::vector<std::size_t>{0, 0, 0}));
}

TEST(Order, NoneGoesOnWithWhatHasWork) {
    SendSchedule schedule(config_of(Schedule::none), 1, 4, 4, false);
    base::Bitmap runnable = all(4);
    EXPECT_EQ(serve(schedule, runnable, 3), (std::vector<std::size_t>{2, 2, 2}));
    runnable.reset(2);
    EXPECT_EQ(serve(schedule, runnable, 2), (std::vector<std::size_t>{3, 3}));
}

TEST(Order, RandomServesAll) {
    SendSchedule schedule(config_of(Schedule::random), 1, 4, 4, false);
    std::vector<std::size_t> times(4);
    for (const std::size_t queue : serve(schedule, all(4), 400)) {
        ++times[queue];
    }
    for (const std::size_t count : times) {
        EXPECT_GT(count, 50U);
    }
}

TEST(Gap, EB_C6_KeepsSendsApart) {
    Config config = config_of(Schedule::linear_shift);
    config.inter_send_gap = 10;
    SendSchedule schedule(config, 0, 2, 3, false);
    const base::Bitmap runnable = all(3);
    EXPECT_EQ(schedule.next(5, runnable), 1U);
    schedule.sent(5, 1, true);
    EXPECT_EQ(schedule.next(14, runnable), none);
    EXPECT_EQ(schedule.next_deadline(14, runnable), 15);
    EXPECT_EQ(schedule.next(15, runnable), 2U);
    // Counted from its beginning, also if it has to wait in the middle; what was begun needs no gap.
    schedule.begun(15, 2);
    base::Bitmap blocked = runnable;
    blocked.reset(2);
    EXPECT_EQ(schedule.next(24, blocked), none);
    EXPECT_EQ(schedule.next(24, runnable), 2U);
    schedule.sent(24, 2, true);
    EXPECT_EQ(schedule.next(25, runnable), 0U);
    EXPECT_EQ(schedule.next_deadline(0, base::Bitmap(3)), time_never);
}

TEST(BarrelBarrier, EB_C6_ServesOneBuilderInEachPhase) {
    SendSchedule schedule(config_of(Schedule::barrel_barrier), 1, 4, 3, false);
    const base::Bitmap runnable = all(3);
    EXPECT_EQ(schedule.next(0, runnable), none);  // no phase yet
    EXPECT_EQ(schedule.phase_done(), 0U);
    for (std::uint64_t phase = 1; phase < 10; ++phase) {
        schedule.begin_phase(phase, runnable);
        const std::size_t turn = (1 + phase) % 4;
        if (turn == 3) {  // a phantom
            EXPECT_EQ(schedule.next(0, runnable), none);
        } else {
            EXPECT_EQ(schedule.phase_done(), 0U);
            ASSERT_EQ(schedule.next(0, runnable), turn);
            schedule.sent(0, turn, false);
            EXPECT_EQ(schedule.next(0, runnable), none);
            EXPECT_EQ(schedule.phase_done(), 0U);  // out, but not placed
            schedule.placed(0, turn);
        }
        EXPECT_EQ(schedule.phase_done(), phase);
        schedule.told_done();
        EXPECT_EQ(schedule.phase_done(), 0U);
    }
}

TEST(BarrelBarrier, FinishesWhatAnExpiredPhaseLeftBehind) {
    SendSchedule schedule(config_of(Schedule::barrel_barrier), 0, 3, 3, false);
    base::Bitmap runnable = all(3);
    schedule.begin_phase(1, runnable);
    ASSERT_EQ(schedule.next(0, runnable), 1U);
    schedule.begun(0, 1);
    runnable.reset(1);
    EXPECT_EQ(schedule.next(0, runnable), none);
    schedule.begin_phase(2, runnable);  // the EM did not wait
    ASSERT_EQ(schedule.next(0, runnable), 2U);
    schedule.sent(0, 2, true);
    EXPECT_EQ(schedule.phase_done(), 2U);
    runnable.set(1);
    EXPECT_EQ(schedule.next(0, runnable), 1U);
    schedule.sent(0, 1, false);
    EXPECT_EQ(schedule.phase_done(), 2U);  // of phase 1: phase 2 does not wait for it
    EXPECT_EQ(schedule.next(0, runnable), none);
}

TEST(BarrelBarrier, ALostBuilderEndsThePhase) {
    SendSchedule schedule(config_of(Schedule::barrel_barrier), 0, 3, 3, false);
    const base::Bitmap runnable = all(3);
    schedule.begin_phase(1, runnable);
    schedule.dropped(1, true);
    EXPECT_EQ(schedule.phase_done(), 1U);
    schedule.begin_phase(2, runnable);
    schedule.sent(0, schedule.next(0, runnable), false);
    EXPECT_EQ(schedule.phase_done(), 0U);
    schedule.placed(0, 2);  // the connection is gone: nothing more is to come
    EXPECT_EQ(schedule.phase_done(), 2U);
}

TEST(Lockstep, EB_C6_ServesARoundInOrderAndWaits) {
    SendSchedule schedule(config_of(Schedule::lockstep), 1, 3, 4, false);
    base::Bitmap runnable = all(4);
    runnable.reset(3);  // has nothing in this round
    schedule.begin_phase(1, runnable);
    runnable.set(3);  // what comes later is for the next one
    EXPECT_EQ(serve(schedule, runnable, 9), (std::vector<std::size_t>{2, 0, 1}));
    EXPECT_EQ(schedule.phase_done(), 1U);
    schedule.begin_phase(2, runnable);
    base::Bitmap blocked = runnable;
    blocked.reset(2);
    EXPECT_EQ(schedule.next(0, blocked), none);  // strictly in order
    EXPECT_EQ(serve(schedule, runnable, 9), (std::vector<std::size_t>{2, 3, 0, 1}));
}

/// RU 0 of 3 with the EM's own clock: no error, so no guard.
struct Slots {
    explicit Slots(Overrun overrun, std::size_t bus = 3)
        : schedule(config(overrun), 0, 3, bus, true), runnable(all(bus)) {}
    static Config config(Overrun overrun) {
        Config made = config_of(Schedule::barrel_time_slot);
        made.overrun = overrun;
        return made;
    }
    SendSchedule schedule;
    base::Bitmap runnable;
};

TEST(TimeSlots, EB_C6_OneContributionInEach) {
    Slots slots(Overrun::skip, 2);
    std::vector<std::size_t> served;
    for (Time now = 0; now < 600; now += 50) {
        served.push_back(slots.schedule.next(now, slots.runnable));
        if (served.back() != none) {
            slots.schedule.sent(now, served.back(), true);
        }
    }
    EXPECT_EQ(served, (std::vector<std::size_t>{0, none, 1, none, none, none, 0, none, 1, none, none, none}));
    EXPECT_EQ(slots.schedule.overruns(), 0U);
    // In slot 5, a phantom; the next turn is that of BU 0 in slot 6.
    EXPECT_EQ(slots.schedule.next_deadline(550, slots.runnable), 600);
    base::Bitmap second(2);
    second.set(1);
    EXPECT_EQ(slots.schedule.next_deadline(550, second), 700);
}

TEST(TimeSlots, EB_C6_AnOverrunSkips) {
    Slots slots(Overrun::skip);
    ASSERT_EQ(slots.schedule.next(10, slots.runnable), 0U);
    slots.schedule.sent(10, 0, false);
    EXPECT_EQ(slots.schedule.next(110, slots.runnable), none);
    EXPECT_EQ(slots.schedule.next_deadline(110, slots.runnable), time_never);
    slots.schedule.placed(150, 0);
    EXPECT_EQ(slots.schedule.overruns(), 1U);
    EXPECT_EQ(slots.schedule.next(160, slots.runnable), none);  // slot 1 is skipped
    EXPECT_EQ(slots.schedule.next_deadline(160, slots.runnable), 200);
    EXPECT_EQ(slots.schedule.next(200, slots.runnable), 2U);  // slot 2 is as it would have been
}

TEST(TimeSlots, AnOverrunSlips) {
    Slots slots(Overrun::slip);
    ASSERT_EQ(slots.schedule.next(10, slots.runnable), 0U);
    slots.schedule.sent(10, 0, false);
    slots.schedule.placed(250, 0);
    EXPECT_EQ(slots.schedule.overruns(), 1U);
    ASSERT_EQ(slots.schedule.next(250, slots.runnable), 1U);  // its turn, in slot 2 instead of 1
    slots.schedule.sent(250, 1, true);
    ASSERT_EQ(slots.schedule.next(300, slots.runnable), 2U);
    slots.schedule.sent(300, 2, true);
    base::Bitmap last(3);
    last.set(1);  // nothing for BU 0: back to the clock's order
    EXPECT_EQ(slots.schedule.next(400, last), 1U);
}

TEST(TimeSlots, MayOverlap) {
    Slots slots(Overrun::overlap);
    ASSERT_EQ(slots.schedule.next(10, slots.runnable), 0U);
    slots.schedule.sent(10, 0, false);
    EXPECT_EQ(slots.schedule.next(20, slots.runnable), none);  // once in a slot
    ASSERT_EQ(slots.schedule.next(110, slots.runnable), 1U);   // whatever became of the one before
    slots.schedule.sent(110, 1, false);
    slots.schedule.placed(150, 0);
    EXPECT_EQ(slots.schedule.overruns(), 0U);
    EXPECT_EQ(slots.schedule.next(190, slots.runnable), none);
    // What was begun is finished first; where that takes longer than the slot, it is counted.
    ASSERT_EQ(slots.schedule.next(210, slots.runnable), 2U);
    slots.schedule.begun(210, 2);
    base::Bitmap others = slots.runnable;
    others.reset(2);
    EXPECT_EQ(slots.schedule.next(310, others), none);
    EXPECT_EQ(slots.schedule.next_deadline(310, others), time_never);
    ASSERT_EQ(slots.schedule.next(320, slots.runnable), 2U);
    slots.schedule.sent(320, 2, true);
    EXPECT_EQ(slots.schedule.overruns(), 1U);
    EXPECT_EQ(slots.schedule.next(330, slots.runnable), 0U);
}

TEST(TimeSlots, EB_C6_AreGuardedByTwiceTheErrorOfTheClock) {
    Config config = config_of(Schedule::barrel_time_slot);
    SendSchedule schedule(config, 0, 2, 2, false);
    const base::Bitmap runnable = all(2);
    EXPECT_EQ(schedule.next(1000, runnable), none);  // nothing is known of the EM's clock
    schedule.learn_time(1000, 5005, 1010);
    // 5005 at 1005, 5 up or down: slot 51 from 1100 on, used from 1110 to 1190.
    EXPECT_EQ(schedule.next(1105, runnable), none);
    EXPECT_EQ(schedule.next_deadline(1105, runnable), 1110);
    EXPECT_EQ(schedule.next(1110, runnable), 1U);
    EXPECT_EQ(schedule.next(1189, runnable), 1U);
    EXPECT_EQ(schedule.next(1190, runnable), none);
    schedule.sent(1189, 1, true);
    EXPECT_EQ(schedule.unguarded(), 0U);
}

TEST(TimeSlots, AClockThatIsOffTooMuchIsCounted) {
    Config config = config_of(Schedule::barrel_time_slot);
    SendSchedule schedule(config, 0, 2, 2, false);
    const base::Bitmap runnable = all(2);
    schedule.learn_time(1000, 5030, 1060);
    EXPECT_EQ(schedule.next(1120, runnable), none);
    ASSERT_EQ(schedule.next(1125, runnable), 1U);  // a quarter of the slot at either end
    schedule.sent(1125, 1, true);
    EXPECT_EQ(schedule.unguarded(), 1U);
}

/// What was sent while the clock was hardly known may have gone out in another slot than it seemed: a clock that is
/// known better says so, and the slot is not used twice.
TEST(TimeSlots, ASlotThatWasUsedByMistakeIsNotUsedAgain) {
    SendSchedule schedule(config_of(Schedule::barrel_time_slot), 0, 2, 2, false);
    const base::Bitmap runnable = all(2);
    schedule.learn_time(0, 0, 100);  // the EM's clock is this one's; it seems to be 50 behind
    ASSERT_EQ(schedule.next(1120, runnable), 0U) << "at 1070, in slot 10; really in slot 11";
    schedule.sent(1120, 0, true);
    EXPECT_EQ(schedule.unguarded(), 1U);
    schedule.learn_time(1122, 1124, 1126);
    EXPECT_EQ(schedule.next(1140, runnable), none);
    EXPECT_EQ(schedule.next_deadline(1140, runnable), 1204);
    EXPECT_EQ(schedule.next(1204, runnable), 0U);
}

/// A better estimate takes no slot away from who was sure of its own.
TEST(TimeSlots, ABetterClockCostsNoSlot) {
    SendSchedule schedule(config_of(Schedule::barrel_time_slot), 0, 2, 2, false);
    const base::Bitmap runnable = all(2);
    schedule.learn_time(1000, 1005, 1010);
    ASSERT_EQ(schedule.next(1189, runnable), 1U);
    schedule.sent(1189, 1, true);
    schedule.learn_time(1190, 1200, 1200);  // 5 off again, to the other side
    EXPECT_EQ(schedule.next(1215, runnable), 0U);
    EXPECT_EQ(schedule.unguarded(), 0U);
}

TEST(Clock, KeepsTheShortestRoundTrip) {
    EmClock clock(false);
    EXPECT_FALSE(clock.known());
    ASSERT_TRUE(clock.add(0, 1000, 100));
    EXPECT_EQ(clock.at(0), 950);
    EXPECT_EQ(clock.from(950), 0);
    EXPECT_EQ(clock.error(100), 50);
    EXPECT_FALSE(clock.add(200, 1300, 400));
    ASSERT_TRUE(clock.add(500, 1460, 520));
    EXPECT_EQ(clock.error(520), 10);
    EXPECT_EQ(clock.at(0), 950);
    // Old estimates are worth less: what is worse now may be better later.
    EXPECT_EQ(clock.error(520 + 500'000), 110);
    EXPECT_TRUE(clock.add(500'600, 501'600, 500'700));
    // What no honest clock shows.
    EXPECT_FALSE(clock.add(500'700, -1, 500'700));
    EXPECT_FALSE(clock.add(500'700, time_never, 500'700));
    EXPECT_FALSE(clock.add(500'700, 500'700, 500'600));
    EXPECT_EQ(EmClock(true).at(7), 7);
}

TEST(Barrier, EB_C6_EndsWhenAllAreDoneOrItIsTooLate) {
    Barrier barrier(3, 3);
    EXPECT_EQ(barrier.state(0), Barrier::State::idle);
    EXPECT_FALSE(barrier.wanted(0, 0));
    EXPECT_TRUE(barrier.wanted(0, 1));
    barrier.begin(100, 1);
    for (std::uint32_t ru = 0; ru < 3; ++ru) {
        barrier.await(ru);
    }
    EXPECT_TRUE(barrier.done(0, 1, false, true));
    EXPECT_FALSE(barrier.done(0, 1, true, true));  // it said so before
    EXPECT_FALSE(barrier.done(1, 2, true, true));
    EXPECT_TRUE(barrier.done(1, 1, false, true));
    EXPECT_EQ(barrier.state(99), Barrier::State::running);
    EXPECT_EQ(barrier.state(100), Barrier::State::expired);
    barrier.lose(2);
    EXPECT_EQ(barrier.state(100), Barrier::State::complete);
    barrier.end(0, false, 10);
    EXPECT_FALSE(barrier.wanted(0, 1));  // nobody has anything left, and nothing was assigned since
    EXPECT_TRUE(barrier.wanted(0, 2));
    EXPECT_EQ(barrier.next_deadline(), time_never);
    barrier.begin(200, 2);
    barrier.await(1);
    EXPECT_FALSE(barrier.done(1, 1, true, true));  // of the phase before
    barrier.end(0, true, 10);
    EXPECT_TRUE(barrier.wanted(0, 2));  // nobody knows what it has left
}

TEST(Barrier, PausesWhenNothingIsSentForAWholePeriod) {
    Barrier barrier(1, 2);
    for (const bool sent : {true, false, false}) {
        barrier.begin(100, 1);
        barrier.await(0);
        EXPECT_TRUE(barrier.done(0, barrier.phase(), true, sent));
        barrier.end(50, false, 10);
        EXPECT_TRUE(barrier.wanted(50, 1)) << sent;
    }
    barrier.begin(100, 1);
    barrier.await(0);
    EXPECT_TRUE(barrier.done(0, barrier.phase(), true, false));
    barrier.end(50, false, 10);
    EXPECT_FALSE(barrier.wanted(59, 1));
    EXPECT_TRUE(barrier.wanted(59, 2)) << "what was assigned since does not wait";
    EXPECT_EQ(barrier.next_deadline(), 60);
    EXPECT_TRUE(barrier.wanted(60, 1));
}

}  // namespace
}  // namespace incast::protocol
