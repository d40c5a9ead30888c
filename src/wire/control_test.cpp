#include "wire/control.h"

#include <vector>

#include <gtest/gtest.h>

namespace incast::wire {
namespace {

TEST(Control, EB_F6_CarriesIdentityBodyAndEntries) {
    ControlMessage<ControlKind::announce> message(7, 3, 2);
    message.set_body({10, 20, 1, 0});
    ASSERT_TRUE(message.add({4, 5, 6}));
    ASSERT_TRUE(message.add({7, 8, 9}));
    const auto view = ControlView::parse(message.bytes());
    ASSERT_TRUE(view.has_value());
    EXPECT_EQ(view->kind(), ControlKind::announce);
    EXPECT_EQ(view->header().run, 7U);
    EXPECT_EQ(view->header().view, 3U);
    EXPECT_EQ(view->header().incarnation, 2U);
    EXPECT_EQ(view->header().count, 2U);
    EXPECT_EQ(view->body<ControlKind::announce>().base, 20U);
    EXPECT_EQ(view->entry<ControlKind::announce>(1).credit, 9U);
}

TEST(Control, EB_C3_AMessageIsNeverLongerThanEveryTransportCarries) {
    ControlMessage<ControlKind::assign> message(1, 1, 1);
    std::size_t entries = 0;
    while (message.add({})) {
        ++entries;
    }
    EXPECT_EQ(entries, max_entries<ControlKind::assign>);
    EXPECT_LE(message.bytes().size(), max_message_bytes);
    EXPECT_GT(message.bytes().size() + sizeof(AttemptEntry), max_message_bytes);
    EXPECT_TRUE(ControlView::parse(message.bytes()).has_value());
}

TEST(Control, EveryOtherLengthIsRefused) {
    ControlMessage<ControlKind::grant> message(1, 1, 1);
    message.add({1, 2, 0});
    const Bytes bytes = message.bytes();
    std::vector<std::byte> longer(bytes.begin(), bytes.end());
    longer.push_back(std::byte{0});
    EXPECT_FALSE(ControlView::parse(longer).has_value());
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        EXPECT_FALSE(ControlView::parse(bytes.first(length)).has_value()) << length;
    }
}

TEST(Control, KeysOfAnyLengthTravelInParts) {
    for (const std::size_t size : {0U, 1U, 95U, 96U, 97U, 215U, 1023U, 1024U}) {
        SCOPED_TRACE(size);
        Blob key{std::vector<std::byte>(size)};
        for (std::size_t at = 0; at < size; ++at) {
            key.bytes[at] = static_cast<std::byte>(at * 3 + 1);
        }
        ControlMessage<ControlKind::region> message(1, 1, 1);
        set_key(message, {.slot_bytes = 9, .slots = 2, .index = 1}, key.view());
        const auto view = ControlView::parse(message.bytes());
        ASSERT_TRUE(view.has_value());
        EXPECT_EQ(view->body<ControlKind::region>().index, 1U);
        const auto back = key_in<ControlKind::region>(*view);
        ASSERT_TRUE(back.has_value());
        EXPECT_EQ(back->bytes, key.bytes);
    }
}

TEST(Control, AKeyThatIsTooLongOrInOtherPartsIsNone) {
    const auto taken = [](std::uint32_t size, std::uint32_t parts) {
        ControlMessage<ControlKind::source_region> message(1, 1, 1);
        message.set_body({.key_size = size});
        while (parts-- > 0) {
            message.add({});
        }
        const auto view = ControlView::parse(message.bytes());
        return view.has_value() && key_in<ControlKind::source_region>(*view).has_value();
    };
    EXPECT_TRUE(taken(97, 2));
    EXPECT_FALSE(taken(97, 1));
    EXPECT_FALSE(taken(97, 3));
    EXPECT_FALSE(taken(0, 1));
    EXPECT_TRUE(taken(1024, 11));
    EXPECT_FALSE(taken(1025, 11));
    EXPECT_FALSE(taken(~0U, 11));
}

TEST(Control, WrongMagicVersionKindAndCountAreRefused) {
    ControlMessage<ControlKind::beat> message(1, 1, 1);
    const Bytes good = message.bytes();
    ASSERT_TRUE(ControlView::parse(good).has_value());
    const auto with = [&](std::size_t offset, std::byte value) {
        std::vector<std::byte> bytes(good.begin(), good.end());
        bytes[offset] = value;
        return ControlView::parse(bytes).has_value();
    };
    EXPECT_FALSE(with(0, std::byte{0}));                    // magic
    EXPECT_FALSE(with(2, std::byte{control_version + 1}));  // version
    EXPECT_FALSE(with(3, std::byte{0}));                    // kind
    EXPECT_FALSE(with(3, std::byte{200}));
    EXPECT_FALSE(with(20, std::byte{1}));  // count of a kind without entries
    EXPECT_FALSE(with(23, std::byte{255}));
}

TEST(Control, AMessageIsReadInTheVersionThatItIsWrittenIn) {
    ControlMessage<ControlKind::beat> message(1, 2, 3, 7);
    EXPECT_TRUE(ControlView::parse(message.bytes(), 7).has_value());
    EXPECT_FALSE(ControlView::parse(message.bytes(), 8).has_value());
    EXPECT_FALSE(ControlView::parse(message.bytes()).has_value());
}

}  // namespace
}  // namespace incast::wire
