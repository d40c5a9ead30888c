#include "runtime/launch/input_messages.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace incast::runtime {
namespace {

/// Of a replay a process that joins takes the layout from the coordinator, and has no files to look at.
TEST(Inputs, AJoinedNodeNumbersAsTheCoordinatorDoes) {
    const Recorded recorded{{.packing = 4, .first_event = 100, .total_events = 38}, {{3, 500}, {7, 900}}};
    const std::optional<Recorded> told = recorded_from_json(to_json(recorded));
    ASSERT_TRUE(told);
    ConfigText text;
    for (const char* setting : {"source.kind=mfp", "source.path=/nowhere", "run.nodes=2"}) {
        ASSERT_TRUE(text.assign(setting).ok());
    }
    const Result<Plan> plan = resolve(text, Machine{}, told);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->protocol.total_meps, 10U);
    EXPECT_EQ(plan->total_events, 38U);
    ASSERT_EQ(plan->protocol.sources.size(), 2U);
    EXPECT_EQ(plan->protocol.sources[1].id, 7);
    EXPECT_EQ(plan->protocol.sources[1].cap_bytes, 900U);
    EXPECT_FALSE(recorded_from_json({{"packing", 0}, {"first_event", 0}, {"events", 1}, {"sources", Json::array()}}));

    Inputs inputs;
    inputs.files.resize(2);
    sources::InputFile file;
    file.source = 7;
    file.events = 30;
    file.left_out_events = 2;
    const std::vector<Json> said = input_messages("beta", {file});
    ASSERT_EQ(said.size(), 1U);
    EXPECT_FALSE(take_inputs(*plan, 0, said.front(), inputs)) << "it is node 1 that has that source";
    EXPECT_TRUE(inputs.files[1].host.empty());
    ASSERT_TRUE(take_inputs(*plan, 1, said.front(), inputs));
    EXPECT_EQ(inputs.files[1].host, "beta");
    EXPECT_EQ(inputs.files[1].events, 30U);
    EXPECT_EQ(inputs.files[1].left_out_events, 2U);
    EXPECT_EQ(input_messages("beta", std::vector(65, file)).size(), 3U);
    for (const Json& message : input_messages(std::string(200, 'x'), std::vector(32, file))) {
        EXPECT_LT(message.dump().size(), max_small_frame);
    }
}

}  // namespace
}  // namespace incast::runtime
