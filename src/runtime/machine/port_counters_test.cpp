#include "runtime/machine/port_counters.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace incast::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

/// A sysfs of its own: an adapter with a port on eth2, soft-RoCE on eth1, and an interface without either.
class PortsOfAHost : public ::testing::Test {
public:
    ~PortsOfAHost() override { fs::remove_all(sys_); }

protected:
    PortsOfAHost() : sys_(fs::path(::testing::TempDir()) / ("sys-" + std::to_string(getpid()))) {
        set("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
        set("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth2");
        set("class/infiniband/mlx5_0/ports/1/counters/port_xmit_wait", "10");
        set("class/infiniband/mlx5_0/ports/1/counters/port_rcv_switch_relay_errors", "N/A (no PMA)");
        set("class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "3");
        set("class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent", "0");
        set("class/infiniband/mlx5_0/ports/1/hw_counters/lifespan", "10");
        set("class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
        set("class/infiniband/mlx5_1/ports/1/counters/port_xmit_wait", "1");
        set("class/infiniband/rxe0/parent", "eth1");
        set("class/infiniband/rxe0/ports/1/state", "4: ACTIVE");
        set("class/infiniband/rxe0/ports/1/hw_counters/sent_pkts", "7");
        for (const char* interface : {"eth0", "eth1", "eth2", "lo"}) {
            set("class/net/" + std::string(interface) + "/statistics/rx_dropped", "0");
        }
    }

    void set(const fs::path& file, const std::string& text) const {
        fs::create_directories((sys_ / file).parent_path());
        std::ofstream(sys_ / file) << text << "\n";
    }

    fs::path sys_;
};

TEST_F(PortsOfAHost, WhatGrewSinceTheBeginning) {
    WatchedPorts watched;
    watched.interfaces = {"eth2"};
    PortCounters counters(sys_, watched);
    EXPECT_THAT(counters.grown().at(0).grown, IsEmpty());
    set("class/infiniband/mlx5_0/ports/1/counters/port_xmit_wait", "25");
    counters.begin();
    set("class/infiniband/mlx5_0/ports/1/counters/port_xmit_wait", "125");
    set("class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "2");  // it was reset
    set("class/infiniband/mlx5_0/ports/1/hw_counters/lifespan", "20");
    set("class/net/eth2/statistics/rx_dropped", "4");
    set("class/net/eth0/statistics/rx_dropped", "5");
    const std::vector<PortChange> grown = counters.grown();
    ASSERT_THAT(grown, SizeIs(1));
    EXPECT_EQ(grown[0].device, "mlx5_0");
    EXPECT_EQ(grown[0].port, 1U);
    EXPECT_EQ(grown[0].interface, "eth2");
    EXPECT_THAT(grown[0].grown, ElementsAre(Pair("port_xmit_wait", 100), Pair("rx_dropped", 4)));
}

TEST_F(PortsOfAHost, OfTheDeviceThatIsNamedAndNoOther) {
    WatchedPorts watched;
    watched.interfaces = {"eth2", "lo"};
    watched.devices = {"rxe0"};
    const std::vector<PortChange> grown = PortCounters(sys_, watched).grown();
    ASSERT_THAT(grown, SizeIs(1));
    EXPECT_EQ(grown[0].device, "rxe0");
    EXPECT_EQ(grown[0].interface, "eth1");
}

TEST_F(PortsOfAHost, OfAnInterfaceWithoutADevice) {
    WatchedPorts watched;
    watched.interfaces = {"lo", "gone"};
    const std::vector<PortChange> grown = PortCounters(sys_, watched).grown();
    ASSERT_THAT(grown, SizeIs(1));
    EXPECT_EQ(grown[0].device, "");
    EXPECT_EQ(grown[0].interface, "lo");
}

TEST_F(PortsOfAHost, OfAllThatAreUpWhereNothingSaysWhich) {
    WatchedPorts watched;
    watched.interfaces = {"lo"};
    watched.all_devices = true;
    const std::vector<PortChange> grown = PortCounters(sys_, watched).grown();
    ASSERT_THAT(grown, SizeIs(2));
    EXPECT_EQ(grown[0].device, "mlx5_0");
    EXPECT_EQ(grown[1].device, "rxe0");
}

TEST_F(PortsOfAHost, NoneWithoutASign) {
    EXPECT_TRUE(PortCounters(sys_, {}).empty());
    EXPECT_TRUE(PortCounters(sys_ / "nowhere", {{"lo"}, {}, true}).empty());
}

TEST(WatchedPorts, AreThoseWithTheAddresses) {
    const WatchedPorts watched = watched_ports("127.0.0.1, 127.0.0.1,192.0.2.77", "", false);
    EXPECT_FALSE(watched.all_devices);
    EXPECT_LE(watched.interfaces.size(), 1U);  // the loopback may be down
    EXPECT_TRUE(watched_ports("", "", true).all_devices);
    EXPECT_FALSE(watched_ports("", "mlx5_0", true).all_devices);
    EXPECT_EQ(watched_ports("", "mlx5_0,mlx5_1", true).devices, (std::vector<std::string>{"mlx5_0", "mlx5_1"}))
        << "rails";
    EXPECT_EQ(watched_ports("192.0.2.77+127.0.0.1,192.0.2.78", "", true).interfaces, std::vector<std::string>{"lo"});
}

}  // namespace
}  // namespace incast::runtime
