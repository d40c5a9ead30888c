// Addresses of the C interface of ring channels, and what hubs say to each other before they are peers.
#include "channel/api/address.h"

#include <cerrno>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "channel/api/card.h"

namespace incast::channel::api {
namespace {

template <class Call>
int error_of(Call&& call) {
    try {
        call();
        return 0;
    } catch (const Failure& failure) {
        EXPECT_FALSE(failure.line.empty());
        return failure.error;
    }
}

TEST(ChannelAddress, EveryFormIsReadAndWritten) {
    for (const std::string text :
         {"shm://daq", "shm:///x/y z", "shm://*", "tcp://*:0", "tcp://10.0.0.1:5555", "udp://[::1]:9",
          "tcp://a-host.example:65535", "verbs://10.0.0.1:0", "rio://5:100", "rio://*:0"})
        EXPECT_EQ(parse_address(text, Use::listen, parse_scheme(text)).text(), text);
    EXPECT_EQ(parse_address("tcp://*:*", Use::listen, Scheme::tcp).text(), "tcp://*:0");
    EXPECT_EQ(parse_address("rio://65535:1", Use::connect, Scheme::rio).destid, 65535);
    EXPECT_TRUE(parse_address("shm:///a", Use::connect, Scheme::shm).is_path());
}

TEST(ChannelAddress, EveryOtherFormIsRefused) {
    const std::vector<std::string> wrong = {"shm://",
                                            "shm://" + std::string(91, 'x'),
                                            std::string("shm://a\0b", 9),
                                            "tcp://",
                                            "tcp://:1",
                                            "tcp://h",
                                            "tcp://h:",
                                            "tcp://h:65536",
                                            "tcp://h:-1",
                                            "tcp://h:1x",
                                            "tcp://::1:5",
                                            "tcp://[::1:5",
                                            "tcp://[]:5",
                                            "rio://:1",
                                            "rio://65536:1",
                                            "rio://5",
                                            "rio://a:1",
                                            "rio://5:70000",
                                            "verbs://*:1"};
    for (const std::string& text : wrong)
        EXPECT_EQ(error_of([&] { (void)parse_address(text, Use::listen, parse_scheme(text)); }), EINVAL) << text;
    for (const std::string text : {"shm://*", "tcp://*:5", "tcp://h:0", "tcp://h:*", "rio://*:5", "rio://5:0"})
        EXPECT_EQ(error_of([&] { (void)parse_address(text, Use::connect, parse_scheme(text)); }), EINVAL) << text;
    EXPECT_EQ(error_of([] { (void)parse_scheme("ipc://x"); }), EPROTONOSUPPORT);
    EXPECT_EQ(error_of([] { (void)parse_scheme("shm:"); }), EPROTONOSUPPORT);
    EXPECT_EQ(error_of([] { (void)parse_address("tcp://h:1", Use::connect, Scheme::udp); }), EPROTONOSUPPORT);
}

TEST(ChannelCards, AreReadOnceTheyAreWhole) {
    const Card card{.what = Card::What::offer, .port = 7};
    const std::vector<std::byte> bytes = to_bytes(card, Blob{std::vector<std::byte>(100)});
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        const Read read = read_card(Bytes(bytes).first(size));
        EXPECT_FALSE(read.whole || read.is_wrong) << size;
    }
    const Read read = read_card(bytes);
    ASSERT_TRUE(read.whole);
    EXPECT_EQ(read.whole->card.port, 7U);
    EXPECT_EQ(read.whole->address.bytes.size(), 100U);
    std::vector<std::byte> wrong = bytes;
    wrong[0] = std::byte{9};
    EXPECT_TRUE(read_card(wrong).is_wrong);
    EXPECT_FALSE(read_card(wrong).other_version);
    wrong = bytes;
    wrong[3] = std::byte{'7'};
    EXPECT_TRUE(read_card(wrong).is_wrong);
    EXPECT_EQ(read_card(wrong).other_version, '7');
    wrong[3] = std::byte{7};
    EXPECT_FALSE(read_card(wrong).other_version) << "it would be printed";
    EXPECT_TRUE(read_card(to_bytes(card, Blob{})).is_wrong) << "an offer without an address";
}

}  // namespace
}  // namespace incast::channel::api
