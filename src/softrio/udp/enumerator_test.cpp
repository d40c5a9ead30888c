// Destination ids from an enumerating host, by the host and by those who ask.
#include "softrio/udp/enumerator.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>

#include "softrio/shm/system.h"
#include "softrio/udp/membership.h"
#include "support/softrio_udp.h"

namespace incast::softrio::udp {
namespace {

constexpr int deadline_ms = 20'000;

/// As the host tells it; nobody is there.
std::string at_port(int port) {
    return "127.0.0.1:" + std::to_string(port);
}

using Kind = HostThread::Kind;

/// Somebody who joins, and what it knows of others.
struct Endpoint {
    explicit Endpoint(const HostThread& host) {
        auto connected = Membership::connect(host.address(), deadline_ms);
        EXPECT_TRUE(connected.ok());
        if (connected) membership = std::move(*connected);
    }
    Result<std::uint32_t> join(std::uint32_t wanted, std::uint16_t port) {
        return membership.join(wanted, port, deadline_ms, told());
    }
    Membership::Changed told() {
        return [this](std::uint32_t destid, const std::optional<Address>& at) {
            if (at)
                others[destid] = to_string(*at);
            else
                others.erase(destid);
        };
    }
    template <class Condition>
    bool eventually(Condition&& condition) {
        for (const std::int64_t until = shm::now_ms() + deadline_ms; shm::now_ms() < until;) {
            membership.take_in(told());
            if (condition()) return true;
            pollfd one{membership.fd(), POLLIN, 0};
            (void)::poll(&one, 1, 10);
        }
        return false;
    }
    bool knows(const std::map<std::uint32_t, std::string>& expected) {
        return eventually([&] { return others == expected; });
    }

    bool has_groups(const std::map<std::uint32_t, std::vector<std::uint32_t>>& expected) {
        return eventually([&] {
            std::map<std::uint32_t, std::vector<std::uint32_t>> known;
            for (const MulticastGroup& each : membership.groups())
                known.emplace(each.destid, each.members);
            return known == expected;
        });
    }

    Membership membership;
    std::map<std::uint32_t, std::string> others;
};

TEST(Enumeration, GivesIdsAndTellsWhoIsThere) {
    const HostThread host;
    Endpoint one(host);
    Endpoint two(host);
    Endpoint five(host);
    EXPECT_EQ(one.join(0, 7001).value(), 1U);
    EXPECT_EQ(five.join(5, 7005).value(), 5U);
    EXPECT_EQ(two.join(0, 7002).value(), 2U);
    // All that were there before are known at once.
    EXPECT_EQ(two.others, (std::map<std::uint32_t, std::string>{{1, at_port(7001)}, {5, at_port(7005)}}));
    EXPECT_TRUE(one.knows({{2, at_port(7002)}, {5, at_port(7005)}}));
    two.membership.close();
    EXPECT_TRUE(one.knows({{5, at_port(7005)}}));
    Endpoint again(host);
    EXPECT_EQ(again.join(0, 7012).value(), 2U) << "who has left has left its id";
}

TEST(Enumeration, RefusesWhatIsTakenAndTakesAnother) {
    const HostThread host(Kind::enumerator, 100);
    Endpoint one(host);
    Endpoint two(host);
    EXPECT_EQ(one.join(9, 7001).value(), 9U);
    const auto refused = two.join(9, 7002);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "SoftRIO: the enumerating host says: destination id 9 is taken");
    EXPECT_EQ(two.join(0, 7002).value(), 100U);
}

TEST(Enumeration, ChangesAnId) {
    const HostThread host;
    Endpoint one(host);
    Endpoint two(host);
    ASSERT_TRUE(one.join(1, 7001).ok() && two.join(2, 7002).ok());
    two.membership.change(1);
    ASSERT_TRUE(two.eventually([&] { return two.membership.is_answered(); }));
    EXPECT_EQ(two.membership.destid(), 2U) << "1 is taken";
    two.membership.change(300);
    ASSERT_TRUE(two.eventually([&] { return two.membership.is_answered(); }));
    EXPECT_EQ(two.membership.destid(), 300U);
    EXPECT_TRUE(one.knows({{300, at_port(7002)}}));
}

TEST(Enumeration, AfterSyncAllAreKnown) {
    const HostThread host;
    Endpoint first(host);
    ASSERT_TRUE(first.join(0, 7001).ok());
    for (std::uint16_t number = 2; number < 12; ++number) {
        Endpoint another(host);
        const std::uint32_t destid = another.join(number, number).value();
        const std::uint32_t asked = first.membership.sync();
        ASSERT_TRUE(first.eventually([&] { return first.membership.is_synced(asked); }));
        EXPECT_TRUE(first.others.contains(destid));
    }
}

TEST(Enumeration, StrangersAreRefusedWithALineAndDisturbNobody) {
    HostThread host;
    Endpoint one(host);
    ASSERT_TRUE(one.join(0, 7001).ok());
    const std::string long_line(4 * max_line_bytes, 'x');
    for (const std::string& said : {std::string("GET / HTTP/1.1\r\n"), std::string("softrio-join 2 0 7000\n"),
                                    std::string("softrio-join 1 0 70000\n"), std::string("sync 1\n"), long_line}) {
        os::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_storage at{};
        const socklen_t bytes = fill(host.address(), at);
        ASSERT_EQ(::connect(socket.fd(), reinterpret_cast<sockaddr*>(&at), bytes), 0);
        Lines lines(std::move(socket));
        lines.say(said);
        std::string answer;
        while (lines.is_open()) {
            pollfd readable{lines.fd(), POLLIN, 0};
            ASSERT_EQ(::poll(&readable, 1, deadline_ms), 1) << said;
            lines.take([&](std::string_view line) { answer = line; });
        }
        EXPECT_EQ(answer.starts_with("refused "), said != long_line) << said;
    }
    EXPECT_NE(host.refused().find("was refused: no endpoint that this host understands"), std::string::npos);
    EXPECT_NE(host.refused().find("was refused: no UDP port"), std::string::npos);
    Endpoint two(host);
    EXPECT_EQ(two.join(0, 7002).value(), 2U);
    EXPECT_TRUE(one.knows({{2, at_port(7002)}}));
}

TEST(Enumeration, TellsOfMulticastGroups) {
    HostThread host;
    Endpoint early(host);
    ASSERT_TRUE(early.join(0, 7001).ok());
    EXPECT_EQ(host.program("[multicast]\n40000 = [1, 2]\n40001 = [7]"), "");
    EXPECT_TRUE(early.has_groups({{40000, {1, 2}}, {40001, {7}}}));
    Endpoint late(host);
    ASSERT_TRUE(late.join(0, 7002).ok());
    EXPECT_EQ(late.membership.groups().size(), 2U) << "before it is told its id";
    Endpoint wrong(host);
    const auto refused = wrong.join(40000, 7003);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "SoftRIO: the enumerating host says: destination id 40000 is a multicast group");
    EXPECT_EQ(host.program("[multicast]\n2 = [1]"), "[multicast] 2: an endpoint has that destination id");
    EXPECT_EQ(host.program("[multicast]\n40001 = [1]"), "");
    EXPECT_TRUE(early.has_groups({{40001, {1}}}));
    EXPECT_TRUE(late.has_groups({{40001, {1}}}));
}

TEST(Enumeration, AGroupOfAllFitsALine) {
    HostThread host;
    std::string members;
    std::vector<std::uint32_t> expected;
    for (std::uint32_t member = max_destid; expected.size() < max_endpoints; --member) {
        expected.push_back(member);
        members += std::to_string(member) + ", ";
    }
    ASSERT_EQ(host.program("[multicast]\n40000 = [" + members + "]"), "");
    Endpoint one(host);
    ASSERT_TRUE(one.join(0, 7001).ok());
    EXPECT_TRUE(one.has_groups({{40000, expected}}));
}

TEST(Enumeration, ASwitchIsToldOfInsteadOfTheEndpoints) {
    HostThread host(Kind::with_switch);
    Endpoint one(host);
    Endpoint two(host);
    ASSERT_TRUE(one.join(1, 7001).ok() && two.join(2, 7002).ok());
    ASSERT_TRUE(one.eventually([&] { return one.others.contains(2); }));
    EXPECT_NE(one.others[2], at_port(7002));
    EXPECT_NE(two.others[1], at_port(7001));
    const std::string before = one.others[2];
    two.membership.change(300);
    EXPECT_TRUE(one.eventually([&] { return one.others.contains(300) && !one.others.contains(2); }));
    EXPECT_NE(one.others[300], before);
    // Whose address somebody has already could not be told from that one.
    Endpoint same(host);
    const auto refused = same.join(3, 7001);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "SoftRIO: the enumerating host says: " + at_port(7001) + " is another endpoint");
    two.membership.close();
    EXPECT_TRUE(one.knows({}));
    Endpoint again(host);
    EXPECT_TRUE(again.join(300, 7002).ok());
}

TEST(Enumeration, ALyingHostIsLeft) {
    // Whatever it is that listens there.
    os::Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage at{};
    socklen_t bytes = fill(*parse_address("127.0.0.1:0", Ports::any_too), at);
    ASSERT_EQ(::bind(listener.fd(), reinterpret_cast<sockaddr*>(&at), bytes), 0);
    ASSERT_EQ(::listen(listener.fd(), 1), 0);
    ASSERT_EQ(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&at), &bytes), 0);
    auto joining = Membership::connect(address_of(at), deadline_ms);
    ASSERT_TRUE(joining.ok());
    Lines host(os::Descriptor(::accept(listener.fd(), nullptr, nullptr)));
    host.say("220 mail.example ESMTP\n");
    const auto joined = joining->join(0, 7000, deadline_ms, [](auto, const auto&) { FAIL(); });
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().message, "SoftRIO: the enumerating host has closed the connection");
}

}  // namespace
}  // namespace incast::softrio::udp
