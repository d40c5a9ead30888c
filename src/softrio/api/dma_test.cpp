#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include <sys/mman.h>

#include "softrio/api/transfers.h"
#include "support/softrio_api.h"

namespace incast::softrio {
namespace {

constexpr std::uint32_t page = 4096;
constexpr std::size_t two_pages = 2 * std::size_t{page};
constexpr std::uint64_t step = 0x10'0000;

std::vector<std::uint8_t> pattern(std::size_t size, std::uint8_t first = 1) {
    std::vector<std::uint8_t> bytes(size);
    std::iota(bytes.begin(), bytes.end(), first);
    return bytes;
}

bool holds(const std::uint8_t* data, const std::vector<std::uint8_t>& bytes) {
    return std::equal(bytes.begin(), bytes.end(), data);
}

TEST(Dma, WritesOfAllKindsLand) {
    const Fabric fabric;
    const Mport source(0);
    const Mport target(1);
    const OpenWindow window(target, 4 * page);
    std::uint8_t first = 1;
    for (const auto type : {RIO_DIRECTIO_TYPE_NWRITE, RIO_DIRECTIO_TYPE_SWRITE, RIO_DIRECTIO_TYPE_NWRITE_R,
                            RIO_DIRECTIO_TYPE_SWRITE_R, RIO_DIRECTIO_TYPE_NWRITE_R_ALL}) {
        const auto bytes = pattern(page, first++);
        EXPECT_EQ(write_to(source, target.destid, window.base + 64, bytes, type), 0);
        EXPECT_TRUE(arrives([&] { return holds(window.data + 64, bytes); }));
    }
    EXPECT_EQ(write_to(source, target.destid, window.base, pattern(12), RIO_DIRECTIO_TYPE_SWRITE), -EINVAL);
    EXPECT_EQ(write_to(source, target.destid, window.base + 4, pattern(8), RIO_DIRECTIO_TYPE_SWRITE), -EINVAL);
    EXPECT_EQ(write_to(source, target.destid, window.base, {}), -EINVAL);
    EXPECT_EQ(write_to(source, 999, window.base, pattern(8)), -ENODEV);
    EXPECT_EQ(write_to(nullptr, target.destid, window.base, pattern(8)), -EINVAL);
}

TEST(Dma, ReadsBack) {
    const Fabric fabric;
    const Mport source(0);
    const Mport target(1);
    const OpenWindow window(target, page);
    const auto bytes = pattern(page);
    std::ranges::copy(bytes, window.data);
    std::vector<std::uint8_t> got(100);
    EXPECT_EQ(
        riomp_dma_read(source, target.destid, window.base + 8, got.data(), 100, RIO_DIRECTIO_TRANSFER_SYNC, nullptr),
        0);
    EXPECT_TRUE(holds(window.data + 8, got));
    EXPECT_EQ(riomp_dma_read(source, target.destid, window.base + page - 99, got.data(), 100,
                             RIO_DIRECTIO_TRANSFER_SYNC, nullptr),
              -EIO);
    EXPECT_EQ(riomp_dma_read(source, target.destid, window.base, nullptr, 100, RIO_DIRECTIO_TRANSFER_SYNC, nullptr),
              -EINVAL);
}

TEST(Dma, NothingLandsOutsideAWindow) {
    const Fabric fabric;
    const Mport source(0);
    const Mport target(1);
    // The window is the middle of a buffer, all of which peers have mapped. On linux it is memory of its own.
    std::uint64_t buffer = RIOMP_MAP_ANY_ADDR;
    ASSERT_EQ(riomp_dma_dbuf_alloc(target, 3 * page, &buffer), 0);
    void* mapped = nullptr;
    ASSERT_EQ(riomp_dma_map_memory(target, std::size_t{3} * page, static_cast<off_t>(buffer), &mapped), 0);
    const auto* data = static_cast<const std::uint8_t*>(mapped);
    const OpenWindow window(target, page, std::uint64_t{16} * page, is_linux() ? RIOMP_MAP_ANY_ADDR : buffer + page);
    EXPECT_EQ(window.base, std::uint64_t{16} * page);
    EXPECT_EQ(write_to(source, target.destid, window.base, pattern(page)), 0);
    EXPECT_TRUE(holds(window.data, pattern(page)));
    const std::vector<std::pair<std::uint64_t, std::size_t>> outside = {
        {window.base - 1, 1},
        {window.base - 1, 2},
        {window.base + page, 1},
        {window.base + page - 1, 2},
        {window.base - page, page},
        {window.base - 8, page + 16},
        {0, 8},
        {~std::uint64_t{0}, 1},
        {~std::uint64_t{0} - 7, 16},
        {window.base, page + 1},
    };
    for (const auto& [address, size] : outside) {
        EXPECT_EQ(write_to(source, target.destid, address, pattern(size, 77)), -EIO) << address << " " << size;
        EXPECT_EQ(write_to(source, target.destid, address, pattern(size, 77), RIO_DIRECTIO_TYPE_NWRITE), 0)
            << "nobody answers";
        // udp and linux judge packet by packet: what is inside lands.
        if (is_shm()) {
            EXPECT_TRUE(holds(window.data, pattern(page)));
        }
    }
    EXPECT_EQ(write_to(source, target.destid, window.base, pattern(page)), 0) << "what failed before is forgotten";
    EXPECT_TRUE(holds(window.data, pattern(page)));
    EXPECT_TRUE(std::all_of(data, data + page, [](auto each) { return each == 0; }));
    EXPECT_TRUE(std::all_of(data + two_pages, data + two_pages + page, [](auto each) { return each == 0; }));
    if (!is_linux()) {
        EXPECT_EQ(riomp_dma_dbuf_free(target, &buffer), -EBUSY) << "a window shows it";
    }
    std::uint64_t handle = window.handle;
    EXPECT_EQ(riomp_dma_ibwin_free(target, &handle), 0);
    EXPECT_EQ(riomp_dma_dbuf_free(target, &buffer), 0);
    EXPECT_EQ(riomp_dma_unmap_memory(std::size_t{3} * page, mapped), 0);
}

TEST(Dma, EightWindows) {
    const Fabric fabric;
    const Mport target(0);
    const Mport source(1);
    std::vector<std::uint64_t> handles;
    for (std::uint64_t number = 0; number < 8; ++number) {
        std::uint64_t base = number * step;
        std::uint64_t handle = RIOMP_MAP_ANY_ADDR;
        ASSERT_EQ(riomp_dma_ibwin_map(target, &base, page, &handle), 0);
        EXPECT_EQ(base, number * step);
        handles.push_back(handle);
    }
    std::uint64_t base = RIOMP_MAP_ANY_ADDR;
    std::uint64_t handle = RIOMP_MAP_ANY_ADDR;
    EXPECT_EQ(riomp_dma_ibwin_map(target, &base, page, &handle), -EBUSY);
    EXPECT_EQ(write_to(source, target.destid, 3 * step, {1}), 0);
    EXPECT_EQ(riomp_dma_ibwin_free(target, &handles[3]), 0);
    EXPECT_EQ(riomp_dma_ibwin_free(target, &handles[3]), -EINVAL);
    EXPECT_EQ(write_to(source, target.destid, 3 * step, {1}), -EIO);
    base = 4 * step;
    EXPECT_EQ(riomp_dma_ibwin_map(target, &base, page, &handle), -EBUSY) << "one is there";
    base = 3;
    EXPECT_EQ(riomp_dma_ibwin_map(target, &base, page, &handle), -EINVAL);
    base = RIOMP_MAP_ANY_ADDR;
    const std::uint32_t large = is_linux() ? 4 << 20 : 100 << 20;
    EXPECT_EQ(riomp_dma_ibwin_map(target, &base, large, &handle), 0) << "of any size";
    EXPECT_EQ(write_to(source, target.destid, base + large - 1, {1}), 0);
    EXPECT_EQ(riomp_dma_ibwin_map(target, nullptr, page, &handle), -EINVAL);
}

TEST(Dma, WindowsGoWithTheirHandle) {
    const Fabric fabric;
    const Mport source(0);
    const Mport keeps_the_port(1);
    Mport target(1);
    std::uint64_t base = RIOMP_MAP_ANY_ADDR;
    std::uint64_t handle = RIOMP_MAP_ANY_ADDR;
    ASSERT_EQ(riomp_dma_ibwin_map(target, &base, page, &handle), 0);
    EXPECT_EQ(write_to(source, target.destid, base, {1}), 0);
    target.close();
    EXPECT_EQ(write_to(source, keeps_the_port.destid, base, {1}), -EIO);
}

TEST(Dma, ReservedMemory) {
    const Fabric fabric;
    set_variable("RIO_RSVDMEM", "PHYS_MEM=1M,RSKTD=64K");
    std::uint64_t start = 0;
    std::uint64_t size = 0;
    EXPECT_EQ(get_rsvd_phys_mem(RSVD_PHYS_MEM_FXFR, &start, &size), -1);
    EXPECT_EQ(start, RIO_ANY_ADDR);
    EXPECT_EQ(size, 0U);
    ASSERT_EQ(get_rsvd_phys_mem(RSVD_PHYS_MEM, &start, &size), 0);
    EXPECT_EQ(size, 1U << 20);
    {
        const Mport target(0);
        const Mport source(1);
        if (is_linux()) {
            std::uint64_t base = RIOMP_MAP_ANY_ADDR;
            EXPECT_EQ(riomp_dma_ibwin_map(target, &base, page, &start), -EOPNOTSUPP);
            GTEST_SKIP() << "the driver opens windows over memory of its own alone";
        }
        const OpenWindow window(target, static_cast<std::uint32_t>(size / 2), RIOMP_MAP_ANY_ADDR, start + size / 2);
        EXPECT_EQ(window.handle, start + size / 2);
        EXPECT_EQ(write_to(source, target.destid, window.base, pattern(64)), 0);
        void* all = nullptr;
        ASSERT_EQ(riomp_dma_map_memory(target, size, static_cast<off_t>(start), &all), 0);
        EXPECT_TRUE(holds(static_cast<std::uint8_t*>(all) + size / 2, pattern(64)));
        EXPECT_EQ(riomp_dma_unmap_memory(size, all), 0);
        std::uint64_t buffer = start;
        EXPECT_EQ(riomp_dma_dbuf_alloc(target, page, &buffer), 0);
        EXPECT_EQ(buffer, start);
        EXPECT_EQ(riomp_dma_dbuf_free(target, &buffer), 0);
        buffer = start + size + (64 << 10);
        EXPECT_EQ(riomp_dma_dbuf_alloc(target, page, &buffer), -ENOMEM) << "behind all of it";
        EXPECT_EQ(riomp_dma_map_memory(target, size + page, static_cast<off_t>(start), &all), -EINVAL);
    }
    set_variable("RIO_RSVDMEM", "none");
    EXPECT_EQ(get_rsvd_phys_mem(RSVD_PHYS_MEM, &start, &size), -1);
    clear_variable("RIO_RSVDMEM");
}

TEST(Dma, OldLimits) {
    SKIP_ON_LINUX("its limits are the kernel's");
    const Fabric fabric("limits=old");
    const Mport mport(0);
    std::vector<std::uint64_t> handles(8, RIOMP_MAP_ANY_ADDR);
    std::uint64_t one = RIOMP_MAP_ANY_ADDR;
    EXPECT_EQ(riomp_dma_dbuf_alloc(mport, (2 << 20) + 1, &one), -ENOMEM);
    for (std::uint64_t& each : handles)
        ASSERT_EQ(riomp_dma_dbuf_alloc(mport, 2 << 20, &each), 0);
    EXPECT_EQ(riomp_dma_dbuf_alloc(mport, page, &one), -ENOMEM);
    std::uint64_t base = RIOMP_MAP_ANY_ADDR;
    EXPECT_EQ(riomp_dma_ibwin_map(mport, &base, page, &one), -ENOMEM);
    EXPECT_EQ(one, RIOMP_MAP_ANY_ADDR);
    EXPECT_EQ(riomp_dma_dbuf_free(mport, handles.data()), 0);
    EXPECT_EQ(riomp_dma_dbuf_alloc(mport, page, &one), 0);
}

TEST(Dma, BuffersAsSourceAndTarget) {
    const Fabric fabric;
    const Mport source(0);
    const Mport target(1);
    const OpenWindow window(target, page);
    std::uint64_t buffer = RIOMP_MAP_ANY_ADDR;
    ASSERT_EQ(riomp_dma_dbuf_alloc(source, 10'000, &buffer), 0);
    void* mapped = nullptr;
    ASSERT_EQ(riomp_dma_map_memory(source, 10'000, static_cast<off_t>(buffer), &mapped), 0);
    const auto bytes = pattern(50);
    std::ranges::copy(bytes, static_cast<std::uint8_t*>(mapped) + 9000);
    EXPECT_EQ(riomp_dma_write_d(source, target.destid, window.base, buffer, 9000, 50, RIO_DIRECTIO_TYPE_NWRITE_R,
                                RIO_DIRECTIO_TRANSFER_SYNC, nullptr),
              0);
    EXPECT_TRUE(holds(window.data, bytes));
    EXPECT_EQ(riomp_dma_read_d(source, target.destid, window.base, buffer, 1, 50, RIO_DIRECTIO_TRANSFER_SYNC, nullptr),
              0);
    EXPECT_TRUE(holds(static_cast<std::uint8_t*>(mapped) + 1, bytes));
    EXPECT_EQ(riomp_dma_write_d(source, target.destid, window.base, buffer, 3 * page - 10, 50,
                                RIO_DIRECTIO_TYPE_NWRITE_R, RIO_DIRECTIO_TRANSFER_SYNC, nullptr),
              -EINVAL);
    EXPECT_EQ(riomp_dma_read_d(source, target.destid, window.base, 5, 0, 50, RIO_DIRECTIO_TRANSFER_SYNC, nullptr),
              -EINVAL);
    EXPECT_EQ(riomp_dma_unmap_memory(10'000, mapped), 0);
    EXPECT_EQ(riomp_dma_unmap_memory(0, mapped), -EINVAL);
    EXPECT_EQ(riomp_dma_dbuf_free(source, &buffer), 0);
    EXPECT_EQ(riomp_dma_dbuf_free(source, &buffer), -EINVAL);
}

TEST(Dma, OutboundWindows) {
    const Fabric fabric;
    if (is_udp()) {
        const Mport source(0);
        std::uint64_t handle = 0;
        EXPECT_EQ(riomp_dma_obwin_map(source, 2, 0, page, &handle), -EOPNOTSUPP);
        GTEST_SKIP() << "memory of another host is not mapped";
    }
    const Mport source(0);
    const Mport target(1);
    const OpenWindow window(target, 4 * page);
    std::uint64_t handle = 0;
    ASSERT_EQ(riomp_dma_obwin_map(source, target.destid, window.base + page, 2 * page, &handle), 0);
    void* mapped = nullptr;
    ASSERT_EQ(riomp_dma_map_memory(source, page, static_cast<off_t>(handle + page), &mapped), 0);
    std::ranges::copy(pattern(20), static_cast<std::uint8_t*>(mapped));
    EXPECT_TRUE(holds(window.data + std::size_t{2} * page, pattern(20)));
    EXPECT_EQ(riomp_dma_unmap_memory(page, mapped), 0);
    EXPECT_EQ(riomp_dma_map_memory(source, std::size_t{3} * page, static_cast<off_t>(handle), &mapped), -EINVAL);
    std::uint64_t none = 0;
    EXPECT_EQ(riomp_dma_obwin_map(source, target.destid, 7, page, &none), -EINVAL);
    EXPECT_EQ(riomp_dma_obwin_map(source, 0xFFFF, window.base, page, &none), is_linux() ? -ENODEV : -EINVAL);
    std::vector<std::uint64_t> more(7);
    for (std::uint64_t& each : more)
        EXPECT_EQ(riomp_dma_obwin_map(source, target.destid, window.base, page, &each), 0);
    if (is_linux()) {
        // The same one again takes no window.
        for (std::uint64_t& each : more)
            EXPECT_EQ(riomp_dma_obwin_free(source, &each), 0);
        EXPECT_EQ(riomp_dma_obwin_map(source, target.destid, window.base + page, page, &none), -EBUSY) << "overlaps";
    } else {
        EXPECT_EQ(riomp_dma_obwin_map(source, target.destid, window.base, page, &none), -EBUSY);
    }
    EXPECT_EQ(riomp_dma_obwin_free(source, &handle), 0);
    EXPECT_EQ(riomp_dma_obwin_free(source, &handle), -EINVAL);
    EXPECT_EQ(riomp_dma_map_memory(source, page, static_cast<off_t>(handle), &mapped), -EINVAL);
}

TEST(Dma, AsynchronousAndForgotten) {
    for (const char* order : {"order=strict", "order=weak"}) {
        const Fabric fabric(order);
        const Mport source(0);
        const Mport target(1);
        const OpenWindow window(target, page);
        auto bytes = pattern(64);
        const auto start = [&](std::uint64_t address, riomp_dma_directio_type type,
                               riomp_dma_directio_transfer_sync sync) {
            return riomp_dma_write(source, target.destid, address, bytes.data(), 64, type, sync, nullptr);
        };
        const int good = start(window.base, RIO_DIRECTIO_TYPE_NWRITE_R, RIO_DIRECTIO_TRANSFER_ASYNC);
        const int bad = start(window.base + page, RIO_DIRECTIO_TYPE_NWRITE_R, RIO_DIRECTIO_TRANSFER_ASYNC);
        ASSERT_GT(good, 0);
        ASSERT_GT(bad, 0);
        ASSERT_NE(good, bad);
        EXPECT_EQ(riomp_dma_wait_async(source, static_cast<std::uint32_t>(bad), deadline_ms), -EIO);
        EXPECT_EQ(riomp_dma_wait_async(source, static_cast<std::uint32_t>(good), deadline_ms), 0);
        EXPECT_TRUE(holds(window.data, bytes));
        EXPECT_EQ(riomp_dma_wait_async(source, static_cast<std::uint32_t>(good), 0), -EAGAIN) << "told once";
        EXPECT_EQ(riomp_dma_wait_async(source, 12345, 0), -EAGAIN);
        EXPECT_EQ(start(window.base + 64, RIO_DIRECTIO_TYPE_NWRITE, RIO_DIRECTIO_TRANSFER_FAF), 0);
        EXPECT_EQ(start(window.base + page, RIO_DIRECTIO_TYPE_NWRITE_R, RIO_DIRECTIO_TRANSFER_FAF), 0);
        const auto sent = std::exchange(bytes, pattern(64, 99));
        EXPECT_TRUE(eventually([&] { return holds(window.data + 64, sent); }));
        std::vector<std::uint8_t> got(64);
        const int read =
            riomp_dma_read(source, target.destid, window.base, got.data(), 64, RIO_DIRECTIO_TRANSFER_ASYNC, nullptr);
        ASSERT_GT(read, 0);
        EXPECT_EQ(riomp_dma_wait_async(source, static_cast<std::uint32_t>(read), deadline_ms), 0);
        EXPECT_TRUE(holds(window.data, got));
    }
}

TEST(Dma, WhetherATransferHasEndedIsAskedWithoutWaiting) {
    const Fabric fabric;
    const Mport source(0);
    const Mport target(1);
    const OpenWindow window(target, page);
    auto bytes = pattern(64);
    const int cookie = riomp_dma_write(source, target.destid, window.base, bytes.data(), 64, RIO_DIRECTIO_TYPE_NWRITE_R,
                                       RIO_DIRECTIO_TRANSFER_ASYNC, nullptr);
    ASSERT_GT(cookie, 0);
    int result = -ETIMEDOUT;
    EXPECT_TRUE(eventually([&] {
        result = softrio_dma_ended(source, static_cast<std::uint32_t>(cookie));
        return result != -ETIMEDOUT;
    }));
    EXPECT_EQ(result, 0);
    EXPECT_TRUE(holds(window.data, bytes));
    EXPECT_EQ(softrio_dma_ended(source, static_cast<std::uint32_t>(cookie)), -EAGAIN) << "told once";
    EXPECT_EQ(softrio_dma_ended(nullptr, 1), -EINVAL);
}

TEST(Dma, MulticastReachesAllMembers) {
    std::string options = "destid=1&multicast=0x80:2+3+50";
    if (is_linux()) {  // the kernel gives the ids
        const Fabric any;
        options = "multicast=0x80:" + std::to_string(Mport(1).destid) + "+" + std::to_string(Mport(2).destid) + "+50";
    }
    const Fabric fabric(options);
    const Mport source(0);
    const Mport second(1);
    const Mport third(2);
    const Mport outsider(3);
    const OpenWindow at_second(second, page, 0x1000);
    const OpenWindow at_third(third, page, 0x1000);
    const OpenWindow at_outsider(outsider, page, 0x1000);
    EXPECT_EQ(write_to(source, 0x80, 0x1000, pattern(32), RIO_DIRECTIO_TYPE_NWRITE), 0);
    EXPECT_TRUE(arrives([&] { return holds(at_second.data, pattern(32)); }));
    EXPECT_TRUE(arrives([&] { return holds(at_third.data, pattern(32)); }));
    EXPECT_TRUE(holds(at_outsider.data, std::vector<std::uint8_t>(32)));
    EXPECT_EQ(write_to(source, 0x80, 0x1000, pattern(32), RIO_DIRECTIO_TYPE_NWRITE_R), -EINVAL);
    std::uint8_t byte = 0;
    EXPECT_EQ(riomp_dma_read(source, 0x80, 0x1000, &byte, 1, RIO_DIRECTIO_TRANSFER_SYNC, nullptr), -EINVAL);
}

TEST(Dma, WeakOrderLetsADoorbellOvertakeAWrite) {
    const Fabric fabric("order=weak&hold_us=600000000");
    Mport source(0);
    Mport target(1);
    const OpenWindow window(target, page);
    target.listen(5, 5);
    EXPECT_EQ(write_to(source, target.destid, window.base, {42}, RIO_DIRECTIO_TYPE_NWRITE), 0);
    EXPECT_EQ(source.ring(target.destid, 5), 0);
    EXPECT_EQ(target.hear_sent(), 5);
    EXPECT_EQ(window.data[0], 0) << "still on its way";
    // Another handle is another DMA channel: its response says nothing about this one's writes.
    const Mport other(0);
    EXPECT_EQ(write_to(other, target.destid, window.base + 8, {1}, RIO_DIRECTIO_TYPE_NWRITE_R), 0);
    EXPECT_EQ(window.data[0], 0);
    EXPECT_EQ(write_to(source, target.destid, window.base + 16, {2}, RIO_DIRECTIO_TYPE_NWRITE_R), 0);
    EXPECT_EQ(window.data[0], 42) << "a response comes after what was written before";
    EXPECT_EQ(write_to(source, target.destid, window.base, {43}, RIO_DIRECTIO_TYPE_NWRITE), 0);
    std::uint8_t got = 0;
    EXPECT_EQ(riomp_dma_read(source, target.destid, window.base, &got, 1, RIO_DIRECTIO_TRANSFER_SYNC, nullptr), 0);
    EXPECT_EQ(got, 43) << "and so does a read";
}

TEST(Dma, WeakOrderDeliversInTheEnd) {
    const Fabric fabric("order=weak&hold_us=1000");
    const Mport target(1);
    const OpenWindow window(target, page);
    Mport source(0);
    EXPECT_EQ(write_to(source, target.destid, window.base, {42}, RIO_DIRECTIO_TYPE_NWRITE), 0);
    EXPECT_TRUE(eventually([&] { return window.data[0] == 42; })) << "without another call of the sender";
    EXPECT_EQ(write_to(source, target.destid, window.base, {43}, RIO_DIRECTIO_TYPE_NWRITE), 0);
    source.close();
    EXPECT_EQ(window.data[0], 43) << "at the latest when it leaves";
}

TEST(Dma, MemoryMayBeSharedForReading) {
    const Fabric fabric;
    const Mport mport;
    const OpenWindow window(mport, 8192);
    window.data[4096] = 42;
    if (is_linux()) {
        EXPECT_EQ(softrio_share_memory(mport, window.handle), -EOPNOTSUPP);
        GTEST_SKIP() << "the kernel's memory is no file";
    }
    const int file = softrio_share_memory(mport, window.handle);
    ASSERT_GE(file, 0);
    void* shown = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, file, 0);
    ASSERT_NE(shown, MAP_FAILED);
    EXPECT_EQ(static_cast<const std::uint8_t*>(shown)[4096], 42);
    EXPECT_EQ(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
    EXPECT_EQ(softrio_share_memory(mport, window.handle + 4096), -EINVAL);
    EXPECT_EQ(::munmap(shown, 8192), 0);
    EXPECT_EQ(::close(file), 0);
}

TEST(Dma, AnEmulatedLinkTakesItsTime) {
    SKIP_ON_UDP("no link is emulated there");
    SKIP_ON_LINUX("no link is emulated there");
    const Fabric fabric("link=tsi721");
    const Mport sender(0);
    const Mport other(1);
    const Mport target(2);
    constexpr std::uint32_t bytes = 4 << 20;
    const OpenWindow window(target, bytes);
    const std::vector<std::uint8_t> data(bytes, 3);
    const auto took_ms = [&](const auto& act) {
        const std::int64_t before = now_ms();
        act();
        return now_ms() - before;
    };
    // 4 MiB at 13.4 Gb/s: 2.5 ms; of two senders at once the receiver takes 14.8 Gb/s: 4.5 ms.
    EXPECT_GE(took_ms([&] { EXPECT_EQ(write_to(sender, target.destid, window.base, data), 0); }), 2);
    EXPECT_GE(took_ms([&] {
                  int cookies[2] = {};
                  for (int which = 0; which < 2; ++which) {
                      cookies[which] =
                          riomp_dma_write(which == 0 ? sender : other, target.destid, window.base,
                                          const_cast<std::uint8_t*>(data.data()), bytes, RIO_DIRECTIO_TYPE_NWRITE_R,
                                          RIO_DIRECTIO_TRANSFER_ASYNC, nullptr);
                      ASSERT_GT(cookies[which], 0);
                  }
                  EXPECT_EQ(riomp_dma_wait_async(sender, static_cast<std::uint32_t>(cookies[0]), 1000), 0);
                  EXPECT_EQ(riomp_dma_wait_async(other, static_cast<std::uint32_t>(cookies[1]), 1000), 0);
              }),
              4);
    EXPECT_EQ(window.data[bytes - 1], 3);
}

TEST(Dma, AMulticastTakesAnEmulatedLinkOnce) {
    SKIP_ON_UDP("no link is emulated there");
    SKIP_ON_LINUX("no link is emulated there");
    const Fabric fabric("destid=1&multicast=0x80:2+3+50&link=tsi721/20");
    const Mport sender(0);
    const Mport second(1);
    const Mport third(2);
    constexpr std::uint32_t bytes = 4 << 20;
    const OpenWindow at_second(second, bytes, 0x1000);
    const OpenWindow at_third(third, bytes, 0x1000);
    const std::vector<std::uint8_t> data(bytes, 3);
    std::int64_t before = now_ms();
    EXPECT_EQ(write_to(sender, 0x80, 0x1000, data, RIO_DIRECTIO_TYPE_NWRITE), 0);
    const std::int64_t took_ms = now_ms() - before;
    EXPECT_GE(took_ms, 50) << "4 MiB at 13.4 Gb/s / 20: 50.1 ms";
    before = now_ms();
    EXPECT_EQ(write_to(sender, second.destid, 0x1000, data, RIO_DIRECTIO_TYPE_NWRITE_R), 0);
    EXPECT_EQ(write_to(sender, third.destid, 0x1000, data, RIO_DIRECTIO_TYPE_NWRITE_R), 0);
    EXPECT_GE(now_ms() - before, 100) << "what one multicast spares";
    // The receivers' links were taken, too: whoever sends to one of them behind it has to wait.
    ASSERT_EQ(riomp_dma_write(sender, 0x80, 0x1000, const_cast<std::uint8_t*>(data.data()), bytes,
                              RIO_DIRECTIO_TYPE_NWRITE, RIO_DIRECTIO_TRANSFER_FAF, nullptr),
              0);
    before = now_ms();
    EXPECT_EQ(write_to(second, third.destid, 0x1000, data, RIO_DIRECTIO_TYPE_NWRITE_R), 0);
    EXPECT_GE(now_ms() - before, 80) << "two times 4 MiB at 14.8 Gb/s / 20: 90.7 ms";
}

TEST(Dma, ASlowerLinkTakesAsManyTimesAsLong) {
    SKIP_ON_UDP("no link is emulated there");
    SKIP_ON_LINUX("no link is emulated there");
    const Fabric fabric("link=tsi721/20");
    const Mport sender(0);
    const Mport target(1);
    constexpr std::uint32_t bytes = 1 << 20;
    const OpenWindow window(target, bytes);
    const std::vector<std::uint8_t> data(bytes, 3);
    const std::int64_t before = now_ms();
    EXPECT_EQ(write_to(sender, target.destid, window.base, data), 0);
    EXPECT_GE(now_ms() - before, 12) << "1 MiB at 13.4 Gb/s / 20: 12.5 ms";
    EXPECT_EQ(window.data[bytes - 1], 3);
}

/// A handle that has used nearly all of its cookies, of which one is still waited for.
TEST(Cookies, BeginAnewAndPassOverThoseThatAreWaitedFor) {
    constexpr std::uint64_t all = 0x7FFF'FFFF;
    api::Cookies cookies;
    cookies.pass(all - 2);
    const auto add = [&](int status) {
        auto outcome = std::make_shared<api::Outcome>(0);
        outcome->set(status);
        return cookies.add(std::move(outcome));
    };
    EXPECT_EQ(add(-1), static_cast<int>(all - 1));
    EXPECT_EQ(add(-2), static_cast<int>(all));
    EXPECT_EQ(add(-3), 1);
    EXPECT_EQ(add(-4), 2);
    EXPECT_EQ(cookies.wait(all, 0), -2);
    EXPECT_EQ(cookies.wait(all, 0), -EAGAIN);
    EXPECT_EQ(cookies.wait(2, 0), -4);
    for (int status = 5; status < 5 + 65534; ++status) {
        add(-status);
    }
    EXPECT_EQ(cookies.wait(all - 1, 0), -1) << "the oldest of 65536";
    add(0);
    add(0);
    EXPECT_EQ(cookies.wait(1, 0), -EAGAIN) << "the oldest of more is forgotten, not the one with the least cookie";
}

TEST(Cookies, ANumberThatIsTakenIsPassedOver) {
    constexpr std::uint64_t all = 0x7FFF'FFFF;
    api::Cookies cookies;
    const auto add = [&] {
        auto outcome = std::make_shared<api::Outcome>(0);
        outcome->set(0);
        return cookies.add(std::move(outcome));
    };
    EXPECT_EQ(add(), 1);
    EXPECT_EQ(add(), 2);
    EXPECT_EQ(cookies.wait(1, 0), 0);
    cookies.pass(all - 2);
    EXPECT_EQ(add(), 1);
    EXPECT_EQ(add(), 3) << "2 is waited for since the last time";
    EXPECT_EQ(cookies.wait(2, 0), 0);
}

}  // namespace
}  // namespace incast::softrio
