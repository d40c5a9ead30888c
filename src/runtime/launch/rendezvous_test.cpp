#include "runtime/launch/rendezvous.h"

#include <algorithm>
#include <array>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/socket.h"
#include "runtime/record/metrics.h"

namespace incast::runtime {
namespace {

using testing::HasSubstr;

/// Two ends of one connection: a Channel, and a bare socket that can say anything.
class Rendezvous : public testing::Test {
protected:
    Rendezvous() {
        std::array<int, 2> fds{};
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
        channel_ = Channel(os::Descriptor(fds[0]), {max_stranger_frame});
        other_ = os::Descriptor(fds[1]);
    }
    void say(const std::string& bytes) const {
        ASSERT_EQ(write(other_.fd(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
    static std::string frame(const std::string& text) {
        std::string bytes;
        for (unsigned byte = 0; byte < 4; ++byte) {
            bytes.push_back(static_cast<char>(text.size() >> (8 * byte) & 0xFFU));
        }
        return bytes + text;
    }
    Channel channel_;
    os::Descriptor other_;
};

TEST_F(Rendezvous, MessagesArriveOneByOne) {
    const std::string bytes = frame(R"({"type":"one"})") + frame(R"({"type":"two","n":7})");
    say(bytes.substr(0, 5));
    say(bytes.substr(5));
    Result<std::optional<Json>> first = channel_.receive();
    ASSERT_TRUE(first.ok() && first->has_value());
    EXPECT_EQ(type_of(**first), "one");
    Result<std::optional<Json>> second = channel_.receive();
    ASSERT_TRUE(second.ok() && second->has_value());
    EXPECT_EQ(number_in(**second, "n"), 7U);
    Result<std::optional<Json>> none = channel_.receive();
    ASSERT_TRUE(none.ok());
    EXPECT_FALSE(none->has_value());
}

TEST_F(Rendezvous, APartIsNotYetAMessage) {
    const std::string bytes = frame(R"({"type":"one"})");
    for (std::size_t size = 1; size < bytes.size(); ++size) {
        say(bytes.substr(size - 1, 1));
        const Result<std::optional<Json>> received = channel_.receive();
        ASSERT_TRUE(received.ok());
        EXPECT_FALSE(received->has_value());
    }
    say(bytes.substr(bytes.size() - 1));
    EXPECT_TRUE(channel_.receive()->has_value());
}

TEST_F(Rendezvous, WhatIsTooLongIsRefusedByItsAnnouncement) {
    say(std::string("\x01\x04\x00\x00", 4));  // 1025
    EXPECT_THAT(channel_.receive().error().message, HasSubstr("1025 bytes is announced, at most 1024"));
}

TEST_F(Rendezvous, OnlyASampleMayBeLong) {
    channel_.set_limits({max_sample_frame(4), max_small_frame});
    const std::string filling(max_small_frame, ' ');
    say(frame(R"({"type":"sample")" + filling + "}") + frame(R"({"type":"remark")" + filling + "}"));
    EXPECT_TRUE(channel_.receive()->has_value());
    EXPECT_THAT(channel_.receive().error().message, HasSubstr("'remark' has 40977 bytes, at most 40960"));
}

TEST_F(Rendezvous, WhatIsNestedDeepIsNotParsed) {
    channel_.set_limits({max_sample_frame(4), max_small_frame});
    say(frame(R"({"a":[[[[[[[0]]]]]]],"text":"[[[[[[[[[{{{{{\\"})"));
    EXPECT_TRUE(channel_.receive()->has_value());
    say(frame(R"({"a":[[[[[[[[0]]]]]]]]})"));
    EXPECT_THAT(channel_.receive().error().message, HasSubstr("nested more than 8 deep"));
}

TEST(RendezvousLimits, HoldTheLargestSampleThereMayBe) {
    constexpr std::uint32_t nodes = 64;
    NodeSample sample;
    sample.failure = sample.note = std::string(1000, '\x01');
    for (const TotalsField& field : totals_fields()) {
        sample.totals.*field.member = UINT64_MAX;
    }
    sample.latency_ns.emplace();
    for (std::size_t bucket = 0; bucket < base::Histogram::buckets; ++bucket) {
        sample.latency_ns->add_bucket(bucket, UINT64_MAX, UINT64_MAX);
    }
    sample.changes.assign(most_view_changes, {time_never, UINT32_MAX, UINT32_MAX, protocol::Cause::connection_lost});
    constexpr std::uint64_t most = UINT64_MAX;
    sample.boards.assign(most_boards_told, {most, most, most, most, most, most, most, most, most, most});
    sample.net.emplace().pairs.assign(nodes, {UINT32_MAX, most, most, most, most, most, most, most});
    EXPECT_LT(to_json(sample).dump().size() + 100, max_sample_frame(nodes));
}

TEST_F(Rendezvous, WhoeverReadsNothingIsGivenUp) {
    const std::string text(1 << 20, 'x');
    bool sent = true;
    for (int messages = 0; sent && messages < 100; ++messages) {
        sent = channel_.send({{"type", text}});
    }
    EXPECT_FALSE(sent);
    EXPECT_TRUE(channel_.stuck());
    EXPECT_FALSE(channel_.flush());
}

TEST(RendezvousWords, AreOneLine) {
    EXPECT_EQ(one_line("a\nb\x1b[0m\x7f"), "a b [0m ");
    EXPECT_EQ(one_line(std::string(600, 'x')).size(), max_said + 3);
}

TEST_F(Rendezvous, OnlyObjectsAreMessages) {
    for (const char* text : {"[1]", "5", "", "{", "{\"a\":}", "\xff\xfe"}) {
        say(frame(text));
        EXPECT_FALSE(channel_.receive().ok()) << text;
        std::array<int, 2> fds{};
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
        channel_ = Channel(os::Descriptor(fds[0]), {max_stranger_frame});
        other_ = os::Descriptor(fds[1]);
    }
}

TEST_F(Rendezvous, TheLastWordsBeforeTheEndAreHeard) {
    say(frame(R"({"type":"last"})"));
    other_ = os::Descriptor();
    EXPECT_TRUE(channel_.receive()->has_value());
    EXPECT_THAT(channel_.receive().error().message, HasSubstr("closed"));
}

TEST_F(Rendezvous, WhatDoesNotFitIntoTheSocketIsSentLater) {
    channel_.set_limits({max_coordinator_frame});
    const std::string text(3 << 20, 'x');
    ASSERT_TRUE(channel_.send({{"type", text}}));
    EXPECT_TRUE(channel_.wants_write());
    std::size_t received = 0;
    std::array<char, 65536> chunk{};
    while (received < text.size()) {
        const ssize_t n = read(other_.fd(), chunk.data(), chunk.size());
        if (n > 0) {
            received += static_cast<std::size_t>(n);
        }
        ASSERT_TRUE(channel_.flush());
    }
    EXPECT_FALSE(channel_.wants_write());
}

TEST(RendezvousTokens, CompareWhole) {
    EXPECT_TRUE(same_token("abc", "abc"));
    EXPECT_FALSE(same_token("abc", "abd"));
    EXPECT_FALSE(same_token("abc", "abcd"));
    EXPECT_FALSE(same_token("abcd", "abc"));
    EXPECT_FALSE(same_token("abcabc", "abc"));
    EXPECT_FALSE(same_token("", ""));
    EXPECT_FALSE(same_token("", "abc"));
    EXPECT_FALSE(same_token("abc", ""));
}

TEST(RendezvousTokens, AreNotRepeated) {
    EXPECT_EQ(make_token().size(), 32U);
    EXPECT_NE(make_token(), make_token());
}

TEST(RendezvousBlobs, TravelAsHexadecimalText) {
    const Blob blob{{std::byte{0x00}, std::byte{0xAB}, std::byte{0x7F}}};
    EXPECT_EQ(to_hex(blob.view()), "00ab7f");
    const std::optional<Blob> back = blob_from_hex("00ab7f");
    ASSERT_TRUE(back.has_value());
    EXPECT_TRUE(std::ranges::equal(back->view(), blob.view()));
    EXPECT_FALSE(blob_from_hex("00a").has_value());
    EXPECT_FALSE(blob_from_hex("0g").has_value());
    EXPECT_EQ(blob_from_hex(std::string(2 * max_address_bytes, 'f'))->bytes.size(), max_address_bytes);
    EXPECT_FALSE(blob_from_hex(std::string(2 * max_address_bytes + 2, '0')).has_value());
    EXPECT_TRUE(blob_from_hex("").has_value());
}

TEST(RendezvousAddresses, AWayIsFoundWhereSomebodyListens) {
    const Result<os::Descriptor> listener = os::listen_on("127.0.0.1:0");
    ASSERT_TRUE(listener.ok());
    EXPECT_TRUE(os::find_way_to(os::local_address(listener->fd())).ok());
    EXPECT_FALSE(os::find_way_to("nobody").ok());
}

TEST(RendezvousAddresses, HostAndPort) {
    EXPECT_EQ(os::parse_host_port("localhost:4711")->port, "4711");  // house: allow fixed-port: only parsed
    EXPECT_EQ(os::parse_host_port("10.0.0.1")->port, "0");
    EXPECT_EQ(os::parse_host_port("[::1]:5")->host, "::1");
    EXPECT_EQ(os::parse_host_port("[::1]")->port, "0");
    for (const char* bad : {"", ":5", "host:", "host:x", "host:70000", "[::1", "[::1]5", "host:5:6"}) {
        EXPECT_FALSE(os::parse_host_port(bad).ok()) << bad;
    }
}

}  // namespace
}  // namespace incast::runtime
