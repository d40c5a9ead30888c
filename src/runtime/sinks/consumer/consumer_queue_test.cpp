#include "runtime/sinks/consumer/consumer_queue.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace incast::sinks {
namespace {

using Said = ConsumerQueue::Said;

/// Both areas, and the process's side of the control page.
struct Pair {
    explicit Pair(std::uint32_t window_in)
        : window(window_in),
          queue_lines(consumer::queue_bytes(window) / 64 + 1),
          control_lines(consumer::control_bytes(window) / 64 + 1),
          queue(std::as_writable_bytes(std::span(queue_lines)), std::as_writable_bytes(std::span(control_lines)),
                window) {}
    struct alignas(64) Line {
        std::byte bytes[64] = {};
    };
    consumer::Control& control() { return *reinterpret_cast<consumer::Control*>(control_lines.data()); }
    consumer::Cell& cell(std::uint32_t number) {
        return reinterpret_cast<consumer::Cell*>(reinterpret_cast<std::byte*>(control_lines.data()) +
                                                 sizeof(consumer::Control))[number];
    }
    consumer::Verdict& verdict(std::uint32_t number) {
        return reinterpret_cast<consumer::Verdict*>(&cell(window))[number];
    }
    const consumer::QueueHeader& header() { return *reinterpret_cast<consumer::QueueHeader*>(queue_lines.data()); }
    const consumer::QueueEntry& entry(std::uint64_t number) {
        return reinterpret_cast<const consumer::QueueEntry*>(reinterpret_cast<const std::byte*>(queue_lines.data()) +
                                                             sizeof(consumer::QueueHeader))[number % window];
    }
    void give_back(std::uint64_t number) {
        cell(entry(number).cell).store(entry(number).serial);
        ++control().releases;
    }

    std::uint32_t window;
    std::vector<Line> queue_lines;
    std::vector<Line> control_lines;
    ConsumerQueue queue;
    std::vector<std::uint32_t> slots;
    std::vector<std::uint64_t> verdicts;
};

TEST(ConsumerQueue, HandsOutAsManyAsTheWindowAndTakesBackInAnyOrder) {
    Pair pair(3);
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
        ASSERT_TRUE(pair.queue.has_room());
        pair.queue.deliver(100 + slot, 7 + slot, slot == 2);
    }
    EXPECT_FALSE(pair.queue.has_room());
    EXPECT_EQ(pair.header().delivered, 3U);
    EXPECT_EQ(pair.entry(1).serial, 101U);
    EXPECT_EQ(pair.entry(1).slot, 8U);
    EXPECT_EQ(pair.entry(2).repeated, 1U);
    EXPECT_EQ(pair.queue.collect(pair.slots, pair.verdicts), Said::nothing);
    pair.give_back(2);
    EXPECT_TRUE(pair.queue.has_news());
    EXPECT_EQ(pair.queue.collect(pair.slots, pair.verdicts), Said::something);
    EXPECT_EQ(pair.slots, std::vector<std::uint32_t>{9});
    pair.queue.deliver(103, 1, false);
    EXPECT_EQ(pair.entry(3).serial, 103U);
    EXPECT_NE(pair.entry(3).cell, pair.entry(1).cell);
    pair.give_back(1);
    pair.give_back(3);
    pair.slots.clear();
    EXPECT_EQ(pair.queue.collect(pair.slots, pair.verdicts), Said::something);
    EXPECT_EQ(pair.queue.outstanding(), 1U + 0U);
    pair.slots.clear();
    pair.queue.take_all(pair.slots);
    EXPECT_EQ(pair.slots, std::vector<std::uint32_t>{7}) << "the one it never gave back";
    EXPECT_EQ(pair.queue.outstanding(), 0U);
}

TEST(ConsumerQueue, AWordThatIsSeenBeforeItsCountCountsOnce) {
    Pair pair(2);
    pair.queue.deliver(1, 0, false);
    pair.queue.deliver(2, 1, false);
    pair.cell(pair.entry(0).cell).store(1);
    pair.give_back(1);  // its count comes before that of the first
    EXPECT_EQ(pair.queue.collect(pair.slots, pair.verdicts), Said::something);
    EXPECT_EQ(pair.slots.size(), 2U);
    ++pair.control().releases;
    pair.slots.clear();
    EXPECT_EQ(pair.queue.collect(pair.slots, pair.verdicts), Said::something);
    EXPECT_TRUE(pair.slots.empty());
}

TEST(ConsumerQueue, NonsenseIsNonsense) {
    {
        Pair more(2);
        more.queue.deliver(1, 0, false);
        more.control().releases = 2;
        EXPECT_EQ(more.queue.collect(more.slots, more.verdicts), Said::nonsense) << "more than it ever got";
    }
    {
        Pair less(2);
        less.queue.deliver(1, 0, false);
        less.give_back(0);
        EXPECT_EQ(less.queue.collect(less.slots, less.verdicts), Said::something);
        less.queue.deliver(2, 1, false);
        less.control().releases = 0;
        EXPECT_EQ(less.queue.collect(less.slots, less.verdicts), Said::nonsense) << "counting backwards";
    }
    {
        Pair word(2);
        word.queue.deliver(5, 0, false);
        word.cell(word.entry(0).cell) = 4;
        ++word.control().releases;
        EXPECT_EQ(word.queue.collect(word.slots, word.verdicts), Said::nonsense) << "another event's number";
        EXPECT_TRUE(word.slots.empty());
    }
}

TEST(ConsumerQueue, AVerdictComesWithItsEvent) {
    Pair pair(2);
    pair.queue.deliver(1, 4, false);
    pair.queue.deliver(2, 5, false);
    pair.verdict(pair.entry(1).cell) = 8;
    pair.give_back(1);
    pair.give_back(0);
    EXPECT_EQ(pair.queue.collect(pair.slots, pair.verdicts), Said::something);
    ASSERT_EQ(pair.slots.size(), 2U);
    ASSERT_EQ(pair.verdicts.size(), 2U);
    EXPECT_EQ(pair.verdicts[pair.slots[0] == 5 ? 0 : 1], 8U);
    EXPECT_EQ(pair.verdicts[pair.slots[0] == 5 ? 1 : 0], 0U) << "nothing was said of it";
}

TEST(ConsumerQueue, AnOldWordGivesNothingBack) {
    Pair pair(1);
    pair.queue.deliver(1, 0, false);
    pair.give_back(0);
    EXPECT_EQ(pair.queue.collect(pair.slots, pair.verdicts), Said::something);
    pair.queue.deliver(2, 3, false);
    ++pair.control().releases;  // it counts, and the word of event 1 still stands there
    pair.slots.clear();
    EXPECT_EQ(pair.queue.collect(pair.slots, pair.verdicts), Said::something);
    EXPECT_TRUE(pair.slots.empty());
    EXPECT_EQ(pair.queue.outstanding(), 1U);
}

TEST(ConsumerQueue, RingsOncePerSleepOnASocket) {
    Pair pair(2);
    EXPECT_FALSE(pair.queue.wake());
    pair.control().waiting = consumer::sleep_word(1, false);
    EXPECT_TRUE(pair.queue.wake());
    EXPECT_FALSE(pair.queue.wake());
    pair.control().waiting = 0;
    EXPECT_FALSE(pair.queue.wake());
    pair.control().waiting = consumer::sleep_word(2, false);
    EXPECT_TRUE(pair.queue.wake());
    pair.control().waiting = consumer::sleep_word(3, true);
    EXPECT_FALSE(pair.queue.wake()) << "that is done here";
}

TEST(ConsumerQueue, WhatIsNewEndsASleepOnTheWord) {
    for (const bool at_the_end : {false, true}) {
        Pair pair(2);
        const consumer::Watched before = consumer::watch(pair.control().news, 0);
        const auto begin = std::chrono::steady_clock::now();
        std::atomic<int> slept = -1;
        std::thread sleeping([&] { slept = consumer::sleep_on(&before, 1, 60'000); });
        pair.control().waiting = consumer::sleep_word(1, true);
        if (at_the_end) {
            pair.queue.end(consumer::State::ended);
        } else {
            pair.queue.deliver(1, 0, false);
        }
        EXPECT_FALSE(pair.queue.wake());
        sleeping.join();
        EXPECT_EQ(slept, 0);
        EXPECT_EQ(consumer::sleep_on(&before, 1, 60'000), 0) << "it was changed: nobody falls asleep";
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << "its time was not over";
    }
}

}  // namespace
}  // namespace incast::sinks
