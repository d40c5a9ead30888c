#include "runtime/filters/filters.h"

#include <array>

#include <gtest/gtest.h>

namespace incast::filters {
namespace {

using Verdict = protocol::Filter::Verdict;

protocol::BuiltMep mep_of(protocol::MepId id) {
    protocol::BuiltMep mep;
    mep.mep = id;
    return mep;
}

std::uint64_t accepted_of(double share, std::uint64_t seed, std::uint64_t meps) {
    ShareFilter filter(share, seed);
    std::uint64_t accepted = 0;
    for (std::uint64_t id = 0; id < meps; ++id) {
        accepted += filter.decide(0, mep_of(id)) == Verdict::accept ? 1 : 0;
    }
    return accepted;
}

TEST(ShareFilter, AcceptsItsShare) {
    EXPECT_EQ(accepted_of(0, 1, 10'000), 0U);
    EXPECT_EQ(accepted_of(1, 1, 10'000), 10'000U);
    // Binomial, 100,000 of 0.25: a standard deviation is 137.
    EXPECT_NEAR(static_cast<double>(accepted_of(0.25, 7, 100'000)), 25'000, 5 * 137);
}

TEST(ShareFilter, DecidesByTheSeedAndTheMepAlone) {
    ShareFilter one(0.5, 3);
    ShareFilter other(0.5, 3);
    ShareFilter different(0.5, 4);
    int differences = 0;
    for (std::uint64_t id = 0; id < 1000; ++id) {
        const Verdict verdict = one.decide(0, mep_of(id));
        EXPECT_EQ(verdict, other.decide(1'000'000, mep_of(id)));
        differences += verdict != different.decide(0, mep_of(id)) ? 1 : 0;
    }
    EXPECT_GT(differences, 300);
}

TEST(PluginFilter, IsAskedUntilItDecides) {
    protocol::Config config;
    config.sources.resize(2);
    auto opened = open_plugin(INCAST_TEST_PLUGIN, "3", config);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    protocol::Filter& filter = **opened;
    std::array<protocol::BuiltSource, 2> sources;
    for (std::uint64_t id = 0; id < 10; ++id) {
        protocol::BuiltMep mep = mep_of(id);
        mep.sources = sources;
        EXPECT_EQ(filter.decide(5, mep), Verdict::undecided);
        EXPECT_EQ(filter.next_deadline(), 5 + ps_per_ms);
        EXPECT_EQ(filter.decide(5 + ps_per_ms, mep), id % 3 == 0 ? Verdict::accept : Verdict::reject);
    }
}

TEST(PluginFilter, IsRefusedWithTheReason) {
    const protocol::Config config;
    const auto message = [&](const char* path, const char* argument) {
        const auto opened = open_plugin(path, argument, config);
        return opened.ok() ? std::string() : opened.error().message;
    };
    EXPECT_NE(message(INCAST_TEST_PLUGIN, "none").find("argument 'none' is no positive number"), std::string::npos);
    EXPECT_NE(message("no/such/filter.so", "").find("filter.path = no/such/filter.so: cannot be loaded"),
              std::string::npos);
    EXPECT_NE(message("libm.so.6", "").find("lacks incast_filter_open"), std::string::npos);
}

}  // namespace
}  // namespace incast::filters
