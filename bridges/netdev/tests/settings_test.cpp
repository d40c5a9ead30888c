// What the command line says: peers, addresses, names.
#include "settings.h"

#include <gtest/gtest.h>

#include "failure.h"

namespace incast::netdev {
namespace {

TEST(Members, RangesTakeThePatternAndOthersTheirOwn) {
    const auto members = parse_members("2-3,9=tcp://[fd00::9]:7,1", "tcp://10.0.0.{id}:70{id}");
    ASSERT_EQ(members.size(), 4U);
    EXPECT_EQ(members[0].id, 1);
    EXPECT_EQ(members[0].address, "tcp://10.0.0.1:701");
    EXPECT_EQ(members[2].address, "tcp://10.0.0.3:703");
    EXPECT_EQ(members[3].address, "tcp://[fd00::9]:7");
}

TEST(Members, WhatIsWrongIsSaid) {
    for (const char* text :
         {"0", "65535", "3-2", "a", "1-", "-1", "1,,2", "1-300", "1-2=tcp://h:1", "1=", "1,1", "1-3,2", " 1"})
        EXPECT_THROW((void)parse_members(text, "shm:///x{id}"), Failure) << text;
    EXPECT_THROW((void)parse_members("1", ""), Failure) << "no address";
    EXPECT_TRUE(parse_members("", "").empty());
}

TEST(Members, AQueueHasAnAddressOfItsOwn) {
    EXPECT_EQ(address_of_queue("tcp://10.0.0.1:7000", 0), "tcp://10.0.0.1:7000");
    EXPECT_EQ(address_of_queue("tcp://[fd00::1]:7000", 3), "tcp://[fd00::1]:7003");
    EXPECT_EQ(address_of_queue("rio://5:700", 1), "rio://5:701");
    EXPECT_EQ(address_of_queue("shm:///run/net-1", 2), "shm:///run/net-1.2");
}

TEST(Cidr, BothFamilies) {
    const auto v4 = parse_cidr("10.9.0.1/24");
    ASSERT_TRUE(v4);
    EXPECT_EQ(v4->address.size(), 4U);
    EXPECT_EQ(v4->prefix_bits, 24);
    const auto v6 = parse_cidr("fd00::1/128");
    ASSERT_TRUE(v6);
    EXPECT_EQ(v6->address.size(), 16U);
    for (const char* text :
         {"", "10.9.0.1", "10.9.0.1/33", "10.9.0/24", "10.9.0.1/", "10.9.0.1/24x", "fd00::1/129", "/24"})
        EXPECT_FALSE(parse_cidr(text)) << text;
}

TEST(DeviceName, WhatTheKernelTakes) {
    EXPECT_TRUE(is_device_name("rio0"));
    EXPECT_TRUE(is_device_name("fifteen-letters"));
    for (const char* name : {"", "sixteen-letters.", "a b", "a/b", "a:b", "rio%d", ".", ".."})
        EXPECT_FALSE(is_device_name(name)) << name;
}

}  // namespace
}  // namespace incast::netdev
