// One direction of a channel by hand: what is written where, when it leaves, what a credit frees, what a lie does.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/count_allocations.h"
#include "channel/receiver.h"
#include "channel/sender.h"

namespace incast::channel {
namespace {

Bytes bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

/// A direction without a network: a post is placed and announced at once.
struct Direction {
    explicit Direction(Shape with, Way how = Way::doorbell, Way acknowledge = Way::doorbell)
        : announce(how),
          shape(with),
          staging(shape.bytes()),
          ring(shape.bytes()),
          cells(shape.cells() * sizeof(CreditCell)),
          sender({.shape = shape, .announce = announce, .acknowledge = acknowledge}, staging, cells),
          receiver({.shape = shape, .announce = announce, .acknowledge = acknowledge}, ring) {}

    /// How many buffers left.
    int carry() {
        int count = 0;
        while (const auto out = sender.next()) {
            place(*out);
            sender.posted(false);
            if (announce == Way::doorbell) receiver.rung();
            ++count;
        }
        return count;
    }
    void place(const Sender::Outgoing& out) {
        std::ranges::copy(out.head, ring.begin() + static_cast<std::ptrdiff_t>(out.offset));
        std::ranges::copy(out.body, ring.begin() + static_cast<std::ptrdiff_t>(out.offset + out.head.size()));
    }
    bool credit() {
        const auto credit = receiver.credit();
        if (!credit) return false;
        if (credit->is_new) grant(credit->number, credit->offset);
        receiver.credit_posted(*credit);
        if (credit->rings)
            sender.rung();
        else
            (void)sender.look();
        return !sender.is_broken();
    }
    /// The sender asks to be rung, if there is reason to.
    bool ask() {
        const auto known = sender.wish();
        if (!known) return false;
        sender.wish_posted();
        receiver.wanted(*known);
        return true;
    }
    void grant(std::uint64_t number, std::uint64_t offset) {
        const CreditCell cell = make_credit(number);
        std::memcpy(cells.data() + offset, &cell, sizeof cell);
    }
    std::size_t write(std::string_view text) { return sender.write(bytes_of(text)); }
    std::string read() {
        std::string text(4096, '\0');
        text.resize(receiver.read(std::as_writable_bytes(std::span(text))));
        return text;
    }
    /// As a peer may: whatever it likes, where it likes.
    void forge(std::uint32_t slot, const BufferHeader& header) {
        std::memcpy(ring.data() + std::size_t{slot} * shape.buffer_bytes, &header, sizeof header);
    }

    Way announce;
    Shape shape;
    std::vector<std::byte> staging;
    std::vector<std::byte> ring;
    std::vector<std::byte> cells;
    Sender sender;
    Receiver receiver;
};

constexpr Shape small{.buffers = 4, .buffer_bytes = 64, .batch = 1};  // 48 bytes each

TEST(Channel, CH_B3_BytesWaitForTheirBufferUntilTheyAreFlushed) {
    Direction way(small);
    EXPECT_EQ(way.write("one "), 4U);
    EXPECT_EQ(way.write("two"), 3U);
    EXPECT_EQ(way.carry(), 0);
    EXPECT_EQ(way.read(), "");
    way.sender.flush();
    EXPECT_EQ(way.carry(), 1) << "both in one buffer";
    EXPECT_EQ(way.read(), "one two");
    way.sender.flush();
    EXPECT_EQ(way.carry(), 0) << "there is nothing more";
}

TEST(Channel, CH_B3_WhatIsFlushedButCannotLeaveIsJoinedByMore) {
    Direction way(small);
    (void)way.write("one ");
    way.sender.flush();
    (void)way.write("two");
    EXPECT_EQ(way.carry(), 1);
    EXPECT_EQ(way.read(), "one two");
}

TEST(Channel, CH_B1_BytesFillBuffersAndAreReadAcrossThem) {
    Direction way(small);
    const std::string text(100, 'x');
    EXPECT_EQ(way.write(text), 100U);
    EXPECT_EQ(way.carry(), 2);
    way.sender.flush();
    EXPECT_EQ(way.carry(), 1);
    EXPECT_EQ(way.receiver.readable().size(), 48U);
    way.receiver.consume(1);
    EXPECT_EQ(way.receiver.readable().size(), 47U);
    EXPECT_EQ(way.read(), std::string(99, 'x'));
}

TEST(Channel, CH_B1_SmallBuffersTravelInTheHeadAlone) {
    Direction way({.buffers = 2, .buffer_bytes = 128, .batch = 1});
    (void)way.write(std::string(48, 'a'));
    way.sender.flush();
    ASSERT_TRUE(way.sender.next());
    EXPECT_EQ(way.sender.next()->head.size(), 64U);
    EXPECT_TRUE(way.sender.next()->body.empty());
    (void)way.carry();
    (void)way.write(std::string(49, 'c'));
    way.sender.flush();
    ASSERT_TRUE(way.sender.next());
    EXPECT_EQ(way.sender.next()->head.size(), 16U);
    EXPECT_EQ(way.sender.next()->body.size(), 49U);
}

TEST(Channel, CH_C1_AFullRingTakesNoMoreUntilABufferWasEmptied) {
    Direction way(small);
    EXPECT_EQ(way.write(std::string(500, 'x')), 4U * 48);
    EXPECT_FALSE(way.sender.has_room());
    EXPECT_EQ(way.carry(), 4);
    EXPECT_EQ(way.write("y"), 0U);
    std::array<std::byte, 48> some{};
    EXPECT_EQ(way.receiver.read(std::span(some).first(47)), 47U);
    EXPECT_FALSE(way.credit()) << "a byte is left in it";
    EXPECT_EQ(way.receiver.read(std::span(some).first(1)), 1U);
    EXPECT_TRUE(way.credit());
    EXPECT_EQ(way.write(std::string(100, 'y')), 48U);
    EXPECT_EQ(way.carry(), 1);
    EXPECT_EQ(way.read(), std::string(3 * 48, 'x') + std::string(48, 'y'));
}

TEST(Channel, CH_C2_CreditsComeInBatches) {
    Direction way({.buffers = 8, .buffer_bytes = 64, .batch = 2});
    (void)way.write(std::string(std::size_t{8} * 48, 'x'));
    (void)way.carry();
    std::array<std::byte, 48> some{};
    (void)way.receiver.read(some);
    EXPECT_FALSE(way.receiver.credit());
    (void)way.receiver.read(some);
    ASSERT_TRUE(way.receiver.credit());
    EXPECT_EQ(way.receiver.credit()->number, 2U);
    EXPECT_EQ(way.receiver.credit()->number, 2U) << "until it was posted";
    EXPECT_TRUE(way.credit());
    EXPECT_FALSE(way.receiver.credit());
    (void)way.read();
    ASSERT_TRUE(way.receiver.credit());
    EXPECT_EQ(way.receiver.credit()->number, 8U) << "all at once";
}

TEST(Channel, CH_C3_ACreditNeverCoversANewerOne) {
    for (const Way acknowledge : {Way::memory, Way::doorbell}) {
        Direction way(small, Way::doorbell, acknowledge);
        (void)way.write(std::string(std::size_t{4} * 48, 'x'));
        (void)way.carry();
        std::vector<Receiver::Credit> credits;
        for (int buffer = 0; buffer < 4; ++buffer) {
            std::array<std::byte, 48> some{};
            (void)way.receiver.read(some);
            ASSERT_TRUE(way.receiver.credit());
            credits.push_back(*way.receiver.credit());
            way.receiver.credit_posted(credits.back());
        }
        std::ranges::reverse(credits);  // the newest one lands first
        for (const Receiver::Credit& credit : credits) {
            way.grant(credit.number, credit.offset);
            (void)way.sender.look();
        }
        EXPECT_FALSE(way.sender.is_broken());
        EXPECT_EQ(way.write(std::string(500, 'y')), 4U * 48) << "all four are known";
    }
}

TEST(Channel, CH_C4_ACreditRingsForWhoAskedAndForNobodyElse) {
    Direction way(small);
    EXPECT_FALSE(way.ask()) << "there is room";
    (void)way.write(std::string(std::size_t{4} * 48, 'x'));
    (void)way.carry();
    std::array<std::byte, 96> some{};
    (void)way.receiver.read(some);
    ASSERT_TRUE(way.receiver.credit());
    EXPECT_FALSE(way.receiver.credit()->rings);
    EXPECT_TRUE(way.ask());
    EXPECT_FALSE(way.ask()) << "once";
    ASSERT_TRUE(way.receiver.credit());
    EXPECT_TRUE(way.receiver.credit()->rings);
    EXPECT_TRUE(way.credit());
    EXPECT_TRUE(way.sender.has_room());
    (void)way.receiver.read(some);
    ASSERT_TRUE(way.receiver.credit());
    EXPECT_FALSE(way.receiver.credit()->rings) << "it was rung";
}

TEST(Channel, CH_C4_WhoAskedIsRungForHalfOfTheRing) {
    Direction way({.buffers = 8, .buffer_bytes = 64, .batch = 1});
    (void)way.write(std::string(std::size_t{8} * 48, 'x'));
    (void)way.carry();
    EXPECT_TRUE(way.ask());
    std::array<std::byte, 48> some{};
    for (int buffer = 1; buffer <= 4; ++buffer) {
        (void)way.receiver.read(some);
        const auto credit = way.receiver.credit();
        ASSERT_TRUE(credit && credit->is_new);
        EXPECT_EQ(credit->rings, buffer == 4);
        way.receiver.credit_posted(*credit);
        way.grant(credit->number, credit->offset);
    }
    way.sender.rung();
    EXPECT_FALSE(way.sender.is_broken());
    EXPECT_EQ(way.write(std::string(500, 'y')), 4U * 48) << "all four are known";
}

TEST(Channel, CH_C4_WhoAskedTooLateIsRungAtOnce) {
    Direction way(small);
    (void)way.write(std::string(std::size_t{4} * 48, 'x'));
    (void)way.carry();
    std::array<std::byte, 96> some{};
    (void)way.receiver.read(some);
    const auto credit = way.receiver.credit();
    ASSERT_TRUE(credit);
    way.receiver.credit_posted(*credit);  // and it has not landed yet
    EXPECT_FALSE(way.receiver.credit());
    EXPECT_TRUE(way.ask());
    const auto ring = way.receiver.credit();
    ASSERT_TRUE(ring);
    EXPECT_TRUE(ring->rings);
    EXPECT_FALSE(ring->is_new) << "a later write could land before it in the same cell";
    way.grant(credit->number, credit->offset);
    EXPECT_TRUE(way.credit());
    EXPECT_TRUE(way.sender.has_room());
    EXPECT_FALSE(way.receiver.credit());
}

TEST(Channel, CH_E1_AWishThatCannotBeBreaksTheChannel) {
    Direction ahead(small);
    ahead.receiver.wanted(1);
    EXPECT_TRUE(ahead.receiver.is_broken()) << "there was no such credit";
    Direction twice(small);
    twice.receiver.wanted(0);
    EXPECT_FALSE(twice.receiver.is_broken());
    twice.receiver.wanted(0);
    EXPECT_TRUE(twice.receiver.is_broken()) << "it was not rung yet";
    for (const Way acknowledge : {Way::memory, Way::message}) {
        Direction other(small, Way::doorbell, acknowledge);
        other.receiver.wanted(0);
        EXPECT_TRUE(other.receiver.is_broken());
    }
}

TEST(Channel, CH_E1_ARingThatNobodyAskedForBreaksTheChannel) {
    Direction unasked(small);
    unasked.sender.rung();
    EXPECT_TRUE(unasked.sender.is_broken());
    Direction empty(small);
    (void)empty.write(std::string(std::size_t{4} * 48, 'x'));
    (void)empty.carry();
    EXPECT_TRUE(empty.ask());
    empty.sender.rung();
    EXPECT_TRUE(empty.sender.is_broken()) << "there is no newer credit";
    Direction early(small);
    (void)early.write(std::string(48, 'x'));
    (void)early.carry();
    early.grant(1, 0);
    early.sender.rung();
    EXPECT_TRUE(early.sender.is_broken()) << "there is one, and nobody asked";
}

TEST(Channel, CH_C1_ABufferThatIsReadInPartIsNotCredited) {
    Direction way(small);
    (void)way.write(std::string(std::size_t{3} * 48, 'x'));
    (void)way.carry();
    std::array<std::byte, 2 * 48 + 10> some{};
    ASSERT_EQ(way.receiver.read(some), some.size());
    const auto credit = way.receiver.credit();
    ASSERT_TRUE(credit);
    EXPECT_EQ(credit->number, 2U);
}

TEST(Channel, CH_M1_AStagedBufferIsLeftAloneUntilItsWriteCompletes) {
    Direction way({.buffers = 1, .buffer_bytes = 64, .batch = 1});
    (void)way.write("first");
    way.sender.flush();
    const auto out = way.sender.next();
    ASSERT_TRUE(out);
    way.place(*out);
    way.sender.posted(true);
    way.receiver.rung();
    EXPECT_EQ(way.read(), "first");
    EXPECT_TRUE(way.credit());
    EXPECT_TRUE(way.sender.has_pending());
    EXPECT_EQ(way.write("second"), 0U);
    way.sender.completed(out->slot);
    EXPECT_EQ(way.write("second"), 6U);
}

TEST(Channel, CH_M1_WhatIsSentInPlaceIsReleasedInOrder) {
    Direction way({.buffers = 4, .buffer_bytes = 128, .batch = 1});
    const std::string text(200, 'z');
    (void)way.write("before");
    EXPECT_EQ(way.sender.write_in_place(bytes_of(text)), 200U);
    const auto staged = way.sender.next();
    ASSERT_TRUE(staged && !staged->in_place);
    way.place(*staged);
    way.sender.posted(false);
    EXPECT_EQ(way.sender.released(), 6U);
    std::array<std::uint32_t, 2> slots{};
    for (std::uint32_t& slot : slots) {
        const auto out = way.sender.next();
        ASSERT_TRUE(out && out->in_place);
        EXPECT_TRUE(std::ranges::equal(out->body, bytes_of(text).first(out->body.size())));
        way.place(*out);
        way.sender.posted(true);
        slot = out->slot;
    }
    for (int ring = 0; ring < 3; ++ring)
        way.receiver.rung();
    way.sender.completed(slots[1]);
    EXPECT_EQ(way.sender.released(), 6U) << "the bytes before them are still read";
    way.sender.completed(slots[0]);
    EXPECT_EQ(way.sender.released(), 206U);
    EXPECT_EQ(way.read(), "before" + text);
}

TEST(Channel, CH_M1_WhatCouldNotBePostedIsKeptAsACopy) {
    Direction way({.buffers = 4, .buffer_bytes = 128, .batch = 1});
    std::string text(250, 'z');
    EXPECT_EQ(way.sender.to_fill(), 112U);
    EXPECT_EQ(way.sender.write_in_place(bytes_of(text)), 250U);
    const auto out = way.sender.next();
    ASSERT_TRUE(out && out->in_place);
    way.place(*out);
    way.sender.posted(false);
    way.receiver.rung();
    way.sender.keep();
    text.assign(250, '!');  // the caller's again
    EXPECT_EQ(way.sender.released(), 112U);
    EXPECT_EQ(way.write("behind"), 6U);
    EXPECT_EQ(way.sender.to_fill(), 106U);
    way.sender.flush();
    EXPECT_EQ(way.carry(), 3);
    EXPECT_EQ(way.read(), std::string(250, 'z') + "behind");
}

TEST(Channel, CH_H1_TheEndIsSaidBehindTheLastByte) {
    Direction way(small);
    (void)way.write("all");
    way.sender.finish();
    EXPECT_EQ(way.write("more"), 0U);
    EXPECT_EQ(way.carry(), 1) << "the last bytes and the end in one buffer";
    EXPECT_TRUE(way.sender.is_finished());
    EXPECT_FALSE(way.receiver.has_ended());
    EXPECT_EQ(way.read(), "all");
    EXPECT_TRUE(way.receiver.has_ended());
    EXPECT_FALSE(way.receiver.credit()) << "nobody needs one";
}

TEST(Channel, CH_H1_TheEndOfAFullRingWaitsForRoom) {
    Direction way({.buffers = 1, .buffer_bytes = 64, .batch = 1});
    (void)way.write(std::string(48, 'x'));
    way.sender.finish();
    EXPECT_EQ(way.carry(), 1);
    EXPECT_FALSE(way.sender.is_finished());
    (void)way.read();
    EXPECT_FALSE(way.receiver.has_ended());
    EXPECT_TRUE(way.credit());
    EXPECT_EQ(way.carry(), 1);
    EXPECT_TRUE(way.sender.is_finished());
    EXPECT_EQ(way.read(), "");
    EXPECT_TRUE(way.receiver.has_ended());
}

TEST(Channel, CH_A1_APolledBufferIsTakenOnceAllOfItIsThere) {
    for (const Way announce : {Way::memory, Way::message}) {
        Direction way({.buffers = 2, .buffer_bytes = 256, .batch = 1}, announce);
        (void)way.write(std::string(100, 'p'));
        way.sender.flush();
        const auto out = way.sender.next();
        ASSERT_TRUE(out);
        if (announce == Way::message) way.receiver.told(1);
        EXPECT_TRUE(way.receiver.must_look());
        EXPECT_EQ(way.read(), "");
        std::ranges::copy(out->head, way.ring.begin());
        EXPECT_EQ(way.read(), "") << "the header is there, its bytes are not";
        std::ranges::copy(out->body.first(99), way.ring.begin() + header_bytes);
        EXPECT_EQ(way.read(), "") << "one byte is missing";
        way.place(*out);
        way.sender.posted(false);
        EXPECT_EQ(way.read(), std::string(100, 'p'));
    }
}

TEST(Channel, CH_A1_WhoIsToldByMessagesLooksOnlyThen) {
    Direction way(small, Way::message);
    (void)way.write("there");
    way.sender.flush();
    (void)way.carry();
    EXPECT_FALSE(way.receiver.must_look());
    EXPECT_EQ(way.read(), "");
    way.receiver.told(1);
    EXPECT_EQ(way.read(), "there");
}

TEST(Channel, CH_E1_ABufferThatCannotBeBreaksTheChannel) {
    const BufferHeader good{.number = 1, .length = 5, .check = 0};
    std::vector<BufferHeader> lies(6, good);
    lies[0].number = 2;
    lies[1].length = 49;
    lies[2].length = 0;
    lies[3].length = BufferHeader::last_flag | 49U;
    lies[4].number = ~std::uint64_t{0};
    lies[5].length = 0x7fffffff;
    for (const BufferHeader& lie : lies) {
        Direction way(small);
        way.forge(0, lie);
        way.receiver.rung();
        EXPECT_TRUE(way.receiver.readable().empty());
        EXPECT_TRUE(way.receiver.is_broken()) << lie.number << " " << lie.length;
        way.forge(0, good);
        EXPECT_EQ(way.read(), "") << "it stays broken";
    }
    Direction way(small);
    way.forge(0, good);
    way.receiver.rung();
    EXPECT_EQ(way.read().size(), 5U);
}

TEST(Channel, CH_E1_MoreRingsThanBuffersBreakTheChannel) {
    Direction way(small);
    (void)way.write(std::string(std::size_t{4} * 48, 'x'));
    (void)way.carry();
    way.receiver.rung();
    EXPECT_EQ(way.read(), "");
    EXPECT_TRUE(way.receiver.is_broken());
}

TEST(Channel, CH_E1_NumbersOfMessagesNeverLeaveTheRing) {
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{5}, ~std::uint64_t{0}}) {
        Direction way(small, Way::message);
        way.receiver.told(number);
        EXPECT_TRUE(way.receiver.is_broken()) << number;
    }
    Direction way(small, Way::message);
    way.receiver.told(2);
    EXPECT_FALSE(way.receiver.is_broken());
    way.receiver.told(1);
    EXPECT_TRUE(way.receiver.is_broken()) << "back";
}

TEST(Channel, CH_E1_OnlyTheWayThatWasAgreedIsHeard) {
    Direction one(small, Way::message, Way::message);
    one.receiver.rung();
    EXPECT_TRUE(one.receiver.is_broken());
    one.sender.rung();
    EXPECT_TRUE(one.sender.is_broken());
    Direction two(small);
    two.receiver.told(1);
    EXPECT_TRUE(two.receiver.is_broken());
    two.sender.told(1);
    EXPECT_TRUE(two.sender.is_broken());
}

TEST(Channel, CH_E1_ACreditThatCannotBeBreaksTheChannel) {
    for (const std::uint64_t number : {std::uint64_t{3}, std::uint64_t{0}, ~std::uint64_t{0}}) {
        for (const Way acknowledge : {Way::doorbell, Way::message}) {
            Direction way(small, Way::doorbell, acknowledge);
            (void)way.write(std::string(100, 'x'));
            (void)way.carry();
            way.grant(number, 0);
            if (number == 0 && acknowledge == Way::doorbell) continue;  // it is not newer: none
            if (acknowledge == Way::doorbell)
                (void)way.sender.look();
            else
                way.sender.told(number);
            EXPECT_TRUE(way.sender.is_broken()) << number;
            EXPECT_EQ(way.write("y"), 0U);
            way.sender.flush();
            EXPECT_FALSE(way.sender.next());
        }
    }
}

TEST(Channel, CH_E1_ATornCreditIsNone) {
    CreditCell cell = make_credit(7);
    EXPECT_EQ(load_credit(std::as_bytes(std::span(&cell, 1))), 7U);
    cell.number = 8;
    EXPECT_FALSE(load_credit(std::as_bytes(std::span(&cell, 1))));
    const std::array<std::byte, sizeof(CreditCell)> zero{};
    EXPECT_FALSE(load_credit(zero)) << "nobody wrote yet";
}

TEST(Channel, CH_E1_ShapesHaveLimits) {
    EXPECT_TRUE(is_valid({.buffers = 1, .buffer_bytes = 64, .batch = 1}));
    for (const Shape bad :
         {Shape{0, 64, 1}, Shape{1, 0, 1}, Shape{1, 32, 1}, Shape{1, 100, 1}, Shape{1, 64, 0}, Shape{1, 64, 2},
          Shape{max_buffers + 1, 64, 1}, Shape{1, max_buffer_bytes + 64, 1}, Shape{max_buffers, max_buffer_bytes, 1}}) {
        EXPECT_FALSE(is_valid(bad)) << bad.buffers << " x " << bad.buffer_bytes << " / " << bad.batch;
    }
}

TEST(Channel, NothingIsAllocatedOnceItWasMade) {
    Direction way(small);
    std::array<std::byte, 300> bytes{};
    const std::uint64_t before = base::allocations.load();
    for (int round = 0; round < 100; ++round) {
        (void)way.sender.write(Bytes(bytes).first(100));
        way.sender.flush();
        (void)way.carry();
        (void)way.receiver.read(bytes);
        (void)way.credit();
    }
    EXPECT_EQ(base::allocations.load() - before, 0U);
}

}  // namespace
}  // namespace incast::channel
