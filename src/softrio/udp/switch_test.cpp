// What a switch makes of tables and datagrams, without sockets.
#include "softrio/udp/switch.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "softrio/udp/lines.h"

namespace incast::softrio::udp {
namespace {

Address at(std::uint16_t port) {
    Address address;
    address.ip = {10, 0, 0, 1};
    address.port = port;
    return address;
}

RoutingTable table(std::string_view text) {
    auto parsed = RoutingTable::parse(text);
    EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message);
    return parsed.ok() ? *parsed : RoutingTable{};
}

std::string error_of(std::string_view text) {
    const auto parsed = RoutingTable::parse(text);
    return parsed.ok() ? "" : parsed.error().message;
}

TEST(Routing, AnEmptyTableLeavesEveryIdToItsEndpoint) {
    EXPECT_EQ(table("").route(0, 5), RoutingTable::own);
}

TEST(Routing, TheInputPortGoesFirst) {
    const RoutingTable read = table(R"(
        [routes]
        5 = 3
        6 = "discard"
        [from.0]
        5 = "own"
        [from.1]
        default = 7
        6 = 0
        [ports]
        9 = 4
        [multicast]
        40000 = [1, 2, 3]
    )");
    EXPECT_EQ(read.route(2, 5), 3U);
    EXPECT_EQ(read.route(2, 6), RoutingTable::discard);
    EXPECT_EQ(read.route(2, 7), RoutingTable::own);
    EXPECT_EQ(read.route(0, 5), RoutingTable::own);
    EXPECT_EQ(read.route(0, 6), RoutingTable::discard);
    EXPECT_EQ(read.route(1, 5), 7U);
    EXPECT_EQ(read.route(1, 6), 0U);
    EXPECT_TRUE(read.is_kept(4));
    EXPECT_FALSE(read.is_kept(9));
    ASSERT_EQ(read.groups.size(), 1U);
    EXPECT_EQ(read.groups[0].destid, 40'000U);
    EXPECT_EQ(read.groups[0].members, (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST(Routing, TheDefaultIsForIdsThatDoNotStandThere) {
    const RoutingTable read = table("[routes]\ndefault = 'discard'\n5 = 'own'");
    EXPECT_EQ(read.route(0, 5), RoutingTable::own);
    EXPECT_EQ(read.route(0, 6), RoutingTable::discard);
}

TEST(Routing, BadTablesAreOneClearLine) {
    const std::string ports = "must be \"own\", \"discard\" or the number of a port, 0..1023";
    const std::string ids = "must be a destination id, 1..65534 and not 255";
    const std::string tables = ": there are tables [routes], [from.PORT], [ports] and [multicast], and nothing else";
    const std::string list = "must be a list of 1..1024 destination ids, as [1, 2]";
    const std::string member = "each member must be the destination id of an endpoint, 1..65534, not 255";
    EXPECT_EQ(error_of("[routes]\n5 = 'nowhere'"), "[routes] 5: " + ports);
    EXPECT_EQ(error_of("[routes]\n5 = 1024"), "[routes] 5: " + ports);
    EXPECT_EQ(error_of("[routes]\n5 = -1"), "[routes] 5: " + ports);
    EXPECT_EQ(error_of("[routes]\n5 = true"), "[routes] 5: " + ports);
    EXPECT_EQ(error_of("[routes]\n5 = 1.0"), "[routes] 5: " + ports);
    EXPECT_EQ(error_of("[routes]\ndefault = [1]"), "[routes] default: " + ports);
    EXPECT_EQ(error_of("[routes]\n255 = 1"), "[routes] 255: " + ids);
    EXPECT_EQ(error_of("[routes]\n0 = 1"), "[routes] 0: " + ids);
    EXPECT_EQ(error_of("[from.1]\nfive = 1"), "[from.1] five: " + ids);
    EXPECT_EQ(error_of("[from.1024]\n5 = 1"), "[from.1024] must be a table for the number of a port, 0..1023");
    EXPECT_EQ(error_of("[from]\n5 = 1"), "[from.5] must be a table for the number of a port, 0..1023");
    EXPECT_EQ(error_of("[ports]\n65535 = 1"), "[ports] 65535: " + ids);
    EXPECT_EQ(error_of("[ports]\n5 = 'own'"), "[ports] 5: must be the number of a port, 0..1023");
    EXPECT_EQ(error_of("[ports]\n5 = 1\n6 = 1"), "[ports] 6: port 1 is there twice");
    EXPECT_EQ(error_of("[multicast]\n0 = [1]"), "[multicast] 0: " + ids);
    EXPECT_EQ(error_of("[multicast]\n40000 = 1"), "[multicast] 40000: " + list);
    EXPECT_EQ(error_of("[multicast]\n40000 = []"), "[multicast] 40000: " + list);
    EXPECT_EQ(error_of("[multicast]\n40000 = [1, 'two']"), "[multicast] 40000: " + member);
    EXPECT_EQ(error_of("[multicast]\n40000 = [40000]"), "[multicast] 40000: " + member);
    EXPECT_EQ(error_of("[multicast]\n40000 = [0]"), "[multicast] 40000: " + member);
    EXPECT_EQ(error_of("[route]\n5 = 1"), "'route'" + tables);
    EXPECT_EQ(error_of("routes = 5"), "'routes'" + tables);
    EXPECT_TRUE(error_of("[routes]\n5 = ").starts_with("line 2: ")) << error_of("[routes]\n5 = ");
    std::string many = "[multicast]\n";
    for (std::size_t group = 0; group <= max_groups; ++group)
        many += std::to_string(40'000 + group) + " = [1]\n";
    EXPECT_EQ(error_of(many), "[multicast] has more than 64 groups");
    EXPECT_TRUE(RoutingTable::read("there/is/none.toml").error().message.starts_with("there/is/none.toml: "));
}

class SwitchTest : public ::testing::Test {
protected:
    /// Endpoints 1, 2, 3 at ports 0, 1, 2.
    SwitchTest() {
        for (std::uint16_t destid = 1; destid <= 3; ++destid)
            EXPECT_EQ(one_.plug(destid, at(destid)), destid - 1U);
    }
    /// As which id it goes on from the endpoint `from`, and to which; nothing: it does not.
    std::optional<std::pair<std::uint32_t, std::uint32_t>> forwarded(std::uint16_t from, std::uint32_t destid) {
        const auto onward = one_.forward(at(from), destid, 100);
        if (!onward) return std::nullopt;
        return std::pair{onward->source, std::uint32_t{onward->to.port}};
    }
    using Hop = std::pair<std::uint32_t, std::uint32_t>;

    Switch one_;
};

TEST_F(SwitchTest, ForwardsToTheEndpointInTheNameOfTheSender) {
    EXPECT_EQ(forwarded(1, 2), (Hop{1, 2}));
    EXPECT_EQ(forwarded(1, 3), (Hop{1, 3}));
    EXPECT_EQ(forwarded(2, 3), (Hop{2, 3}));
}

TEST_F(SwitchTest, CountsByPort) {
    one_.program(table("[routes]\n3 = 'discard'"));
    (void)one_.forward(at(1), 2, 100);
    (void)one_.forward(at(1), 2, 50);
    (void)one_.forward(at(1), 3, 7);
    const auto& in = one_.ports().at(0).counters;
    EXPECT_EQ(in.datagrams_in, 3U);
    EXPECT_EQ(in.bytes_in, 157U);
    EXPECT_EQ(in.discarded, 1U);
    EXPECT_EQ(in.datagrams_out, 0U);
    const auto& out = one_.ports().at(1).counters;
    EXPECT_EQ(out.datagrams_out, 2U);
    EXPECT_EQ(out.bytes_out, 150U);
    EXPECT_EQ(out.datagrams_in, 0U);
    EXPECT_EQ(one_.ports().at(2).counters.datagrams_out, 0U);
    EXPECT_EQ(one_.strangers(), 0U);
}

TEST_F(SwitchTest, StrangersAreDroppedAndCounted) {
    EXPECT_EQ(forwarded(9, 2), std::nullopt);
    Address same_port = at(1);
    same_port.ip[3] = 2;
    EXPECT_FALSE(one_.forward(same_port, 2, 100));
    EXPECT_EQ(one_.strangers(), 2U);
    EXPECT_EQ(one_.ports().at(1).counters.datagrams_out, 0U);
}

TEST_F(SwitchTest, ANewTableHoldsAtOnce) {
    EXPECT_EQ(forwarded(1, 2), (Hop{1, 2}));
    one_.program(table("[routes]\n2 = 'discard'"));
    EXPECT_EQ(forwarded(1, 2), std::nullopt);
    one_.program(table("[from.0]\n2 = 2"));
    EXPECT_EQ(forwarded(1, 2), (Hop{1, 3})) << "to the port of another endpoint";
    EXPECT_EQ(forwarded(3, 2), (Hop{3, 2}));
    one_.program(table("[routes]\n2 = 900"));
    EXPECT_EQ(forwarded(1, 2), std::nullopt) << "nobody is at that port";
    one_.program({});
    EXPECT_EQ(forwarded(1, 2), (Hop{1, 2}));
}

TEST_F(SwitchTest, WhoHasLeftIsAStrangerAndItsPortIsFree) {
    EXPECT_EQ(forwarded(2, 1), (Hop{2, 1}));
    EXPECT_EQ(forwarded(1, 2), (Hop{1, 2}));
    one_.unplug(2);
    EXPECT_EQ(forwarded(1, 2), std::nullopt);
    EXPECT_EQ(forwarded(2, 1), std::nullopt);
    EXPECT_EQ(one_.ports().at(0).counters.discarded, 1U);
    EXPECT_EQ(one_.strangers(), 1U);
    EXPECT_EQ(one_.plug(9, at(9)), 1U);
    EXPECT_EQ(forwarded(1, 9), (Hop{1, 9}));
    EXPECT_EQ(one_.ports().at(1).counters.datagrams_in, 1U) << "what a port has counted stays";
}

TEST_F(SwitchTest, WhoChangesItsIdStaysAtItsPort) {
    EXPECT_EQ(forwarded(2, 1), (Hop{2, 1}));
    one_.rename(2, 300);
    EXPECT_EQ(one_.port_of(300), 1U);
    EXPECT_EQ(forwarded(2, 1), (Hop{300, 1}));
    EXPECT_EQ(forwarded(1, 300), (Hop{1, 2}));
    EXPECT_EQ(forwarded(1, 2), std::nullopt);
}

TEST(Switch, PortsMayBeGivenByTheTable) {
    Switch one;
    one.program(table("[ports]\n5 = 0\n6 = 2"));
    EXPECT_EQ(one.plug(1, at(1)), 1U) << "0 is kept for 5";
    EXPECT_EQ(one.plug(2, at(2)), 3U) << "and 2 for 6";
    EXPECT_EQ(one.plug(6, at(6)), 2U);
    EXPECT_EQ(one.plug(5, at(5)), 0U);
    one.rename(5, 7);
    EXPECT_EQ(one.plug(5, at(8)), 4U) << "who was 5 is at its port";
    // A port that is nobody's yet is not one to send to.
    one.program(table("[ports]\n9 = 7\n[routes]\n1 = 7"));
    EXPECT_FALSE(one.forward(at(2), 1, 100));
}

}  // namespace
}  // namespace incast::softrio::udp
