// What is particular to udp: strangers, forgers and replays at the port, settings, addresses, losses. What every
// transport promises is tested by tests/conformance.
#include "transport/udp/udp.h"

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "datagram/socket.h"
#include "reliable/packet.h"
#include "transport/limited_log.h"
#include "transport/udp/endpoint.h"
#include "transport/udp/hello.h"

namespace incast::transport::udp {
namespace {

using datagram::Address;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint64_t run_id = 5;
constexpr std::uint64_t secret = 0x1234'5678'9abc'def0;

Time now() {
    static const auto begin = std::chrono::steady_clock::now();
    const auto since = std::chrono::steady_clock::now() - begin;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() * ps_per_ns;
}

/// An endpoint with its log and its events.
struct Node {
    explicit Node(std::uint32_t index, const Settings& settings = {}, std::uint32_t incarnation = 1) {
        auto made = read_settings(settings);
        EXPECT_TRUE(made.ok());
        begin(index, *made, incarnation);
    }
    Node(std::uint32_t index, base::Versions versions) {
        auto made = read_settings({});
        EXPECT_TRUE(made.ok());
        made->versions = versions;
        begin(index, *made, 1);
    }
    void begin(std::uint32_t index, const EndpointSettings& settings, std::uint32_t incarnation) {
        EndpointOptions options;
        options.self = Peer{index};
        options.incarnation = incarnation;
        options.run = run_id;
        options.token = secret;
        options.max_peers = 8;
        options.max_dialled = 2;
        options.log = [this](std::string_view line) { log.emplace_back(line); };
        auto endpoint = make_endpoint(settings, options);
        EXPECT_TRUE(endpoint.ok()) << endpoint.error().message;
        transport = std::move(endpoint.value());
    }
    void poll(Time later = 0) {
        std::array<Event, 16> batch;
        const std::size_t count = transport->poll(now() + later, batch);
        for (const Event& event : std::span(batch).first(count)) {
            kinds.push_back(event.kind);
            if (event.kind == Event::Kind::message) bytes_received += event.size_or_value;
        }
    }
    /// As it stands in its blob: family and port behind magic and node, then the address.
    [[nodiscard]] Address address() const {
        const Blob blob = transport->address();
        Address address;
        std::uint16_t family = 0;
        std::memcpy(&family, blob.bytes.data() + 8, sizeof family);
        std::memcpy(&address.port, blob.bytes.data() + 10, sizeof address.port);
        std::memcpy(address.ip.data(), blob.bytes.data() + 12, address.ip.size());
        address.is_v6 = family == 6;
        return address;
    }
    std::vector<std::string> log;
    std::vector<Event::Kind> kinds;
    std::size_t bytes_received = 0;
    std::unique_ptr<Transport> transport;
};

class UdpTest : public testing::Test {
protected:
    void wait_until(const std::function<bool()>& done) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!done()) {
            ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "waited in vain";
            for (Node* node : nodes_)
                node->poll();
        }
    }
    void join(Node& a, std::uint32_t a_index, Node& b, std::uint32_t b_index) {
        ASSERT_EQ(a.transport->connect(Peer{b_index}, b.transport->address(), 1), Post::pending);
        ASSERT_EQ(b.transport->connect(Peer{a_index}, a.transport->address(), 1), Post::pending);
        wait_until([&] { return !a.kinds.empty() && !b.kinds.empty(); });
        EXPECT_THAT(a.kinds, ElementsAre(Event::Kind::peer_up));
        EXPECT_THAT(b.kinds, ElementsAre(Event::Kind::peer_up));
        a.kinds.clear();
        b.kinds.clear();
    }
    /// The run goes on as if nothing had happened.
    void expect_undisturbed(Node& a, Node& b, std::uint32_t b_index) {
        const std::array<std::byte, 100> message{};
        EXPECT_EQ(a.transport->send(Peer{b_index}, message), Post::done);
        wait_until([&] { return !b.kinds.empty(); });
        EXPECT_THAT(b.kinds, ElementsAre(Event::Kind::message));
        EXPECT_THAT(a.kinds, IsEmpty());
        b.kinds.clear();
    }
    std::vector<Node*> nodes_;
};

/// Somebody with a socket, and what he has heard.
struct Stranger {
    Stranger() { EXPECT_EQ(socket.bind(datagram::parse_ip("127.0.0.1").value_or(Address{})), 0); }
    void say(const Address& to, Bytes bytes) {
        socket.add(to, bytes, false);
        socket.send();
    }
    void say(const Address& to, const Hello& hello) { say(to, std::as_bytes(std::span(&hello, 1))); }
    void listen() {
        (void)socket.receive([&](const Address&, Bytes bytes) { heard.emplace_back(bytes.begin(), bytes.end()); });
    }
    datagram::Socket socket;
    std::vector<std::vector<std::byte>> heard;
};

/// Nodes 1 and 2 are connected; strangers come to node 2.
class UdpStrangerTest : public UdpTest {
protected:
    UdpStrangerTest() {
        nodes_ = {&one_, &two_};
        join(one_, 1, two_, 2);
    }
    Hello proper_hello() {
        return {.run = run_id,
                .token = secret,
                .group = 1,
                .session = 0x70000,
                .from = 0,
                .from_incarnation = 1,
                .to = 2,
                .to_incarnation = 1,
                .max_posted = 16,
                .datagram_bytes = 1472,
                .window_packets = 64};
    }
    Answer ask(const Hello& hello) { return ask(hello, stranger_); }
    Answer ask(const Hello& hello, Stranger& stranger) {
        stranger.heard.clear();
        stranger.say(two_.address(), hello);
        wait_until([&] {
            stranger.listen();
            return !stranger.heard.empty();
        });
        EXPECT_THAT(stranger.heard, SizeIs(1));
        EXPECT_LT(stranger.heard[0].size(), sizeof hello) << "no answer is longer than what it answers";
        return read_answer(stranger.heard[0]).value_or(Answer{});
    }
    /// What he says is not answered.
    void expect_silence(Bytes bytes) {
        stranger_.heard.clear();
        stranger_.say(two_.address(), bytes);
        // What is answered for certain comes behind it.
        stranger_.say(two_.address(), proper_hello());
        wait_until([&] {
            stranger_.listen();
            return !stranger_.heard.empty();
        });
        EXPECT_THAT(stranger_.heard, SizeIs(1));
    }
    Node one_{1};
    Node two_{2};
    Stranger stranger_;
};

TEST_F(UdpStrangerTest, RandomBytesAreNotAnsweredAndTheLogIsNotFilled) {
    for (int i = 0; i < 100; ++i)
        expect_silence(std::vector<std::byte>(1 + static_cast<std::size_t>(i) * 7, std::byte{0x5A}));
    expect_undisturbed(one_, two_, 2);
    ASSERT_THAT(two_.log, testing::Not(IsEmpty()));
    EXPECT_THAT(two_.log[0], HasSubstr("refused datagram from 127.0.0.1:"));
    EXPECT_THAT(two_.log[0], EndsWith(": not of an Incast node"));
    EXPECT_LT(two_.log.size(), 50U);
}

TEST_F(UdpStrangerTest, WhoDoesNotKnowTheTokenOrNamesAnotherRunIsRefused) {
    const std::vector<std::pair<Verdict, std::function<void(Hello&)>>> wrongs{
        {Verdict::wrong_token, [](Hello& hello) { hello.token ^= 1; }},
        {Verdict::wrong_version, [](Hello& hello) { ++hello.versions; }},
        {Verdict::wrong_run, [](Hello& hello) { ++hello.run; }},
        {Verdict::wrong_node, [](Hello& hello) { hello.to = 1; }},
        {Verdict::wrong_node, [](Hello& hello) { ++hello.to_incarnation; }},
        {Verdict::malformed, [](Hello& hello) { hello.from = 8; }},
        {Verdict::malformed, [](Hello& hello) { hello.from = 2; }},  // itself
        {Verdict::malformed, [](Hello& hello) { hello.from = 3; }},  // higher indices do not dial
        {Verdict::malformed, [](Hello& hello) { hello.max_posted = 0; }},
        {Verdict::malformed, [](Hello& hello) { hello.max_posted = 0xFFFFFFFF; }},
        {Verdict::malformed, [](Hello& hello) { hello.datagram_bytes = 32; }},
        {Verdict::malformed, [](Hello& hello) { hello.window_packets = 0; }},
        {Verdict::malformed, [](Hello& hello) { hello.session = 0; }},
        {Verdict::malformed, [](Hello& hello) { hello.knocks = 2; }}};
    for (const auto& [verdict, spoil] : wrongs) {
        Hello hello = proper_hello();
        spoil(hello);
        const Answer answer = ask(hello);
        EXPECT_EQ(answer.said, Said::refused);
        EXPECT_EQ(answer.verdict, verdict) << to_string(verdict);
    }
    expect_undisturbed(one_, two_, 2);
}

TEST_F(UdpStrangerTest, NothingIsKeptOfAnAddressThatHasNotProvenItself) {
    Hello hello = proper_hello();
    Answer answer = ask(hello);
    EXPECT_EQ(answer.said, Said::cookie);
    hello.cookie = answer.value ^ 1;
    EXPECT_EQ(ask(hello).said, Said::cookie) << "a wrong one is none";
    hello.cookie = answer.value;
    // For another connection, or from another address, it is none either.
    Hello next = hello;
    ++next.group;
    EXPECT_EQ(ask(next).said, Said::cookie);
    Stranger other;
    EXPECT_EQ(ask(hello, other).said, Said::cookie);
    // With the right one it is parked until two_ calls node 0, too.
    stranger_.say(two_.address(), hello);
    ASSERT_EQ(two_.transport->connect(Peer{0}, one_.transport->address(), 1), Post::refused) << "of another node";
    expect_undisturbed(one_, two_, 2);
}

TEST_F(UdpStrangerTest, AReplayedHelloEndsNoConnection) {
    Hello hello = proper_hello();
    hello.from = 1;  // who is connected, with a group that is not greater than that one's
    hello.group = 0;
    hello.cookie = ask(hello).value;
    const Answer answer = ask(hello);
    EXPECT_EQ(answer.said, Said::refused);
    EXPECT_EQ(answer.verdict, Verdict::stale);
    hello.from_incarnation = 0;
    hello.group = 99;
    hello.cookie = ask(hello).value;
    EXPECT_EQ(ask(hello).verdict, Verdict::stale);
    expect_undisturbed(one_, two_, 2);
}

TEST_F(UdpStrangerTest, ForgedPacketsEndNothingAndTellTheirSenderOnlyThatTheyAreOfNoSession) {
    using reliable::Kind;
    for (const Kind kind : {Kind::data, Kind::ack, Kind::ping}) {
        for (std::uint64_t index = 0; index < 12; ++index) {
            std::array<std::byte, reliable::header_bytes> bytes{};
            reliable::write_header({.kind = kind, .token = 0xABCD0000 | index, .body = {}}, bytes.data());
            stranger_.heard.clear();
            stranger_.say(two_.address(), bytes);
            wait_until([&] {
                stranger_.listen();
                return !stranger_.heard.empty();
            });
            EXPECT_EQ(stranger_.heard[0].size(), bytes.size());
        }
    }
    for (const Kind kind : {Kind::hello, Kind::welcome, Kind::bye, Kind::unknown}) {
        std::array<std::byte, reliable::header_bytes> bytes{};
        reliable::write_header({.kind = kind, .token = 0xABCD0001, .body = {}}, bytes.data());
        expect_silence(bytes);
    }
    expect_undisturbed(one_, two_, 2);
}

TEST_F(UdpTest, WhatIsLostOnTheWayIsSentAgainAndCounted) {
    const Settings bad{{"drop", "100000"}, {"twice", "50000"}, {"late", "50000"}, {"mtu", "1500"}};
    Node one{1, bad};
    Node two{2, bad};
    nodes_ = {&one, &two};
    join(one, 1, two, 2);
    constexpr std::size_t count = 3000;
    std::array<std::byte, 2000> message{};
    std::size_t sent = 0;
    wait_until([&] {
        while (sent < count && one.transport->send(Peer{2}, message) == Post::done)
            ++sent;
        return two.bytes_received == count * message.size();
    });
    wait_until([&] { return one.transport->drained(); });
    EXPECT_GT(one.transport->datagrams().lost, 0U);
    EXPECT_GT(one.transport->datagrams().repeated, 0U);
    EXPECT_GE(one.transport->datagrams().sent, count * message.size() / 1500);
    // What a connection has counted stays when it is gone.
    const Datagrams before = one.transport->datagrams();
    one.transport->disconnect(Peer{2});
    wait_until([&] { return one.kinds.back() == Event::Kind::peer_down; });
    EXPECT_GE(one.transport->datagrams().repeated, before.repeated);
}

TEST_F(UdpTest, OfTwoDatagramSizesTheSmallerOneCounts) {
    Node one{1, {{"mtu", "1500"}, {"bind", "::1"}}};
    Node two{2, {{"bind", "::1"}, {"max_rate", "100MB/s"}, {"dscp", "46"}}};
    nodes_ = {&one, &two};
    join(one, 1, two, 2);
    expect_undisturbed(one, two, 2);
    expect_undisturbed(two, one, 1);
    EXPECT_THAT(one.log, IsEmpty());
}

TEST_F(UdpTest, ASilentPeerIsLostWithOneLine) {
    Node one{1, {{"deadline", "300ms"}}};
    Node two{2};
    nodes_ = {&one, &two};
    join(one, 1, two, 2);
    nodes_ = {&one};  // the other one is stopped
    wait_until([&] { return !one.kinds.empty(); });
    EXPECT_THAT(one.kinds, ElementsAre(Event::Kind::peer_down));
    ASSERT_THAT(one.log, SizeIs(1));
    EXPECT_THAT(one.log[0], HasSubstr("lost: no sign of life for 0.3"));
}

TEST_F(UdpTest, WhoWasStoppedItselfTakesTheAnswerBeforeItsDeadline) {
    Node one{1};
    Node two{2};
    ASSERT_EQ(one.transport->connect(Peer{2}, two.transport->address(), 1), Post::pending);
    ASSERT_EQ(two.transport->connect(Peer{1}, one.transport->address(), 1), Post::pending);
    nodes_ = {&two};
    for (int answers = 0; answers < 2; ++answers) {  // a cookie, and whether it is let in
        one.poll();
        wait_until([&] {
            pollfd answer{.fd = one.transport->wait_fd(), .events = POLLIN, .revents = 0};
            return ::poll(&answer, 1, 1) == 1;
        });
    }
    constexpr Time stopped = 3600 * ps_per_s;
    one.poll(stopped);
    one.poll(stopped);
    EXPECT_THAT(one.kinds, ElementsAre(Event::Kind::peer_up));
    EXPECT_THAT(one.log, IsEmpty());
}

TEST(UdpSettings, WhatCannotBeIsRefusedInOneLine) {
    const auto refused = [](const Settings& settings) {
        const auto made = make(settings);
        return made.ok() ? "" : made.error().message;
    };
    EXPECT_THAT(refused({{"bind", "localhost"}}), HasSubstr("transport.udp.bind = localhost: no address"));
    EXPECT_THAT(refused({{"bind", "0.0.0.0"}}), HasSubstr("peers cannot reach a node at '0.0.0.0'"));
    EXPECT_THAT(refused({{"advertise", "::1"}}), HasSubstr("bind is an address of the other kind"));
    EXPECT_THAT(refused({{"mtu", "100"}}), HasSubstr("smaller than 576 B, and not 0"));
    EXPECT_THAT(refused({{"copy_below", "16KiB"}, {"send_buffer", "16KiB"}}), HasSubstr("not 4 KiB below"));
    EXPECT_THAT(refused({{"dscp", "64"}}), HasSubstr("0..63"));
    EXPECT_EQ(refused({{"bind", "0.0.0.0"}, {"advertise", "10.0.0.1"}}), "");
}

TEST(UdpSettings, PortsThatAreAllTakenAreAnErrorOfTheEndpoint) {
    Stranger taken;
    const std::string range =
        std::to_string(taken.socket.local_port()) + "-" + std::to_string(taken.socket.local_port());
    const auto endpoint = make({{"ports", range}}).value()->endpoint({});
    ASSERT_FALSE(endpoint.ok());
    EXPECT_THAT(endpoint.error().message, HasSubstr("no port of " + range + " is free at 127.0.0.1"));
}

TEST(UdpHello, TheHashIsSipHash24) {
    // The published vector for the key 00 01 .. 0f and the input 00 .. 07.
    const std::array<std::uint64_t, 1> words{0x0706050403020100};
    EXPECT_EQ(siphash({0x0706050403020100, 0x0f0e0d0c0b0a0908}, words), 0x93f5f5799a932462);
}

TEST(UdpLog, OneLineASecondSaysHowManyWereLeftOut) {
    std::vector<std::string> lines;
    LimitedLog log([&](std::string_view line) { lines.emplace_back(line); });
    for (int i = 0; i < 10; ++i)
        log.add(i * ps_per_s / 5, "line");
    EXPECT_THAT(lines, ElementsAre("line", "line (and 4 more like this)"));
}

TEST_F(UdpTest, NodesOfAdjacentVersionsMeetAndOthersRefuseEachOther) {
    for (const auto& [one, other] : std::vector<std::pair<base::Versions, base::Versions>>{
             {{1, 2}, {2, 3}}, {{2, 3}, {1, 2}}, {{1, 1}, {1, 2}}, {{2, 2}, {1, 2}}}) {
        Node a(1, one);
        Node b(2, other);
        nodes_ = {&a, &b};
        join(a, 1, b, 2);
        expect_undisturbed(a, b, 2);
    }
    Node a(1, base::Versions{1, 2});
    Node b(2, base::Versions{3, 4});
    nodes_ = {&a, &b};
    ASSERT_EQ(a.transport->connect(Peer{2}, b.transport->address(), 1), Post::pending);
    ASSERT_EQ(b.transport->connect(Peer{1}, a.transport->address(), 1), Post::pending);
    wait_until([&] { return !a.kinds.empty() && !b.log.empty(); });
    EXPECT_THAT(a.kinds, ElementsAre(Event::Kind::peer_down));
    const std::string program = " (Incast " + base::program_text(base::program_number()) + ")";
    const std::string of = " of " + std::string(transport_name) + program;
    EXPECT_THAT(a.log, ElementsAre(EndsWith("refused: it speaks versions 3 to 4" + of + ", this one versions 1 to 2" +
                                            program)));
    EXPECT_THAT(b.log[0], EndsWith("it speaks versions 1 to 2" + of + ", this one versions 3 to 4" + program));
}

TEST_F(UdpStrangerTest, TheHighestCommonVersionIsChosen) {
    Hello hello = proper_hello();
    const auto chosen_of = [&](base::Versions theirs, base::Versions ours) {
        hello.versions = theirs.packed();
        const Verdict verdict =
            judge(hello,
                  {.run = run_id, .token = secret, .self = 2, .self_incarnation = 1, .max_peers = 8, .versions = ours});
        EXPECT_EQ(verdict == Verdict::accepted, chosen(hello, ours).has_value());
        return chosen(hello, ours).value_or(0);
    };
    EXPECT_EQ(chosen_of({1, 2}, {2, 3}), 2);
    EXPECT_EQ(chosen_of({2, 3}, {1, 2}), 2);
    EXPECT_EQ(chosen_of({1, 9}, {2, 3}), 3);
    EXPECT_EQ(chosen_of({2, 3}, {2, 3}), 3);
    EXPECT_EQ(chosen_of({1, 1}, {2, 3}), 0);
    EXPECT_EQ(chosen_of({4, 5}, {2, 3}), 0);
    hello.versions = 0x0201;
    EXPECT_FALSE(chosen(hello, {1, 3})) << "the oldest is newer than the newest";
}

TEST(UdpGolden, HelloAndAnswer) {
    const Hello hello{.greeting_bytes = 3,
                      .run = 0x1111,
                      .token = 0x2222,
                      .cookie = 0x3333,
                      .group = 7,
                      .program = 0x010203,
                      .session = 0x4444,
                      .from = 1,
                      .from_incarnation = 2,
                      .to = 3,
                      .to_incarnation = 4,
                      .max_posted = 16,
                      .datagram_bytes = 1472,
                      .window_packets = 64,
                      .once = 1};
    constexpr std::array<std::uint64_t, 11> golden{0x3150445553414349,
                                                   0x0003'0000'0001'0001,
                                                   0x1111,
                                                   0x2222,
                                                   0x3333,
                                                   0x0001'0203'0000'0007,
                                                   0x4444,
                                                   0x0000'0002'0000'0001,
                                                   0x0000'0004'0000'0003,
                                                   0x0000'05c0'0000'0010,
                                                   0x0000'0001'0000'0040};
    EXPECT_EQ((std::bit_cast<std::array<std::uint64_t, 11>>(hello)), golden);
    const Answer answer{.versions = 1,
                        .said = Said::accepted,
                        .group = 7,
                        .program = 0x010203,
                        .session = 0x4444,
                        .value = 0x5555,
                        .max_posted = 16,
                        .datagram_bytes = 1472,
                        .window_packets = 64};
    constexpr std::array<std::uint64_t, 7> golden_answer{
        0x3150445553414349,    0x0000'0000'0004'0001, 0x0001'0203'0000'0007, 0x4444, 0x5555,
        0x0000'05c0'0000'0010, 0x0000'0000'0000'0040};
    EXPECT_EQ((std::bit_cast<std::array<std::uint64_t, 7>>(answer)), golden_answer);
}

}  // namespace
}  // namespace incast::transport::udp
