#include "runtime/machine/network_place.h"

#include <gtest/gtest.h>

namespace incast::runtime {
namespace {

TEST(Subnets, HoldTheirAddresses) {
    EXPECT_TRUE(*lies_in("10.1.2.3", "10.1.0.0/16"));
    EXPECT_TRUE(*lies_in("10.1.2.3", "10.1.255.0/16"));
    EXPECT_FALSE(*lies_in("10.2.2.3", "10.1.0.0/16"));
    EXPECT_TRUE(*lies_in("10.1.2.3", "10.1.2.3/32"));
    EXPECT_FALSE(*lies_in("10.1.2.2", "10.1.2.3/32"));
    EXPECT_TRUE(*lies_in("192.168.7.9", "0.0.0.0/0"));
    EXPECT_TRUE(*lies_in("10.1.2.131", "10.1.2.128/25"));
    EXPECT_FALSE(*lies_in("10.1.2.127", "10.1.2.128/25"));
    EXPECT_TRUE(*lies_in("fd00::7", "fd00::/8"));
    EXPECT_FALSE(*lies_in("fe00::7", "fd00::/8"));
    EXPECT_FALSE(*lies_in("10.1.2.3", "::/0"));
}

TEST(Subnets, AreSaidToBeNone) {
    for (const char* text : {"10.1.0.0", "10.1.0.0/", "10.1.0.0/33", "10.1.0.0/-1", "ib0/16", "/8", "::/129", "::/1x",
                             "10.1.0/16", "10.1.0.0/0016"}) {
        const Result<bool> found = lies_in("10.1.2.3", text);
        ASSERT_FALSE(found) << text;
        EXPECT_EQ(found.error().message, "no subnet; allowed: one such as 10.1.0.0/16");
    }
}

TEST(Addresses, OfLoopbackAreFound) {
    const Result<std::string> address = address_on("127.0.0.0/8");
    if (!address) GTEST_SKIP() << "loopback is down here: " << address.error().message;
    EXPECT_EQ(*address, "127.0.0.1");
    const NetworkPlace place = place_of(*address);
    EXPECT_EQ(place.interface, "lo");
    EXPECT_GT(place.mtu, 0U);
    EXPECT_EQ(address_on("lo").value(), "127.0.0.1");
}

TEST(Addresses, ThatAreNotHereAreSaidToBeNotHere) {
    EXPECT_EQ(address_on("no-such-0").error().message.find("this host has no such interface; it has "), 0U);
    EXPECT_EQ(address_on("2001:db8:77::/48").error().message.find("no address of this host lies in it; it has "),
              0U);  // of documents
    EXPECT_EQ(place_of("2001:db8:77::1").interface, "");
}

}  // namespace
}  // namespace incast::runtime
