// Endpoints of a udp fabric whose destination ids an enumerating host gives.
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "support/softrio_api.h"
#include "support/softrio_udp.h"

namespace incast::softrio {
namespace {

constexpr std::uint32_t window_bytes = 64 << 10;
constexpr std::uint64_t common_base = 0x1000'0000;

/// The host, and this process as endpoints of its fabric.
class Enumerated : public udp::HostThread {
public:
    explicit Enumerated(Kind kind = Kind::enumerator, int deadline_ms = 60'000) : HostThread(kind) {
        set_variable("RIO_FABRIC",
                     "udp:host:" + to_string(address()) + "?mports=4&deadline_ms=" + std::to_string(deadline_ms));
        clear_variable("RIO_DESTID");
    }
    Enumerated(const Enumerated&) = delete;
    Enumerated& operator=(const Enumerated&) = delete;
    ~Enumerated() { clear_variable("RIO_FABRIC"); }

    /// Of the switch.
    udp::Switch::Counters counters(std::uint32_t port) {
        udp::Switch::Counters found;
        ask([&](udp::Enumerator& host) { found = host.plane()->state().ports().at(port).counters; });
        return found;
    }
};

constexpr auto with_switch = udp::HostThread::Kind::with_switch;
constexpr int short_deadline_ms = 300;

class Enumeration : public ::testing::Test {
protected:
    void SetUp() override { SKIP_ON_UDP("makes its own fabric, once"); }
};

std::vector<std::uint32_t> others(std::uint8_t mport) {
    did_val_t* list = nullptr;
    std::uint32_t count = 0;
    EXPECT_EQ(riomp_mgmt_get_ep_list(mport, &list, &count), 0);
    std::vector<std::uint32_t> found(list, list + count);
    EXPECT_EQ(riomp_mgmt_free_ep_list(&list), 0);
    return found;
}

TEST_F(Enumeration, EndpointsFindEachOtherAndTheirSuccessors) {
    const Enumerated fabric;
    Mport one(0);
    auto two = std::make_unique<Mport>(1);
    EXPECT_EQ(one.destid, 1U);
    EXPECT_EQ(two->destid, 2U);
    const std::vector<std::uint8_t> bytes(window_bytes, 7);
    for (int life = 0; life < 3; ++life) {
        OpenWindow window(*two, window_bytes);
        EXPECT_EQ(write_to(one, 2, window.base, bytes), 0);
        EXPECT_EQ(std::vector(window.data, window.data + window_bytes), bytes);
        EXPECT_EQ(others(0), std::vector<std::uint32_t>{2});
        two->close();
        // Long before its deadline.
        EXPECT_TRUE(eventually([&] { return write_to(one, 2, window.base, {7}) == -ENODEV; }));
        EXPECT_TRUE(eventually([] { return others(0).empty(); })) << life;  // the peer's own good-bye may be first
        two = std::make_unique<Mport>(1);
        EXPECT_EQ(two->destid, 2U) << "it asks for the id it had";
    }
}

TEST_F(Enumeration, AnIdCanBeChanged) {
    const Enumerated fabric;
    Mport one(0);
    Mport two(1);
    const OpenWindow window(two, window_bytes);
    EXPECT_EQ(write_to(one, 2, window.base, {7}), 0);
    EXPECT_EQ(riomp_mgmt_destid_set(two, 1), -EBUSY);
    EXPECT_EQ(riomp_mgmt_destid_set(two, 300), 0);
    EXPECT_EQ(write_to(one, 300, window.base, {8}), 0);
    EXPECT_EQ(window.data[0], 8);
    EXPECT_EQ(write_to(one, 2, window.base, {9}), -ENODEV);
    EXPECT_EQ(window.data[0], 8);
}

TEST_F(Enumeration, WithoutTheHostThoseWhoAreThereGoOn) {
    Enumerated fabric;
    Mport one(0);
    Mport two(1);
    const OpenWindow window(two, window_bytes);
    EXPECT_EQ(write_to(one, 2, window.base, {7}), 0);
    fabric.end();
    EXPECT_EQ(write_to(one, 2, window.base, {8}), 0);
    EXPECT_EQ(window.data[0], 8);
    EXPECT_EQ(write_to(one, 3, window.base, {8}), -ENODEV);
    riomp_mport_t late = nullptr;
    EXPECT_EQ(riomp_mgmt_mport_create_handle(2, 0, &late), -ENODEV);
}

TEST_F(Enumeration, ThroughASwitchEveryoneReachesEveryone) {
    Enumerated fabric(with_switch);
    std::vector<std::unique_ptr<Mport>> mports;
    std::vector<std::unique_ptr<OpenWindow>> windows;
    for (std::uint32_t mport = 0; mport < 3; ++mport) {
        mports.push_back(std::make_unique<Mport>(mport));
        mports.back()->listen(0, 9);
        windows.push_back(std::make_unique<OpenWindow>(*mports.back(), 4 * window_bytes, common_base));
    }
    // All at the same time, each into a place of its own.
    std::vector<std::thread> writers;
    for (std::uint32_t from = 0; from < 3; ++from) {
        writers.emplace_back([&mports, from] {
            for (std::uint32_t to = 1; to <= 3; ++to) {
                if (to == from + 1) continue;
                const std::vector<std::uint8_t> bytes(window_bytes, static_cast<std::uint8_t>(from + 1));
                EXPECT_EQ(write_to(*mports[from], to, common_base + std::uint64_t{from} * window_bytes, bytes), 0);
                EXPECT_EQ(mports[from]->ring(to, static_cast<std::uint16_t>(from)), 0);
            }
        });
    }
    for (std::thread& each : writers)
        each.join();
    for (std::uint32_t at = 0; at < 3; ++at) {
        std::uint32_t heard = 0;
        for (std::uint32_t from = 0; from < 3; ++from) {
            if (from == at) continue;
            const std::vector<std::uint8_t> expected(window_bytes, static_cast<std::uint8_t>(from + 1));
            const std::uint8_t* place = windows[at]->data + std::size_t{from} * window_bytes;
            EXPECT_EQ(std::vector(place, place + window_bytes), expected);
            std::uint32_t source = 0;
            EXPECT_GE(mports[at]->hear(&source), 0);
            heard |= 1U << (source - 1);
        }
        EXPECT_EQ(heard, 7U & ~(1U << at));
        EXPECT_GE(fabric.counters(at).bytes_in, 2 * window_bytes);
        EXPECT_GE(fabric.counters(at).bytes_out, 2 * window_bytes);
        EXPECT_EQ(fabric.counters(at).discarded, 0U);
    }
}

TEST_F(Enumeration, ThroughASwitchAnIdCanBeChanged) {
    const Enumerated fabric(with_switch);
    Mport one(0);
    Mport two(1);
    const OpenWindow window(two, window_bytes);
    EXPECT_EQ(write_to(one, 2, window.base, {7}), 0);
    EXPECT_EQ(riomp_mgmt_destid_set(two, 300), 0);
    EXPECT_EQ(write_to(one, 300, window.base, {8}), 0);
    EXPECT_EQ(window.data[0], 8);
    EXPECT_EQ(write_to(one, 2, window.base, {9}), -ENODEV);
}

TEST_F(Enumeration, AnIdWithoutARouteIsUnreachableUntilItHasOne) {
    Enumerated fabric(with_switch, short_deadline_ms);
    Mport one(0);
    Mport two(1);
    Mport three(2);
    const OpenWindow at_two(two, window_bytes, common_base);
    const OpenWindow at_three(three, window_bytes, common_base);
    EXPECT_EQ(write_to(one, 2, common_base, {1}), 0);
    EXPECT_EQ(fabric.program("[routes]\n2 = 'discard'"), "");
    EXPECT_EQ(write_to(one, 2, common_base, {2}), -ENODEV) << "of a session that there was";
    EXPECT_EQ(write_to(one, 2, common_base, {2}), -ENODEV) << "and there is no other";
    EXPECT_EQ(one.ring(2, 0), -ENODEV);
    EXPECT_EQ(write_to(one, 3, common_base, {3}), 0);
    EXPECT_EQ(at_three.data[0], 3);
    EXPECT_EQ(at_two.data[0], 1);
    EXPECT_GT(fabric.counters(0).discarded, 0U);
    EXPECT_EQ(fabric.program(""), "");
    EXPECT_EQ(write_to(one, 2, common_base, {4}), 0);
    EXPECT_EQ(at_two.data[0], 4);
}

TEST_F(Enumeration, ARouteMayDifferByInputPort) {
    Enumerated fabric(with_switch, short_deadline_ms);
    Mport one(0);
    Mport two(1);
    Mport three(2);
    const OpenWindow at_two(two, window_bytes, common_base);
    const OpenWindow at_three(three, window_bytes, common_base);
    // Endpoint 1 is at port 0; what it sends to 2 comes to 3, which takes nothing that is not for it.
    EXPECT_EQ(fabric.program("[from.0]\n2 = 2"), "");
    EXPECT_EQ(write_to(one, 2, common_base, {1}), -ENODEV);
    EXPECT_EQ(write_to(three, 2, common_base, {2}), 0);
    EXPECT_EQ(write_to(one, 3, common_base, {3}), 0);
    EXPECT_EQ(at_two.data[0], 2);
    EXPECT_EQ(at_three.data[0], 3);
}

TEST_F(Enumeration, TheSwitchSaysWhoIsInAMulticastGroup) {
    Enumerated fabric(with_switch);
    Mport one(0);
    Mport two(1);
    Mport three(2);
    const OpenWindow at_two(two, window_bytes, common_base);
    const OpenWindow at_three(three, window_bytes, common_base);
    const auto write = [&](std::uint8_t byte) {
        return write_to(one, 40'000, common_base, {byte}, RIO_DIRECTIO_TYPE_NWRITE);
    };
    EXPECT_EQ(write(1), -ENODEV);
    EXPECT_EQ(fabric.program("[multicast]\n40000 = [2, 3]"), "");
    EXPECT_TRUE(eventually([&] { return write(2) == 0; }));
    EXPECT_TRUE(eventually([&] { return at_two.data[0] == 2 && at_three.data[0] == 2; }));
    EXPECT_EQ(write_to(one, 40'000, common_base, {3}), -EINVAL) << "nobody could answer for both";
    EXPECT_EQ(riomp_mgmt_destid_set(one, 40'000), -EINVAL);
    EXPECT_EQ(fabric.program("[multicast]\n40000 = [3]"), "");
    EXPECT_TRUE(eventually([&] {
        at_two.data[0] = 0;
        // Its response says that what was written to 2 before is in place.
        return write(4) == 0 && write_to(one, 2, common_base + 1, {1}) == 0 && at_two.data[0] == 0;
    }));
    EXPECT_TRUE(eventually([&] { return at_three.data[0] == 4; }));
    EXPECT_EQ(fabric.program(""), "");
    EXPECT_TRUE(eventually([&] { return write(5) == -ENODEV; }));
}

}  // namespace
}  // namespace incast::softrio
