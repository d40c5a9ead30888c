#include "channel/messages.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace incast::channel {
namespace {

struct Pipe {
    explicit Pipe(Shape with, std::uint32_t longest = max_message)
        : shape(with),
          staging(shape.bytes()),
          ring(shape.bytes()),
          cells(shape.cells() * sizeof(CreditCell)),
          sender({.shape = shape}, staging, cells),
          receiver({.shape = shape}, ring),
          writer(sender),
          reader(receiver, longest) {}

    void carry() {
        while (const auto out = sender.next()) {
            std::ranges::copy(out->head, ring.begin() + static_cast<std::ptrdiff_t>(out->offset));
            std::ranges::copy(out->body, ring.begin() + static_cast<std::ptrdiff_t>(out->offset + out->head.size()));
            sender.posted(false);
            receiver.rung();
        }
        if (const auto credit = receiver.credit()) {
            const CreditCell cell = make_credit(credit->number);
            std::memcpy(cells.data() + credit->offset, &cell, sizeof cell);
            receiver.credit_posted(*credit);
            (void)sender.look();
        }
    }
    bool send(const std::string& text) {
        return writer.begin(static_cast<std::uint32_t>(text.size())) &&
               writer.write(std::as_bytes(std::span(text))) == text.size();
    }
    std::string receive() {
        const auto length = reader.length();
        if (!length) return "nothing";
        std::string text(*length, '\0');
        text.resize(reader.read(std::as_writable_bytes(std::span(text))));
        reader.done();
        return text;
    }

    Shape shape;
    std::vector<std::byte> staging;
    std::vector<std::byte> ring;
    std::vector<std::byte> cells;
    Sender sender;
    Receiver receiver;
    MessageWriter writer;
    MessageReader reader;
};

TEST(Messages, CH_B2_SeveralShareABuffer) {
    Pipe pipe({.buffers = 2, .buffer_bytes = 128, .batch = 1});
    EXPECT_TRUE(pipe.send("first"));
    EXPECT_TRUE(pipe.send(""));
    EXPECT_TRUE(pipe.send("third"));
    pipe.sender.flush();
    ASSERT_TRUE(pipe.sender.next());
    EXPECT_EQ(pipe.sender.next()->number, 1U);
    pipe.carry();
    EXPECT_FALSE(pipe.sender.next());
    EXPECT_EQ(pipe.receive(), "first");
    EXPECT_EQ(pipe.receive(), "");
    EXPECT_EQ(pipe.receive(), "third");
    EXPECT_EQ(pipe.receive(), "nothing");
}

TEST(Messages, CH_B2_OneMayBeLongerThanTheRing) {
    Pipe pipe({.buffers = 1, .buffer_bytes = 64, .batch = 1});
    std::string text(1000, '\0');
    for (std::size_t at = 0; at < text.size(); ++at)
        text[at] = static_cast<char>(at * 7);
    ASSERT_TRUE(pipe.writer.begin(1000));
    EXPECT_FALSE(pipe.writer.begin(1)) << "one at a time";
    std::string got(1000, '\0');
    std::size_t sent = 0;
    std::size_t received = 0;
    for (int round = 0; round < 100 && received < text.size(); ++round) {
        sent += pipe.writer.write(std::as_bytes(std::span(text).subspan(sent)));
        pipe.sender.flush();
        pipe.carry();
        received += pipe.reader.read(std::as_writable_bytes(std::span(got).subspan(received)));
        pipe.carry();
    }
    EXPECT_TRUE(pipe.writer.is_whole());
    EXPECT_EQ(pipe.reader.left(), 0U);
    EXPECT_EQ(got, text);
}

TEST(Messages, CH_E1_ALongerMessageThanAgreedBreaksTheChannel) {
    Pipe pipe({.buffers = 2, .buffer_bytes = 64, .batch = 1}, 10);
    EXPECT_TRUE(pipe.send("0123456789"));
    EXPECT_TRUE(pipe.send("0123456789a"));
    pipe.sender.flush();
    pipe.carry();
    EXPECT_EQ(pipe.receive(), "0123456789");
    EXPECT_FALSE(pipe.reader.is_broken());
    EXPECT_EQ(pipe.receive(), "nothing");
    EXPECT_TRUE(pipe.reader.is_broken());
}

TEST(Messages, CH_E1_AnEndWithinAMessageBreaksTheChannel) {
    for (const std::string& torn : {std::string("\x05\0\0", 3), std::string("\x05\0\0\0half", 8)}) {
        Pipe pipe({.buffers = 2, .buffer_bytes = 64, .batch = 1});
        (void)pipe.sender.write(std::as_bytes(std::span(torn)));
        pipe.sender.finish();
        pipe.carry();
        std::array<std::byte, 16> bytes{};
        (void)pipe.reader.read(bytes);
        EXPECT_TRUE(pipe.reader.is_broken());
        EXPECT_FALSE(pipe.reader.has_ended());
    }
    Pipe pipe({.buffers = 2, .buffer_bytes = 64, .batch = 1});
    EXPECT_TRUE(pipe.send("whole"));
    pipe.sender.finish();
    pipe.carry();
    EXPECT_EQ(pipe.receive(), "whole");
    EXPECT_FALSE(pipe.reader.is_broken());
    EXPECT_TRUE(pipe.reader.has_ended());
}

}  // namespace
}  // namespace incast::channel
