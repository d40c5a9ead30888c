#include "runtime/plan/announcement.h"

#include <initializer_list>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace incast::runtime {
namespace {

using testing::HasSubstr;

std::map<std::string, std::string> rows_of(std::initializer_list<const char*> assignments) {
    ConfigText config;
    for (const char* assignment : assignments) {
        EXPECT_TRUE(config.assign(assignment)) << assignment;
    }
    Machine machine;
    machine.cores = 8;
    machine.last_level_cache_bytes = std::uint64_t{32} << 20U;
    const Result<Plan> plan = resolve(config, machine);
    EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
    if (!plan) return {};
    const auto rows = announcement(*plan, "");
    return {rows.begin(), rows.end()};
}

TEST(Announcement, SaysWhatRunsAndHowLongInFewRows) {
    auto rows = rows_of({"transport.name=inproc", "run.nodes=3", "run.duration=2s", "run.warm_up=500ms"});
    EXPECT_EQ(rows["run"], "3 nodes over inproc, push; each reads out and builds");
    EXPECT_EQ(rows["time"], "500ms of warm-up, then 2s measured");
    EXPECT_LE(rows.size(), 8U);
    rows = rows_of({"transport.name=inproc", "run.nodes=3", "run.roles=split", "run.builder_units=1", "run.em=own",
                    "run.events=7"});
    EXPECT_EQ(rows["run"], "4 nodes over inproc, push; 2 read out, 1 build, one more is the event manager");
    EXPECT_EQ(rows["time"], "until 7 events are built; all of it is measured");
}

TEST(Announcement, SaysWhyPacketsAreSmallerThanAsked) {
    auto rows = rows_of({"transport.name=inproc", "protocol.mfp_size=4KiB", "source.fragment_size=1500"});
    EXPECT_THAT(rows["packets"], HasSubstr("2 events: 3 would not fit into protocol.mfp_size (4"));
    rows = rows_of({"transport.name=inproc", "protocol.packing=5"});
    EXPECT_THAT(rows["packets"], testing::Not(HasSubstr("mfp_size")));
}

TEST(Announcement, OfRawTraffic) {
    auto rows = rows_of({"transport.name=inproc", "run.task=net", "run.nodes=3", "net.queues=2"});
    EXPECT_THAT(rows["net"], HasSubstr("3 nodes over inproc, 6 pairs (all-to-all)"));
    EXPECT_THAT(rows["messages"], HasSubstr("2 queues per pair"));
}

}  // namespace
}  // namespace incast::runtime
