// Several rails of a node, on the mock device: which peer is on which, and that they share regions and nothing else.
#include <array>
#include <cerrno>
#include <cstddef>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verbs_nodes.h"

namespace incast::transport::verbs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Rails : public Verbs {
protected:
    Rails() { way_ = {{"bind", "127.0.0.1+127.0.0.1"}}; }
    void join_all(std::uint32_t nodes) {
        for (std::uint32_t number = 0; number < nodes; ++number)
            node(number);
        for (std::uint32_t a = 0; a < nodes; ++a)
            for (std::uint32_t b = a + 1; b < nodes; ++b)
                join(a, b);
    }
};

TEST_F(Rails, SettingsThatDoNotFitAreRefused) {
    EXPECT_EQ(refusal({{"bind", "127.0.0.1+127.0.0.1"}, {"device", "mock_0,mock_0"}}), "");
    EXPECT_EQ(refusal({{"bind", "127.0.0.1+127.0.0.1"}, {"device", "mock_0"}}), "");
    EXPECT_THAT(refusal({{"bind", "127.0.0.1+127.0.0.1,127.0.0.1"}}),
                HasSubstr("all nodes have to have as many rails"));
    EXPECT_THAT(refusal({{"bind", "127.0.0.1"}, {"device", "mock_0,mock_0"}}),
                HasSubstr("each node needs an address for each, with + between"));
    EXPECT_THAT(refusal({{"device", "a,b,c,d,e"}}), HasSubstr("5 rails; at most 4"));
    EXPECT_THAT(refusal({{"bind", "127.0.0.1+127.0.0.1"}, {"device", "mock_0,mlx5_9"}}),
                HasSubstr("is of mock_0; wanted mlx5_9"));
}

TEST_F(Rails, PeersTakeTurnsAndEachIsReachedByOneRail) {
    join_all(4);
    // Of each node one peer is on one rail and two are on the other, two nodes the other way round.
    EXPECT_THAT(mock::pairs_of_domains(), ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
    for (std::uint32_t a = 0; a < 4; ++a) {
        nodes_[a].own = nodes_[a].endpoint->allocate(65536).value();
        const Blob key = nodes_[a].endpoint->expose(nodes_[a].own).value();
        for (std::uint32_t b = 0; b < 4; ++b)
            if (a != b) nodes_[b].remote[a] = nodes_[b].endpoint->import_key(Peer{a}, key).value();
    }
    for (std::uint32_t a = 0; a < 4; ++a) {
        for (std::uint32_t b = 0; b < 4; ++b) {
            if (a == b) continue;
            ASSERT_EQ(write(a, b, 1000, std::uint16_t{7}, 1), Post::pending);
            expect(b, Event::Kind::notice, a);
            expect(a, Event::Kind::completed, b);
            Node& reader = nodes_[a];
            ASSERT_EQ(reader.endpoint->read(Peer{b}, {reader.remote[b], 8}, {reader.own, 100, 0}, 2), Post::pending);
            expect(a, Event::Kind::completed, b);
            EXPECT_EQ(last.status, Status::ok);
            ASSERT_EQ(send(a, b, "hello"), Post::done);
            expect(b, Event::Kind::message, a);
        }
    }
    // An import of another peer's is none of this one's, whatever rail that is on.
    Node& node = nodes_[0];
    EXPECT_EQ(node.endpoint->write(Peer{1}, {}, {node.own, 8, 0}, {node.remote[2], 0}, {}, 0), Post::refused);
    EXPECT_EQ(node.endpoint->write(Peer{1}, {}, {node.own, 8, 0}, {node.remote[3], 0}, {}, 0), Post::refused);
    EXPECT_TRUE(node.endpoint->release(node.remote[2]).ok());
    EXPECT_FALSE(node.endpoint->release(node.remote[2]).ok());
    EXPECT_FALSE(node.endpoint->release(Remote{3U << 30}).ok());
}

TEST_F(Rails, AnotherNumberOfRailsIsRefusedInOneLine) {
    node(0);
    way_ = {{"bind", "127.0.0.1"}};
    node(1);
    for (const auto& [from, to] : {std::pair(0U, 1U), std::pair(1U, 0U)}) {
        ASSERT_EQ(connect(from, to), Post::pending);
        expect(from, Event::Kind::peer_down, to);
    }
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("it has 1 rails, and this node 2: set transport.verbs.device")));
    EXPECT_THAT(nodes_[1].lines, ElementsAre(HasSubstr("it has 2 rails, and this node 1")));
}

TEST_F(Rails, MemoryIsRegisteredOnEveryRailOrOnNone) {
    node(0);
    for (int time = 0; time < 20; ++time) {
        mock::fail_registrations(1, ENOMEM);
        EXPECT_THAT(nodes_[0].endpoint->allocate(4096).error().message, HasSubstr("does not register it"));
    }
    const mock::Counts before = mock::counts();
    const Local region = nodes_[0].endpoint->allocate(4096).value();
    EXPECT_EQ(mock::counts().registrations - before.registrations, 2U);
    EXPECT_TRUE(nodes_[0].endpoint->release(region).ok());
    EXPECT_FALSE(nodes_[0].endpoint->release(region).ok());
}

TEST_F(Rails, AReleasedRegionStaysUntilPeersOfAllRailsHaveHeard) {
    join_all(3);
    const Local region = nodes_[0].endpoint->allocate(4096).value();
    const Blob key = nodes_[0].endpoint->expose(region).value();
    for (const std::uint32_t number : {1U, 2U}) {
        nodes_[number].own = nodes_[number].endpoint->allocate(4096).value();
        nodes_[number].remote[0] = nodes_[number].endpoint->import_key(Peer{0}, key).value();
    }
    ASSERT_TRUE(nodes_[0].endpoint->release(region).ok());
    // Neither knows yet: what they write lands in memory that nobody uses, and breaks nothing.
    for (const std::uint32_t number : {1U, 2U})
        ASSERT_EQ(write(number, 0, 100, std::uint16_t{1}, 5), Post::pending);
    for (const std::uint32_t number : {1U, 2U}) {
        expect(number, Event::Kind::completed, 0);
        EXPECT_EQ(last.status, Status::ok);
    }
    until([&] { return !poll_once(); });
    for (const std::uint32_t number : {1U, 2U}) {
        ASSERT_EQ(write(number, 0, 100, std::uint16_t{2}, 6), Post::pending);
        expect(number, Event::Kind::completed, 0);
        EXPECT_EQ(last.status, Status::remote_fault) << "now it does";
    }
}

TEST_F(Rails, ADeadRailEndsItsPeersAlone) {
    way_ = {{"bind", "127.0.0.1+127.0.0.1"}, {"connect", "exchange"}, {"connect_timeout", "1h"}};
    join_all(3);
    mock::end_device(1);  // node 0's second rail, by which it reaches node 1
    expect(0, Event::Kind::peer_down, 1);
    expect(1, Event::Kind::peer_down, 0);
    EXPECT_THAT(nodes_[0].lines,
                ElementsAre(HasSubstr("device mock_0 was removed: rail 2 of 2 is lost with the peers on it")));
    ASSERT_EQ(send(0, 2, "still here"), Post::done);
    expect(2, Event::Kind::message, 0);
    ASSERT_EQ(connect(0, 1), Post::pending);
    expect(0, Event::Kind::peer_down, 1);
    EXPECT_FALSE(take(nodes_[0], Event::Kind::peer_down, 2));
}

}  // namespace
}  // namespace incast::transport::verbs
