// Endpoints over datagrams of this host, which stand for RDS where the kernel has none: who is let in, who is refused
// and why, what becomes of a peer that goes or is silent; and what is said where RDS is missing.
#include "transport/rds/endpoint.h"

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "transport/rds/rds.h"

namespace incast::transport::rds {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t run_id = 5;
constexpr std::uint64_t secret = 0x1234'5678'9abc'def0;

Time now() {
    static const auto begin = std::chrono::steady_clock::now();
    const auto since = std::chrono::steady_clock::now() - begin;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() * ps_per_ns;
}

struct Node {
    explicit Node(std::uint32_t index, std::uint64_t token = secret, std::uint32_t incarnation = 1) {
        auto settings = read_settings({});
        EXPECT_TRUE(settings.ok());
        settings->socket.family = {.domain = AF_INET, .type = SOCK_DGRAM};
        EndpointOptions options;
        options.self = Peer{index};
        options.incarnation = incarnation;
        options.run = run_id;
        options.token = token;
        options.max_peers = 4;
        options.log = [this](std::string_view line) { log.emplace_back(line); };
        auto made = Endpoint::make(*settings, options);
        EXPECT_TRUE(made.ok()) << made.error().message;
        transport = std::move(made.value());
    }
    void poll(Time later = 0) {
        std::array<Event, 16> batch;
        const std::size_t count = transport->poll(now() + later, batch);
        for (const Event& event : std::span(batch).first(count))
            kinds.push_back(event.kind);
    }
    std::vector<std::string> log;
    std::vector<Event::Kind> kinds;
    std::unique_ptr<Transport> transport;
};

class RdsEndpoint : public testing::Test {
protected:
    static void wait_until(const std::vector<Node*>& nodes, const std::function<bool()>& done) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!done()) {
            ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "waited in vain";
            for (Node* node : nodes)
                node->poll();
        }
    }
    static void join(Node& a, Node& b) {
        ASSERT_EQ(a.transport->connect(Peer{1}, b.transport->address(), 1), Post::pending);
        ASSERT_EQ(b.transport->connect(Peer{0}, a.transport->address(), 1), Post::pending);
        wait_until({&a, &b}, [&] { return !a.kinds.empty() && !b.kinds.empty(); });
        EXPECT_THAT(std::exchange(a.kinds, {}), ElementsAre(Event::Kind::peer_up));
        EXPECT_THAT(std::exchange(b.kinds, {}), ElementsAre(Event::Kind::peer_up));
    }
};

TEST_F(RdsEndpoint, PeersComeUpAndHearTheEnd) {
    Node a(0);
    Node b(1);
    join(a, b);
    const std::array<std::byte, 100> message{};
    EXPECT_EQ(a.transport->send(Peer{1}, message), Post::done);
    wait_until({&a, &b}, [&] { return !b.kinds.empty() && a.transport->drained(); });
    EXPECT_THAT(b.kinds, ElementsAre(Event::Kind::message));
    b.transport.reset();
    wait_until({&a}, [&] { return !a.kinds.empty(); });
    EXPECT_THAT(a.kinds, ElementsAre(Event::Kind::peer_down));
    EXPECT_THAT(a.log, IsEmpty());
}

TEST_F(RdsEndpoint, WhoIsSilentIsLostWithOneLine) {
    Node a(0);
    Node b(1);
    join(a, b);
    a.poll();
    constexpr Time past_the_deadline = 11 * ps_per_s;
    for (int polls = 0; polls < 4 && a.kinds.empty(); ++polls)
        a.poll(past_the_deadline);
    EXPECT_THAT(a.kinds, ElementsAre(Event::Kind::peer_down));
    EXPECT_THAT(a.log, ElementsAre(HasSubstr("lost: no sign of life for 10.00 s")));
}

TEST_F(RdsEndpoint, WhoHasAnotherTokenIsRefusedAndToldSo) {
    Node a(0, secret + 1);
    Node b(1);
    ASSERT_EQ(a.transport->connect(Peer{1}, b.transport->address(), 1), Post::pending);
    ASSERT_EQ(b.transport->connect(Peer{0}, a.transport->address(), 1), Post::pending);
    wait_until({&a, &b}, [&] { return !a.kinds.empty(); });
    EXPECT_THAT(a.kinds, ElementsAre(Event::Kind::peer_down));
    EXPECT_THAT(a.log, ElementsAre(HasSubstr("cannot connect to node 1 at 127.0.0.1:")));
    EXPECT_THAT(a.log.front(), HasSubstr("refused: wrong token"));
    EXPECT_THAT(b.log, ElementsAre(HasSubstr("refused connection from 127.0.0.1:")));
    EXPECT_THAT(b.kinds, IsEmpty());
}

TEST_F(RdsEndpoint, WhoSaysNothingOfIncastIsRefusedWithOneLine) {
    Node a(0);
    Node b(1);
    Node stranger(2);
    Address at;
    const Blob blob = b.transport->address();
    std::memcpy(&at, blob.bytes.data(), sizeof at);
    SocketAddress to = SocketAddress::parse("127.0.0.1", at.port).value_or(SocketAddress{});
    const os::Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    for (const std::size_t bytes : {std::size_t{1}, sizeof(Call), sizeof(Call) + 1, std::size_t{5000}}) {
        const std::vector<char> noise(bytes, 'x');
        ASSERT_EQ(::sendto(socket.fd(), noise.data(), noise.size(), 0, to.get(), to.size()),
                  static_cast<ssize_t>(bytes));
    }
    wait_until({&b}, [&] { return !b.log.empty(); });
    EXPECT_THAT(b.log, ElementsAre(HasSubstr("not of an Incast node"))) << "one line a second at most";
    join(a, b);
}

TEST_F(RdsEndpoint, SettingsThatCannotBeAreRefused) {
    const auto why = [](const Settings& given) {
        const auto made = make(given);
        return made.ok() ? std::string() : made.error().message;
    };
    EXPECT_THAT(why({{"bind", "0.0.0.0"}}), HasSubstr("transport.rds.bind = 0.0.0.0: RDS needs one address"));
    EXPECT_THAT(why({{"bind", "host"}}), HasSubstr("'host' is no address"));
    EXPECT_THAT(why({{"carrier", "udp"}}), HasSubstr("transport.rds.carrier"));
    EXPECT_THAT(why({{"copy_below", "64KiB"}, {"send_buffer", "64KiB"}}), HasSubstr("not 4 KiB below"));
}

TEST_F(RdsEndpoint, AKernelWithoutRdsIsSaidInOneLineThatNamesItsModule) {
    const std::string missing = missing_here();
    if (missing.empty()) GTEST_SKIP() << "this kernel has AF_RDS";
    const auto settings = read_settings({});
    EndpointOptions options;
    options.max_peers = 2;
    const auto made = Endpoint::make(*settings, options);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().message, "rds: " + missing);
    EXPECT_THAT(missing, HasSubstr("modprobe rds_tcp"));
}

}  // namespace
}  // namespace incast::transport::rds
