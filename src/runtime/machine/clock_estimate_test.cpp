#include "runtime/machine/clock_estimate.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "runtime/machine/run_clock.h"

namespace incast::runtime {
namespace {

constexpr std::int64_t ns_per_s = 1'000'000'000;

/// Two hosts whose clocks differ by 50 days and 40 ppm, and a way between them that is sometimes slow, and never
/// equally so in both directions.
struct TwoHosts {
    std::int64_t local_ns = std::int64_t{50} * 86400 * ns_per_s;
    std::int64_t begin_ns = local_ns;
    Time lead = 3 * ps_per_s;
    double drift = 0.04;  // ps per ns
    base::Prng prng{7};
    ClockEstimate estimate;

    [[nodiscard]] Time truth(std::int64_t at_ns) const {
        return (at_ns - begin_ns) * ps_per_ns + lead + static_cast<Time>(drift * static_cast<double>(at_ns - begin_ns));
    }
    bool ask() {
        const auto way = [&] {
            return static_cast<std::int64_t>(20'000 +
                                             (prng.next() % 8 == 0 ? prng.next() % 4'000'000 : prng.next() % 30'000));
        };
        const std::int64_t asked_ns = local_ns;
        local_ns += way();
        const Time told = truth(local_ns);
        local_ns += way();
        return estimate.add({asked_ns, told, local_ns});
    }
    void expect_within_error() const {
        EXPECT_LE(std::abs(estimate.at(local_ns) - truth(local_ns)), estimate.error(local_ns)) << local_ns - begin_ns;
    }
};

TEST(ClockEstimate, IsRightWithinItsErrorFromTheFirstAnswerOn) {
    TwoHosts hosts;
    EXPECT_FALSE(hosts.estimate.known());
    ASSERT_TRUE(hosts.ask());
    EXPECT_TRUE(hosts.estimate.known());
    for (int second = 0; second < 300; ++second) {
        hosts.expect_within_error();
        hosts.local_ns += ns_per_s;
        hosts.expect_within_error();
        ASSERT_TRUE(hosts.ask());
        if (second < 15 || second > 25) {
            EXPECT_EQ(hosts.estimate.has_line(), second > 20) << second;
        }
    }
    EXPECT_LT(hosts.estimate.error(hosts.local_ns), 100 * ps_per_us);
    EXPECT_NEAR(hosts.estimate.drift(), hosts.drift, 0.004);
}

TEST(ClockEstimate, GrowsWorseWithoutAnswers) {
    TwoHosts hosts;
    for (int second = 0; second < 100; ++second) {
        hosts.ask();
        hosts.local_ns += ns_per_s;
    }
    const Time before = hosts.estimate.error(hosts.local_ns);
    hosts.local_ns += 3600 * ns_per_s;
    EXPECT_GT(hosts.estimate.error(hosts.local_ns), before + 500 * ps_per_ms);
    hosts.expect_within_error();
}

/// A machine that was moved: its clock stood still meanwhile.
TEST(ClockEstimate, BeginsAnewWhereAClockWasStopped) {
    TwoHosts hosts;
    for (int second = 0; second < 100; ++second) {
        hosts.ask();
        hosts.local_ns += ns_per_s;
    }
    for (const Time jump : {10 * ps_per_s, -10 * ps_per_s}) {
        hosts.lead += jump;
        hosts.ask();
        hosts.expect_within_error();
        EXPECT_FALSE(hosts.estimate.has_line());
        for (int second = 0; second < 40; ++second) {
            hosts.local_ns += ns_per_s;
            hosts.ask();
            hosts.expect_within_error();
        }
        EXPECT_TRUE(hosts.estimate.has_line());
    }
}

TEST(ClockEstimate, TakesNothingThatNoHonestClockShows) {
    ClockEstimate estimate;
    EXPECT_FALSE(estimate.add({1000, -1, 2000}));
    EXPECT_FALSE(estimate.add({1000, time_never, 2000}));
    EXPECT_FALSE(estimate.add({2000, 5, 1000}));
    ASSERT_TRUE(estimate.add({1000, 5'000'000, 2000}));
    EXPECT_EQ(estimate.at(1500), 5'000'000);
    EXPECT_EQ(estimate.error(1500), 500'000);
    EXPECT_FALSE(estimate.add({900, 5'000'000, 2000}));
}

TEST(RunClock, FollowsAnotherClockWithoutGoingBack) {
    RunClock clock;
    const std::int64_t begin_ns = clock.origin_ns();
    const auto at = [&](std::int64_t ms) { return begin_ns + ms * 1'000'000; };
    EXPECT_EQ(clock.at(at(5)), 5 * ps_per_ms);
    clock.steer(at(10), 11 * ps_per_ms, 0);  // 1 ms behind: faster for a second
    EXPECT_EQ(clock.at(at(10)), 10 * ps_per_ms);
    EXPECT_NEAR(static_cast<double>(clock.at(at(1010))), 1011e9, 1e6);
    EXPECT_NEAR(static_cast<double>(clock.at(at(2010))), 2011e9, 1e6);
    clock.steer(at(2010), 2010 * ps_per_ms, 0.1);  // ahead: slower, and then at the speed of the other
    Time before = clock.at(at(2010));
    for (int ms = 2011; ms < 3010; ++ms) {
        const Time now = clock.at(at(ms));
        EXPECT_GT(now, before);
        before = now;
    }
    EXPECT_NEAR(static_cast<double>(clock.at(at(12010))), 12010e9 + 1e9, 1e6);  // 10 s at 100 ppm
    clock.steer(at(20'000), 50'000 * ps_per_ms, 0);                             // far behind: at once
    EXPECT_EQ(clock.at(at(20'000)), 50'000 * ps_per_ms);
    clock.steer(at(21'000), 41'000 * ps_per_ms, 0);  // far ahead: at half the speed until it is right
    EXPECT_EQ(clock.at(at(21'000)), 51'000 * ps_per_ms);
    EXPECT_NEAR(static_cast<double>(clock.at(at(31'000))), 56'000e9, 1e6);
    EXPECT_NEAR(static_cast<double>(clock.at(at(41'000))), 61'000e9, 1e6);
    EXPECT_NEAR(static_cast<double>(clock.at(at(42'000))), 62'000e9, 1e6);
}

}  // namespace
}  // namespace incast::runtime
