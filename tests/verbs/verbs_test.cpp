// What is verbs' own, on the mock device: limits, faults that hardware cannot be made to show, strangers, how requests
// are batched. The contract is tested by tests/conformance.
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include "transport/blob.h"
#include "transport/verbs/descriptor/descriptor.h"
#include "transport/verbs/wire.h"
#include "verbs_nodes.h"

namespace incast::transport::verbs {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr int times = 20;

/// By rdma_cm and by exchanged addresses: from there on all of it is the same.
class BothWays : public Verbs, public testing::WithParamInterface<const char*> {
protected:
    void SetUp() override {
        Verbs::SetUp();
        if (GetParam() == std::string("exchange"))
            way_ = {{"connect", "exchange"}, {"bind", "127.0.0.1"}, {"connect_timeout", "1h"}};
    }
};
INSTANTIATE_TEST_SUITE_P(By, BothWays, testing::Values("cm", "exchange"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_F(Verbs, SettingsThatCannotBeSayWhatWouldBeRight) {
    const auto problem = [](const Settings& settings) {
        const auto made = make(settings);
        return made ? "" : made.error().message;
    };
    EXPECT_THAT(problem({{"bind", "10.0.0.1,nowhere"}}),
                HasSubstr("transport.verbs.bind = 10.0.0.1,nowhere: 'nowhere'"));
    EXPECT_THAT(problem({{"send_queue", "100"}}), HasSubstr("no power of two"));
    EXPECT_THAT(problem({{"staging", "100KiB"}}), HasSubstr("no power of two"));
    EXPECT_THAT(problem({{"retry", "7"}}), HasSubstr("transport.verbs.retry = 7"));
    EXPECT_THAT(refusal({{"device", "mlx5_9"}}), HasSubstr("mlx5_9"));
    EXPECT_THAT(refusal({{"bind", "127.0.0.1"}, {"device", "mlx5_9"}}), HasSubstr("is of mock_0; wanted mlx5_9"));
}

TEST_F(Verbs, LimitsOfTheDeviceAreOneLineWithTheSetting) {
    EXPECT_EQ(refusal({{"bind", "127.0.0.1"}}), "") << "64 nodes with the defaults";
    const auto with = [](auto member, auto value) {
        mock::Limits limits;
        limits.*member = value;
        mock::set_limits(limits);
        return refusal({{"bind", "127.0.0.1"}});
    };
    EXPECT_THAT(with(&mock::Limits::max_qp, 63), HasSubstr("mock_0 can have 63 queue pairs, and 64 are needed"));
    EXPECT_THAT(with(&mock::Limits::max_qp_wr, 255), HasSubstr("transport.verbs.send_queue"));
    EXPECT_THAT(with(&mock::Limits::max_cqe, 16383), HasSubstr("16384 are needed for 64 nodes; it takes "
                                                               "transport.verbs.send_queue of at most 255"));
    EXPECT_THAT(with(&mock::Limits::max_srq_wr, 8447), HasSubstr("8448 are needed for 64 nodes; it takes "
                                                                 "transport.verbs.receives of at most 127"));
    EXPECT_THAT(with(&mock::Limits::max_sge, 1), HasSubstr("parts of a work request"));
    EXPECT_THAT(with(&mock::Limits::max_msg_sz, std::uint32_t{1} << 20), HasSubstr("work requests for one write"));
}

TEST_P(BothWays, APairInErrorEndsItsConnectionAlone) {
    pair();
    for (int time = 0; time < times; ++time) {
        mock::hold(true);
        ASSERT_EQ(write(0, 1, 1000, std::uint16_t{1}, 7), Post::pending);
        poll_once();
        mock::break_pairs();
        mock::hold(false);
        expect(0, Event::Kind::completed, 1);
        EXPECT_EQ(last.status, Status::peer_lost);
        EXPECT_EQ(last.token, 7U);
        expect_a_new_beginning();
    }
}

TEST_P(BothWays, ACutLinkIsNoticedByHeartbeatsAndByWhoSends) {
    pair();
    for (int time = 0; time < times; ++time) {
        mock::cut(true);
        if (time % 2 == 1) {
            EXPECT_EQ(write(0, 1, 1000, std::nullopt, 3), Post::pending);
        }
        const Time since = now_;
        ASSERT_TRUE(until([&] { return take(nodes_[0], Event::Kind::peer_down, 1); })) << "idle, or sending";
        EXPECT_LE(now_ - since, 3 * ps_per_s) << "within three heartbeats";
        mock::cut(false);
        nodes_[0].events.push_back(last);  // seen
        expect_a_new_beginning();
    }
    EXPECT_THAT(nodes_[0].lines, testing::Each(HasSubstr("lost: transport retry counter exceeded")));
}

TEST_P(BothWays, ADeviceThatAnswersNothingIsGivenUpAfterTheDeadline) {
    pair({{"ack_deadline", "5s"}});
    mock::hold(true);
    ASSERT_EQ(write(0, 1, 1000, std::nullopt, 3), Post::pending);
    const Time since = now_;
    expect(0, Event::Kind::completed, 1);
    EXPECT_EQ(last.status, Status::peer_lost);
    expect(0, Event::Kind::peer_down, 1);
    EXPECT_GE(now_ - since, 5 * ps_per_s);
    EXPECT_LE(now_ - since, 9 * ps_per_s);
    mock::hold(false);
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("nothing was acknowledged for")));
}

TEST_P(BothWays, APeerWithoutReceivesIsLostWithALine) {
    pair();
    mock::lose_receives();
    ASSERT_EQ(send(0, 1, "hello"), Post::done);
    expect(0, Event::Kind::peer_down, 1);
    expect(1, Event::Kind::peer_down, 0);
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("RNR retry counter exceeded")));
    EXPECT_THAT(mock::violations(), ElementsAre(mock::Rule::receiver_not_ready));
    nodes_.clear();
    mock::reset();
}

TEST_P(BothWays, AnAccessThatTheDeviceRefusesMeetsAPeerThatEnds) {
    pair();
    mock::lose_memory();
    Node& reader = nodes_[0];
    ASSERT_EQ(reader.endpoint->read(Peer{1}, {reader.remote[1], 8}, {reader.own, 16, 0}, 3), Post::pending);
    expect(0, Event::Kind::completed, 1);
    EXPECT_EQ(last.status, Status::peer_lost);
    expect(0, Event::Kind::peer_down, 1);
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("lost: remote access error")));
    EXPECT_THAT(mock::violations(), ElementsAre(mock::Rule::remote_key));
    nodes_.clear();
    mock::reset();
}

TEST_P(BothWays, ARegistrationThatIsRefusedIsOneLine) {
    node(0);
    node(1);
    for (int time = 0; time < times; ++time) {
        mock::fail_registrations(1, ENOMEM);
        const auto region = nodes_[0].endpoint->allocate(4096);
        ASSERT_FALSE(region.ok());
        EXPECT_THAT(region.error().message,
                    HasSubstr("region of 4096 bytes: mock_0 does not register it: Cannot allocate"));
    }
    mock::fail_registrations(1, ENOMEM);
    ASSERT_EQ(connect(0, 1), Post::pending);
    expect(0, Event::Kind::peer_down, 1);
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("mock_0 does not register 671744 bytes for it")));
    join(0, 1);
    share(0, 1);
    EXPECT_EQ(write(0, 1, 10, std::uint16_t{1}), Post::pending);
    expect(1, Event::Kind::notice, 0);
}

TEST_P(BothWays, EachQueuePairHasTheRateLimitThatTheDeviceTakes) {
    mock::Limits limits;
    limits.rate_min = 1000;  // 125 kB/s
    limits.rate_max = 400'000'000;
    limits.rated_types = 1U << IBV_QPT_RC;
    mock::set_limits(limits);
    node(0, {{"rate_limit", "10Gb/s"}});
    node(1, {{"rate_limit", "125001"}});
    join(0, 1);
    EXPECT_THAT(mock::rates(), UnorderedElementsAre(10'000'000, 1001)) << "rounded up: 0 would be none";
    for (int time = 0; time < times; ++time) {
        mock::break_pairs();
        expect(0, Event::Kind::peer_down, 1);
        expect(1, Event::Kind::peer_down, 0);
        mock::fail_rates(1, EINVAL);
        ASSERT_EQ(connect(0, 1), Post::pending);
        ASSERT_EQ(connect(1, 0), Post::pending);
        expect(0, Event::Kind::peer_down, 1);
        expect(1, Event::Kind::peer_down, 0);
        join(0, 1);
    }
    EXPECT_THAT(nodes_[0].lines, Contains(HasSubstr("mock_0 does not limit its rate to 1.25 GB/s: Invalid argument")));
    nodes_.clear();
    pair();
    EXPECT_THAT(mock::rates(), ElementsAre(0, 0)) << "nobody asks for one";
}

TEST_F(Verbs, ARateThatTheDeviceCannotLimitToIsOneLine) {
    const auto with = [](const char* rate) { return refusal({{"bind", "127.0.0.1"}, {"rate_limit", rate}}); };
    const std::string cannot = "mock_0 cannot limit the rate of a reliable connection: set it to 0";
    EXPECT_THAT(with("10Gb/s"), AllOf(HasSubstr("transport.verbs.rate_limit = 1.25 GB/s: "), HasSubstr(cannot)));
    mock::Limits limits;
    limits.rate_min = 8000;
    limits.rate_max = 80'000'000;
    limits.rated_types = 1U << IBV_QPT_RAW_PACKET;
    mock::set_limits(limits);
    EXPECT_THAT(with("1GB/s"), HasSubstr(cannot));
    EXPECT_EQ(with("0"), "");
    limits.rated_types |= 1U << IBV_QPT_RC;
    mock::set_limits(limits);
    const std::string range = "mock_0 limits rates from 1 MB/s to 10 GB/s";
    for (const char* bad : {"1", "999kB/s", "100Gb/s"})
        EXPECT_THAT(with(bad), HasSubstr(range)) << bad;
    for (const char* good : {"0", "1MB/s", "10GB/s"})
        EXPECT_EQ(with(good), "") << good;
    EXPECT_THAT(with("1TB/s"), HasSubstr("transport.verbs.rate_limit = 1TB/s"));
}

TEST_P(BothWays, AQueuePairThatIsRefusedIsOneLineAndTheNextTryWorks) {
    node(0);
    node(1);
    for (const int refusals : {3, 1}) {
        mock::fail_pairs(refusals, EINVAL);  // one: less inline data is asked for
        ASSERT_EQ(connect(0, 1), Post::pending);
        if (refusals == 1) break;
        expect(0, Event::Kind::peer_down, 1);
    }
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("mock_0 makes no queue pair: Invalid argument")));
    ASSERT_EQ(connect(1, 0), Post::pending);
    expect(0, Event::Kind::peer_up, 1);
}

TEST_P(BothWays, ADeviceThatIsRemovedTakesAllPeersWithIt) {
    for (int time = 0; time < times; ++time) {
        pair();
        mock::hold(true);
        ASSERT_EQ(write(0, 1, 1000, std::nullopt, 3), Post::pending);
        mock::remove_device();
        expect(0, Event::Kind::completed, 1);
        EXPECT_EQ(last.status, Status::peer_lost);
        expect(0, Event::Kind::peer_down, 1);
        expect(1, Event::Kind::peer_down, 0);
        ASSERT_EQ(connect(0, 1), Post::pending);
        expect(0, Event::Kind::peer_down, 1);
        EXPECT_THAT(nodes_[0].lines, IsEmpty()) << "said once, by whoever cannot make another endpoint";
        const auto medium = std::move(nodes_[0].medium);
        nodes_.clear();
        EXPECT_EQ(medium->endpoint({}).error().message, "verbs: the RDMA device mock_0 was removed");
        mock::reset();
        EXPECT_TRUE(medium->endpoint({}).ok()) << "it came back";
    }
}

TEST_P(BothWays, WhoIsRejectedIsToldWhy) {
    node(0);
    node(1, {}, 6);
    ASSERT_EQ(connect(0, 1), Post::pending);
    expect(0, Event::Kind::peer_down, 1);
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("refused: wrong token")));
    EXPECT_THAT(nodes_[1].lines, ElementsAre(testing::ContainsRegex("a connection.* was refused: wrong token")));
    if (!way_.empty()) return;
    nodes_[0].lines.clear();
    mock::reject_all(24);
    node(0);
    ASSERT_EQ(connect(0, 1), Post::pending);
    expect(0, Event::Kind::peer_down, 1);
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("rejected, with status 24")));
    mock::reject_all(0);
}

TEST_P(BothWays, AReturningPeerIsLetInWhateverBecameOfTheOld) {
    pair();
    for (std::uint32_t time = 0; time < times; ++time) {
        const std::uint32_t number = time % 2;
        Node& back = nodes_[number];
        back.endpoint.reset();
        back.events.clear();
        ++back.incarnation;
        expect(1 - number, Event::Kind::peer_down, number);
        node(number);
        join(0, 1);
    }
}

TEST_P(BothWays, RequestsOfAPollLeaveAsOneChainAndFewAreSignalled) {
    pair();
    node(2);
    join(0, 2);
    until([&] { return !poll_once(); });
    const mock::Counts before = mock::counts();
    for (int each = 0; each < 100; ++each) {
        ASSERT_EQ(send(0, 1, "to one"), Post::done);
        ASSERT_EQ(send(0, 2, "to another"), Post::done);
    }
    std::array<Event, 4> none;
    EXPECT_EQ(nodes_[0].endpoint->poll(now_, none), 0U);
    const mock::Counts after = mock::counts();
    EXPECT_EQ(after.post_send - before.post_send, 2U) << "a doorbell for each peer";
    EXPECT_EQ(after.requests - before.requests, 200U);
    EXPECT_LE(after.signalled - before.signalled, 2U * (100 / 16 + 2));
    EXPECT_EQ(after.inlined - before.inlined, 200U);
    EXPECT_TRUE(until([&] { return nodes_[1].messages.size() == 100 && nodes_[2].messages.size() == 100; }));
    EXPECT_EQ(nodes_[1].messages.back(), "to one");
}

TEST_P(BothWays, WhatWasPostedLeavesWithAFlushAsOneChain) {
    pair();
    const mock::Counts before = mock::counts();
    for (Token token = 1; token <= 5; ++token)
        ASSERT_EQ(write(0, 1, 1000, std::uint16_t{3}, token), Post::pending);
    EXPECT_EQ(mock::counts().requests, before.requests);
    nodes_[0].endpoint->flush();
    nodes_[0].endpoint->flush();
    EXPECT_EQ(mock::counts().requests - before.requests, 5U);
    EXPECT_EQ(mock::counts().post_send - before.post_send, 1U);
    nodes_[0].endpoint->disconnect(Peer{1});
    nodes_[0].endpoint->flush();
    EXPECT_EQ(mock::counts().requests - before.requests, 5U);
}

TEST_P(BothWays, TheDeviceSaysHowMuchTravelsInline) {
    mock::Limits limits;
    limits.max_inline = 70;
    mock::set_limits(limits);
    pair();
    const std::string text(60, 'x');  // 68 bytes with what goes before
    const mock::Counts before = mock::counts();
    ASSERT_EQ(send(0, 1, text), Post::done);
    ASSERT_EQ(send(0, 1, text.substr(0, 56)), Post::done);
    poll_once();
    EXPECT_EQ(mock::counts().inlined - before.inlined, 1U) << "64 bytes, as was asked for at last";
    EXPECT_TRUE(until([&] { return nodes_[1].messages.size() == 2; }));
    EXPECT_EQ(nodes_[1].messages[0], text);
}

TEST_F(Verbs, WithoutImmediateDataASendFollowsTheWrite) {
    for (const bool is_iwarp : {true, false}) {
        mock::set_iwarp(is_iwarp);
        pair({{"immediate", is_iwarp ? "auto" : "no"}});
        for (std::uint16_t number = 0; number < 2000; ++number) {
            ASSERT_TRUE(until([&] { return write(0, 1, 5000, number, number + 1U) == Post::pending; }));
            expect(1, Event::Kind::notice, 0);
            EXPECT_EQ(last.size_or_value, number);
            expect(0, Event::Kind::completed, 1);
        }
        nodes_.clear();
    }
}

TEST_F(Verbs, ReceivesAreCountedPastTheEndOfTheirNumbers) {
    pair();
    constexpr std::uint32_t many = 70'000;  // numbers of 16 bits begin anew after 65536
    std::uint32_t posted = 0;
    std::uint32_t heard = 0;
    ASSERT_TRUE(until([&] {
        while (posted < many && write(0, 1, 8, static_cast<std::uint16_t>(posted)) == Post::pending)
            ++posted;
        for (const Event& event : nodes_[1].events) {
            if (event.kind != Event::Kind::notice) continue;
            EXPECT_EQ(event.size_or_value, static_cast<std::uint16_t>(heard));
            ++heard;
        }
        nodes_[0].events.clear();
        nodes_[1].events.clear();
        return heard == many;
    }));
}

TEST_F(Verbs, AReadThatOthersOvertakeHasEndedWhenItsBytesAreThere) {
    mock::set_iwarp(true);
    pair();
    std::span<std::byte> theirs = nodes_[1].endpoint->memory(nodes_[1].own);
    const std::span<std::byte> mine = nodes_[0].endpoint->memory(nodes_[0].own);
    for (Token token = 1; token <= 50; ++token) {
        theirs[8] = static_cast<std::byte>(token);
        Node& reader = nodes_[0];
        ASSERT_EQ(reader.endpoint->read(Peer{1}, {reader.remote[1], 8}, {reader.own, 1, 16}, token), Post::pending);
        ASSERT_EQ(send(0, 1, "behind it"), Post::done);
        if (token % 2 == 0) {
            ASSERT_EQ(write(0, 1, 8), Post::pending);
        }
        expect(0, Event::Kind::completed, 1);
        EXPECT_EQ(last.token, token);
        EXPECT_EQ(mine[16], static_cast<std::byte>(token));
    }
}

TEST_F(Verbs, ReadsOfBothSidesEndWhateverIsPostedBehindThem) {
    mock::set_iwarp(true);
    pair();
    for (Token token = 1; token <= 100; ++token) {
        for (const std::uint32_t self : {0U, 1U}) {
            Node& reader = nodes_[self];
            const std::uint32_t other = 1 - self;
            ASSERT_EQ(reader.endpoint->read(Peer{other}, {reader.remote[other], 8}, {reader.own, 1, 16}, token),
                      Post::pending);
            if (token % 40 == 0) {
                ASSERT_EQ(send(self, other, "behind it"), Post::done);
            }
        }
    }
    EXPECT_FALSE(nodes_[0].endpoint->drained());
    for (Token token = 1; token <= 100; ++token) {
        for (const std::uint32_t self : {0U, 1U}) {
            expect(self, Event::Kind::completed, 1 - self);
            EXPECT_EQ(last.token, token);
            EXPECT_EQ(last.status, Status::ok);
        }
    }
    EXPECT_TRUE(until([&] { return nodes_[0].messages.size() == 2 && nodes_[1].messages.size() == 2; }));
    EXPECT_TRUE(until([&] { return nodes_[0].endpoint->drained() && nodes_[1].endpoint->drained(); }));
}

TEST_F(Verbs, WhatWaitsForAReadStillLeavesWhenTheEndpointIsGivenBack) {
    mock::set_iwarp(true);
    pair();
    Node& reader = nodes_[0];
    ASSERT_EQ(reader.endpoint->read(Peer{1}, {reader.remote[1], 8}, {reader.own, 1, 16}, 1), Post::pending);
    ASSERT_EQ(send(0, 1, "behind it"), Post::done);
    std::array<Event, 16> events;
    (void)reader.endpoint->poll(now_, events);
    reader.endpoint.reset();
    EXPECT_TRUE(until([&] { return nodes_[1].messages.size() == 1; }));
}

TEST_F(Verbs, AWelcomeThatWasNotNoticedIsNoticedWithTheNextHeartbeat) {
    mock::miss_first(true);
    node(0);
    node(1);
    for (int time = 0; time < times; ++time) {
        const Time since = now_;
        join(0, 1);
        EXPECT_LE(now_ - since, 3 * ps_per_s);
        nodes_[0].endpoint->disconnect(Peer{1});
        expect(0, Event::Kind::peer_down, 1);
        expect(1, Event::Kind::peer_down, 0);
    }
}

TEST_F(Verbs, WritesBeyondTheDevicesLimitAreCut) {
    node(0);
    node(1);
    join(0, 1);
    share(0, 1, (std::size_t{20} << 20) + 64);
    const std::span<std::byte> from = nodes_[0].endpoint->memory(nodes_[0].own);
    for (std::size_t at = 0; at < from.size(); at += 4096)
        from[at] = static_cast<std::byte>(at >> 12);
    const mock::Counts before = mock::counts();
    const std::array<std::byte, 64> head{std::byte{42}};
    ASSERT_EQ(nodes_[0].endpoint->write(Peer{1}, head, {nodes_[0].own, 20U << 20, 0}, {nodes_[0].remote[1], 0},
                                        std::uint16_t{3}, 8),
              Post::pending);
    expect(1, Event::Kind::notice, 0);
    EXPECT_EQ(mock::counts().requests - before.requests, 3U);
    const std::span<std::byte> to = nodes_[1].endpoint->memory(nodes_[1].own);
    EXPECT_EQ(to[0], std::byte{42});
    EXPECT_EQ(std::memcmp(to.data() + 64, from.data(), std::size_t{20} << 20), 0);
}

TEST_P(BothWays, MemoryOfAReleasedRegionStaysUntilItsPeersHaveHeard) {
    pair();
    const Local old = nodes_[1].own;
    ASSERT_TRUE(nodes_[1].endpoint->release(old).ok());
    // Node 0 does not know yet: what it writes lands in memory that nobody uses, and breaks nothing.
    ASSERT_EQ(write(0, 1, 100, std::uint16_t{1}, 5), Post::pending);
    expect(0, Event::Kind::completed, 1);
    EXPECT_EQ(last.status, Status::ok);
    until([&] { return !poll_once(); });
    ASSERT_EQ(write(0, 1, 100, std::uint16_t{2}, 6), Post::pending);
    expect(0, Event::Kind::completed, 1);
    EXPECT_EQ(last.status, Status::remote_fault) << "now it does";
    EXPECT_EQ(send(0, 1, "still here"), Post::done);
    EXPECT_TRUE(until([&] { return !nodes_[1].messages.empty(); }));
    // One that connects later is told so with the welcome.
    node(2);
    const Blob key = nodes_[1].endpoint->expose(nodes_[1].endpoint->allocate(100).value()).value();
    const Remote late = nodes_[2].endpoint->import_key(Peer{1}, key).value();
    ASSERT_TRUE(nodes_[1].endpoint->release(old).ok());
    join(1, 2);
    EXPECT_EQ(nodes_[2].endpoint->write(Peer{1}, std::array<std::byte, 8>{}, {}, {late, 0}, std::nullopt, 9),
              Post::pending);
    expect(2, Event::Kind::completed, 1);
    EXPECT_EQ(last.status, Status::remote_fault);
}

TEST_F(Verbs, NonsenseEndsAConnectionWithOneLineAndHarmsNobodyElse) {
    struct Said {
        Header header;
        std::size_t bytes;
    };
    for (const Said& said :
         {Said{{.kind = Header::Kind::welcome, .value = 0}, sizeof(rma::Welcome)},
          Said{{.kind = Header::Kind::released, .value = 7}, 8}, Said{{.kind = Header::Kind::heard, .value = 900}, 0},
          Said{{.kind = Header::Kind{99}}, 8}, Said{{.kind = Header::Kind::message}, 0}}) {
        EXPECT_TRUE(rma::is_nonsense(said.header, said.bytes));
    }
    EXPECT_FALSE(rma::is_nonsense({.kind = Header::Kind::message}, 1));
    EXPECT_FALSE(rma::is_nonsense({.kind = Header::Kind::heard, .value = 2}, 8));
    EXPECT_FALSE(rma::is_nonsense({.kind = Header::Kind::credits}, 0));
}

TEST_F(Verbs, AHelloIsJudgedBeforeAnythingElseIsBelieved) {
    const Expected expected{.run = 3, .token = 5, .self = 2, .self_incarnation = 4};
    const Hello good{.run = 3, .token = 5, .from = 1, .from_incarnation = 1, .to = 2, .to_incarnation = 4};
    const auto verdict = [&](auto change) {
        Hello said = good;
        change(said);
        std::array<std::byte, 56> bytes{};
        std::memcpy(bytes.data(), &said, sizeof said);
        Hello heard;
        return judge(bytes, expected, heard);
    };
    EXPECT_EQ(verdict([](Hello&) {}), Verdict::accepted);
    EXPECT_EQ(verdict([](Hello& said) { ++said.magic; }), Verdict::malformed);
    EXPECT_EQ(verdict([](Hello& said) { ++said.version; }), Verdict::wrong_version);
    EXPECT_EQ(verdict([](Hello& said) { ++said.run; }), Verdict::wrong_run);
    EXPECT_EQ(verdict([](Hello& said) { ++said.run, ++said.token; }), Verdict::wrong_token) << "said first";
    EXPECT_EQ(verdict([](Hello& said) { said.from = 2; }), Verdict::malformed) << "the lower number dials";
    EXPECT_EQ(verdict([](Hello& said) { said.to = 3; }), Verdict::wrong_node);
    EXPECT_EQ(verdict([](Hello& said) { said.to_incarnation = 3; }), Verdict::wrong_node);
    Hello heard;
    EXPECT_EQ(judge(std::as_bytes(std::span(&good, 1)).first(39), expected, heard), Verdict::malformed);
}

}  // namespace
}  // namespace incast::transport::verbs
