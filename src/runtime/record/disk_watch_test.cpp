#include "runtime/record/disk_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace incast::runtime {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t gib = 1U << 30U;

TEST(DiskWatches, ADiskThatIsAlmostFullIsSaidOnce) {
    DiskWatch watch("/somewhere");
    EXPECT_FALSE(watch.judge(0, gib, {}));
    const auto warning = watch.judge(ps_per_s, 10U << 20U, {});
    ASSERT_TRUE(warning);
    EXPECT_THAT(*warning, HasSubstr("the disk of /somewhere is almost full: 10.0 MiB are free"));
    EXPECT_FALSE(watch.judge(2 * ps_per_s, 0, {}));
}

TEST(DiskWatches, WhatDoesNotLastUntilTheEndIsSaidAtOnce) {
    DiskWatch watch("/somewhere");
    EXPECT_FALSE(watch.judge(0, 2 * gib, 3600 * ps_per_s));
    EXPECT_FALSE(watch.judge(5 * ps_per_s, gib + gib / 2, 3600 * ps_per_s)) << "too short a stretch to tell";
    const auto warning = watch.judge(10 * ps_per_s, gib, 3600 * ps_per_s);
    ASSERT_TRUE(warning);
    EXPECT_THAT(*warning, HasSubstr("will be full in 10.00 s"));
    EXPECT_THAT(*warning, HasSubstr("1.0 GiB are free"));
}

TEST(DiskWatches, WhatLastsLongerThanTheRunIsNotSaid) {
    DiskWatch watch("/somewhere");
    EXPECT_FALSE(watch.judge(0, 2 * gib, 5 * ps_per_s));
    EXPECT_FALSE(watch.judge(10 * ps_per_s, gib, 5 * ps_per_s));
    EXPECT_FALSE(watch.judge(20 * ps_per_s, gib, 3600 * ps_per_s)) << "nobody writes any more";
    EXPECT_FALSE(watch.judge(30 * ps_per_s, gib / 2, {})) << "it is not known how long the run takes";
}

}  // namespace
}  // namespace incast::runtime
