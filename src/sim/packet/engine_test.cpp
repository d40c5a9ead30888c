// The parts: the order of events, routes, DCQCN's arithmetic, the checks of a description.
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "sim/packet/network.h"
#include "sim/packet/routing.h"
#include "sim/packet/wheel.h"
#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

using ::testing::HasSubstr;

TEST(Wheel, GivesEventsInTheOrderOfTimeAndIdentityWhateverTheSlots) {
    for (const unsigned shift : {0U, 6U, 12U, 20U}) {
        base::Prng prng(shift + 1);
        Wheel wheel(shift, 12);
        constexpr EventId events = 300;
        wheel.grow_to(events);
        std::set<std::pair<Time, EventId>> expected;
        std::vector<Time> times(events, -1);
        const auto forget = [&](EventId id) {
            if (times[id] >= 0) expected.erase({times[id], id});
            times[id] = -1;
        };
        for (unsigned step = 0; step < 60'000; ++step) {
            const auto id = static_cast<EventId>(prng.below(events));
            const std::uint64_t choice = prng.below(10);
            if (choice < 5) {
                // Near, far beyond the wheel, and often the same instant.
                const std::uint64_t span = prng.below(3) == 0 ? 50'000'000 : prng.below(2) == 0 ? 3000 : 4;
                const Time time = wheel.now() + static_cast<Time>(prng.below(span)) + 1;
                forget(id);
                wheel.schedule(id, time);
                expected.insert({time, id});
                times[id] = time;
            } else if (choice == 5) {
                forget(id);
                wheel.cancel(id);
            } else if (choice == 6) {
                const Time limit = wheel.now() + static_cast<Time>(prng.below(5000));
                if (!expected.empty() && expected.begin()->first <= limit) continue;
                EventId got = 0;
                ASSERT_FALSE(wheel.pop(limit, got));
                wheel.move_to(limit);
            } else {
                ASSERT_EQ(wheel.next_time(), expected.empty() ? time_never : expected.begin()->first);
                EventId got = 0;
                ASSERT_EQ(wheel.pop(time_never - 1, got), !expected.empty());
                if (expected.empty()) continue;
                ASSERT_EQ(std::make_pair(wheel.now(), got), *expected.begin()) << "shift " << shift << " step " << step;
                ASSERT_FALSE(wheel.pending(got));
                forget(got);
            }
        }
    }
}

TEST(Wheel, GivesCrowdsInOrder) {
    base::Prng prng(1);
    constexpr EventId events = 70'000;  // identities of three bytes
    for (const EventId crowd : {33U, 300U, 5000U}) {
        Wheel wheel(20, 12);
        wheel.grow_to(events);
        std::set<std::pair<Time, EventId>> expected;
        for (EventId count = 0; count < crowd; ++count) {
            const auto id = static_cast<EventId>(prng.below(events));
            if (wheel.pending(id)) continue;
            const Time time =
                1'000'000 + static_cast<Time>(prng.below(3) * prng.below(70'000));  // a third at one instant
            wheel.schedule(id, time);
            expected.insert({time, id});
        }
        for (const auto& event : expected) {
            EventId got = 0;
            ASSERT_TRUE(wheel.pop(time_never - 1, got));
            ASSERT_EQ(std::make_pair(wheel.now(), got), event);
        }
    }
}

TEST(Routes, ShiftAwareRoutingGivesEveryFlowOfAShiftItsOwnLinks) {
    constexpr std::uint32_t k = 8;
    constexpr std::uint32_t hosts = k * k * k / 4;
    const Topology tree = fat_tree(k, gbit_per_s(100), 0);
    const Result<RouteTable> routes = make_routes(tree, Routing::shift_aware);
    ASSERT_TRUE(routes.ok());
    for (std::uint32_t shift = 1; shift < hosts; ++shift) {
        std::set<PortIndex> used;
        for (HostIndex from = 0; from < hosts; ++from) {
            const HostIndex to = (from + shift) % hosts;
            NodeIndex at = tree.cables[from].two;
            while (at != to) {
                const PortIndex port = routes->entry(at, to);
                ASSERT_LT(port, RouteTable::first_group);
                ASSERT_TRUE(used.insert(port).second) << "shift " << shift << ", from " << from;
                at = port % 2 == 0 ? tree.cables[port / 2].two : tree.cables[port / 2].one;
            }
        }
    }
}

TEST(Routes, EcmpSpreadsFlowsEvenlyAndSwitchesChooseIndependently) {
    constexpr std::uint32_t flows = 16'000;
    std::array<std::uint32_t, 64> pairs{};
    for (std::uint32_t flow = 0; flow < flows; ++flow)
        ++pairs[ecmp_choice(flow, 1, 8) * 8 + ecmp_choice(flow, 2, 8)];
    for (const std::uint32_t count : pairs)
        EXPECT_NEAR(count, flows / 64.0, 80);  // five standard deviations
}

TEST(RateControl, CutsAndRecoversAsInThePaper) {
    const DcqcnSettings settings;
    RateControl control(gbit_per_s(40));
    EXPECT_FALSE(control.active());
    EXPECT_EQ(control.next_deadline(), time_never);
    control.on_notification(0, settings);
    EXPECT_EQ(control.rate(), gbit_per_s(20));  // alpha is 1 at first: halved
    EXPECT_EQ(control.target(), gbit_per_s(40));
    EXPECT_EQ(control.alpha(), RateControl::one);
    // Five steps of fast recovery halve the distance to the target, the fifth already adds R_AI to it; it is the
    // line's.
    Time now = 0;
    std::uint64_t expected = 20'000'000'000;
    for (unsigned step = 0; step < 5; ++step) {
        now += settings.increase_period;
        ASSERT_TRUE(control.on_time(now, settings));
        expected = (expected + 40'000'000'001) / 2;
        EXPECT_EQ(control.rate().bits_per_s, expected);
    }
    // Without notifications alpha has decayed by (1 - g) each period.
    std::uint32_t alpha = RateControl::one;
    for (unsigned step = 0; step < 5; ++step)
        alpha -= alpha >> 8;
    EXPECT_EQ(control.alpha(), alpha);
    control.on_notification(now, settings);
    EXPECT_EQ(control.rate().bits_per_s, expected * (2ULL * RateControl::one - alpha) / (2ULL * RateControl::one));
    EXPECT_EQ(control.target().bits_per_s, expected);
}

TEST(RateControl, WithoutAClampCutsInARowKeepTheTarget) {
    for (const bool clamp : {true, false}) {
        DcqcnSettings settings;
        settings.clamp_target = clamp;
        RateControl control(gbit_per_s(40));
        control.on_notification(0, settings);
        control.on_notification(1, settings);
        EXPECT_EQ(control.rate(), gbit_per_s(10));
        EXPECT_EQ(control.target(), gbit_per_s(clamp ? 20 : 40));
        // After a step up a cut begins anew.
        ASSERT_TRUE(control.on_time(control.next_deadline(), settings) ||
                    control.on_time(control.next_deadline(), settings));
        const Rate before = control.rate();
        control.on_notification(settings.increase_period + 1, settings);
        EXPECT_EQ(control.target(), before);
    }
}

TEST(RateControl, NeverFallsBelowTheMinimumAndEndsAtTheLineRate) {
    DcqcnSettings settings;
    settings.additive_step = gbit_per_s(1);
    RateControl control(gbit_per_s(10));
    for (unsigned cut = 0; cut < 100; ++cut)
        control.on_notification(cut, settings);
    EXPECT_EQ(control.rate(), settings.minimum);
    while (control.active())
        control.on_time(control.next_deadline(), settings);
    EXPECT_EQ(control.rate(), gbit_per_s(10));
}

TEST(Network, RefusesWhatMakesNoSenseInOneLine) {
    const auto refusal = [](const Topology& topology, const NetworkSettings& settings) {
        const auto network = Network::make(topology, settings);
        return network ? std::string("accepted") : network.error().message;
    };
    const Topology good = single_switch(2, gbit_per_s(100), 0);
    EXPECT_EQ(refusal(good, {}), "accepted");
    Topology lonely = good;
    lonely.add_host("spare");
    EXPECT_THAT(refusal(lonely, {}), HasSubstr("host 'spare' has 0 cables; exactly 1"));
    Topology split = good;
    const NodeIndex island = split.add_switch("island");
    split.add_cable(split.add_host("castaway"), island, gbit_per_s(1), 0);
    EXPECT_THAT(refusal(split, {}), HasSubstr("cannot reach"));
    Topology far = good;
    far.cables[0].propagation = 5 * ps_per_ms;
    EXPECT_THAT(refusal(far, {}), HasSubstr("host0 to switch: a packet would be on its way for more than 4.29 ms"));
    NetworkSettings trains;
    trains.hosts[0].train_packets = 4;
    EXPECT_EQ(refusal(good, trains), "accepted");
    trains.switches[0].ecn = {.classes = 1, .kmin_bytes = 1, .kmax_bytes = 2};
    EXPECT_THAT(refusal(good, trains), HasSubstr("train_packets 4 where a switch has PFC or ECN"));
    NetworkSettings inverted;
    inverted.switches[0].ecn = {.classes = 1, .kmin_bytes = 3, .kmax_bytes = 2};
    EXPECT_THAT(refusal(good, inverted), HasSubstr("kmin_bytes 3 exceeds kmax_bytes 2"));
    NetworkSettings leaving;
    leaving.switches[0].kind = SwitchKind::deep_buffer;
    leaving.switches[0].ecn = {.classes = 1, .kmin_bytes = 1, .kmax_bytes = 2, .at_departure = true};
    EXPECT_THAT(refusal(good, leaving), HasSubstr("a deep buffer marks packets when they arrive"));
}

TEST(Network, RefusesMemoriesThatCannotHoldOnePacket) {
    const Topology two = single_switch(2, gbit_per_s(100), 0);
    const auto refusal = [&](SwitchKind kind, const auto& change) {
        NetworkSettings settings;  // packets of 4178 B, of which 4158 B are stored
        settings.switches[0].kind = kind;
        change(settings);
        const auto network = Network::make(two, settings);
        return network ? std::string("accepted") : network.error().message;
    };
    for (const SwitchKind kind : {SwitchKind::credit, SwitchKind::input_fifo}) {
        EXPECT_EQ(refusal(kind, [](NetworkSettings& all) { all.switches[0].input_buffer_bytes = 4160; }), "accepted");
        EXPECT_EQ(refusal(kind, [](NetworkSettings& all) { all.switches[0].input_buffer_bytes = 4159; }),
                  "fabric: switch: input_buffer of 4159 B cannot hold the longest packet; at least 4160 B");
        EXPECT_THAT(refusal(kind, [](NetworkSettings& all) { all.hosts[0].receive_buffer_bytes = 1024; }),
                    HasSubstr("host0: receive_buffer of 1024 B"));
    }
    const SwitchKind shared = SwitchKind::shared_buffer;
    EXPECT_THAT(refusal(shared, [](NetworkSettings& all) { all.switches[0].buffer_bytes = 4157; }),
                HasSubstr("buffer of 4157 B"));
    EXPECT_THAT(refusal(shared, [](NetworkSettings& all) { all.switches[0].egress_limit_bytes = 4157; }),
                HasSubstr("egress_limit of 4157 B"));
    EXPECT_THAT(refusal(shared, [](NetworkSettings& all) { all.switches[0].alpha_egress_q8 = 0; }),
                HasSubstr("alpha_egress x buffer of 0 B"));
    const SwitchKind deep = SwitchKind::deep_buffer;
    EXPECT_THAT(refusal(deep, [](NetworkSettings& all) { all.switches[0].on_chip_bytes = 4157; }),
                HasSubstr("on_chip of 4157 B"));
    EXPECT_THAT(
        refusal(deep, [](NetworkSettings& all) { all.switches[0].spill_bytes = all.switches[0].buffer_bytes = 9; }),
        HasSubstr("buffer of 9 B"));
}

TEST(Network, RefusesOneAcknowledgementPerMessageWherePacketsCanBeLost) {
    const auto network = testing::make(single_switch(2, gbit_per_s(100), 0), {});
    const Result<FlowIndex> flow = network->open({.source = 0, .destination = 1});
    ASSERT_FALSE(flow.ok());
    EXPECT_THAT(flow.error().message, HasSubstr("needs ack_packets of 1 or more and a retransmit_timeout"));
}

}  // namespace
}  // namespace incast::sim::packet
