#include "runtime/launch/whereabouts.h"

#include <gtest/gtest.h>

namespace incast::runtime {
namespace {

TEST(Whereabouts, AreWhatWasSaid) {
    NetworkPlace place{"10.0.0.1", "ib0", 4092, 100'000'000'000, 1};
    const Json said = whereabouts(place, "/results");
    EXPECT_EQ(Json(checked_whereabouts({{"place", said}})), said);
    EXPECT_EQ(said["link_bits_per_s"], 100'000'000'000);
    EXPECT_EQ(whereabouts(std::nullopt, "").size(), 1U);
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

}  // namespace
}  // namespace incast::runtime
