// Endpoints that are no nodes of each other's run, on the mock device: each is awaited under a number that the other
// one chose, by rdma_cm, by exchanged addresses and on several rails.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verbs_nodes.h"

namespace incast::transport::verbs {
namespace {

using testing::Contains;
using testing::HasSubstr;

class Strangers : public Verbs, public testing::WithParamInterface<const char*> {
protected:
    void SetUp() override {
        Verbs::SetUp();
        const std::string way = GetParam();
        if (way == "exchange") way_ = {{"connect", "exchange"}, {"bind", "127.0.0.1"}, {"connect_timeout", "1h"}};
        if (way == "rails") way_ = {{"bind", "127.0.0.1+127.0.0.1+127.0.0.1"}};
        for (const std::uint32_t name : {0U, 1U, 2U})
            stranger(name);
    }
    /// To itself each is node 0. `name`: here.
    void stranger(std::uint32_t name) {
        Node& made = nodes_[name];
        EndpointOptions options;
        options.run = 3;
        options.token = 5;
        options.max_peers = 6;
        options.log = [&made](std::string_view line) { made.lines.emplace_back(line); };
        made.medium = make(way_).value();
        made.endpoint = made.medium->endpoint(options).value();
    }
    Blob invite(std::uint32_t name, std::uint32_t number) { return nodes_[name].endpoint->address_for(Peer{number}); }
    Post call(std::uint32_t name, std::uint32_t number, const Blob& address) {
        return nodes_[name].endpoint->connect(Peer{number}, address, 1);
    }
    /// A writes to a region that B grants to A alone, and B to one of A.
    void expect_a_connection(std::uint32_t a, std::uint32_t there, std::uint32_t b, std::uint32_t here) {
        for (const auto& [owner, user, as_owner, as_user] :
             {std::tuple(a, b, there, here), std::tuple(b, a, here, there)}) {
            Node& owns = nodes_[owner];
            Node& uses = nodes_[user];
            const Local region = owns.endpoint->allocate(4096).value();
            const Blob key = owns.endpoint->expose(region, {.peer = Peer{as_owner}}).value();
            const auto remote = uses.endpoint->import_key(Peer{as_user}, key);
            ASSERT_TRUE(remote) << remote.error().message;
            const std::byte byte{7};
            ASSERT_EQ(uses.endpoint->write(Peer{as_user}, {&byte, 1}, {}, {*remote, 9}, std::uint16_t{5}, 0),
                      Post::done);
            expect(owner, Event::Kind::notice, as_owner);
            EXPECT_EQ(owns.endpoint->local({region, 1, 9})[0], byte);
            EXPECT_TRUE(uses.endpoint->release(*remote) && owns.endpoint->release(region));
        }
    }
};
INSTANTIATE_TEST_SUITE_P(By, Strangers, testing::Values("cm", "exchange", "rails"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(Strangers, ConnectByNumbersOfTheirOwn) {
    for (const auto& [number_of_b, number_of_a] : {std::pair(1U, 1U), std::pair(2U, 4U), std::pair(5U, 3U)}) {
        for (int time = 0; time < 2; ++time) {
            const Blob for_b = invite(0, number_of_b);
            const Blob for_a = invite(1, number_of_a);
            ASSERT_EQ(call(0, number_of_b, for_a), Post::pending);
            for (int polls = 0; polls < time * 50; ++polls)  // it calls, or waits, before the other one does
                poll_once();
            ASSERT_EQ(call(1, number_of_a, for_b), Post::pending);
            EXPECT_TRUE(invite(0, number_of_b).bytes.empty()) << "in use";
            expect(0, Event::Kind::peer_up, number_of_b);
            expect(1, Event::Kind::peer_up, number_of_a);
            expect_a_connection(0, number_of_b, 1, number_of_a);
            nodes_[time == 0 ? 0 : 1].endpoint->disconnect(Peer{time == 0 ? number_of_b : number_of_a});
            expect(0, Event::Kind::peer_down, number_of_b);
            expect(1, Event::Kind::peer_down, number_of_a);
        }
    }
}

TEST_P(Strangers, HaveSeveralPeersAtOnce) {
    const std::array<std::array<std::uint32_t, 4>, 3> pairs{{{0, 1, 1, 1}, {0, 2, 2, 1}, {1, 5, 2, 2}}};
    for (const auto& [a, there, b, here] : pairs) {
        const Blob for_b = invite(a, there);
        const Blob for_a = invite(b, here);
        ASSERT_EQ(call(b, here, for_b), Post::pending);
        ASSERT_EQ(call(a, there, for_a), Post::pending);
    }
    for (const auto& [a, there, b, here] : pairs) {
        expect(a, Event::Kind::peer_up, there);
        expect(b, Event::Kind::peer_up, here);
        expect_a_connection(a, there, b, here);
    }
}

TEST_P(Strangers, WhoHadTheNumberBeforeIsTurnedAway) {
    // Stranger 1 calls under a number that was given to stranger 2 meanwhile. Who has the lower number there calls.
    const Blob old = invite(0, 1);
    const Blob now = invite(0, 1);
    ASSERT_NE(old.bytes, now.bytes);
    const Blob of_old = invite(1, 3);
    const Blob of_now = invite(2, 2);
    ASSERT_EQ(call(1, 3, old), Post::pending);
    ASSERT_EQ(call(0, 1, of_now), Post::pending);
    expect(1, Event::Kind::peer_down, 3);
    EXPECT_THAT(nodes_[1].lines, Contains(HasSubstr("refused: meant for another node")));
    ASSERT_EQ(call(2, 2, now), Post::pending);
    expect(0, Event::Kind::peer_up, 1);
    expect(2, Event::Kind::peer_up, 2);
    expect_a_connection(0, 1, 2, 2);
}

TEST_P(Strangers, WhoCalledTooEarlyIsForgottenWithItsNumber) {
    ASSERT_FALSE(invite(1, 3).bytes.empty());
    ASSERT_EQ(call(1, 3, invite(0, 1)), Post::pending);
    for (int polls = 0; polls < 200; ++polls)
        poll_once();
    const Blob now = invite(0, 1);
    expect(1, Event::Kind::peer_down, 3);
    ASSERT_EQ(call(0, 1, invite(2, 2)), Post::pending);
    ASSERT_EQ(call(2, 2, now), Post::pending);
    expect(0, Event::Kind::peer_up, 1);
    expect(2, Event::Kind::peer_up, 2);
}

TEST_P(Strangers, WhatCannotBeIsRefused) {
    const Blob address = invite(0, 1);
    EXPECT_EQ(call(1, 1, address), Post::refused) << "nobody was invited here";
    EXPECT_TRUE(invite(0, 0).bytes.empty()) << "itself";
    EXPECT_TRUE(invite(0, 6).bytes.empty()) << "no such number";
    ASSERT_FALSE(invite(1, 1).bytes.empty());
    EXPECT_EQ(call(1, 0, address), Post::refused);
    EXPECT_EQ(call(1, 6, address), Post::refused);
    EXPECT_EQ(call(1, 1, nodes_[0].endpoint->address()), Post::refused) << "an address of node 0";
    EXPECT_EQ(call(1, 1, address), Post::pending);
}

}  // namespace
}  // namespace incast::transport::verbs
