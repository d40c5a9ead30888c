#include "sim/flows/trace.h"

#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/flows/test_fabric.h"

namespace incast::sim::flows {
namespace {

using testing::four_hosts;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<std::vector<Flow>> parse(const std::string& text) {
    std::istringstream in(text);
    return parse_flows(in, "trace", four_hosts());
}

std::string error_of(const std::string& text) {
    const Result<std::vector<Flow>> flows = parse(text);
    return flows ? "none" : flows.error().message;
}

constexpr const char* header = "start_us,source,destination,bytes\n";

TEST(Trace, ReadsColumnsInAnyOrderAndHostsByNameOrNumber) {
    const auto flows = parse(
        "# made by hand\nbytes, note ,destination,class,source,start_us\r\n100,x,h1,3,0,2.5\n\n7,y,0,0,\"h3\",0\n");
    ASSERT_TRUE(flows.ok()) << flows.error().message;
    ASSERT_EQ(flows->size(), 2U);
    EXPECT_EQ((*flows)[0].start, 2'500'000);
    EXPECT_EQ((*flows)[0].source, 0U);
    EXPECT_EQ((*flows)[0].destination, 1U);
    EXPECT_EQ((*flows)[0].bytes, 100U);
    EXPECT_EQ((*flows)[0].traffic_class, 3U);
    EXPECT_EQ((*flows)[1].source, 3U);
    EXPECT_EQ((*flows)[1].traffic_class, 0U);
}

TEST(Trace, AStartIsWrittenWithItsUnitOrInThatOfItsColumn) {
    EXPECT_EQ((*parse("start,source,destination,bytes\n5us,0,1,1\n"))[0].start, 5 * ps_per_us);
    EXPECT_EQ((*parse("start,source,destination,bytes\n2,0,1,64KiB\n"))[0].start, 2 * ps_per_s);
    EXPECT_EQ((*parse("start_ps,source,destination,bytes\n123456789012345,0,1,1\n"))[0].start, 123'456'789'012'345);
    EXPECT_EQ((*parse("start_s,source,destination,bytes\n1e-6,0,1,1\n"))[0].start, ps_per_us);
}

TEST(Trace, ReadsAConnectionMatrixOfHtsim) {
    const auto flows =
        parse("Nodes 4\nConnections 2\n0->3 id 1 start 0 size 2000000\n2->1 id 2 start 5000000 size 9\n");
    ASSERT_TRUE(flows.ok()) << flows.error().message;
    ASSERT_EQ(flows->size(), 2U);
    EXPECT_EQ((*flows)[0].destination, 3U);
    EXPECT_EQ((*flows)[0].bytes, 2'000'000U);
    EXPECT_EQ((*flows)[1].source, 2U);
    EXPECT_EQ((*flows)[1].start, 5 * ps_per_us);
    // And it is written back as another file of flows that says the same.
    EXPECT_EQ((*parse("start_ps,source,destination,bytes\n0,0,3,2000000\n5000000,2,1,9\n"))[1].start,
              (*flows)[1].start);
}

TEST(Trace, EveryErrorNamesTheLineTheValueAndWhatIsAllowed) {
    const std::string rows = std::string(header) + "0,0,1,5\n";
    EXPECT_EQ(error_of(rows + "0,9,1,5\n"),
              "trace:3: source = '9': no host of fabric 'four'; allowed: 0 to 3, or a name such as h0");
    EXPECT_THAT(error_of(rows + "0,0,h9,5\n"), StartsWith("trace:3: destination = 'h9': no host"));
    EXPECT_THAT(error_of(rows + "-1,0,1,5\n"), StartsWith("trace:3: start = '-1': allowed: a time from 0"));
    EXPECT_THAT(error_of(rows + "nan,0,1,5\n"), StartsWith("trace:3: start = 'nan'"));
    EXPECT_THAT(error_of(rows + "1e30,0,1,5\n"), StartsWith("trace:3: start = '1e30'"));
    EXPECT_THAT(error_of(rows + "0,0,1,0\n"), StartsWith("trace:3: bytes = '0': allowed: 1 to 2^40"));
    EXPECT_THAT(error_of(rows + "0,0,1,-5\n"), StartsWith("trace:3: bytes = '-5'"));
    EXPECT_THAT(error_of(rows + "0,0,1,many\n"), StartsWith("trace:3: bytes = 'many'"));
    EXPECT_THAT(error_of(rows + "0,2,2,5\n"), StartsWith("trace:3: from host 2 to itself"));
    EXPECT_THAT(error_of(rows + "0,0,1\n"), StartsWith("trace:3: 3 fields; allowed: 4"));
    EXPECT_THAT(error_of("start,source,destination,bytes,class\n0,0,1,5,8\n"),
                StartsWith("trace:2: class = '8': allowed: 0 to 7"));
    EXPECT_THAT(error_of("start,source,destination\n"), StartsWith("trace:1: no column 'bytes'"));
    EXPECT_THAT(error_of("start,start_ps,source,destination,bytes\n"),
                StartsWith("trace:1: two columns of the name start"));
    EXPECT_EQ(error_of(header), "trace: no flows; allowed: at least one");
    EXPECT_EQ(error_of(""), "trace: no flows; allowed: at least one");
}

TEST(Trace, WhatIsNoTextOrNoMatrixIsSaidOnce) {
    EXPECT_THAT(error_of(std::string("PAR1\0\0", 6)), StartsWith("trace:1: a byte of 0"));
    EXPECT_THAT(error_of(std::string(10'000, 'x')), StartsWith("trace:1: longer than 4096 bytes"));
    EXPECT_THAT(error_of("\xff\xfe\n"), StartsWith("trace:1: no column 'start'"));
    EXPECT_THAT(error_of("Nodes 5\nConnections 1\n0->1 start 0 size 1\n"),
                StartsWith("trace:1: Nodes 5: fabric 'four' has 4"));
    EXPECT_THAT(error_of("Nodes 4\nConnections 2\n0->1 start 0 size 1\n"),
                StartsWith("trace:2: Connections 2: there are 1"));
    EXPECT_THAT(error_of("Nodes 4\nConnections 1\n0->1 id 1 trigger 2 size 1\n"), HasSubstr("trace:3: trigger = '2'"));
    EXPECT_THAT(error_of("Nodes 4\nConnections 1\n0->1 size 1\n"), StartsWith("trace:3: no start"));
    EXPECT_THAT(error_of("Nodes 4\nConnections 1\n0->1 start 0\n"), StartsWith("trace:3: no size"));
    EXPECT_THAT(error_of("Nodes x\n"), StartsWith("trace:1: Nodes: allowed: one whole number"));
    EXPECT_THAT(error_of("Nodes 4\nfailure switch_type TOR\n"), StartsWith("trace:2: failure"));
}

}  // namespace
}  // namespace incast::sim::flows
