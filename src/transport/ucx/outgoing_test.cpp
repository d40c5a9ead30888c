#include "transport/ucx/outgoing.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace incast::transport::ucx {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class OutgoingTest : public testing::Test {
protected:
    static constexpr std::uint32_t depth = 8;
    static constexpr std::uint32_t most_records = 4;

    Outgoing::Operation& transfer(Token token, std::uint32_t parts = 1) {
        Outgoing::Operation& made = out_.make_transfer(parts);
        made.token = token;
        for (std::uint32_t part = 0; part < parts; ++part)
            out_.left();
        return made;
    }
    Outgoing::Operation* flush(bool also_for_records = false) {
        Outgoing::Operation* const made = out_.make_flush(also_for_records);
        if (made != nullptr) out_.left();
        return made;
    }
    Outgoing::Operation* record() {
        Outgoing::Operation* const next = out_.next_record();
        if (next != nullptr) out_.left();
        return next;
    }
    std::vector<Token> back(Outgoing::Operation& operation) {
        std::vector<Token> tokens;
        out_.returned();
        out_.back(operation, [&](Token token) { tokens.push_back(token); });
        return tokens;
    }

    Outgoing out_{nullptr, 3, depth, most_records};
};

TEST_F(OutgoingTest, ARecordLeavesOnceAFlushHasShownAllTransfersBeforeIt) {
    Outgoing::Operation& first = transfer(1);
    Outgoing::Operation* const early = flush();
    Outgoing::Operation& second = transfer(2);
    Outgoing::Operation& made = out_.make_record(0);
    Outgoing::Operation* const later = flush();
    ASSERT_NE(early, nullptr);
    ASSERT_NE(later, nullptr);
    back(first);
    back(second);
    EXPECT_EQ(record(), nullptr) << "its memory may be used again, which says nothing of the peer's";
    back(*early);
    EXPECT_EQ(record(), nullptr) << "that flush was before the second transfer";
    back(*later);
    EXPECT_EQ(record(), &made);
}

TEST_F(OutgoingTest, WithoutTransfersBeforeThemRecordsLeaveAtOnceAndInOrder) {
    Outgoing::Operation& first = out_.make_record(16);
    Outgoing::Operation& second = out_.make_record(16);
    EXPECT_EQ(flush(), nullptr);
    EXPECT_EQ(record(), &first);
    EXPECT_EQ(record(), &second);
    transfer(1);
    out_.make_record(0);
    EXPECT_EQ(record(), nullptr);
}

TEST_F(OutgoingTest, FlushesThatComeBackInAnotherOrderShowNothingTooEarly) {
    transfer(1);
    Outgoing::Operation* const early = flush();
    transfer(2);
    Outgoing::Operation* const later = flush();
    Outgoing::Operation& made = out_.make_record(0);
    back(*later);
    EXPECT_EQ(record(), nullptr);
    back(*early);
    EXPECT_EQ(record(), &made);
}

TEST_F(OutgoingTest, TransfersEndInOrderAndWithTheLastOfTheirParts) {
    Outgoing::Operation& first = transfer(1, 2);
    Outgoing::Operation& second = transfer(2);
    EXPECT_THAT(back(second), IsEmpty());
    EXPECT_THAT(back(first), IsEmpty());
    EXPECT_THAT(back(first), ElementsAre(1, 2));
    EXPECT_EQ(out_.transfers(), 0U);
}

TEST_F(OutgoingTest, ThereIsWorkUntilAFlushHasFollowedTheLastRecord) {
    EXPECT_FALSE(out_.has_work());
    out_.make_record(8);
    EXPECT_TRUE(out_.has_work());
    Outgoing::Operation* const made = record();
    ASSERT_NE(made, nullptr);
    back(*made);
    EXPECT_TRUE(out_.has_work()) << "UCX may hold it back still";
    Outgoing::Operation* const last = flush(true);
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(flush(true), nullptr) << "one is enough";
    back(*last);
    EXPECT_FALSE(out_.has_work());
}

TEST_F(OutgoingTest, WhatIsGivenUpEndsWithAllItsTokens) {
    Outgoing::Operation& first = transfer(1);
    transfer(0);
    transfer(3);
    out_.make_record(0);
    back(first);
    std::vector<Token> tokens;
    out_.end_all([&](Token token) { tokens.push_back(token); });
    EXPECT_THAT(tokens, ElementsAre(3));
    EXPECT_FALSE(out_.has_work());
    EXPECT_FALSE(out_.has_unposted());
    EXPECT_FALSE(out_.is_quiet()) << "UCX still has two parts";
}

}  // namespace
}  // namespace incast::transport::ucx
