// That decorators change nothing they should not is tested by tests/conformance; here, what each adds.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/decorator/count.h"
#include "transport/decorator/fault.h"
#include "transport/decorator/trace.h"
#include "transport/inproc/inproc.h"

namespace incast::transport::decorator {
namespace {

using testing::ElementsAre;

std::array<std::byte, 4> text(const char* four) {
    std::array<std::byte, 4> bytes;
    std::memcpy(bytes.data(), four, 4);
    return bytes;
}

class DecoratorTest : public testing::Test {
protected:
    std::unique_ptr<Transport> endpoint(std::uint32_t index) {
        EndpointOptions options;
        options.self = Peer{index};
        options.max_peers = 4;
        return std::move(medium_->endpoint(options).value());
    }

    static std::vector<Event> poll(Transport& transport, Time now = 0) {
        std::vector<Event> events(64);
        events.resize(transport.poll(now, events));
        return events;
    }

    static void connect(Transport& a, std::uint32_t a_index, Transport& b, std::uint32_t b_index) {
        ASSERT_EQ(a.connect(Peer{b_index}, b.address(), 1), Post::pending);
        ASSERT_EQ(b.connect(Peer{a_index}, a.address(), 1), Post::pending);
    }

    std::unique_ptr<Medium> medium_ = std::move(inproc::make({}).value());
};

class Lines final : public TraceSink {
public:
    void record(const TraceRecord& record) override {
        std::string line(1, static_cast<char>('0' + static_cast<std::uint32_t>(record.self)));
        line += record.what == TraceRecord::What::event ? "<" : ">";
        line += static_cast<char>('0' + static_cast<std::uint32_t>(record.peer));
        switch (record.what) {
            case TraceRecord::What::connect:
                line += " connect";
                break;
            case TraceRecord::What::disconnect:
                line += " disconnect";
                break;
            case TraceRecord::What::send:
                line += " send " + std::string(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size());
                break;
            case TraceRecord::What::write:
                line +=
                    " write " + std::to_string(record.length) + " notice " + std::to_string(record.notice.value_or(0));
                break;
            case TraceRecord::What::read:
                line += " read";
                break;
            case TraceRecord::What::event:
                line += " event " + std::to_string(static_cast<int>(record.kind));
                if (record.kind == Event::Kind::message) {
                    line += " " + std::string(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size());
                }
                break;
        }
        lines.push_back(line);
    }
    std::vector<std::string> lines;
};

TEST_F(DecoratorTest, TraceTellsPostsAndEventsInOrder) {
    Lines lines;
    const auto a = make_trace(endpoint(0), Peer{0}, lines);
    const auto b = make_trace(endpoint(1), Peer{1}, lines);
    connect(*a, 0, *b, 1);
    poll(*a);
    EXPECT_EQ(a->send(Peer{1}, text("ping")), Post::done);
    const Local region = b->allocate(64).value();
    const Remote remote = a->import_key(Peer{1}, b->expose(region).value()).value();
    EXPECT_EQ(a->write(Peer{1}, {}, {}, Target{remote, 0}, std::uint16_t{9}, 0), Post::done);
    poll(*b);
    b->disconnect(Peer{0});
    EXPECT_THAT(lines.lines,
                ElementsAre("0>1 connect", "1>0 connect", "0<1 event 3", "0>1 send ping", "0>1 write 0 notice 9",
                            "1<0 event 3", "1<0 event 1 ping", "1<0 event 2", "1>0 disconnect"));
}

TEST_F(DecoratorTest, CountAddsUpPostsEventsAndBytes) {
    Counts sent;
    Counts received;
    const auto a = make_count(endpoint(0), sent);
    const auto b = make_count(endpoint(1), received);
    connect(*a, 0, *b, 1);
    EXPECT_EQ(a->send(Peer{1}, text("ping")), Post::done);
    EXPECT_EQ(a->send(Peer{1}, text("pong")), Post::done);
    EXPECT_EQ(a->send(Peer{2}, text("none")), Post::refused);
    const Local region = b->allocate(64).value();
    const Remote remote = a->import_key(Peer{1}, b->expose(region).value()).value();
    EXPECT_EQ(a->write(Peer{1}, text("head"), {}, Target{remote, 0}, std::uint16_t{9}, 0), Post::done);
    EXPECT_EQ(a->write(Peer{1}, text("head"), {}, Target{remote, 61}, std::uint16_t{9}, 5), Post::pending);
    poll(*b);
    poll(*b);
    EXPECT_EQ(sent.sends.answered(Post::done), 2u);
    EXPECT_EQ(sent.sends.answered(Post::refused), 1u);
    EXPECT_EQ(sent.sends.bytes, 8u);
    EXPECT_EQ(sent.writes.answered(Post::done), 1u);
    EXPECT_EQ(sent.writes.answered(Post::pending), 1u);
    EXPECT_EQ(sent.writes.bytes, 8u);
    EXPECT_EQ(received.seen(Event::Kind::peer_up), 1u);
    EXPECT_EQ(received.seen(Event::Kind::message), 2u);
    EXPECT_EQ(received.seen(Event::Kind::notice), 1u);
    EXPECT_EQ(received.message_bytes, 8u);
    EXPECT_EQ(received.polls, 2u);
    EXPECT_EQ(received.empty_polls, 1u);
}

TEST_F(DecoratorTest, FaultAnswersAgainAndOwesOneRoom) {
    const auto a = make_fault(endpoint(0), {.seed = 7, .again_per_million = 1'000'000});
    const auto b = endpoint(1);
    connect(*a, 0, *b, 1);
    poll(*a);
    EXPECT_EQ(a->send(Peer{1}, text("soon")), Post::again);
    EXPECT_EQ(a->send(Peer{1}, text("soon")), Post::again);
    EXPECT_FALSE(a->prepare_wait());
    const auto events = poll(*a);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, Event::Kind::room);
    EXPECT_EQ(events[0].peer, Peer{1});
    EXPECT_TRUE(a->prepare_wait());
    EXPECT_EQ(poll(*b).size(), 1u) << "only peer_up: nothing happened";
}

TEST_F(DecoratorTest, FaultDelaysPollsButLosesNothing) {
    const auto a = endpoint(0);
    const auto b = make_fault(endpoint(1), {.seed = 3, .delay_per_million = 900'000, .delay_max = 1000});
    connect(*a, 0, *b, 1);
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(a->send(Peer{1}, text("late")), Post::done);
    std::size_t got = 0;
    std::size_t silent = 0;
    Time now = 0;
    for (int round = 0; round < 1000 && got < 21; ++round) {
        const std::size_t count = poll(*b, now).size();
        got += count;
        if (count == 0) {
            ++silent;
            EXPECT_LE(b->next_deadline(), now + 1000);
            now = std::max(now + 1, b->next_deadline());
        }
    }
    EXPECT_EQ(got, 21u);
    EXPECT_GT(silent, 0u);
}

TEST_F(DecoratorTest, FaultDropsAConnectionForBothSides) {
    const auto a = make_fault(endpoint(0), {.seed = 1, .drop_per_million = 1'000'000});
    const auto b = endpoint(1);
    connect(*a, 0, *b, 1);
    EXPECT_EQ(poll(*a).back().kind, Event::Kind::peer_up);
    EXPECT_EQ(poll(*a).back().kind, Event::Kind::peer_down);
    EXPECT_EQ(poll(*b).back().kind, Event::Kind::peer_down);
}

TEST_F(DecoratorTest, SameSeedSameFaults) {
    const auto story = [&](std::uint64_t seed) {
        const auto medium = std::move(inproc::make({}).value());
        EndpointOptions options;
        options.max_peers = 2;
        const auto a =
            make_fault(std::move(medium->endpoint(options).value()), {.seed = seed, .again_per_million = 500'000});
        options.self = Peer{1};
        const auto b = std::move(medium->endpoint(options).value());
        connect(*a, 0, *b, 1);
        poll(*a);
        std::string answers;
        for (int i = 0; i < 64; ++i)
            answers += a->send(Peer{1}, text("same")) == Post::done ? 'd' : 'a';
        return answers;
    };
    EXPECT_EQ(story(5), story(5));
    EXPECT_NE(story(5), story(6));
}

}  // namespace
}  // namespace incast::transport::decorator
