#include "softrio/udp/kernel_channels.h"

#include <gtest/gtest.h>

namespace incast::softrio::udp {
namespace {

using Header = KernelChannels::Header;
using Way = KernelChannels::Way;
using enum ChannelOperation;

constexpr std::uint32_t kernel_id = 2;
constexpr std::uint32_t peer_id = 5;

/// From the endpoint's channel 300 to the kernel's 400.
Header from_peer(ChannelOperation operation, std::uint16_t word = 0) {
    Header made;
    write_header({peer_id, kernel_id, operation, 400, 300, min_message, word}, made.data());
    return made;
}

Header from_kernel(ChannelOperation operation) {
    Header made;
    write_header({kernel_id, peer_id, operation, 300, 400, min_message, 0}, made.data());
    return made;
}

class KernelChannel : public testing::Test {
protected:
    bool hand_in(const Header& message) {
        note_.reset();
        return channels_.hand_in(peer_id, message, note_);
    }
    Way hand_out(Header message) { return channels_.hand_out(peer_id, message); }
    std::uint16_t noted() const {
        CmHeader header;
        return note_ && read_header(*note_, header) && header.operation == credit ? header.word : 0;
    }

    KernelChannels channels_;
    std::optional<Header> note_;
};

TEST_F(KernelChannel, ARequestPassesOnceAndItsNumberComesBack) {
    EXPECT_TRUE(hand_in(from_peer(request, 7)));
    EXPECT_FALSE(hand_in(from_peer(request, 7)));
    Header accepted = from_kernel(accept);
    EXPECT_EQ(channels_.hand_out(peer_id, accepted), Way::go);
    CmHeader header;
    ASSERT_TRUE(read_header(accepted, header));
    EXPECT_EQ(header.word, 7);
    EXPECT_TRUE(hand_in(from_peer(request, 8)));
}

TEST_F(KernelChannel, AKernelsRequestsHaveNoNumberAndAllPass) {
    EXPECT_TRUE(hand_in(from_peer(request)));
    EXPECT_TRUE(hand_in(from_peer(request)));
}

TEST_F(KernelChannel, AKernelLeavesLengthsOut) {
    Header bare = from_kernel(request);
    bare[16] = bare[17] = std::byte{0};
    EXPECT_EQ(channels_.hand_out(peer_id, bare), Way::go);
    EXPECT_EQ(bare, from_kernel(request));
}

TEST_F(KernelChannel, AWithdrawalDoesNotReachTheListener) {
    EXPECT_TRUE(hand_in(from_peer(request, 7)));
    EXPECT_FALSE(hand_in(from_peer(close)));
    EXPECT_EQ(hand_out(from_kernel(accept)), Way::go);
    EXPECT_TRUE(hand_in(from_peer(close)));
    EXPECT_FALSE(hand_in(from_peer(close))) << "of a connection that has ended";
}

TEST_F(KernelChannel, WhatTheKernelWasHandedIsCredited) {
    EXPECT_EQ(hand_out(from_kernel(accept)), Way::go);
    for (unsigned number = 1; number <= 100'000; ++number) {
        ASSERT_TRUE(hand_in(from_peer(data)));
        const bool is_step = number % credit_step == 0;
        ASSERT_EQ(note_.has_value(), is_step) << number;
        ASSERT_EQ(noted(), is_step ? number & 0xFFFF : 0);
    }
}

TEST_F(KernelChannel, WhatTheKernelSendsWaitsForCredit) {
    EXPECT_TRUE(hand_in(from_peer(accept)));
    for (unsigned number = 0; number < ring_depth; ++number)
        ASSERT_EQ(hand_out(from_kernel(data)), Way::go);
    EXPECT_EQ(hand_out(from_kernel(data)), Way::wait);
    EXPECT_FALSE(hand_in(from_peer(credit, ring_depth + 1))) << "more than were sent";
    EXPECT_EQ(hand_out(from_kernel(data)), Way::wait);
    EXPECT_FALSE(hand_in(from_peer(credit, 1)));
    EXPECT_EQ(hand_out(from_kernel(data)), Way::go);
    EXPECT_EQ(hand_out(from_kernel(data)), Way::wait);
    EXPECT_EQ(hand_out(from_kernel(close)), Way::go);
    EXPECT_EQ(hand_out(from_kernel(data)), Way::go) << "it is nobody's";
}

TEST_F(KernelChannel, TheKernelHearsThatAPeerIsGone) {
    EXPECT_EQ(hand_out(from_kernel(accept)), Way::go);
    EXPECT_TRUE(channels_.lose_peer(peer_id + 1).empty());
    const auto closes = channels_.lose_peer(peer_id);
    ASSERT_EQ(closes.size(), 1U);
    EXPECT_EQ(closes[0], from_peer(close));
    EXPECT_TRUE(channels_.lose_peer(peer_id).empty());
}

TEST_F(KernelChannel, StrangeMessagesGoNowhere) {
    Header forged = from_peer(request, 7);
    EXPECT_FALSE(channels_.hand_in(peer_id + 1, forged, note_)) << "of another source";
    forged[10] = std::byte{0};
    EXPECT_FALSE(hand_in(forged)) << "of another kind";
    EXPECT_FALSE(hand_in(from_peer(static_cast<ChannelOperation>(99))));
    EXPECT_FALSE(channels_.hand_in(peer_id, std::span(forged).first(10), note_));
}

}  // namespace
}  // namespace incast::softrio::udp
