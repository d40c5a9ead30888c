#include <algorithm>
#include <cerrno>
#include <set>

#include "support/softrio_api.h"

namespace incast::softrio {
namespace {

std::vector<did_val_t> endpoints(std::uint8_t mport = 0) {
    did_val_t* list = nullptr;
    std::uint32_t count = 0;
    EXPECT_EQ(riomp_mgmt_get_ep_list(mport, &list, &count), 0);
    std::vector<did_val_t> found(list, list + count);
    EXPECT_EQ(riomp_mgmt_free_ep_list(&list), 0);
    return found;
}

/// On linux the kernel's enumeration gives the ids.
std::uint32_t id_of(std::uint32_t mport, std::uint32_t wanted) {
    return is_linux() ? Mport(mport).destid : wanted;
}

TEST(Mgmt, MportListHasNumberAndDestid) {
    const Fabric fabric(is_linux() ? "" : "destid=7", 2);
    mport_list_t* list = nullptr;
    std::uint8_t count = 8;
    ASSERT_EQ(riomp_mgmt_get_mport_list(&list, &count), 0);
    ASSERT_EQ(count, 2);
    EXPECT_EQ(list[0], id_of(0, 7));
    EXPECT_EQ(list[1], 1U << 16 | id_of(1, 8));
    EXPECT_EQ(riomp_mgmt_free_mport_list(&list), 0);
    EXPECT_EQ(list, nullptr);
    EXPECT_EQ(riomp_mgmt_free_mport_list(nullptr), -EINVAL);
    EXPECT_EQ(riomp_mgmt_free_ep_list(nullptr), -EINVAL);
    count = 1;
    ASSERT_EQ(riomp_mgmt_get_mport_list(&list, &count), 0);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(riomp_mgmt_free_mport_list(&list), 0);
}

TEST(Mgmt, EndpointsComeAndGo) {
    const Fabric fabric;
    const Mport own(0);
    if (is_linux()) {
        std::vector<did_val_t> all{Mport(1).destid, Mport(2).destid, Mport(3).destid};
        std::ranges::sort(all);
        EXPECT_EQ(endpoints(), all);
        GTEST_SKIP() << "ports are there whether a program uses them or not";
    }
    EXPECT_TRUE(endpoints().empty());
    Mport second(1);
    const Mport third(2);
    EXPECT_EQ(endpoints(), (std::vector<did_val_t>{second.destid, third.destid}));
    EXPECT_EQ(endpoints(1), (std::vector<did_val_t>{own.destid, third.destid}));
    second.close();
    EXPECT_EQ(endpoints(), (std::vector<did_val_t>{third.destid}));
}

TEST(Mgmt, ADestidIsOnePortForAllProcesses) {
    const std::string id = is_linux() ? "1" : "9";  // of the kernel's port 0
    const Fabric fabric("destid=" + id, 1);
    const Mport own(0);
    EXPECT_EQ(std::to_string(own.destid), id);
    Child other([&](const Child::Line&) {
        if (is_linux()) set_variable("RIO_FABRIC", fabric.name());
        set_variable("RIO_DESTID", id);
        EXPECT_EQ(std::to_string(Mport(0).destid), id);
    });
    EXPECT_TRUE(other.finish());
    if (is_linux()) return;
    // A port that a program names itself is not shared.
    riomp_mport_t handle = nullptr;
    const std::string url = (is_udp() ? "" : "shm:") + fabric.name() + "?destid=8";  // of master port 1: 9
    EXPECT_EQ(softrio_open_port(url.c_str(), 0, &handle), -ENODEV);
}

TEST(Mgmt, ClosedPortComesBackWithItsDestid) {
    const Fabric fabric;
    const Mport first(0);
    Mport second(1);
    const std::uint32_t before = second.destid;
    second.close();
    EXPECT_EQ(Mport(1).destid, before);
    EXPECT_NE(before, first.destid);
}

TEST(Mgmt, QueryAndHandle) {
    const Fabric fabric;
    const Mport mport(1);
    riomp_mgmt_mport_properties properties{};
    ASSERT_EQ(riomp_mgmt_query(mport, &properties), 0);
    EXPECT_EQ(properties.did_val, mport.destid);
    EXPECT_EQ(properties.id, 1);
    EXPECT_EQ(properties.port_ok, 1);
    EXPECT_NE(properties.link_speed, RIO_LINK_DOWN);
    EXPECT_NE(properties.flags & RIO_MPORT_DMA, 0U);
    EXPECT_EQ(riomp_mgmt_query(mport, nullptr), -EINVAL);
    EXPECT_EQ(riomp_mgmt_query(nullptr, &properties), -EINVAL);
    int fd = -1;
    ASSERT_EQ(riomp_mgmt_get_handle_id(mport, &fd), 0);
    EXPECT_EQ(fd, static_cast<riomp_mport_t>(mport)->fd);
    EXPECT_FALSE(mport.polls());
    testing::internal::CaptureStdout();
    riomp_mgmt_display_info(&properties);
    EXPECT_NE(
        testing::internal::GetCapturedStdout().find("mport: hdid=" + std::to_string(mport.destid) + ", id=1, idx=0,"),
        std::string::npos);
}

TEST(Mgmt, HandlesThatCannotBe) {
    {
        const Fabric fabric("", 2);
        riomp_mport_t handle = nullptr;
        EXPECT_EQ(riomp_mgmt_mport_create_handle(2, 0, &handle), -ENODEV);
        EXPECT_EQ(riomp_mgmt_mport_create_handle(99, 0, &handle), -EINVAL);
        EXPECT_EQ(riomp_mgmt_mport_create_handle(0, 0, nullptr), -EINVAL);
        EXPECT_EQ(riomp_mgmt_mport_destroy_handle(nullptr), -EINVAL);
        EXPECT_EQ(riomp_mgmt_mport_destroy_handle(&handle), -EINVAL);
        std::vector<riomp_mport_t> handles(128);
        for (riomp_mport_t& each : handles)
            ASSERT_EQ(riomp_mgmt_mport_create_handle(0, 0, &each), 0);
        EXPECT_EQ(riomp_mgmt_mport_create_handle(0, 0, &handle), -EBUSY);
        for (riomp_mport_t& each : handles)
            EXPECT_EQ(riomp_mgmt_mport_destroy_handle(&each), 0);
    }
    for (const char* url : {"", "udp:x", "linux", "nonsense"}) {
        set_variable("RIO_FABRIC", url);
        testing::internal::CaptureStderr();
        riomp_mport_t handle = nullptr;
        EXPECT_EQ(riomp_mgmt_mport_create_handle(0, 0, &handle), -ENODEV);
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
        EXPECT_NE(said.find("RIO_FABRIC"), std::string::npos) << said;
    }
    clear_variable("RIO_FABRIC");
}

TEST(Mgmt, DestidCanBeChanged) {
    const Fabric fabric;
    const Mport mport(0);
    const Mport other(1);
    const std::uint32_t before = mport.destid;
    if (is_linux()) {
        EXPECT_EQ(riomp_mgmt_destid_set(mport, 0xFF), -EINVAL);
        EXPECT_EQ(riomp_mgmt_destid_set(mport, 500), 0);
        EXPECT_EQ(Mport(0).destid, 500U);
        EXPECT_NE(write_to(other, before, 0, {1, 2}), 0);
        EXPECT_EQ(riomp_mgmt_destid_set(mport, before), 0);
        EXPECT_EQ(write_to(other, before, 0, {1, 2}), -EIO) << "there, without a window";
        GTEST_SKIP() << "routes and lists stay as the kernel's enumeration made them";
    }
    EXPECT_EQ(riomp_mgmt_destid_set(mport, other.destid), -EBUSY);
    EXPECT_EQ(riomp_mgmt_destid_set(mport, 0xFF), -EINVAL);
    EXPECT_EQ(write_to(other, before, 0, {1, 2}), -EIO) << "there, without a window";
    ASSERT_EQ(riomp_mgmt_destid_set(mport, 500), 0);
    EXPECT_EQ(endpoints(1), (std::vector<did_val_t>{500}));
    EXPECT_EQ(write_to(other, before, 0, {1, 2}), -ENODEV);
    EXPECT_EQ(write_to(other, 500, 0, {1, 2}), -EIO);
}

TEST(Mgmt, LocalRegisters) {
    const Fabric fabric;
    const Mport mport(0);
    std::uint32_t value = 0;
    ASSERT_EQ(riomp_mgmt_lcfg_read(mport, 0x60, 4, &value), 0);
    EXPECT_EQ(value & 0xFFFF, mport.destid);
    EXPECT_EQ(riomp_mgmt_lcfg_write(mport, 0x6C, 4, 0xABCD), 0);
    ASSERT_EQ(riomp_mgmt_lcfg_read(mport, 0x6C, 4, &value), 0);
    EXPECT_EQ(value, 0xABCDU);
    EXPECT_EQ(riomp_mgmt_lcfg_write(mport, 0x60, 4, 77), 0);
    riomp_mgmt_mport_properties properties{};
    EXPECT_EQ(riomp_mgmt_query(mport, &properties), 0);
    // The kernel asks the register no more.
    EXPECT_EQ(properties.did_val, is_linux() ? mport.destid : 77U);
    EXPECT_EQ(riomp_mgmt_lcfg_read(mport, 0x60, 4, &value), 0);
    EXPECT_EQ(value & 0xFFFF, 77U);
    EXPECT_EQ(riomp_mgmt_lcfg_write(mport, 0x60, 4, mport.destid), 0);
    EXPECT_EQ(riomp_mgmt_lcfg_read(mport, 0x9'0000, 4, &value), 0);
    EXPECT_EQ(value, 0U) << "no such register";
    std::uint32_t first[4] = {};
    ASSERT_EQ(riomp_mgmt_lcfg_read(mport, 0x0, 16, first), 0);
    EXPECT_EQ(first[3], 0x100U) << "where the extended features begin";
    EXPECT_EQ(riomp_mgmt_lcfg_read(mport, 2, 4, &value), -EINVAL);
    EXPECT_EQ(riomp_mgmt_lcfg_read(mport, 0, 3, &value), -EINVAL);
    EXPECT_EQ(riomp_mgmt_lcfg_read(mport, 16U << 20, 4, &value), -EINVAL);
    EXPECT_EQ(riomp_mgmt_lcfg_read(mport, 0, 4, nullptr), -EINVAL);
    EXPECT_EQ(riomp_mgmt_lcfg_write(mport, 0x6C, 8, 0), -EINVAL);
}

TEST(Mgmt, RemoteRegisters) {
    const Fabric fabric;
    const Mport host(0);
    const Mport device(1);
    const Mport rival(2);
    std::uint32_t value = 0;
    ASSERT_EQ(riomp_mgmt_rcfg_read(host, device.destid, HC_MP, 0x60, 4, &value), 0);
    EXPECT_EQ(value & 0xFFFF, device.destid);
    EXPECT_EQ(riomp_mgmt_rcfg_write(host, device.destid, HC_MP, 0x6C, 4, 42), 0);
    ASSERT_EQ(riomp_mgmt_lcfg_read(device, 0x6C, 4, &value), 0);
    EXPECT_EQ(value, 42U);
    if (!is_linux()) {  // where a host may do so, and nobody finds the device then
        EXPECT_EQ(riomp_mgmt_rcfg_write(host, device.destid, HC_MP, 0x60, 4, 5), -EPERM);
    }
    // The lock: the first host has it until it gives it back.
    const auto lock = [&](const Mport& who) {
        EXPECT_EQ(riomp_mgmt_rcfg_write(who, device.destid, HC_MP, 0x68, 4, who.destid), 0);
        EXPECT_EQ(riomp_mgmt_rcfg_read(who, device.destid, HC_MP, 0x68, 4, &value), 0);
        return value;
    };
    EXPECT_EQ(lock(host), host.destid);
    EXPECT_EQ(lock(rival), host.destid);
    EXPECT_EQ(lock(host), 0xFFFFU);
    EXPECT_EQ(lock(rival), rival.destid);
    EXPECT_EQ(lock(rival), 0xFFFFU);
    ASSERT_EQ(riomp_mgmt_rcfg_read(host, device.destid, 0, 0x10, 4, &value), 0);
    EXPECT_EQ(value & 0x1000'0000, 0x1000'0000U) << "a switch is between";
    // Behind it is the endpoint, which real ones reach so, too.
    EXPECT_EQ(riomp_mgmt_rcfg_read(host, device.destid, 1, 0, 4, &value), is_linux() ? 0 : -EIO);
    EXPECT_EQ(riomp_mgmt_rcfg_write(host, device.destid, 1, 0x6C, 4, 42), is_linux() ? 0 : -EIO);
    EXPECT_EQ(riomp_mgmt_rcfg_read(host, 999, HC_MP, 0, 4, &value), -ENODEV);
    EXPECT_EQ(riomp_mgmt_rcfg_write(host, 999, HC_MP, 0x6C, 4, 1), -ENODEV);
}

TEST(Mgmt, Devices) {
    const Fabric fabric;
    const Mport host(0);
    const Mport device(1);
    EXPECT_EQ(riomp_mgmt_device_add(host, 999, HC_MP, 1, "none"), -EIO);
    EXPECT_EQ(riomp_mgmt_device_add(host, device.destid, HC_MP, 17, "one"), 0);
    EXPECT_EQ(riomp_mgmt_device_add(host, device.destid, HC_MP, 17, "one"), -EEXIST);
    std::uint32_t value = 0;
    EXPECT_EQ(riomp_mgmt_rcfg_read(host, device.destid, HC_MP, 0x6C, 4, &value), 0);
    EXPECT_EQ(value, 17U);
    EXPECT_EQ(riomp_mgmt_device_del(host, device.destid, HC_MP, 17, nullptr), 0);
    EXPECT_EQ(riomp_mgmt_device_del(host, device.destid, HC_MP, 17, nullptr), -ENODEV);
}

TEST(Mgmt, ForkedChildMayHaveItsOwnEndpoint) {
    const Fabric fabric;
    const Mport parent(0);
    Child child([&](const Child::Line&) {
        EXPECT_EQ(riomp_mgmt_set_event_mask(parent, RIO_EVENT_DOORBELL), 0) << "the parent's can be used";
        const Mport own(0);
        EXPECT_NE(own.destid, parent.destid);
        const std::vector<did_val_t> others = endpoints();
        EXPECT_TRUE(std::ranges::find(others, parent.destid) != others.end());
        EXPECT_EQ(others.size(), is_linux() ? 3U : 1U);
    });
    EXPECT_TRUE(child.finish());
    EXPECT_EQ(endpoints().empty(), !is_linux());
}

TEST(Mgmt, SixtyFourEndpointsOfOneFabric) {
    SKIP_ON_LINUX("a kernel has at most 8 ports");
    const Fabric fabric("", 1);
    std::vector<std::unique_ptr<Child>> children;
    constexpr std::size_t count = 63;
    for (std::size_t number = 0; number < count; ++number) {
        children.push_back(std::make_unique<Child>([](const Child::Line& line) {
            Mport own(0);
            own.listen(0, 100);
            line.say(own.destid);
            EXPECT_TRUE(own.polls(deadline_ms));
            std::uint32_t source = 0;
            EXPECT_EQ(own.hear(&source), 64);
            EXPECT_EQ(own.ring(source, 64), 0);
            EXPECT_EQ(line.hear(), 1U);
        }));
    }
    std::vector<did_val_t> all;
    for (const auto& child : children)
        all.push_back(static_cast<did_val_t>(child->hear()));
    std::ranges::sort(all);
    Mport own(0);
    own.listen(64, 64);
    EXPECT_EQ(endpoints(), all);
    EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
    for (const did_val_t each : all)
        EXPECT_EQ(own.ring(each, 64), 0);
    std::vector<did_val_t> answered;
    EXPECT_TRUE(eventually([&] {
        std::uint32_t source = 0;
        while (own.hear(&source) == 64)
            answered.push_back(source);
        return answered.size() == count;
    }));
    std::ranges::sort(answered);
    EXPECT_EQ(answered, all);
    for (const auto& child : children)
        child->say(1);
    for (const auto& child : children)
        EXPECT_TRUE(child->finish());
}

TEST(Mgmt, PortsOfNamedFabrics) {
    SKIP_ON_UDP("its fabrics have addresses, no names");
    SKIP_ON_LINUX("its ports have numbers, no names");
    const Fabric fabric("", 1);
    const std::string url = "shm:" + fabric.name();
    riomp_mport_t handles[9] = {};
    std::set<std::uint32_t> destids;
    for (int number = 0; number < 8; ++number) {
        ASSERT_EQ(softrio_open_port(url.c_str(), O_NONBLOCK, &handles[number]), 0);
        riomp_mgmt_mport_properties properties{};
        ASSERT_EQ(riomp_mgmt_query(handles[number], &properties), 0);
        EXPECT_TRUE(destids.insert(properties.did_val).second);
        EXPECT_EQ(handles[number]->mport_id, number);
    }
    EXPECT_EQ(softrio_open_port(url.c_str(), 0, &handles[8]), -EBUSY);
    EXPECT_EQ(riomp_mgmt_mport_destroy_handle(&handles[3]), 0);
    EXPECT_EQ(softrio_open_port("no fabric", 0, &handles[3]), -ENODEV);
    EXPECT_EQ(softrio_open_port(nullptr, 0, &handles[3]), -EINVAL);
    ASSERT_EQ(softrio_open_port(("shm:" + fabric.name() + "-2").c_str(), 0, &handles[3]), 0);
    did_val_t* others = nullptr;
    std::uint32_t count = 1;
    ASSERT_EQ(riomp_mgmt_get_ep_list(3, &others, &count), 0);
    EXPECT_EQ(count, 0U) << "alone in another fabric";
    EXPECT_EQ(riomp_mgmt_free_ep_list(&others), 0);
    for (int number = 0; number < 8; ++number)
        EXPECT_EQ(riomp_mgmt_mport_destroy_handle(&handles[number]), 0);
}

}  // namespace
}  // namespace incast::softrio
