#include "runtime/node/driver.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <gtest/gtest.h>
#include <support/fake_transport.h>

namespace incast::runtime {
namespace {

/// Has work when it is told so, and a transport that nothing wakes up.
class IdleHost final : public Host {
public:
    Result<Blob> begin(Time, std::uint32_t) override { return Blob{}; }
    void update_peer(Time, std::uint32_t, std::uint32_t, const Blob&) override {}
    bool step(Time) override { return std::exchange(has_work, false); }
    Time next_deadline() const override { return time_never; }
    void stop_admission() override {}
    void start_triggers(Time) override {}
    std::uint32_t incarnation() const override { return 1; }
    bool needs_new_incarnation() const override { return false; }
    bool news() override { return false; }
    bool news_pending() const override { return false; }
    Transport& transport() override { return transport_; }
    NodeSample sample(Mark, Time) override { return {}; }
    NodeTotals& driven() override { return totals; }

    bool has_work = false;
    NodeTotals totals;

private:
    sources::FakeTransport transport_;
};

class DriverTest : public testing::TestWithParam<bool> {
protected:
    /// How long it takes until it has slept so often.
    Time time_of_sleeps(std::uint64_t times) {
        const std::uint64_t until = host_.totals.sleeps + times;
        const Time began = clock_.now();
        Time now = began;
        while (host_.totals.sleeps < until && now - began < give_up)
            now = driver_->run(now + ps_per_s, -1, false);
        EXPECT_GE(host_.totals.sleeps, until) << "it does not sleep";
        return now - began;
    }

    static constexpr Time give_up = 10 * ps_per_s;

    IdleHost host_;
    RunClock clock_;
    std::optional<Driver> driver_{std::in_place, host_, clock_, 0, GetParam()};  // yields never
};

TEST_P(DriverTest, WhatNothingWakesUpLooksLessAndLessOften) {
    // 20, 40, .. 640 us, and then 1 ms each.
    EXPECT_GE(time_of_sleeps(16), 11 * ps_per_ms);
    EXPECT_GE(time_of_sleeps(16), 16 * ps_per_ms);
}

TEST_P(DriverTest, WhoHadWorkLooksAgainSoon) {
    time_of_sleeps(16);
    const Time began = clock_.now();
    Time shortest = give_up;
    do {
        host_.has_work = true;
        shortest = std::min(shortest, time_of_sleeps(1));
    } while (shortest >= ps_per_ms && clock_.now() - began < give_up);
    EXPECT_LT(shortest, ps_per_ms);
}

TEST_P(DriverTest, WhoYieldsSleepsInTheEnd) {
    driver_.emplace(host_, clock_, 100, GetParam());
    EXPECT_GT(time_of_sleeps(1), 0);
}

INSTANTIATE_TEST_SUITE_P(Cores, DriverTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& each) { return each.param ? "own" : "shared"; });

}  // namespace
}  // namespace incast::runtime
