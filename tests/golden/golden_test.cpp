// The wire protocols: control messages and heads of writes, frames over byte streams, reliable datagrams. What the
// bytes mean is in docs/formats.md, docs/reliable-datagrams.md and the headers named there.
#include "golden.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "reliable/connection.h"
#include "support/protocol.h"
#include "transport/decorator/forward.h"
#include "transport/framed/session.h"
#include "wire/control.h"

namespace incast::golden {
namespace {

Transcript control;  // of the cluster that is being played
std::uint32_t endpoints = 0;
std::map<unsigned, unsigned> versions;  // how often each was said

/// The transport's own part, the key of a region, is left out.
Bytes without_key(Bytes message) {
    const auto view = wire::ControlView::parse(message);
    if (!view) return message;
    constexpr std::size_t head = sizeof(wire::ControlHeader);
    switch (view->kind()) {
        case wire::ControlKind::region:
            return message.first(head + sizeof(wire::RegionBody));
        case wire::ControlKind::source_region:
            return message.first(head + sizeof(wire::SourceRegionBody));
        default:
            return message;
    }
}

class Recorder final : public transport::decorator::Forward {
public:
    explicit Recorder(std::unique_ptr<Transport> inner) : Forward(std::move(inner)), self_(endpoints++) {}
    Post send(Peer peer, Bytes message) override {
        const Post post = Forward::send(peer, message);
        if (post == Post::done) control.add(note(peer, "message"), without_key(message));
        ++versions[std::to_integer<unsigned>(message[offsetof(wire::ControlHeader, version)])];
        return post;
    }
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        const Post post = Forward::write(peer, head, body, target, notice, token);
        if (post == Post::done || post == Post::pending)
            control.add(note(peer, fmt::format("write at {} head", target.offset)), head);
        ++versions[std::to_integer<unsigned>(head[offsetof(wire::Head, version)])];
        return post;
    }

private:
    [[nodiscard]] std::string note(Peer peer, std::string_view what) const {
        return fmt::format("{} -> {} {}", self_, static_cast<std::uint32_t>(peer), what);
    }
    std::uint32_t self_;
};

void play(protocol::Scheme scheme, std::uint8_t version) {
    control = {};
    endpoints = 0;
    versions.clear();
    protocol::Config config = protocol::testing::make_config(2, 2, true, 1, 64);
    config.scheme = scheme;
    config.control_version = version;
    config.run = 0x1122334455667788;
    config.total_meps = 4;
    protocol::testing::Cluster cluster(config, 40, false, {}, [](std::unique_ptr<Transport> inner) {
        return std::unique_ptr<Transport>(std::make_unique<Recorder>(std::move(inner)));
    });
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
}

void play(protocol::Scheme scheme, std::string_view name) {
    play(scheme, std::uint8_t{1});
    control.expect(name);
}

TEST(Golden, EveryMessageAndHeadSaysTheVersionThatWasChosen) {
    for (const protocol::Scheme scheme : {protocol::Scheme::push, protocol::Scheme::pull_write,
                                          protocol::Scheme::pull_read, protocol::Scheme::push_pull}) {
        play(scheme, std::uint8_t{2});
        EXPECT_EQ(versions.size(), 1U);
        EXPECT_GT(versions[2], 0U);
    }
}

TEST(Golden, Push) {
    play(protocol::Scheme::push, "control-push");
}

TEST(Golden, Pull) {
    play(protocol::Scheme::pull_write, "control-pull");
}

TEST(Golden, PullRead) {
    play(protocol::Scheme::pull_read, "control-pull-read");
}

TEST(Golden, PushPull) {
    play(protocol::Scheme::push_pull, "control-push-pull");
}

std::vector<std::byte> counting(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t at = 0; at < size; ++at)
        bytes[at] = static_cast<std::byte>(at);
    return bytes;
}

/// A side of a framed pair and the stream that leads to it.
struct Side {
    Side(std::uint32_t self, std::uint32_t peer)
        : session({.self = Peer{self},
                   .peer = Peer{peer},
                   .self_incarnation = self + 10,
                   .peer_incarnation = peer + 10,
                   .streams = 1,
                   .max_posted = 8,
                   .max_peer_reads = 8,
                   .staging_bytes = 8192,
                   .copied_bytes = 16384,
                   .copy_below_bytes = 100,
                   .first_sequence = 0},
                  regions) {}
    transport::Regions regions{16};
    transport::framed::Session session;
};

TEST(Golden, Frames) {
    using namespace transport::framed;
    Transcript transcript;
    Side a(0, 1);
    Side b(1, 0);
    std::array<Event, 8> events;
    const auto carry = [&](Side& from, Side& to, std::string_view note) {
        EventWriter sent(events);
        std::array<Bytes, 4> pieces;
        const std::size_t count = from.session.gather(0, pieces, sent);
        std::vector<std::byte> stream;
        for (const Bytes piece : std::span(pieces).first(count))
            stream.insert(stream.end(), piece.begin(), piece.end());
        if (!stream.empty()) from.session.sent(0, stream.size(), sent);
        transcript.add(note, stream);
        for (std::size_t at = 0; at < stream.size();) {
            EventWriter received(events);
            const Receiver::Space space = to.session.space(0, 1);
            std::size_t filled = 0;
            for (const std::span<std::byte> part : {space.payload, space.staging}) {
                const std::size_t now = std::min(part.size(), stream.size() - at);
                std::copy_n(stream.begin() + static_cast<std::ptrdiff_t>(at), now, part.begin());
                at += now;
                filled += now;
                if (now < part.size()) break;
            }
            to.session.filled(0, filled);
            ASSERT_NE(to.session.parse(0, received, 1), Parse::violation) << to.session.violation();
        }
    };
    const auto bytes = counting(256);
    const Local source = a.regions.allocate(256).value();
    const Local target = b.regions.allocate(4096).value();
    std::copy(bytes.begin(), bytes.end(), a.regions.memory(source).begin());
    ASSERT_TRUE(b.regions.expose(target, {}));
    const Key key{.owner = 1, .generation = 11, .region = static_cast<std::uint32_t>(target), .bytes = 4096};
    ASSERT_EQ(a.session.send(Bytes(bytes).first(20)), Post::done);
    carry(a, b, "a: message of 20");
    const Bytes head = Bytes(bytes).first(16);
    ASSERT_NE(a.session.write(head, a.regions.memory(source).first(24), key, 512, Notice{7}, 1), Post::refused);
    carry(a, b, "a: head of 16 and 24 to offset 512, notice 7");
    ASSERT_NE(a.session.write({}, a.regions.memory(source).first(8), key, 1024, Notice{}, 2), Post::refused);
    carry(a, b, "a: 8 to offset 1024");
    ASSERT_NE(a.session.read(key, 512, a.regions.memory(source).first(16), 3), Post::refused);
    carry(a, b, "a: reads 16 of offset 512");
    carry(b, a, "b: what was read");
    transcript.expect("frames");
}

TEST(Golden, ReliableDatagrams) {
    using namespace reliable;
    Transcript transcript;
    const std::array<std::byte, 4> greeting{std::byte{'h'}, std::byte{'o'}, std::byte{'s'}, std::byte{'t'}};
    constexpr Settings settings{.datagram_bytes = 200, .window_packets = 16};
    Connection a(settings, 1, greeting);
    Connection b(settings, 2, greeting);
    std::int64_t now_ns = 1'000'000'000;
    std::uint64_t random = 0x1234'5678'0000;
    const auto exchange = [&] {
        for (bool moves = true; moves;) {
            moves = false;
            for (auto [from, to, name] : {std::tuple{&a, &b, "a:"}, {&b, &a, "b:"}}) {
                while (true) {
                    const Datagram out = from->next_datagram(now_ns);
                    if (out.bytes.empty()) break;
                    const std::vector<std::byte> datagram(out.bytes.begin(), out.bytes.end());
                    transcript.add(name, datagram);
                    moves = true;
                    const auto packet = parse(datagram);
                    ASSERT_TRUE(packet.has_value());
                    (void)to->receive(now_ns, random += 0x10000, *packet);
                    while (to->next_delivery()) {
                    }
                }
            }
            now_ns += 1000;
        }
    };
    a.open(now_ns, random);
    exchange();
    ASSERT_TRUE(a.is_established() && b.is_established());
    const auto bytes = counting(24);
    for (const std::uint8_t lane : std::to_array<std::uint8_t>({0, 1, 1, 2})) {
        std::copy(bytes.begin(), bytes.end(), a.body().begin());
        a.add(lane, bytes.size());
    }
    exchange();
    now_ns = a.next_deadline_ns();
    a.advance(now_ns);
    exchange();
    b.close();
    exchange();
    transcript.expect("reliable-datagrams");
}

}  // namespace
}  // namespace incast::golden
