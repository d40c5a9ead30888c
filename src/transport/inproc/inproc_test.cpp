// What is particular to inproc; what every transport promises is tested by tests/conformance.
#include "transport/inproc/inproc.h"

#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include <gtest/gtest.h>

#include "transport/inproc/queue.h"

namespace incast::transport::inproc {
namespace {

TEST(EventQueueTest, KeepsOrderAndBytesAcrossManyWraps) {
    EventQueue queue(1000);
    std::deque<std::pair<std::size_t, std::byte>> expected;
    std::uint64_t state = 1;
    std::size_t taken = 0;
    std::size_t full = 0;
    for (int round = 0; round < 20'000; ++round) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        const std::size_t size = 1 + (state >> 33) % 200;
        const std::vector<std::byte> bytes(size, static_cast<std::byte>(round));
        if (queue.fits(EventQueue::message_bytes(size))) {
            queue.push_message(Peer{1}, bytes);
            expected.emplace_back(size, static_cast<std::byte>(round));
        } else {
            ++full;
        }
        if ((state >> 20) % 3 == 0) {
            queue.release();
            for (std::size_t n = (state >> 24) % 4; n > 0 && !queue.empty(); --n) {
                const Event event = queue.take();
                ASSERT_EQ(event.size_or_value, expected.front().first);
                ASSERT_EQ(event.data[0], expected.front().second);
                ASSERT_EQ(event.data[event.size_or_value - 1], expected.front().second);
                expected.pop_front();
                ++taken;
            }
        }
    }
    EXPECT_GT(taken, 5'000u);
    EXPECT_GT(full, 100u);
}

TEST(EventQueueTest, TakenRecordsStayUntilRelease) {
    EventQueue queue(EventQueue::message_bytes(64) * 2);
    const std::vector<std::byte> first(64, std::byte{1});
    queue.push_message(Peer{1}, first);
    const Event event = queue.take();
    EXPECT_TRUE(queue.fits(EventQueue::message_bytes(64)));
    queue.push_message(Peer{1}, std::vector<std::byte>(64, std::byte{2}));
    EXPECT_FALSE(queue.fits(EventQueue::message_bytes(1)));
    EXPECT_EQ(event.data[63], std::byte{1});
    queue.release();
    EXPECT_TRUE(queue.fits(EventQueue::message_bytes(8)));
}

TEST(InprocLimits, AQueueTooLargeIsRefused) {
    EndpointOptions options;
    options.max_peers = 1U << 20;
    const auto refused = make({}).value()->endpoint(options);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("max_peers 1048576"), std::string::npos) << refused.error().message;
}

class InprocTest : public testing::Test {
protected:
    Transport& node(std::uint32_t index, std::uint32_t max_posted = 1024) {
        EndpointOptions options;
        options.self = Peer{index};
        options.max_peers = 4;
        options.max_posted = max_posted;
        auto made = medium_->endpoint(options);
        EXPECT_TRUE(made.ok());
        nodes_.push_back(std::move(made.value()));
        return *nodes_.back();
    }

    static void join(Transport& a, std::uint32_t a_index, Transport& b, std::uint32_t b_index) {
        EXPECT_EQ(a.connect(Peer{b_index}, b.address(), 1), Post::pending);
        EXPECT_EQ(b.connect(Peer{a_index}, a.address(), 1), Post::pending);
        EXPECT_EQ(poll(a).back().kind, Event::Kind::peer_up);
        EXPECT_EQ(poll(b).back().kind, Event::Kind::peer_up);
    }

    static std::vector<Event> poll(Transport& transport) {
        std::vector<Event> events(65536);
        events.resize(transport.poll(0, events));
        return events;
    }

    std::unique_ptr<Medium> medium_ = std::move(make({}).value());
    std::vector<std::unique_ptr<Transport>> nodes_;
};

TEST_F(InprocTest, OneSenderCannotFillTheQueueForOthers) {
    Transport& receiver = node(0);
    Transport& greedy = node(1);
    Transport& modest = node(2);
    join(receiver, 0, greedy, 1);
    join(receiver, 0, modest, 2);
    const std::array<std::byte, 4000> message{};
    std::size_t sent = 0;
    while (greedy.send(Peer{0}, message) == Post::done)
        ++sent;
    EXPECT_GE(sent, 2u);
    EXPECT_EQ(modest.send(Peer{0}, message), Post::done);
    EXPECT_EQ(modest.send(Peer{0}, message), Post::done);
}

TEST_F(InprocTest, RoomEventsDoNotPileUpAtASenderThatDoesNotPoll) {
    Transport& receiver = node(0, 16);
    Transport& sender = node(1, 16);
    join(receiver, 0, sender, 1);
    const std::array<std::byte, 4000> message{};
    for (int round = 0; round < 1000; ++round) {
        while (sender.send(Peer{0}, message) == Post::done) {
        }
        poll(receiver);
        poll(receiver);
    }
    const auto events = poll(sender);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, Event::Kind::room);
}

TEST_F(InprocTest, AddressesOfAnotherHubAreRefused) {
    Transport& here = node(0);
    const auto other_medium = std::move(make({}).value());
    EndpointOptions options;
    options.self = Peer{1};
    const auto there = std::move(other_medium->endpoint(options).value());
    EXPECT_EQ(here.connect(Peer{1}, there->address(), 1), Post::refused);
}

TEST_F(InprocTest, EndpointsMayOutliveTheirMedium) {
    Transport& a = node(0);
    Transport& b = node(1);
    medium_.reset();
    join(a, 0, b, 1);
    const std::array<std::byte, 1> message{std::byte{7}};
    EXPECT_EQ(a.send(Peer{1}, message), Post::done);
    EXPECT_EQ(poll(b).size(), 1u);
}

TEST_F(InprocTest, UnknownParameterIsOneClearLine) {
    const auto made = make({{"bnid", "x"}});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().message, "unknown key 'transport.inproc.bnid'; allowed in [transport.inproc]: nothing");
}

}  // namespace
}  // namespace incast::transport::inproc
