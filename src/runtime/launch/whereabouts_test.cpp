#include "runtime/launch/whereabouts.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/machine/seat.h"

namespace incast::runtime {
namespace {

TEST(Whereabouts, AreWhatWasSaid) {
    NetworkPlace place{"10.0.0.1", "ib0", 4092, 100'000'000'000, 1};
    const Json said = whereabouts(place, {{8, 9, 10, 24}, 1, "beside ib0"}, "/results");
    EXPECT_EQ(Json(checked_whereabouts({{"place", said}})), said);
    EXPECT_EQ(said["link_bits_per_s"], 100'000'000'000);
    EXPECT_EQ(said["cores"], "8-10,24");
    EXPECT_EQ(said["memory_node"], 1);
    EXPECT_EQ(said["seat"], "beside ib0");
    EXPECT_EQ(whereabouts(std::nullopt, {}, "").size(), 1U);
}

TEST(Whereabouts, OfStrangersAreChecked) {
    EXPECT_TRUE(checked_whereabouts({{"type", "address"}}).is_null());
    EXPECT_TRUE(checked_whereabouts({{"place", "here"}}).is_null());
    EXPECT_TRUE(checked_whereabouts({{"place", {{"host", 7}}}}).is_null());
    const auto checked = checked_whereabouts(
        {{"place", {{"host", "a\nb"}, {"mtu", -1}, {"numa_node", "1"}, {"more", 1}, {"interface", "eth0"}}}});
    EXPECT_EQ(checked.size(), 2U);
    EXPECT_EQ(checked["host"].get<std::string>().find('\n'), std::string::npos);
    EXPECT_EQ(checked["interface"], "eth0");
}

TEST(Whereabouts, ANodeThatMayNotBePutAnywhereSaysWhy) {
    const std::vector<int> before = allowed_cores();
    Plan plan;
    plan.config.pin = Pin::never;
    EXPECT_EQ(sit_down(plan, std::nullopt, {}, 1).why, "run.pin = never");
    plan.config.pin = Pin::automatic;
    plan.config.filter_kind = FilterKind::command;
    EXPECT_EQ(sit_down(plan, std::nullopt, {}, 1).why, "other programs belong to the run");
    plan.config.pin = Pin::network;
    EXPECT_TRUE(sit_down(plan, std::nullopt, {}, 1).cores.empty());
    EXPECT_EQ(allowed_cores(), before);
}

}  // namespace
}  // namespace incast::runtime
