// What a recorder says of a network is what the network did, and watching changes nothing.
#include "sim/packet/recorder.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

using testing::datagrams;
using testing::gbit100;
using testing::make;
using testing::payload;

/// Three senders with bursts of random lengths at random times, through a switch that drops, to one host.
struct Bursts {
    Bursts() {
        NetworkSettings settings;
        settings.switches[0].egress_limit_bytes = 100 * testing::stored_bytes;
        network = make(single_switch(4, gbit100, 0), settings);
        base::Prng prng(4);
        for (Time at = 0; at < 20 * ps_per_ms; at += static_cast<Time>(prng.below(50 * ps_per_us)))
            posts.push_back({at, 1 + static_cast<HostIndex>(prng.below(3)), prng.below(160) * payload});
        for (HostIndex host = 0; host < 4; ++host)
            flows.push_back(host == 0 ? nil : datagrams(*network, host, 0));
    }
    struct Post {
        Time at;
        HostIndex from;
        std::uint64_t bytes;
    };
    /// Everything; `step` brings the network to a moment.
    template <class Step>
    void play(Step step) {
        for (const Post& post : posts) {
            step(post.at);
            network->post(flows[post.from], post.bytes, 0);
        }
        step(25 * ps_per_ms);
    }
    std::unique_ptr<Network> network;
    std::vector<FlowIndex> flows;
    std::vector<Post> posts;
};

constexpr PortIndex bottleneck = port_from_two(0);

void watch(Bursts& bursts, Recorder& recorder) {
    bursts.play([&](Time until) {
        while (recorder.next_time() <= until) {
            bursts.network->advance(recorder.next_time());
            recorder.look();
        }
        bursts.network->advance(until);
    });
    recorder.end_window();
}

TEST(Recorder, CountsWhatTheNetworkCounts) {
    Bursts bursts;
    Recorder recorder(*bursts.network, {.interval = 10 * ps_per_us, .most_points = 8000});
    watch(bursts, recorder);
    const PortCounters counters = bursts.network->counters(bottleneck);
    const PortCounters& recorded = recorder.ports()[bottleneck];
    EXPECT_GT(recorded.dropped, 0U);
    EXPECT_EQ(recorded.dropped, counters.dropped);
    EXPECT_EQ(recorded.bytes, counters.bytes);
    const auto queue =
        std::ranges::find_if(recorder.queues(), [](const QueueRecord& one) { return one.port == bottleneck; });
    ASSERT_NE(queue, recorder.queues().end());
    EXPECT_EQ(queue->peak_bytes, 100 * testing::stored_bytes);
    EXPECT_NEAR(queue->mean_bytes, bursts.network->queue(bottleneck, 0).mean_bytes, 1e-6 * queue->mean_bytes);
    // 2500 intervals of 10 us, of which there is room for 1000: twice they became half as many.
    EXPECT_EQ(recorder.interval(), 40 * ps_per_us);
    EXPECT_EQ(recorder.intervals(), 625U);
    std::uint64_t bytes = 0;
    std::uint64_t dropped = 0;
    std::uint64_t peak = 0;
    double mean = 0;
    for (std::size_t interval = 0; interval < recorder.intervals(); ++interval) {
        const SeriesPoint& point = recorder.point(interval, bottleneck);
        bytes += point.sent_bytes;
        dropped += point.dropped;
        peak = std::max(peak, point.peak_queue_bytes);
        mean += static_cast<double>(point.mean_queue_bytes) / 625;
        EXPECT_LE(point.mean_queue_bytes, point.peak_queue_bytes);
    }
    EXPECT_EQ(bytes, counters.bytes);
    EXPECT_EQ(dropped, counters.dropped);
    EXPECT_EQ(peak, queue->peak_bytes);
    EXPECT_NEAR(mean, queue->mean_bytes, 2);  // rounded in each
}

TEST(Recorder, PercentilesAreThoseOfTime) {
    // By hand: how long the queue had each length.
    std::map<std::uint64_t, Time> lasted;
    Bursts exact;
    exact.play([&](Time until) {
        Network& network = *exact.network;
        while (network.now() < until) {
            const Time next = std::min(until, network.next_time());
            lasted[network.queued_bytes(bottleneck, 0)] += next - network.now();
            network.advance(next);
        }
    });
    Bursts bursts;
    Recorder recorder(*bursts.network, {.interval = ps_per_us});
    watch(bursts, recorder);
    EXPECT_GT(recorder.probes(), 2048U);
    const auto queue =
        std::ranges::find_if(recorder.queues(), [](const QueueRecord& one) { return one.port == bottleneck; });
    ASSERT_NE(queue, recorder.queues().end());
    const auto share = [&](auto wanted) {
        Time time = 0;
        for (const auto& [length, duration] : lasted)
            if (wanted(length)) time += duration;
        return static_cast<double>(time) / (25.0 * ps_per_ms);
    };
    // Of all time the queue was so long or shorter: at least this share; shorter (but for the width of a bucket): at
    // most. `off`: three standard deviations of what 2048 probes find.
    const auto expect = [&](double quantile, std::uint64_t bytes, double off) {
        EXPECT_GT(share([&](std::uint64_t length) { return length <= bytes; }), quantile - off) << bytes;
        EXPECT_LT(share([&](std::uint64_t length) { return length < bytes - bytes / 31; }), quantile + off) << bytes;
    };
    expect(0.5, queue->p50_bytes, 0.033);
    expect(0.9, queue->p90_bytes, 0.02);
    expect(0.99, queue->p99_bytes, 0.007);
    EXPECT_LT(share([](std::uint64_t length) { return length == 0; }), 0.7) << "the queue is hardly used";
}

TEST(Recorder, AWindowCountsWhatIsInIt) {
    Bursts bursts;
    Recorder recorder(*bursts.network, {});
    bool begun = false;
    PortCounters before;
    bursts.play([&](Time until) {
        bursts.network->advance(until);
        if (begun || until < 10 * ps_per_ms) return;
        begun = true;
        before = bursts.network->counters(bottleneck);
        recorder.begin_window();
    });
    recorder.end_window();
    EXPECT_GE(recorder.window_begin(), 10 * ps_per_ms);
    EXPECT_EQ(recorder.window_end(), 25 * ps_per_ms);
    EXPECT_EQ(recorder.ports()[bottleneck].bytes, bursts.network->counters(bottleneck).bytes - before.bytes);
    bursts.network->post(bursts.flows[1], payload, 0);
    bursts.network->advance(26 * ps_per_ms);
    recorder.end_window();
    EXPECT_EQ(recorder.window_end(), 25 * ps_per_ms) << "it had ended";
}

TEST(Recorder, WatchingChangesNothing) {
    Bursts alone;
    alone.play([&](Time until) { alone.network->advance(until); });
    Bursts watched;
    Recorder recorder(*watched.network, {.interval = 700 * ps_per_ns});
    watch(watched, recorder);
    EXPECT_EQ(watched.network->trace_hash(), alone.network->trace_hash());
}

}  // namespace
}  // namespace incast::sim::packet
