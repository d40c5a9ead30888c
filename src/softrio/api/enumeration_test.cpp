// Endpoints of a udp fabric whose destination ids an enumerating host gives.
#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "softrio/api/test_support.h"
#include "softrio/udp/enumerator.h"

namespace incast::softrio {
namespace {

constexpr std::uint32_t window_bytes = 64 << 10;

/// The host, and this process as endpoints of its fabric.
class Enumerated {
public:
    Enumerated() {
        auto host = udp::Enumerator::listen(*udp::parse_address("127.0.0.1:0", udp::Ports::any_too), 1, {});
        EXPECT_TRUE(host.ok());
        set_variable("RIO_FABRIC", "udp:host:" + to_string((*host)->address()) + "?mports=4&deadline_ms=60000");
        clear_variable("RIO_DESTID");
        thread_ = std::thread([this, host = std::move(*host)] {
            while (!ending_)
                host->serve(1);
        });
    }
    Enumerated(const Enumerated&) = delete;
    Enumerated& operator=(const Enumerated&) = delete;
    ~Enumerated() {
        end();
        clear_variable("RIO_FABRIC");
    }
    void end() {
        ending_ = true;
        if (thread_.joinable()) thread_.join();
    }

private:
    std::atomic<bool> ending_ = false;
    std::thread thread_;
};

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

}  // namespace
}  // namespace incast::softrio
