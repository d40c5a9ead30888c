// What is particular to tcp: strangers at the port, settings, addresses. What every transport promises is tested by
// tests/conformance.
#include "transport/tcp/tcp.h"

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
#include <sys/socket.h>

#include "transport/framed/frame.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/hello.h"
#include "transport/tcp/socket.h"

namespace incast::transport::tcp {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t run_id = 5;
constexpr std::uint64_t secret = 0x1234'5678'9abc'def0;

/// A line of this transport's log, or of an error.
std::string said(const char* words) {
    return std::string(transport_name) + ": " + words;
}

Time now() {
    static const auto begin = std::chrono::steady_clock::now();
    const auto since = std::chrono::steady_clock::now() - begin;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() * ps_per_ns;
}

/// An endpoint with its log and its events.
struct Node {
    Node(std::uint32_t index, const Settings& settings = {}, std::uint64_t token = secret) {
        auto made = make(settings);
        EXPECT_TRUE(made.ok());
        medium = std::move(made.value());
        begin(medium->endpoint(options_of(index, token)));
    }
    Node(std::uint32_t index, const EndpointSettings& settings) {
        begin(make_endpoint(settings, options_of(index, secret)));
    }
    EndpointOptions options_of(std::uint32_t index, std::uint64_t token) {
        EndpointOptions options;
        options.self = Peer{index};
        options.run = run_id;
        options.token = token;
        options.max_peers = 8;
        options.log = [this](std::string_view line) { log.emplace_back(line); };
        return options;
    }
    void begin(Result<std::unique_ptr<Transport>> endpoint) {
        EXPECT_TRUE(endpoint.ok()) << endpoint.error().message;
        transport = std::move(endpoint.value());
    }
    void poll() { poll(now()); }
    void poll(Time at) {
        std::array<Event, 16> batch;
        const std::size_t count = transport->poll(at, batch);
        for (const Event& event : std::span(batch).first(count))
            kinds.push_back(event.kind);
    }
    [[nodiscard]] SocketAddress address() const {
        const auto address = SocketAddress::from_blob(transport->address());
        EXPECT_TRUE(address.has_value());
        return address.value_or(EndpointAddress{}).socket;
    }
    std::unique_ptr<Medium> medium;
    std::vector<std::string> log;
    std::vector<Event::Kind> kinds;
    std::unique_ptr<Transport> transport;
};

class TcpTest : public testing::Test {
protected:
    void wait_until(const std::function<bool()>& done) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
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

    static os::Descriptor stranger(const Node& node) {
        auto socket = dial(node.address(), {});
        EXPECT_TRUE(socket.ok());
        return std::move(socket.value());
    }
    void say(const os::Descriptor& socket, Bytes bytes) {
        wait_until([&] { return send_small(socket, bytes); });
    }
    static Hello proper_hello() {
        return {.stream = 0,
                .streams = 1,
                .run = run_id,
                .token = secret,
                .group = 1,
                .from = 0,
                .from_incarnation = 1,
                .to = 2,
                .to_incarnation = 1,
                .max_posted = 16};
    }
    static Bytes bytes_of(const Hello& hello) { return std::as_bytes(std::span(&hello, 1)); }

    std::vector<Node*> nodes_;
};

/// Nodes 1 and 2 are connected; strangers come to node 2.
class StrangerTest : public TcpTest {
protected:
    StrangerTest() {
        nodes_ = {&one_, &two_};
        join(one_, 1, two_, 2);
    }
    void expect_refused(const os::Descriptor& socket, const std::string& why) {
        wait_until([&] { return two_.log.size() == 1; });
        ASSERT_EQ(two_.log.size(), 1u);
        EXPECT_THAT(two_.log[0], EndsWith(": " + why));
        EXPECT_THAT(two_.log[0], HasSubstr(said("refused connection from 127.0.0.1:")));
        // The connection is closed, after at most one answer.
        wait_until([&] {
            std::array<std::byte, 64> rest;
            const ssize_t count = ::recv(socket.fd(), rest.data(), rest.size(), MSG_DONTWAIT);
            return count == 0 || (count < 0 && errno == ECONNRESET);
        });
        expect_undisturbed(one_, two_, 2);
        EXPECT_EQ(two_.log.size(), 1u);
    }
    Node one_{1, {{"hello_timeout", "50ms"}, {"half_open_max", "8"}}};
    Node two_{2, {{"hello_timeout", "50ms"}, {"half_open_max", "8"}}};
};

TEST_F(StrangerTest, PortScannerThatConnectsAndLeaves) {
    os::Descriptor scanner = stranger(two_);
    // Connected, whether or not it was accepted yet.
    wait_until([&] { return connect_error(scanner) == 0 && SocketAddress::of_peer(scanner).size() != 0; });
    scanner.close();
    wait_until([&] { return two_.log.size() == 1; });
    ASSERT_EQ(two_.log.size(), 1u);
    EXPECT_THAT(two_.log[0], EndsWith(": closed before a hello"));
    expect_undisturbed(one_, two_, 2);
}

TEST_F(StrangerTest, RandomBytesAreRefusedAtOnce) {
    const os::Descriptor socket = stranger(two_);
    const std::array<std::byte, 3> bytes{std::byte{'G'}, std::byte{'E'}, std::byte{'T'}};
    say(socket, bytes);
    expect_refused(socket, "not an Incast connection");
}

TEST_F(StrangerTest, AFloodOfRandomBytesIsNotKept) {
    const os::Descriptor socket = stranger(two_);
    const std::vector<std::byte> bytes(100'000, std::byte{0x5A});
    wait_until([&] { return ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0; });
    expect_refused(socket, "not an Incast connection");
}

TEST_F(StrangerTest, SilenceEndsAtTheDeadline) {
    const os::Descriptor socket = stranger(two_);
    expect_refused(socket, "no hello in time");
}

TEST_F(StrangerTest, AHelloThatDribblesEndsAtTheSameDeadline) {
    const os::Descriptor socket = stranger(two_);
    const Hello hello = proper_hello();
    std::size_t said = 0;
    wait_until([&] {
        if (said < sizeof hello - 1 && send_small(socket, bytes_of(hello).subspan(said, 1))) ++said;
        return !two_.log.empty();
    });
    expect_refused(socket, "no hello in time");
}

TEST_F(StrangerTest, WrongToken) {
    const os::Descriptor socket = stranger(two_);
    Hello hello = proper_hello();
    hello.token ^= 1;
    say(socket, bytes_of(hello));
    expect_refused(socket, "wrong token");
}

/// What is answered, whole.
class VersionTest : public StrangerTest {
protected:
    Answer answer_to(const Hello& hello) {
        const os::Descriptor socket = stranger(two_);
        say(socket, bytes_of(hello));
        std::array<std::byte, sizeof(Answer)> bytes{};
        std::size_t count = 0;
        wait_until([&] {
            const ssize_t more = ::recv(socket.fd(), bytes.data() + count, bytes.size() - count, MSG_DONTWAIT);
            count += more > 0 ? static_cast<std::size_t>(more) : 0;
            return count == bytes.size();
        });
        return std::bit_cast<Answer>(bytes);
    }
    static Hello hello_of(base::Versions versions, std::uint32_t program) {
        Hello hello = proper_hello();
        hello.versions = versions.packed();
        hello.program = program;
        return hello;
    }
};

TEST_F(VersionTest, OthersAreRefusedInALineThatNamesBothSides) {
    const std::string here = "this one version 1 (Incast " + base::program_text(base::program_number()) + ")";
    const Answer answer = answer_to(hello_of({2, 3}, 0x010203));
    EXPECT_EQ(answer.verdict, Verdict::wrong_version);
    EXPECT_EQ(reason(answer, {2, 3}), "it speaks version 1 of " + std::string(transport_name) + " (Incast " +
                                          base::program_text(base::program_number()) + "), this one versions 2 to 3" +
                                          " (Incast " + base::program_text(base::program_number()) + ")");
    wait_until([&] { return two_.log.size() == 1; });
    EXPECT_THAT(two_.log[0],
                EndsWith(": it speaks versions 2 to 3 of " + std::string(transport_name) + " (Incast 1.2.3), " + here));
    Hello nonsense = proper_hello();
    nonsense.versions = 0x0201;
    EXPECT_EQ(answer_to(nonsense).verdict, Verdict::wrong_version);
    EXPECT_THAT(two_.log.back(),
                EndsWith(": it speaks an unknown version of " + std::string(transport_name) + ", " + here));
    expect_undisturbed(one_, two_, 2);
}

TEST_F(VersionTest, AProgramThatDoesNotSayWhichOneIsAnsweredAs010Was) {
    const Answer answer = answer_to(hello_of({2, 2}, 0));
    EXPECT_EQ(answer.verdict, Verdict::wrong_version);
    EXPECT_EQ(answer.versions, 0);
    EXPECT_EQ(answer.value, 0U);
    EXPECT_THAT(reason(answer, {2, 2}), HasSubstr("it speaks an unknown version of "));
}

TEST_F(TcpTest, NodesOfAdjacentVersionsMeetAndOthersRefuseEachOther) {
    const auto speaking = [](std::uint32_t index, base::Versions versions) {
        auto settings = read_settings({});
        EXPECT_TRUE(settings.ok());
        settings->versions = versions;
        return std::make_unique<Node>(index, *settings);
    };
    for (const auto& [one, other] : std::vector<std::pair<base::Versions, base::Versions>>{
             {{1, 2}, {2, 3}}, {{2, 3}, {1, 2}}, {{1, 1}, {1, 2}}, {{2, 2}, {1, 2}}}) {
        const auto a = speaking(1, one);
        const auto b = speaking(2, other);
        nodes_ = {a.get(), b.get()};
        join(*a, 1, *b, 2);
        expect_undisturbed(*a, *b, 2);
    }
    const auto a = speaking(1, {1, 2});
    const auto b = speaking(2, {3, 4});
    nodes_ = {a.get(), b.get()};
    ASSERT_EQ(a->transport->connect(Peer{2}, b->transport->address(), 1), Post::pending);
    ASSERT_EQ(b->transport->connect(Peer{1}, a->transport->address(), 1), Post::pending);
    wait_until([&] { return !a->kinds.empty() && !b->log.empty(); });
    EXPECT_THAT(a->kinds, ElementsAre(Event::Kind::peer_down));
    const std::string program = " (Incast " + base::program_text(base::program_number()) + ")";
    const std::string of = " of " + std::string(transport_name) + program;
    ASSERT_EQ(a->log.size(), 1U);
    EXPECT_THAT(a->log[0],
                EndsWith("refused: it speaks versions 3 to 4" + of + ", this one versions 1 to 2" + program));
    EXPECT_THAT(b->log[0], EndsWith("it speaks versions 1 to 2" + of + ", this one versions 3 to 4" + program));
}

TEST_F(StrangerTest, OtherRun) {
    const os::Descriptor socket = stranger(two_);
    Hello hello = proper_hello();
    ++hello.run;
    say(socket, bytes_of(hello));
    expect_refused(socket, "another run");
}

TEST_F(StrangerTest, NonsenseWithTheRightToken) {
    for (const auto& spoil : std::vector<std::function<void(Hello&)>>{
             [](Hello& hello) { hello.from = 8; },                                                 // beyond max_peers
             [](Hello& hello) { hello.from = 0xFFFFFFFF; }, [](Hello& hello) { hello.from = 2; },  // itself
             [](Hello& hello) { hello.from = 3; },  // higher indices do not dial
             [](Hello& hello) { hello.stream = 1; }, [](Hello& hello) { hello.streams = 2; },
             [](Hello& hello) { hello.max_posted = 0; }, [](Hello& hello) { hello.max_posted = 0xFFFFFFFF; },
             [](Hello& hello) { hello.knocks = 2; }, [](Hello& hello) { hello.greeting_bytes = 1; }}) {
        two_.log.clear();
        const os::Descriptor socket = stranger(two_);
        Hello hello = proper_hello();
        spoil(hello);
        say(socket, bytes_of(hello));
        expect_refused(socket, "malformed hello, or other settings (streams, number of nodes)");
    }
}

TEST_F(StrangerTest, AnEarlierIncarnationOfAConnectedNode) {
    const os::Descriptor socket = stranger(two_);
    Hello hello = proper_hello();
    hello.from = 1;
    hello.from_incarnation = 0;
    say(socket, bytes_of(hello));
    expect_refused(socket, "a later incarnation of that node is known");
}

TEST_F(StrangerTest, ManySilentOnesDoNotKeepANodeOut) {
    std::vector<os::Descriptor> crowd;
    for (int i = 0; i < 40; ++i)
        crowd.push_back(stranger(two_));
    wait_until([&] { return two_.log.size() >= 32; });
    Node zero{0};
    nodes_.push_back(&zero);
    join(zero, 0, two_, 2);
    wait_until([&] { return two_.log.size() == 40; });
    for (const std::string& line : two_.log) {
        EXPECT_THAT(line,
                    testing::AnyOf(EndsWith("too many connections without a hello"), EndsWith("no hello in time")));
    }
    expect_undisturbed(one_, two_, 2);
    expect_undisturbed(zero, two_, 2);
}

TEST_F(StrangerTest, FramesThatBreakTheRulesEndTheConnectionWithOneLine) {
    // A node of the run, by its hello, that then sends nonsense.
    const os::Descriptor socket = stranger(two_);
    say(socket, bytes_of(proper_hello()));
    Node zero{0};  // lends its address
    ASSERT_EQ(two_.transport->connect(Peer{0}, zero.transport->address(), 1), Post::pending);
    wait_until([&] { return !two_.kinds.empty(); });
    EXPECT_THAT(two_.kinds, ElementsAre(Event::Kind::peer_up));
    two_.kinds.clear();
    const std::array<std::byte, 64> nonsense{std::byte{77}};
    say(socket, nonsense);
    wait_until([&] { return !two_.kinds.empty(); });
    EXPECT_THAT(two_.kinds, ElementsAre(Event::Kind::peer_down));
    EXPECT_THAT(two_.log, ElementsAre(AllOf(HasSubstr(said("connection to node 0 at 127.0.0.1:")),
                                            EndsWith("lost: a frame of an unknown kind"))));
    two_.kinds.clear();
    expect_undisturbed(one_, two_, 2);
}

TEST_F(TcpTest, ADialRefusedForItsTokenSaysSo) {
    Node zero{0, {}, secret + 1};
    Node one{1};
    nodes_ = {&zero, &one};
    ASSERT_EQ(zero.transport->connect(Peer{1}, one.transport->address(), 1), Post::pending);
    wait_until([&] { return !zero.kinds.empty(); });
    EXPECT_THAT(zero.kinds, ElementsAre(Event::Kind::peer_down));
    EXPECT_THAT(zero.log, ElementsAre(AllOf(HasSubstr(said("cannot connect to node 1 at 127.0.0.1:")),
                                            EndsWith(": refused: wrong token"))));
    EXPECT_THAT(one.log, ElementsAre(EndsWith(": wrong token")));
}

TEST_F(TcpTest, WhatAnswersMustBeANode) {
    auto listener = listen_at(SocketAddress::parse("127.0.0.1", 0).value(), {}, {});
    ASSERT_TRUE(listener.ok());
    Node zero{0};
    nodes_ = {&zero};
    ASSERT_EQ(zero.transport->connect(Peer{1}, SocketAddress::of_self(*listener).to_blob(1, 1), 1), Post::pending);
    os::Descriptor accepted;
    wait_until([&] {
        accepted = os::Descriptor(::accept4(listener->fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        return accepted.is_open();
    });
    say(accepted, std::as_bytes(std::span("HTTP/1.1 400 Bad Request\r\n")));
    wait_until([&] { return !zero.kinds.empty(); });
    EXPECT_THAT(zero.kinds, ElementsAre(Event::Kind::peer_down));
    EXPECT_THAT(zero.log, ElementsAre(EndsWith("what answers there is not an Incast node")));
}

TEST_F(TcpTest, ConnectingEndsAtItsDeadlineOnBothSides) {
    Node zero{0, {{"connect_timeout", "1s"}}};
    Node one{1, {{"connect_timeout", "1s"}}};
    // Scripted time: node 1 never calls connect, then node 0 is not there to dial.
    ASSERT_EQ(zero.transport->connect(Peer{1}, one.transport->address(), 1), Post::pending);
    EXPECT_FALSE(zero.transport->prepare_wait()) << "the deadline is not set yet";
    zero.poll(5 * ps_per_s);
    EXPECT_EQ(zero.transport->next_deadline(), 6 * ps_per_s);
    zero.poll(6 * ps_per_s - 1);
    EXPECT_THAT(zero.kinds, IsEmpty());
    zero.poll(6 * ps_per_s);
    EXPECT_THAT(zero.kinds, ElementsAre(Event::Kind::peer_down));
    EXPECT_EQ(zero.transport->next_deadline(), time_never);

    ASSERT_EQ(one.transport->connect(Peer{0}, zero.transport->address(), 2), Post::pending);
    one.poll(5 * ps_per_s);
    one.poll(6 * ps_per_s);
    EXPECT_THAT(one.kinds, ElementsAre(Event::Kind::peer_down));
}

TEST_F(TcpTest, RetryingAFailingConnectLogsOnce) {
    Node zero{0};
    nodes_ = {&zero};
    Blob dead;
    {
        const Node one{1};
        dead = one.transport->address();
    }
    for (int attempt = 1; attempt <= 3; ++attempt) {
        zero.kinds.clear();
        ASSERT_EQ(zero.transport->connect(Peer{1}, dead, 1), Post::pending);
        wait_until([&] { return !zero.kinds.empty(); });
        EXPECT_THAT(zero.kinds, ElementsAre(Event::Kind::peer_down));
    }
    EXPECT_THAT(zero.log, ElementsAre(EndsWith("Connection refused")));
}

TEST_F(TcpTest, ANodeThatDialsAnewReplacesItsOldConnection) {
    Node zero{0};
    Node one{1};
    nodes_ = {&zero, &one};
    join(zero, 0, one, 1);
    zero.transport->disconnect(Peer{1});
    zero.poll();  // node 1 does not look meanwhile
    EXPECT_THAT(zero.kinds, ElementsAre(Event::Kind::peer_down));
    zero.kinds.clear();
    ASSERT_EQ(zero.transport->connect(Peer{1}, one.transport->address(), 1), Post::pending);
    wait_until([&] { return !one.kinds.empty(); });
    EXPECT_THAT(one.kinds, ElementsAre(Event::Kind::peer_down));
    one.kinds.clear();
    ASSERT_EQ(one.transport->connect(Peer{0}, zero.transport->address(), 1), Post::pending);
    wait_until([&] { return !one.kinds.empty() && !zero.kinds.empty(); });
    EXPECT_THAT(one.kinds, ElementsAre(Event::Kind::peer_up));
    EXPECT_THAT(zero.kinds, ElementsAre(Event::Kind::peer_up));
}

TEST_F(TcpTest, WhatIsPostedLeavesEvenIfTheEndpointIsDestroyedNext) {
    Node zero{0};
    Node one{1};
    nodes_ = {&zero, &one};
    join(zero, 0, one, 1);
    const std::array<std::byte, 100> message{};
    ASSERT_EQ(zero.transport->send(Peer{1}, message), Post::done);
    nodes_ = {&one};
    zero.transport.reset();
    // Message and end of the connection arrive together: both must be seen.
    wait_until([&] { return one.kinds.size() == 2; });
    EXPECT_THAT(one.kinds, ElementsAre(Event::Kind::message, Event::Kind::peer_down));
}

TEST_F(TcpTest, MessagesOfALostPeerStayWhereTheyAreUntilTheNextPoll) {
    Node a(0);
    nodes_.push_back(&a);
    {
        Node b(1);
        nodes_.push_back(&b);
        join(a, 0, b, 1);
        nodes_.pop_back();
        const std::array<std::byte, max_message_bytes> message{std::byte{1}};
        for (int count = 0; count < 5; ++count)
            EXPECT_EQ(b.transport->send(Peer{0}, message), Post::done);
    }
    // What was sent and the end of the connection come in one poll, or in few.
    bool down = false;
    std::size_t messages = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!down) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline);
        std::array<Event, 16> batch;
        const std::size_t count = a.transport->poll(now(), batch);
        for (const Event& event : std::span(batch).first(count)) {
            down = down || event.kind == Event::Kind::peer_down;
            if (event.kind != Event::Kind::message) continue;
            ++messages;
            const std::span bytes(event.data, event.size_or_value);
            ASSERT_EQ(bytes.size(), max_message_bytes);
            EXPECT_EQ(bytes.front(), std::byte{1});
            EXPECT_TRUE(std::ranges::all_of(bytes.subspan(1), [](std::byte byte) { return byte == std::byte{0}; }));
        }
    }
    EXPECT_EQ(messages, 5U);
}

TEST_F(TcpTest, NobodySleepsOnWhatIsPostedButNotSent) {
    Node zero{0};
    Node one{1};
    nodes_ = {&zero, &one};
    join(zero, 0, one, 1);
    wait_until([&] { return zero.transport->prepare_wait(); });
    const std::array<std::byte, 100> message{};
    ASSERT_EQ(zero.transport->send(Peer{1}, message), Post::done);
    EXPECT_FALSE(zero.transport->prepare_wait());
    wait_until([&] { return zero.transport->prepare_wait(); });
    wait_until([&] { return one.kinds.size() == 1; });
}

TEST(TcpSettings, BadOnesAreOneClearLine) {
    const std::string section = "transport." + std::string(transport_name);
    const auto key = [&](const char* name) { return section + "." + name; };
    const auto message = [](const Settings& settings) {
        const auto made = make(settings);
        return made.ok() ? std::string("ok") : made.error().message;
    };
    EXPECT_EQ(message({{"bind", "localhost"}}),
              key("bind") + " = localhost: no address; allowed: an IPv4 or IPv6 address");
    for (const char* ports : {"40000", "0-7", "7-6", "1-65536", "a-b", "1-2-3", " 1-2", "any-1"}) {
        EXPECT_EQ(message({{"ports", ports}}),
                  key("ports") + " = " + ports + ": no range of ports; allowed: any, or FIRST-LAST");
    }
    EXPECT_EQ(message({{"ports", "40000-40999"}}), "ok");
    EXPECT_EQ(message({{"ports", "any"}}), "ok");
    EXPECT_EQ(message({{"bind", "0.0.0.0"}}),
              key("advertise") +
                  " = \"\": peers cannot reach a node at '0.0.0.0'; allowed: an IPv4 or IPv6 "
                  "address, or empty");
    EXPECT_EQ(message({{"bind", "0.0.0.0"}, {"advertise", "127.0.0.1"}}), "ok");
    EXPECT_EQ(message({{"streams", "65"}}), key("streams") + " = 65: out of range; allowed: 1..64");
    EXPECT_EQ(message({{"streams", "two"}}), key("streams") + " = two: not a whole number; allowed: 1..64");
    EXPECT_EQ(
        message({{"copy_below", "64K"}, {"send_buffer", "16KiB"}}),
        key("copy_below") + " = 64K: not 4 KiB below " + key("send_buffer") + " = 16.0 KiB; allowed: 0 B..64.0 KiB");
    EXPECT_EQ(message({{"staging", "12Q"}}), key("staging") + " = 12Q: not a size; allowed: 8.0 KiB..16.0 MiB");
    EXPECT_EQ(message({{"staging", "64KiB"}, {"max_rate", "10Gbps"}, {"hello_timeout", "1m"}}), "ok");
    EXPECT_THAT(message({{"stream", "1"}}), HasSubstr("unknown key '" + key("stream") + "'; did you mean '" +
                                                      key("streams") + "'?; allowed in [" + section + "]: bind, "));
}

TEST(TcpSettings, AnAddressThatCannotBeBoundIsAnErrorOfTheEndpoint) {
    const auto medium = std::move(make({{"bind", "192.0.2.1"}}).value());  // TEST-NET-1: nobody's
    const auto endpoint = medium->endpoint({});
    ASSERT_FALSE(endpoint.ok());
    EXPECT_EQ(endpoint.error().message, said("bind to 192.0.2.1:0: Cannot assign requested address"));
}

TEST(TcpSettings, PortsThatAreAllTakenAreAnErrorOfTheEndpoint) {
    const auto taken = listen_at(SocketAddress::parse("127.0.0.1", 0).value(), {}, {});
    ASSERT_TRUE(taken.ok());
    const std::string port = std::to_string(SocketAddress::of_self(*taken).port());
    const auto medium = std::move(make({{"ports", port + "-" + port}}).value());
    const auto endpoint = medium->endpoint({});
    ASSERT_FALSE(endpoint.ok());
    EXPECT_EQ(endpoint.error().message, said(("no port of " + port + "-" + port + " is free at 127.0.0.1").c_str()));
}

TEST(TcpAddress, SurvivesItsBlobInBothFamilies) {
    for (const char* ip : {"127.0.0.1", "::1", "2001:db8::7"}) {
        const auto parsed = SocketAddress::parse(ip, 4711);
        ASSERT_TRUE(parsed.ok());
        const auto back = SocketAddress::from_blob(parsed->to_blob(9, 4));
        ASSERT_TRUE(back.has_value());
        EXPECT_EQ(back->socket.to_string(), parsed->to_string());
        EXPECT_EQ(back->node, 9u);
        EXPECT_EQ(back->incarnation, 4u);
    }
    EXPECT_EQ(SocketAddress::parse("::1", 80)->to_string(), "[::1]:80");
    EXPECT_TRUE(SocketAddress::parse("::1", 80)->is_loopback());
    EXPECT_TRUE(SocketAddress::parse("127.1.2.3", 80)->is_loopback());
    EXPECT_FALSE(SocketAddress::parse("10.0.0.1", 80)->is_loopback());
    EXPECT_FALSE(SocketAddress::parse("fe80::1", 80)->is_loopback());
}

}  // namespace
}  // namespace incast::transport::tcp
