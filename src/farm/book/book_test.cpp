#include "farm/book/book.h"

#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "farm/book/supply.h"

namespace incast::farm {
namespace {

using Ints = Book<int>;

std::vector<std::unique_ptr<Taker>> takers(std::size_t count) {
    std::vector<std::unique_ptr<Taker>> made;
    for (std::size_t index = 0; index < count; ++index) {
        made.push_back(std::make_unique<Taker>());
        made.back()->is_greeted = made.back()->is_welcomed = true;
    }
    return made;
}

Reply credit(std::uint64_t total) {
    return {.says = Says::credit, .value = total};
}

TEST(Book, WhatALostFarmNodeHadGoesToOthersMarkedAndInOrder) {
    Ints book;
    Ints::Finished finished;
    const auto nodes = takers(2);
    ASSERT_EQ(book.hear(*nodes[0], credit(3), 0, finished), Ints::Heard::well);
    for (int mep = 0; mep < 3; ++mep)
        book.sent(book.take(mep, 10, false), *nodes[0], 5);
    EXPECT_EQ(nodes[0]->held, 3U);
    ASSERT_EQ(book.hear(*nodes[0], {.says = Says::done, .ticket = 2, .value = 8}, 6, finished), Ints::Heard::finished);
    EXPECT_EQ(finished.load, 1);
    EXPECT_EQ(book.counts.accepted_events, 7U);
    EXPECT_EQ(book.counts.rejected_events, 3U);
    book.lose(*nodes[0]);
    EXPECT_EQ(book.next_waiting(), 1U);
    EXPECT_EQ(book.next_waiting(), 3U);
    EXPECT_EQ(book.next_waiting(), 0U);
    MepFrame frame;
    book.mark(3, frame);
    EXPECT_EQ(frame.flags, MepFrame::repeated);
    EXPECT_EQ(frame.ticket, 3U);
    book.sent(3, *nodes[1], 7);
    EXPECT_EQ(book.counts.repeated_meps, 1U);
    EXPECT_EQ(book.hear(*nodes[0], {.says = Says::done, .ticket = 3}, 8, finished), Ints::Heard::nonsense)
        << "it is another one's now";
}

TEST(Book, WhatComesBackUnseenIsNoRepeat) {
    Ints book;
    Ints::Finished finished;
    const auto nodes = takers(1);
    for (const std::uint64_t was_seen : {0U, 1U}) {
        const std::uint64_t ticket = book.take(1, 1, false);
        book.sent(ticket, *nodes[0], 0);
        ASSERT_EQ(book.hear(*nodes[0], {.says = Says::refused, .ticket = ticket, .value = was_seen}, 0, finished),
                  Ints::Heard::well);
        EXPECT_EQ(book.next_waiting(), ticket);
        MepFrame frame;
        book.mark(ticket, frame);
        EXPECT_EQ(frame.flags, was_seen == 0 ? 0U : MepFrame::repeated);
    }
    EXPECT_EQ(book.counts.refused_meps, 2U);
}

TEST(Book, NonsenseIsSeen) {
    Ints book;
    Ints::Finished finished;
    const auto nodes = takers(1);
    book.sent(book.take(1, 4, false), *nodes[0], 0);
    const auto says = [&](Reply reply) { return book.hear(*nodes[0], reply, 0, finished); };
    EXPECT_EQ(says({.says = Says::done, .ticket = 9}), Ints::Heard::nonsense);
    EXPECT_EQ(says({.says = Says::done, .ticket = 1, .value = 6}), Ints::Heard::nonsense) << "more than its events";
    EXPECT_EQ(says({.says = Says{77}}), Ints::Heard::nonsense);
    EXPECT_EQ(nodes[0]->held, 1U);
    EXPECT_EQ(says({.says = Says::done, .ticket = 1, .value = 5}), Ints::Heard::finished);
    EXPECT_EQ(says({.says = Says::done, .ticket = 1}), Ints::Heard::nonsense) << "twice";
}

TEST(Book, OnlyWhoMayGetIsChosen) {
    Ints book;
    Ints::Finished finished;
    const auto nodes = takers(3);
    for (const auto& node : nodes)
        ASSERT_EQ(book.hear(*node, credit(2), 0, finished), Ints::Heard::well);
    nodes[0]->is_leaving = true;
    nodes[1]->is_over = true;
    const std::span<const std::unique_ptr<Taker>> all(nodes);
    EXPECT_EQ(book.choose(all), 2U);
    nodes[2]->credits.send();
    nodes[2]->credits.send();
    EXPECT_FALSE(book.choose(all));
}

TEST(Taker, IsDueAsTimePasses) {
    const Limits limits{.silence = 3 * ps_per_s, .patience = 2 * ps_per_s};
    Taker taker;
    taker.meet(0);
    EXPECT_EQ(due(taker, greeting_time, {.silence = 9 * ps_per_s}), Due::nothing);
    EXPECT_EQ(due(taker, greeting_time + 1, {.silence = 9 * ps_per_s}), Due::no_greeting);
    taker.is_greeted = taker.is_welcomed = true;
    EXPECT_EQ(due(taker, ps_per_s, limits), Due::nothing);
    EXPECT_EQ(due(taker, next_due(taker, limits), limits), Due::word);
    taker.held = 1;
    EXPECT_EQ(due(taker, 2 * ps_per_s + 1, limits), Due::idle);
    EXPECT_EQ(due(taker, 3 * ps_per_s + 1, limits), Due::silent);
    taker.heard = 3 * ps_per_s;
    taker.held = 0;
    taker.is_leaving = true;
    EXPECT_EQ(due(taker, 3 * ps_per_s, limits), Due::left);
    taker.is_over = true;
    EXPECT_EQ(due(taker, 3 * ps_per_s, limits), Due::nothing);
}

TEST(Supply, TakesNoMoreThanItGaveCreditsFor) {
    Supply supply;
    supply.add_slot(7);
    supply.add_slot(8);
    const MepFrame mep{.what = What::mep};
    EXPECT_FALSE(supply.take(mep)) << "no credit was given";
    EXPECT_EQ(supply.grant()->value, 2U);
    EXPECT_FALSE(supply.grant()) << "that was said";
    EXPECT_FALSE(supply.take({.what = What::alive}));
    EXPECT_EQ(supply.take(mep), 7U);
    EXPECT_EQ(supply.take(mep), 8U);
    EXPECT_FALSE(supply.take(mep));
    supply.give_back(8);
    EXPECT_EQ(supply.grant()->value, 3U);
    supply.begin();
    EXPECT_EQ(supply.grant()->value, 1U) << "of a new connection, while one slot is still in use";
}

}  // namespace
}  // namespace incast::farm
