// Connections by exchanged addresses, on the mock device: which path is made, and who is turned away.
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "os/descriptor.h"
#include "transport/blob.h"
#include "transport/verbs/wire.h"
#include "verbs_nodes.h"

namespace incast::transport::verbs {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Settings by_exchange{{"connect", "exchange"}, {"bind", "127.0.0.1"}, {"connect_timeout", "1h"}};

class Exchange : public Verbs {
protected:
    Exchange() { way_ = by_exchange; }
    static std::string refused_with(Settings more) {
        more.insert(by_exchange.begin(), by_exchange.end());
        return refusal(more);
    }
    SocketAddress address_of(std::uint32_t number) {
        Address address;
        EXPECT_TRUE(from_blob(nodes_[number].endpoint->address(), address));
        return address.socket();
    }
    /// A TCP connection of somebody else's.
    os::Descriptor stranger(std::uint32_t number, Bytes says) {
        SocketAddress to = address_of(number);
        os::Descriptor made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(made.fd(), to.get(), sizeof(sockaddr_in)), 0);
        EXPECT_EQ(::send(made.fd(), says.data(), says.size(), MSG_NOSIGNAL), static_cast<ssize_t>(says.size()));
        return made;
    }
    /// What node 1 is called with by node 0.
    Call call() {
        return {.hello = {.run = 3,
                          .token = 5,
                          .from = 0,
                          .from_incarnation = 1,
                          .to = 1,
                          .to_incarnation = nodes_[1].incarnation},
                .from = pair_address()};
    }
    static PairAddress pair_address() {
        PairAddress made;
        made.gid[15] = std::byte{1};
        made.pair = 77;
        made.mtu = 3;
        made.link = 2;
        made.gid_type = 2;
        return made;
    }
};

template <class T>
Bytes bytes_of(const T& what) {
    return std::as_bytes(std::span(&what, 1));
}

TEST_F(Exchange, OnRoceThePathIsOfTheAddressesGid) {
    pair({{"traffic_class", "106"}, {"ack_timeout", "14"}, {"retry", "3"}, {"reads", "4"}});
    const mock::Path path = mock::last_path();
    EXPECT_TRUE(path.is_global);
    EXPECT_EQ(path.gid_index, 1) << "RoCE v2";
    EXPECT_EQ(path.traffic_class, 106);
    EXPECT_EQ(path.mtu, 3U) << "the port's";
    EXPECT_EQ(path.timeout, 14);
    EXPECT_EQ(path.retry, 3);
    EXPECT_EQ(path.rnr_retry, 6);
    EXPECT_EQ(path.reads, 4);
    EXPECT_EQ(path.reads_of_peer, 4);
    ASSERT_EQ(write(0, 1, 100, std::uint16_t{9}, 1), Post::pending);
    expect(1, Event::Kind::notice, 0);
}

TEST_F(Exchange, OnInfinibandThePathIsOfLids) {
    mock::Port port{.is_infiniband = true, .lid = 12, .gids = {"fe80::1"}};
    mock::set_port(port);
    pair({{"service_level", "3"}, {"path_mtu", "512"}, {"gid_index", "auto"}});
    mock::Path path = mock::last_path();
    EXPECT_FALSE(path.is_global);
    EXPECT_EQ(path.lid, 12);
    EXPECT_EQ(path.service_level, 3);
    EXPECT_EQ(path.mtu, 2U);
    nodes_.clear();
    pair({{"gid_index", "0"}});
    EXPECT_TRUE(mock::last_path().is_global) << "it is asked for";
    nodes_.clear();
    port.needs_grh = true;
    mock::set_port(port);
    pair();
    EXPECT_TRUE(mock::last_path().is_global) << "the port needs it";
    nodes_.clear();
    port.needs_grh = false;
    mock::set_port(port);
    node(0);
    port.gids = {"fe81::1"};
    mock::set_port(port);
    node(1);
    join(0, 1);
    EXPECT_TRUE(mock::last_path().is_global) << "the peer is in another subnet";
}

TEST_F(Exchange, TheSmallerMtuOfBothEndsIsTaken) {
    node(0);
    node(1, {{"path_mtu", "256"}});
    join(0, 1);
    EXPECT_EQ(mock::last_path().mtu, 1U);
}

TEST_F(Exchange, DevicesOfOneVendorAgreeOnWhatBothCan) {
    struct Device {
        std::uint32_t vendor;
        std::uint32_t options;
    };
    const auto agreed = [&](Device dials, Device answers) {
        nodes_.clear();
        mock::reset();
        mock::keep_violations(true);
        node(0);
        node(1);
        mock::set_ece(0, dials.vendor, dials.options);
        mock::set_ece(1, answers.vendor, answers.options);
        join(0, 1);
        EXPECT_THAT(nodes_[0].lines, IsEmpty());
        EXPECT_THAT(nodes_[1].lines, IsEmpty());
        return mock::eces();
    };
    EXPECT_THAT(agreed({7, 0b0110}, {7, 0b0011}), ElementsAre(0b0010, 0b0010));
    EXPECT_THAT(agreed({7, 0b0110}, {7, 0b1000}), ElementsAre(0, 0));
    EXPECT_THAT(agreed({7, 0b0110}, {8, 0b0110}), ElementsAre(0, 0)) << "of another vendor";
    EXPECT_THAT(agreed({7, 0b0110}, {0, 0}), ElementsAre(0, 0)) << "who answers has none";
    EXPECT_THAT(agreed({0, 0}, {7, 0b0110}), ElementsAre(0, 0)) << "who dials has none";
}

TEST_F(Exchange, WhatWasAcceptedForADeviceThatDoesNotTakeItIsOneLine) {
    node(0);
    node(1);
    mock::set_ece(0, 7, 1);
    mock::set_ece(1, 7, 1);
    ASSERT_EQ(connect(0, 1), Post::pending);
    ASSERT_TRUE(until([&] { return mock::eces().size() == 1; }));
    mock::set_ece(0, 8, 1);  // after it has offered
    ASSERT_EQ(connect(1, 0), Post::pending);
    expect(0, Event::Kind::peer_down, 1);
    expect(1, Event::Kind::peer_down, 0);
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("mock_0 does not take the ECE options 1 of vendor 7")));
    mock::set_ece(0, 7, 1);
    join(0, 1);
    EXPECT_THAT(mock::eces(), ElementsAre(1, 1));
}

TEST_F(Exchange, WhatADeviceHasNotIsOneLineWithTheSetting) {
    EXPECT_EQ(refused_with({}), "");
    EXPECT_THAT(refused_with({{"device", "mlx5_9"}}),
                HasSubstr("transport.verbs.device = mlx5_9: this host has no such RDMA device"));
    EXPECT_THAT(refused_with({{"port", "2"}}), HasSubstr("transport.verbs.port = 2: mock_0 has 1"));
    EXPECT_THAT(refused_with({{"gid_index", "9"}}),
                HasSubstr("transport.verbs.gid_index = 9: mock_0 has no such GID at port 1"));
    EXPECT_THAT(refused_with({{"path_mtu", "4096"}}),
                HasSubstr("transport.verbs.path_mtu = 4096: port 1 of mock_0 has 1024 bytes"));
    EXPECT_THAT(refused_with({{"bind", "192.0.2.1"}}), HasSubstr("bind to 192.0.2.1:0"));
    EXPECT_THAT(refused_with({{"gid_index", "-1"}}), HasSubstr("no number of a GID"));
    EXPECT_THAT(refused_with({{"connect", "cm"}, {"path_mtu", "1024"}}), HasSubstr("rdma_cm finds it by itself"));
    mock::set_port({.gids = {}});
    EXPECT_THAT(refused_with({}), HasSubstr("mock_0 has no GID"));
    mock::set_port({.is_active = false});
    EXPECT_THAT(refused_with({}), HasSubstr("mock_0 has no port that is active"));
    EXPECT_THAT(refused_with({{"port", "1"}}), HasSubstr("port 1 of mock_0 is not active"));
    mock::set_port({});
    mock::set_iwarp(true);
    EXPECT_THAT(refused_with({}), HasSubstr("set transport.verbs.connect to cm"));
}

TEST_F(Exchange, APathThatCannotBeIsOneLineAtBothEnds) {
    const auto lines = [&](const mock::Port& first, const mock::Port& second) {
        nodes_.clear();
        mock::set_port(first);
        node(0);
        mock::set_port(second);
        node(1);
        EXPECT_EQ(connect(0, 1), Post::pending);
        EXPECT_EQ(connect(1, 0), Post::pending);
        expect(0, Event::Kind::peer_down, 1);
        expect(1, Event::Kind::peer_down, 0);
        EXPECT_EQ(nodes_[0].lines.size(), 1U);
        EXPECT_EQ(nodes_[1].lines.size(), 1U);
        return nodes_[0].lines.back() + "\n" + nodes_[1].lines.back();
    };
    const mock::Port infiniband{.is_infiniband = true, .lid = 3};
    EXPECT_THAT(lines(infiniband, {}), AllOf(HasSubstr("refused: no path leads"),
                                             HasSubstr("its port is of InfiniBand, and the one here of Ethernet")));
    EXPECT_THAT(lines({.gids = {"127.0.0.1"}}, {}), HasSubstr("its GID is of RoCE v1, and the one here of RoCE v2"));
    EXPECT_THAT(lines({.is_infiniband = true}, infiniband), HasSubstr("its port has no LID"));
    mock::set_port({});
    nodes_.clear();
    node(0);
    node(1);
    mock::fail_paths(1, EHOSTUNREACH);
    ASSERT_EQ(connect(0, 1), Post::pending);
    ASSERT_EQ(connect(1, 0), Post::pending);
    expect(0, Event::Kind::peer_down, 1);
    expect(1, Event::Kind::peer_down, 0);
    EXPECT_THAT(nodes_[1].lines, ElementsAre(HasSubstr("(state RTR): No route to host")));
    join(0, 1);
}

TEST_F(Exchange, BothEndsHaveToConnectAlike) {
    node(0);
    way_ = {{"bind", "127.0.0.1"}};
    node(1);
    ASSERT_EQ(connect(0, 1), Post::pending);
    expect(0, Event::Kind::peer_down, 1);
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("it connects by rdma_cm, and this node by exchanged addresses: "
                                                       "set transport.verbs.connect alike")));
    ASSERT_EQ(connect(1, 0), Post::pending);
    expect(1, Event::Kind::peer_down, 0);
}

TEST_F(Exchange, StrangersCostALineAndNothingElse) {
    pair();
    const auto line = [&](Bytes says, bool goes) {
        Node& node = nodes_[1];
        node.lines.clear();
        os::Descriptor socket = stranger(1, says);
        if (goes) socket.close();
        EXPECT_TRUE(until([&] { return !node.lines.empty(); }));
        return node.lines.empty() ? "" : node.lines.front();
    };
    const std::string web = "GET / HTTP/1.1\r\n\r\n";
    EXPECT_THAT(line(std::as_bytes(std::span(web)), false), HasSubstr("was refused: not an Incast hello"));
    EXPECT_THAT(line({}, true), HasSubstr("closed before it had said who calls"));
    const Call good = call();
    EXPECT_THAT(line(bytes_of(good).first(50), true), HasSubstr("closed before it had said who calls"));
    const auto changed = [&](auto change) {
        Call said = good;
        change(said);
        return line(bytes_of(said), false);
    };
    EXPECT_THAT(changed([](Call& said) { ++said.hello.token; }), HasSubstr("wrong token"));
    EXPECT_THAT(changed([](Call& said) { ++said.hello.run; }), HasSubstr("another run"));
    EXPECT_THAT(changed([](Call& said) { said.hello.to = 2; }), HasSubstr("meant for another node"));
    EXPECT_THAT(changed([](Call& said) { said.hello.from = 1; }), HasSubstr("not an Incast hello"));
    EXPECT_THAT(changed([](Call& said) { said.from.pair = 1U << 24; }), HasSubstr("not an Incast hello"));
    EXPECT_THAT(changed([](Call& said) { said.from.mtu = 6; }), HasSubstr("not an Incast hello"));
    EXPECT_THAT(changed([](Call& said) { said.from.gid = {}; }), HasSubstr("not an Incast hello"));
    std::vector<os::Descriptor> silent;
    silent.reserve(300);
    nodes_[1].lines.clear();
    for (int each = 0; each < 300; ++each)
        silent.push_back(stranger(1, {}));
    EXPECT_TRUE(until([&] { return nodes_[1].lines.size() == 300 - 256; }));
    EXPECT_THAT(nodes_[1].lines, testing::Each(HasSubstr("too many connections that say nothing")));
    EXPECT_EQ(write(0, 1, 100, std::uint16_t{9}, 1), Post::pending);
    expect(1, Event::Kind::notice, 0);
    EXPECT_FALSE(take(nodes_[1], Event::Kind::peer_down, 0)) << "whoever connected stays so";
}

TEST_F(Exchange, WhoSaysNothingIsDroppedInTime) {
    way_["connect_timeout"] = "20s";
    node(1);
    const os::Descriptor silent = stranger(1, bytes_of(call()).first(4));
    EXPECT_TRUE(until([&] { return !nodes_[1].lines.empty(); }));
    EXPECT_THAT(nodes_[1].lines, ElementsAre(HasSubstr("it did not say in time who calls")));
    EXPECT_GE(now_, 20 * ps_per_s);
}

TEST_F(Exchange, AnAnswerIsReadBeforeItIsBelieved) {
    node(0);
    const auto lines_after = [&](Bytes says) {
        nodes_[0].lines.clear();
        SocketAddress at = *SocketAddress::parse("127.0.0.1", 0);
        const os::Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        socklen_t size = sizeof at.storage;
        EXPECT_EQ(::bind(listener.fd(), at.get(), sizeof(sockaddr_in)), 0);
        EXPECT_EQ(::listen(listener.fd(), 1), 0);
        EXPECT_EQ(::getsockname(listener.fd(), at.get(), &size), 0);
        Address address(1, at);
        address.by_exchange = 1;
        EXPECT_TRUE(until([&] {
            return nodes_[0].endpoint->connect(Peer{1}, to_blob(address), ++nodes_[1].incarnation) == Post::pending;
        }));
        const os::Descriptor other(::accept(listener.fd(), nullptr, nullptr));
        EXPECT_EQ(::send(other.fd(), says.data(), says.size(), MSG_NOSIGNAL), static_cast<ssize_t>(says.size()));
        ::shutdown(other.fd(), SHUT_WR);
        expect(0, Event::Kind::peer_down, 1);
        return nodes_[0].lines;
    };
    Answer good;
    good.verdict = Verdict::accepted;
    good.from = pair_address();
    const auto changed = [&](auto change) {
        Answer said = good;
        change(said);
        return lines_after(bytes_of(said));
    };
    const auto is_no_node = ElementsAre(HasSubstr("what answers there is no node of this transport"));
    EXPECT_THAT(changed([](Answer& said) { ++said.magic; }), is_no_node);
    EXPECT_THAT(changed([](Answer& said) { said.verdict = Verdict{99}; }), is_no_node);
    EXPECT_THAT(changed([](Answer& said) { said.from.psn = 1U << 24; }), is_no_node);
    EXPECT_THAT(changed([](Answer& said) { said.verdict = Verdict::wrong_token; }),
                ElementsAre(HasSubstr("refused: wrong token")));
    EXPECT_THAT(changed([](Answer& said) { said.from.link = 1; }), ElementsAre(HasSubstr("its port is of InfiniBand")));
    EXPECT_THAT(lines_after(bytes_of(good).first(sizeof good - 1)), IsEmpty()) << "it gave up";
    // An address that leads nowhere is a peer that does not answer, and ends as one.
    EXPECT_THAT(changed([](Answer&) {}), IsEmpty());
    nodes_.erase(1);
}

TEST_F(Exchange, WhereNobodyListensIsSaid) {
    node(0);
    node(1);
    const Blob gone = nodes_[1].endpoint->address();
    nodes_[1].endpoint.reset();
    ASSERT_EQ(nodes_[0].endpoint->connect(Peer{1}, gone, 1), Post::pending);
    expect(0, Event::Kind::peer_down, 1);
    EXPECT_THAT(nodes_[0].lines, ElementsAre(HasSubstr("nobody listens there")));
}

TEST_F(Exchange, ACallBeforeItsTimeWaitsAndMayBeTakenBack) {
    node(0);
    node(1);
    ASSERT_EQ(connect(0, 1), Post::pending);
    for (int polls = 0; polls < 100; ++polls)
        poll_once();
    nodes_[0].endpoint->disconnect(Peer{1});
    expect(0, Event::Kind::peer_down, 1);
    for (int polls = 0; polls < 100; ++polls)
        poll_once();
    join(0, 1);
    EXPECT_THAT(nodes_[1].lines, IsEmpty());
    nodes_[1].endpoint->disconnect(Peer{0});
    expect(1, Event::Kind::peer_down, 0);
    expect(0, Event::Kind::peer_down, 1);
    join(0, 1);
}

}  // namespace
}  // namespace incast::transport::verbs
