#include "runtime/machine/seat.h"

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace incast::runtime {
namespace {

std::vector<int> all_up_to(int count) {
    std::vector<int> cores(static_cast<std::size_t>(count));
    std::iota(cores.begin(), cores.end(), 0);
    return cores;
}

/// Two sockets of eight cores each, with two threads: 0-7,16-23 and 8-15,24-31. eth0 is on the first, eth1 and mlx5_1
/// on the second.
class Seats : public testing::Test {
public:
    ~Seats() override { std::filesystem::remove_all(sys_); }

protected:
    Seats() {
        std::string name = (std::filesystem::temp_directory_path() / "incast-seat-XXXXXX").string();
        sys_ = ::mkdtemp(name.data());
        say("devices/system/node/has_memory", "0-1");
        say("devices/system/node/node0/cpulist", "0-7,16-23");
        say("devices/system/node/node1/cpulist", "8-15,24-31");
        say("class/net/eth0/device/numa_node", "0");
        say("class/net/eth1/device/numa_node", "1");
        say("class/infiniband/mlx5_1/device/numa_node", "1");
        say("class/net/virtual/mtu", "1500");
        say("class/net/unsure/device/numa_node", "-1");
        say("class/net/far/device/numa_node", "7");
    }
    void say(const std::string& file, const std::string& text) const {
        const std::filesystem::path path = std::filesystem::path(sys_) / file;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text << '\n';
    }
    [[nodiscard]] Seat seat_of(SeatWish wish) const {
        if (wish.allowed.empty()) wish.allowed = all_up_to(32);
        return choose_seat(sys_, wish);
    }
    std::string sys_;
};

TEST_F(Seats, ANodeGoesBesideItsInterface) {
    const Seat seat = seat_of({.interface = "eth1"});
    EXPECT_EQ(list_of(seat.cores), "8-15,24-31");
    EXPECT_EQ(seat.memory_node, 1U);
    EXPECT_EQ(seat.why, "beside eth1");
    EXPECT_EQ(list_of(seat_of({.interface = "eth0"}).cores), "0-7,16-23");
}

TEST_F(Seats, AnRdmaDeviceWins) {
    const Seat seat = seat_of({.interface = "eth0", .rdma_device = "mlx5_1"});
    EXPECT_EQ(seat.memory_node, 1U);
    EXPECT_EQ(seat.why, "beside mlx5_1");
}

TEST_F(Seats, SeveralDevicesHaveToLieBesideOneMemoryNode) {
    say("class/infiniband/mlx5_2/device/numa_node", "1");
    say("class/infiniband/mlx5_3/device/numa_node", "0");
    EXPECT_EQ(seat_of({.rdma_device = "mlx5_1,mlx5_2"}).memory_node, 1U);
    const Seat apart = seat_of({.rdma_device = "mlx5_1,mlx5_3", .is_asked = true});
    EXPECT_FALSE(apart.memory_node);
    EXPECT_EQ(apart.why, "mlx5_1,mlx5_3 lie beside several memory nodes");
    EXPECT_EQ(seat_of({.rdma_device = "mlx5_1,mlx5_9"}).why, "mlx5_9 does not say its memory node");
}

TEST_F(Seats, OnlyCoresThatItMayUse) {
    EXPECT_EQ(list_of(seat_of({.interface = "eth1", .allowed = {0, 1, 9, 10, 24}}).cores), "9-10,24");
    const Seat none = seat_of({.interface = "eth1", .allowed = {0, 1, 2, 3}});
    EXPECT_TRUE(none.cores.empty());
    EXPECT_FALSE(none.memory_node);
    EXPECT_EQ(none.why, "it may use none of the cores beside eth1");
}

TEST_F(Seats, MoreNodesThanCoresThereStayUnlessAsked) {
    EXPECT_EQ(seat_of({.interface = "eth1", .nodes_here = 16}).memory_node, 1U);
    const Seat many = seat_of({.interface = "eth1", .nodes_here = 17});
    EXPECT_FALSE(many.memory_node);
    EXPECT_EQ(many.why, "17 nodes are more than the 16 cores beside eth1");
    EXPECT_EQ(seat_of({.interface = "eth1", .nodes_here = 17, .is_asked = true}).memory_node, 1U);
}

TEST_F(Seats, WhatDoesNotSayWhereItIsChangesNothing) {
    for (const char* interface : {"virtual", "unsure", "far", "not-there"}) {
        const Seat seat = seat_of({.interface = interface, .is_asked = true});
        EXPECT_TRUE(seat.cores.empty() && !seat.memory_node);
        EXPECT_EQ(seat.why, std::string(interface) + " does not say its memory node");
    }
    EXPECT_EQ(seat_of({}).why, "it uses no network interface");
    say("devices/system/node/node1/cpulist", "8-x");
    EXPECT_TRUE(seat_of({.interface = "eth1"}).cores.empty());
    say("devices/system/node/has_memory", "0");
    EXPECT_EQ(seat_of({.interface = "eth0"}).why, "this host has one memory node");
    EXPECT_EQ(choose_seat(sys_ + "/nothing", {.interface = "eth0"}).why, "this host has one memory node");
}

TEST_F(Seats, ASeatIsTaken) {
    const std::vector<int> before = allowed_cores();
    ASSERT_FALSE(before.empty());
    Seat seat{{before.back()}, 0, "beside eth0"};
    take_seat(seat);
    if (seat.memory_node) {
        EXPECT_EQ(seat.why, "beside eth0");
    } else {
        EXPECT_TRUE(seat.why.starts_with("beside eth0, but its memory cannot be chosen: ")) << seat.why;
    }
    EXPECT_EQ(allowed_cores(), std::vector<int>{before.back()});
    Seat back{before, 0, ""};
    take_seat(back);
    EXPECT_EQ(allowed_cores(), before);
    Seat nothing{{}, {}, "why"};
    take_seat(nothing);
    EXPECT_EQ(allowed_cores(), before);
}

TEST(Cores, ListsOfTheKernel) {
    EXPECT_EQ(cores_in("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
    EXPECT_EQ(cores_in(""), std::vector<int>{});
    for (const char* bad : {"a", "1-", "-1", "3-2", "1,,2", "0-4096", "99999999999"})
        EXPECT_FALSE(cores_in(bad)) << bad;
    EXPECT_EQ(list_of({}), "");
    EXPECT_EQ(list_of({4}), "4");
    EXPECT_EQ(list_of({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

}  // namespace
}  // namespace incast::runtime
