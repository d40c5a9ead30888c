#include "softrio/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "softrio/reserved.h"

namespace incast::softrio {
namespace {

using ::testing::HasSubstr;

TEST(Options, AreReadFromTheUrl) {
    const auto options = parse_fabric("shm:lab?destid=5&mports=2&order=weak&limits=old&multicast=0xF0:1+2,241:3", "");
    ASSERT_TRUE(options.ok()) << options.error().message;
    EXPECT_EQ((*options).fabric, "lab");
    EXPECT_EQ((*options).destid, 5U);
    EXPECT_EQ((*options).mports, 2U);
    EXPECT_EQ((*options).order, Options::Order::weak);
    EXPECT_EQ((*options).limits, Options::Limits::old);
    ASSERT_NE((*options).group(0xF0), nullptr);
    EXPECT_EQ((*options).group(0xF0)->members, (std::vector<std::uint32_t>{1, 2}));
    EXPECT_EQ((*options).group(7), nullptr);
}

TEST(Options, AnEmulatedLinkMayBeSlower) {
    EXPECT_EQ((*parse_fabric("shm:lab", "")).link, Options::Link::none);
    EXPECT_EQ((*parse_fabric("shm:lab?link=none", "")).link, Options::Link::none);
    EXPECT_EQ((*parse_fabric("shm:lab?link=tsi721", "")).link, Options::Link::tsi721);
    EXPECT_EQ((*parse_fabric("shm:lab?link=tsi721", "")).link_slowdown, 1U);
    EXPECT_EQ((*parse_fabric("shm:lab?link=tsi721/20", "")).link, Options::Link::tsi721);
    EXPECT_EQ((*parse_fabric("shm:lab?link=tsi721/20", "")).link_slowdown, 20U);
}

TEST(Options, PortsOfTheKernelHaveNumbers) {
    EXPECT_EQ(parse_fabric("linux:3", "")->kind, Options::Kind::device);
    EXPECT_EQ(parse_fabric("linux:3", "")->fabric, "3");
    EXPECT_EQ(parse_fabric("linux:any?mports=2", "")->mports, 2U);
}

TEST(Options, DestidOfTheEnvironmentComesFirst) {
    EXPECT_EQ((*parse_fabric("shm:lab?destid=5", "6")).destid, 6U);
}

TEST(Options, WrongOnesAreOneClearLine) {
    const std::vector<std::pair<std::string, std::string>> wrong = {
        {"", "RIO_FABRIC is not set"},
        {"udp", "unknown kind"},
        {"udp:loopback:7000?mtu=100", "mtu=100: must be 576..9216"},
        {"udp:loopback:7000?ids=12", "ids=12: must be 8 or 16"},
        {"shm:lab?mtu=1500", "no option 'mtu'"},
        {"linux", "unknown kind"},
        {"linux:8", "the number of a master port"},
        {"linux:00", "the number of a master port"},
        {"linux:0?mtu=1500", "no option 'mtu'"},
        {"tcp:x", "unknown kind"},
        {"shm", "unknown kind"},
        {"shm:", "the name must be"},
        {"shm:a/b", "the name must be"},
        {"shm:lab?colour=red", "no option 'colour'"},
        {"shm:lab?mports=9", "mports=9: must be 1..8"},
        {"shm:lab?destid=255", "destid=255: must be a destination id"},
        {"shm:lab?order=none", "strict or weak"},
        {"shm:lab?link=tsi722", "link=tsi722: must be none, tsi721 or tsi721/N"},
        {"shm:lab?link=tsi7210", "must be none, tsi721 or tsi721/N"},
        {"shm:lab?link=tsi721/", "must be none, tsi721 or tsi721/N"},
        {"shm:lab?link=tsi721/1", "must be none, tsi721 or tsi721/N"},
        {"shm:lab?link=tsi721/1001", "must be none, tsi721 or tsi721/N"},
        {"shm:lab?multicast=1", "GROUP:MEMBER"},
    };
    for (const auto& [url, words] : wrong) {
        const auto options = parse_fabric(url, "");
        ASSERT_FALSE(options.ok()) << url;
        EXPECT_THAT(options.error().message, HasSubstr(words));
        EXPECT_EQ(options.error().message.find('\n'), std::string::npos);
    }
    EXPECT_THAT(parse_fabric("shm:lab", "nine").error().message, HasSubstr("RIO_DESTID=nine"));
}

TEST(Reserved, RegionsAreAlignedToTheirSize) {
    const auto reserved = parse_reserved("A=4K,B=3M,C=1G");
    ASSERT_TRUE(reserved.ok());
    ASSERT_EQ((*reserved).size(), 3U);
    EXPECT_EQ((*reserved)[0].bytes, 4096U);
    EXPECT_EQ((*reserved)[1].start % (4 << 20), 0U);
    EXPECT_EQ((*reserved)[2].start % (1 << 30), 0U);
    EXPECT_GE((*reserved)[1].start, (*reserved)[0].start + (*reserved)[0].bytes);
    const auto fixed = parse_reserved("A=256M@0x50000000,B=4K,C=64K$0x60000000");
    ASSERT_TRUE(fixed.ok());
    EXPECT_EQ((*fixed)[0].start, 0x5000'0000U);
    EXPECT_EQ((*fixed)[0].bytes, 0x1000'0000U);
    EXPECT_GE((*fixed)[1].start, reserved_base);
    EXPECT_EQ((*fixed)[2].start, 0x6000'0000U);
    EXPECT_TRUE((*parse_reserved("none")).empty());
    for (const char* wrong : {"A", "A=", "A=5", "A=1T", "=4K", "A=4K,A=4K", "A=999999999G", "A=4K@", "A=4K@5",
                              "A=4K@0x1000000000000", "A=8K@0x10000,B=4K@0x11000"})
        EXPECT_FALSE(parse_reserved(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace incast::softrio
