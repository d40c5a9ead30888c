// DCQCN as adapters from ConnectX-4 on do it, marks at departure, and both against the simulator of another project.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

using testing::datagrams;
using testing::gbit100;
using testing::make;
using testing::open;
using testing::packet_time;
using testing::payload;
using testing::stored_bytes;

TEST(RateControl, CutsAtTheEndsOfPeriodsInWhichANotificationCame) {
    DcqcnSettings settings;
    settings.cut_period = 4 * ps_per_us;
    settings.alpha_period = 3 * ps_per_us;
    settings.increase_period = 100 * ps_per_us;
    settings.increase_bytes = 1000;
    RateControl control(gbit_per_s(100));
    EXPECT_FALSE(control.on_notification(ps_per_us, settings)) << "the first cut comes with the end of the period";
    EXPECT_FALSE(control.on_bytes(1000, settings)) << "and what is sent before it is no recovery";
    EXPECT_EQ(control.rate(), gbit_per_s(100));
    EXPECT_EQ(control.next_deadline(), 4 * ps_per_us);
    EXPECT_FALSE(control.on_time(4 * ps_per_us, settings));
    // The first notification sets alpha and does not count for its period: without a second one alpha has decayed.
    const std::uint32_t alpha = RateControl::one - (RateControl::one >> 8U);
    EXPECT_EQ(control.alpha(), alpha);
    EXPECT_TRUE(control.on_time(5 * ps_per_us, settings));
    const std::uint64_t cut_once =
        gbit_per_s(100).bits_per_s * (2ULL * RateControl::one - alpha) / (2ULL * RateControl::one);
    EXPECT_EQ(control.rate().bits_per_s, cut_once);
    EXPECT_EQ(control.target(), gbit_per_s(100));
    // Many notifications in a period are one cut and one rise of alpha; none, no cut.
    EXPECT_FALSE(control.on_notification(6 * ps_per_us, settings));
    EXPECT_FALSE(control.on_notification(6 * ps_per_us, settings));
    EXPECT_FALSE(control.on_time(7 * ps_per_us, settings));
    EXPECT_EQ(control.alpha(), alpha - (alpha >> 8U) + (RateControl::one >> 8U));
    EXPECT_TRUE(control.on_time(9 * ps_per_us, settings));
    EXPECT_EQ(control.target().bits_per_s, cut_once);
    const Rate cut_twice = control.rate();
    EXPECT_LT(cut_twice.bits_per_s, cut_once * 51 / 100);
    EXPECT_FALSE(control.on_time(13 * ps_per_us, settings));
    EXPECT_EQ(control.rate(), cut_twice);
}

/// Marks of two senders that fill a queue for 40 packet times, up to then and in all.
std::pair<std::uint64_t, std::uint64_t> marks(bool at_departure) {
    NetworkSettings settings;
    settings.switches[0].ecn = {
        .classes = 1, .kmin_bytes = 10 * stored_bytes, .kmax_bytes = 10 * stored_bytes, .at_departure = at_departure};
    const auto network = make(single_switch(3, gbit100, 0), settings);
    for (const HostIndex host : {1U, 2U})
        network->post(datagrams(*network, host, 0), 40 * payload, 0);
    network->advance(42 * packet_time);
    const std::uint64_t until_full = network->counters(port_from_two(0)).marked;
    network->advance(100 * packet_time);
    return {until_full, network->counters(port_from_two(0)).marked};
}

TEST(Ecn, MarksByTheQueueThatAPacketFindsOrByTheOneItLeavesBehind) {
    // The queue grows by a packet in each packet time, up to 40, and drains as slowly.
    const auto [found, found_in_all] = marks(false);
    EXPECT_NEAR(static_cast<double>(found), 60, 3) << "all that came while more than 10 waited";
    EXPECT_EQ(found, found_in_all);
    const auto [left, left_in_all] = marks(true);
    EXPECT_NEAR(static_cast<double>(left), 30, 3) << "a packet in each packet time since then";
    EXPECT_NEAR(static_cast<double>(left_in_all), 60, 3) << "until no more than 10 wait again";
}

/// Mean time in us until n flows of so many bytes to one host have ended, of the network of HPCC's artefact.
double finish_us(unsigned flows, std::uint64_t bytes, bool clamp, std::uint64_t seed) {
    NetworkSettings settings;
    settings.seed = seed;
    settings.unstored_bytes = 0;
    HostSettings& host = settings.hosts[0];
    host.mtu_bytes = 1000;
    host.header_bytes = 48;
    host.ack_bytes = 60;
    SwitchSettings& middle = settings.switches[0];
    middle.buffer_bytes = 32ULL << 20;
    middle.pfc = {.classes = 1, .headroom_bytes = 37'500};
    middle.ecn = {
        .classes = 1, .kmin_bytes = 100'000, .kmax_bytes = 400'000, .pmax_per_million = 200'000, .at_departure = true};
    settings.dcqcn = {.alpha_period = 50 * ps_per_us,
                      .increase_bytes = 1ULL << 40,  // no byte counter there
                      .hyper_step = mbit_per_s(40),
                      .minimum = mbit_per_s(100),
                      .notification_interval = ps_per_ns,  // with every acknowledgement there
                      .clamp_target = clamp,
                      .cut_period = 50 * ps_per_us};
    const auto network = make(single_switch(flows + 1, gbit_per_s(101), ps_per_us), settings);
    for (HostIndex source = 1; source <= flows; ++source)
        network->post(open(*network, {.source = source, .destination = 0, .ack_packets = 1, .dcqcn = true}), bytes, 0);
    double sum = 0;
    Outcome outcome;
    while (network->advance_to_outcome(ps_per_s)) {
        while (network->take_outcome(outcome))
            if (outcome.what == Outcome::What::delivered) sum += static_cast<double>(outcome.time) / ps_per_us;
    }
    return sum / flows;
}

TEST(Dcqcn, FlowsEndWhenTheyDoInHpccsArtefact) {
    // What the ns-3 of HPCC's artefact (commit 9f4be2a, dcqcn_paper) gave, in us, clamped and not. Two flows that are
    // clamped have one cut more with some seeds, and then end a fifth later: hence a median.
    struct Case {
        unsigned flows;
        double clamped;
        double free;
    };
    for (const Case& known : {Case{2, 10'128, 3'832}, Case{4, 21'022, 7'376}, Case{8, 22'263, 13'713}}) {
        for (const bool clamp : {true, false}) {
            std::vector<double> seen;
            for (std::uint64_t seed = 1; seed <= (known.flows == 2 ? 5U : 1U); ++seed)
                seen.push_back(finish_us(known.flows, 20'000'000, clamp, seed));
            std::ranges::sort(seen);
            const double expected = clamp ? known.clamped : known.free;
            EXPECT_NEAR(seen[seen.size() / 2], expected, 0.05 * expected)
                << known.flows << (clamp ? " clamped" : " not clamped");
        }
    }
}

}  // namespace
}  // namespace incast::sim::packet
