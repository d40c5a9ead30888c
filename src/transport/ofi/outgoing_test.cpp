#include "transport/ofi/outgoing.h"

#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/ofi/wire.h"

namespace incast::transport::ofi {
namespace {

using testing::ElementsAre;

class OutgoingTest : public testing::Test {
protected:
    static constexpr std::uint32_t depth = 8;
    static constexpr std::uint32_t most_records = 4;

    Outgoing make(bool is_gated) { return {3, depth, most_records, heads_.data(), buffers_.data(), nullptr, is_gated}; }
    /// All that may leave leaves.
    static std::vector<Outgoing::Operation*> leave(Outgoing& out) {
        std::vector<Outgoing::Operation*> all;
        while (Outgoing::Operation* const next = out.next()) {
            out.left(*next);
            all.push_back(next);
        }
        return all;
    }
    static std::vector<Token> back(Outgoing& out, Outgoing::Operation& operation) {
        std::vector<Token> tokens;
        out.back(operation, [&](Token token) { tokens.push_back(token); });
        return tokens;
    }

private:
    std::array<std::byte, depth * max_head_bytes> heads_{};
    std::array<std::byte, most_records * buffer_bytes> buffers_{};
};

TEST_F(OutgoingTest, AGateHoldsRecordsBackUntilAllTransfersBeforeThemAreDelivered) {
    Outgoing out = make(true);
    Outgoing::Operation& first = out.make_transfer();
    Outgoing::Operation& second = out.make_transfer();
    Outgoing::Operation& record = out.make_record(16);
    Outgoing::Operation& third = out.make_transfer();
    Outgoing::Operation& later = out.make_record(16);
    EXPECT_THAT(leave(out), ElementsAre(&first, &second, &third)) << "transfers overtake what waits";
    back(out, second);
    back(out, third);
    EXPECT_EQ(out.next(), nullptr) << "the first is still under way, whatever came back";
    back(out, first);
    EXPECT_THAT(leave(out), ElementsAre(&record, &later));
}

TEST_F(OutgoingTest, WhereOrderIsKeptEverythingLeavesInOrder) {
    Outgoing out = make(false);
    Outgoing::Operation& record = out.make_record(16);
    Outgoing::Operation& write = out.make_transfer();
    write.notifies = true;
    Outgoing::Operation& later = out.make_record(16);
    EXPECT_THAT(leave(out), ElementsAre(&record, &write, &later));
}

TEST_F(OutgoingTest, AFencedRecordWaitsForTheEndOfAllBeforeIt) {
    Outgoing out = make(false);
    Outgoing::Operation& read = out.make_transfer();
    Outgoing::Operation& record = out.make_record(16);
    record.is_fenced = true;
    EXPECT_THAT(leave(out), ElementsAre(&read));
    back(out, read);
    EXPECT_THAT(leave(out), ElementsAre(&record));
}

TEST_F(OutgoingTest, TokensEndInOrderOfPosting) {
    Outgoing out = make(true);
    Outgoing::Operation& first = out.make_transfer();
    first.token = 1;
    Outgoing::Operation& second = out.make_transfer();
    second.token = 2;
    EXPECT_EQ(leave(out).size(), 2U);
    EXPECT_THAT(back(out, second), ElementsAre());
    EXPECT_THAT(back(out, first), ElementsAre(1, 2));
    EXPECT_TRUE(out.is_quiet());
    EXPECT_FALSE(out.has_work());
}

TEST_F(OutgoingTest, RoomComesBackWithWhatHasEnded) {
    Outgoing out = make(false);
    for (std::uint32_t number = 0; number < depth; ++number)
        out.make_transfer().token = number + 1;
    EXPECT_FALSE(out.has_room(1));
    Outgoing::Operation& first = *leave(out).front();
    back(out, first);
    EXPECT_TRUE(out.has_room(1));
    EXPECT_FALSE(out.has_room(2));
    EXPECT_TRUE(out.owns(&first));
    EXPECT_FALSE(out.owns(&out));
    std::vector<Token> left;
    out.end_all([&](Token token) { left.push_back(token); });
    EXPECT_THAT(left, ElementsAre(2, 3, 4, 5, 6, 7, 8));
    EXPECT_TRUE(out.has_room(depth));
    EXPECT_TRUE(out.is_quiet());
}

TEST(OfiWire, DataOfAWriteNamesItsWriterAndItsConnection) {
    const std::uint64_t data = to_data(0xABCD, 513, 0x1234'5678'9ABC'DEF0);
    EXPECT_EQ(notice_of(data), 0xABCD);
    EXPECT_EQ(from_of(data), 513);
    EXPECT_TRUE(is_of(data, 0x1234'5678'9ABC'DEF0));
    EXPECT_FALSE(is_of(data, 0x1234'5678'9ABC'DEF1));
}

TEST(OfiWire, WhatIsNoMessageIsNonsense) {
    EXPECT_FALSE(rma::is_nonsense({.kind = rma::Header::Kind::message}, 1));
    EXPECT_TRUE(rma::is_nonsense({.kind = rma::Header::Kind::message}, 0));
    EXPECT_TRUE(rma::is_nonsense({.kind = rma::Header::Kind::message}, max_message_bytes + 1));
    EXPECT_TRUE(rma::is_nonsense({.kind = rma::Header::Kind::notice}, 1));
    EXPECT_FALSE(rma::is_nonsense({.kind = rma::Header::Kind::released, .value = 2}, 2 * sizeof(rma::Change)));
    EXPECT_TRUE(rma::is_nonsense({.kind = rma::Header::Kind::released, .value = 2}, sizeof(rma::Change)));
    EXPECT_TRUE(rma::is_nonsense({.kind = rma::Header::Kind{9}}, 0));
}

TEST(OfiWire, AnAddressOfAnotherTransportIsNone) {
    Address made;
    made.calls = *SocketAddress::parse("127.0.0.1", 4000);
    made.name_bytes = 16;
    EXPECT_TRUE(address_in(to_blob(made)).has_value());
    Address other = made;
    ++other.magic;
    EXPECT_FALSE(address_in(to_blob(other)).has_value());
    other = made;
    other.name_bytes = max_name_bytes + 1;
    EXPECT_FALSE(address_in(to_blob(other)).has_value());
    other = made;
    other.provider.fill('x');
    EXPECT_FALSE(address_in(to_blob(other)).has_value());
    Blob shorter = to_blob(made);
    shorter.bytes.pop_back();
    EXPECT_FALSE(address_in(shorter).has_value());
}

}  // namespace
}  // namespace incast::transport::ofi
