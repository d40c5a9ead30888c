// Guarded windows: who is not named to one reaches nothing of it, whatever he calls.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <softrio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "os/descriptor.h"
#include "os/handing.h"
#include "softrio/shm/system.h"
#include "support/softrio_api.h"

namespace incast::softrio {
namespace {

constexpr std::uint32_t page = 4096;
constexpr std::uint64_t base = 0x7000'0000;

/// A guarded window, mapped.
struct Guarded {
    explicit Guarded(riomp_mport_t mport, std::uint64_t at = base) {
        std::uint64_t wanted = at;
        EXPECT_EQ(softrio_guarded_map(mport, &wanted, page, &handle), 0);
        EXPECT_EQ(wanted, at);
        void* mapped = nullptr;
        EXPECT_EQ(riomp_dma_map_memory(mport, page, static_cast<off_t>(handle), &mapped), 0);
        data = static_cast<std::uint8_t*>(mapped);
    }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    ~Guarded() { EXPECT_EQ(riomp_dma_unmap_memory(page, data), 0); }
    [[nodiscard]] bool is_untouched() const {
        return std::all_of(data, data + page, [](std::uint8_t each) { return each == 0; });
    }

    std::uint64_t handle = RIOMP_MAP_ANY_ADDR;
    std::uint8_t* data = nullptr;
};

int read_from(riomp_mport_t from, std::uint32_t target, std::uint64_t address, std::uint32_t size = 8) {
    std::vector<std::uint8_t> got(size);
    return riomp_dma_read(from, target, address, got.data(), size, RIO_DIRECTIO_TRANSFER_SYNC, nullptr);
}

std::vector<std::uint8_t> some(std::size_t size = 8, std::uint8_t value = 7) {
    return std::vector<std::uint8_t>(size, value);
}

/// Everything that could move a byte into the page there, or out of it.
void expect_nothing_moves(riomp_mport_t from, std::uint32_t target) {
    for (const auto type : {RIO_DIRECTIO_TYPE_NWRITE_R, RIO_DIRECTIO_TYPE_SWRITE_R, RIO_DIRECTIO_TYPE_NWRITE_R_ALL}) {
        EXPECT_EQ(write_to(from, target, base, some(), type), -EIO);
        EXPECT_EQ(write_to(from, target, base, some(page), type), -EIO);
    }
    for (const auto type : {RIO_DIRECTIO_TYPE_NWRITE, RIO_DIRECTIO_TYPE_SWRITE}) {
        (void)write_to(from, target, base, some(), type);
        (void)write_to(from, target, base, some(page), type);  // nobody answers on udp
    }
    EXPECT_EQ(read_from(from, target, base), -EIO);
    EXPECT_EQ(read_from(from, target, base, page), -EIO);
    std::uint64_t outbound = 0;
    EXPECT_EQ(riomp_dma_obwin_map(from, target, base, page, &outbound), is_udp() ? -EOPNOTSUPP : 0);
    if (!is_udp()) {
        // It waits for a window that is not guarded, and is nobody's memory meanwhile: look a few times.
        void* mapped = nullptr;
        ASSERT_EQ(riomp_dma_map_memory(from, page, static_cast<off_t>(outbound), &mapped), 0);
        for (const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
             std::chrono::steady_clock::now() < until;)
            *static_cast<volatile std::uint8_t*>(mapped) = 9;
        EXPECT_EQ(riomp_dma_unmap_memory(page, mapped), 0);
        EXPECT_EQ(riomp_dma_obwin_free(from, &outbound), 0);
    }
    // What was not answered has come by now.
    EXPECT_EQ(write_to(from, target, base, some()), -EIO);
}

TEST(Guard, TC_M14_NobodyReachesWhatHeWasNotPermittedTo) {
    const Fabric fabric;
    const Mport owner(0);
    const Mport writer(1);
    const Mport stranger(2);
    const Guarded window(owner);
    expect_nothing_moves(writer, owner.destid);
    EXPECT_TRUE(window.is_untouched());
    ASSERT_EQ(softrio_permit(owner, window.handle, writer.destid, SOFTRIO_READ | SOFTRIO_WRITE), 0);
    expect_nothing_moves(stranger, owner.destid);
    EXPECT_TRUE(window.is_untouched());
    EXPECT_EQ(write_to(writer, owner.destid, base + 8, some()), 0);
    EXPECT_EQ(window.data[8], 7);
    EXPECT_EQ(read_from(writer, owner.destid, base), 0);
    EXPECT_EQ(write_to(writer, owner.destid, base + page - 4, some()), -EIO) << "it ends there";
    EXPECT_EQ(write_to(stranger, owner.destid, base, some()), -EIO);
    EXPECT_EQ(window.data[0], 0);
}

TEST(Guard, TC_M14_APermitIsForWhatItSays) {
    const Fabric fabric;
    const Mport owner(0);
    const Mport other(1);
    const Guarded window(owner);
    ASSERT_EQ(softrio_permit(owner, window.handle, other.destid, SOFTRIO_READ), 0);
    EXPECT_EQ(read_from(other, owner.destid, base), 0);
    EXPECT_EQ(write_to(other, owner.destid, base, some()), -EIO);
    EXPECT_TRUE(window.is_untouched());
    ASSERT_EQ(softrio_permit(owner, window.handle, other.destid, SOFTRIO_WRITE), 0);
    EXPECT_EQ(write_to(other, owner.destid, base, some()), 0);
    EXPECT_EQ(window.data[0], 7);
    if (is_udp()) {
        EXPECT_EQ(read_from(other, owner.destid, base), -EIO);
        ASSERT_EQ(softrio_permit(owner, window.handle, other.destid, 0), 0);
        EXPECT_EQ(write_to(other, owner.destid, base, some(8, 9)), -EIO);
        EXPECT_EQ(window.data[0], 7);
    }
}

TEST(Guard, WhatIsWrongIsRefused) {
    const Fabric fabric;
    const Mport owner(0);
    const Guarded window(owner);
    const OpenWindow open(owner, page);
    EXPECT_EQ(softrio_permit(owner, window.handle, 0xFFFF, SOFTRIO_WRITE), -EINVAL) << "nobody's";
    EXPECT_EQ(softrio_permit(owner, window.handle, 9, 4), -EINVAL);
    EXPECT_EQ(softrio_permit(owner, window.handle + page, 9, SOFTRIO_WRITE), -EINVAL) << "no window";
    EXPECT_EQ(softrio_permit(owner, open.handle, 9, SOFTRIO_WRITE), -EINVAL) << "for all";
    EXPECT_EQ(softrio_permit(owner, window.handle, 9, SOFTRIO_WRITE), is_udp() ? 0 : -ENODEV) << "nobody there";
    EXPECT_EQ(softrio_permit(nullptr, window.handle, 9, SOFTRIO_WRITE), -EINVAL);
    std::uint64_t at = base;
    std::uint64_t handle = RIOMP_MAP_ANY_ADDR;
    EXPECT_EQ(softrio_guarded_map(owner, &at, page, &handle), -EBUSY) << "one is there";
    EXPECT_EQ(softrio_guarded_map(owner, nullptr, page, &handle), -EINVAL);
}

TEST(Guard, AClosedWindowIsReachedByNobodyAndItsPlaceIsAnothers) {
    const Fabric fabric;
    const Mport owner(0);
    const Mport first(1);
    const Mport second(2);
    {
        const Guarded window(owner);
        ASSERT_EQ(softrio_permit(owner, window.handle, first.destid, SOFTRIO_WRITE), 0);
        EXPECT_EQ(write_to(first, owner.destid, base, some()), 0);
        std::uint64_t handle = window.handle;
        ASSERT_EQ(riomp_dma_ibwin_free(owner, &handle), 0);
        EXPECT_EQ(write_to(first, owner.destid, base, some()), -EIO);
    }
    const Guarded window(owner);
    ASSERT_EQ(softrio_permit(owner, window.handle, second.destid, SOFTRIO_WRITE), 0);
    EXPECT_EQ(write_to(first, owner.destid, base, some()), -EIO);
    EXPECT_TRUE(window.is_untouched());
    EXPECT_EQ(write_to(second, owner.destid, base, some()), 0);
}

TEST(Guard, ThereAreAThousandBesideTheOthers) {
    const Fabric fabric;
    const Mport owner(0);
    const Mport writer(1);
    std::vector<std::unique_ptr<OpenWindow>> open;
    while (open.size() < 8)
        open.push_back(std::make_unique<OpenWindow>(owner, page));
    // All of one piece of memory.
    std::uint64_t memory = RIOMP_MAP_ANY_ADDR;
    constexpr std::uint32_t most = 1024;
    ASSERT_EQ(riomp_dma_dbuf_alloc(owner, most * page, &memory), 0);
    for (std::uint32_t number = 0; number < most; ++number) {
        std::uint64_t at = base + std::uint64_t{number} * 2 * page;
        std::uint64_t handle = memory + std::uint64_t{number} * page;
        ASSERT_EQ(softrio_guarded_map(owner, &at, page, &handle), 0) << number;
        if (number % 100 == 0) {
            ASSERT_EQ(softrio_permit(owner, handle, writer.destid, SOFTRIO_WRITE), 0);
        }
    }
    std::uint64_t at = base + std::uint64_t{most} * 2 * page;
    std::uint64_t handle = RIOMP_MAP_ANY_ADDR;
    EXPECT_EQ(softrio_guarded_map(owner, &at, page, &handle), -EBUSY);
    for (const std::uint32_t number : {0U, 1U, 999U, 1000U, 1023U}) {
        const std::uint64_t address = base + std::uint64_t{number} * 2 * page;
        EXPECT_EQ(write_to(writer, owner.destid, address, some()), number % 100 == 0 ? 0 : -EIO) << number;
        EXPECT_EQ(write_to(writer, owner.destid, address + page, some()), -EIO) << "between two";
    }
    for (const auto& each : open)
        EXPECT_EQ(write_to(writer, owner.destid, each->base, some()), 0);
}

TEST(Guard, WhatAnEndpointDoesNotTakeIsLimitedAndHindersNobodyForLong) {
    SKIP_ON_UDP("nothing is handed over there");
    const Fabric fabric;
    const Mport owner(0);
    const Mport lazy(1);
    const Mport other(2);
    const Guarded window(owner);
    int error = 0;
    for (int tries = 0; error == 0 && tries < 20'000; ++tries)
        error = softrio_permit(owner, window.handle, lazy.destid, tries % 2 == 0 ? SOFTRIO_WRITE : SOFTRIO_READ);
    EXPECT_EQ(error, -EAGAIN);
    ASSERT_EQ(softrio_take_permits(lazy), 0);
    EXPECT_EQ(softrio_permit(owner, window.handle, lazy.destid, SOFTRIO_WRITE), 0);
    EXPECT_EQ(softrio_permit(owner, window.handle, other.destid, SOFTRIO_WRITE), 0);
    EXPECT_EQ(write_to(lazy, owner.destid, base, some()), 0);
    EXPECT_EQ(write_to(other, owner.destid, base + 8, some()), 0);
    EXPECT_EQ(softrio_take_permits(nullptr), -EINVAL);
}

TEST(Guard, PermitsHoldWhenTheOwnerTakesAnotherId) {
    SKIP_ON_UDP("addresses there are those of ids");
    const Fabric fabric;
    const Mport owner(0);
    const Mport writer(1);
    const Guarded window(owner);
    ASSERT_EQ(softrio_permit(owner, window.handle, writer.destid, SOFTRIO_WRITE), 0);
    ASSERT_EQ(riomp_mgmt_destid_set(owner, 77), 0);
    EXPECT_EQ(write_to(writer, 77, base, some()), 0);
    EXPECT_EQ(window.data[0], 7);
    EXPECT_EQ(write_to(writer, owner.destid, base, some()), -ENODEV);
}

TEST(Guard, TC_M14_WhoeverComesWithTheIdOfOneThatHasEndedWasPermittedNothing) {
    SKIP_ON_UDP("there the id is all that is known of an endpoint: its owner takes the permit back");
    const Fabric fabric;
    const Mport owner(0);
    const Guarded window(owner);
    const auto writes = [&](const Child::Line& line) {
        const Mport writer(0);
        line.say(writer.destid);
        EXPECT_EQ(write_to(writer, owner.destid, base, some(8, static_cast<std::uint8_t>(line.hear()))), 0);
    };
    std::uint32_t destid = 0;
    {
        Child first(writes);
        destid = static_cast<std::uint32_t>(first.hear());
        ASSERT_EQ(softrio_permit(owner, window.handle, destid, SOFTRIO_WRITE), 0);
        first.say(3);
        ASSERT_TRUE(first.finish());
        EXPECT_EQ(window.data[0], 3);
    }
    Child next([&](const Child::Line& line) {
        const Mport writer(0);
        EXPECT_EQ(writer.destid, destid);
        expect_nothing_moves(writer, owner.destid);
        line.say(0);
    });
    EXPECT_EQ(next.hear(), 0U);
    EXPECT_TRUE(next.finish());
    EXPECT_EQ(window.data[0], 3);
}

TEST(Guard, TC_M14_FilesOfOthersAreNotTaken) {
    SKIP_ON_UDP("no files are handed over there");
    const Fabric fabric;
    const Mport owner(0);
    const Mport victim(1);
    const Guarded window(owner);
    // Another process says that its memory is that of a window of the owner.
    Child liar([&](const Child::Line& line) {
        const auto own = shm::make_memory(page);
        ASSERT_TRUE(own);
        const shm::Handed lie{.destid = owner.destid,
                              .window = max_windows,
                              .generation = 1,
                              .base = base,
                              .bytes = page,
                              .file_bytes = page,
                              .access = SOFTRIO_WRITE};
        const std::string name = shm::files_name(fabric.name(), victim.destid);
        EXPECT_EQ(shm::hand_file(name, lie, own->file), 0);
        line.say(0);
    });
    ASSERT_EQ(liar.hear(), 0U);
    EXPECT_EQ(write_to(victim, owner.destid, base, some()), -EIO);
    EXPECT_TRUE(liar.finish());
    // Nor does one that makes no sense hurt: of the owner's process, but of no such window, or of another size.
    const auto small = shm::make_memory(page);
    ASSERT_TRUE(small);
    for (const shm::Handed& lie :
         {shm::Handed{.destid = owner.destid, .window = 100'000, .generation = 1, .bytes = page, .file_bytes = page},
          shm::Handed{.destid = owner.destid, .window = 2, .generation = 1, .bytes = page, .file_bytes = page},
          shm::Handed{.destid = owner.destid,
                      .window = max_windows,
                      .generation = 1,
                      .base = base,
                      .bytes = std::uint64_t{page} * 2,
                      .file_bytes = std::uint64_t{page} * 2,
                      .access = SOFTRIO_WRITE},
          shm::Handed{.destid = owner.destid,
                      .window = max_windows,
                      .generation = 1,
                      .base = base,
                      .bytes = page,
                      .offset = 1,
                      .file_bytes = page,
                      .access = SOFTRIO_WRITE}}) {
        EXPECT_EQ(shm::hand_file(shm::files_name(fabric.name(), victim.destid), lie, small->file), 0);
        EXPECT_EQ(write_to(victim, owner.destid, base, some()), -EIO);
    }
    EXPECT_TRUE(window.is_untouched());
}

TEST(Guard, TC_M14_WhoTakesFilesWaitsForWhoHasConnected) {
    SKIP_ON_UDP("no files are handed over there");
    const Fabric fabric;
    const std::string name = shm::files_name(fabric.name(), 7);
    shm::FileBox box;
    ASSERT_TRUE(box.listen(name));
    const auto connect = [&] {
        os::Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        sockaddr_un at{.sun_family = AF_UNIX, .sun_path = {}};
        name.copy(at.sun_path + 1, sizeof at.sun_path - 1);
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        EXPECT_EQ(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&at), size), 0);
        return socket;
    };
    const auto own = shm::make_memory(page);
    ASSERT_TRUE(own);
    const os::Descriptor slow = connect();
    EXPECT_FALSE(box.take()) << "it has sent nothing yet";
    shm::Handed what{.destid = 1};
    EXPECT_EQ(shm::hand_file(name, what, own->file), 0);
    auto first = box.take();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->what.destid, 1U);
    what.destid = 2;
    const std::array parts{iovec{&what, sizeof what}};
    const int file = own->file.fd();
    ASSERT_EQ(os::send_handing(slow.fd(), parts, std::span(&file, 1), 0), ssize_t{sizeof what});
    auto second = box.take();
    ASSERT_TRUE(second);
    EXPECT_EQ(second->what.destid, 2U);
    EXPECT_TRUE(second->file.is_open());
    // However many send nothing, who does is heard.
    std::vector<os::Descriptor> silent;
    for (int each = 0; each < 600; ++each) {
        silent.push_back(connect());
        if (each % 100 == 0) {
            EXPECT_FALSE(box.take());
        }
    }
    EXPECT_EQ(shm::hand_file(name, what, own->file), 0);
    EXPECT_TRUE(box.take());
}

TEST(Guard, TheKernelKeepsNoWindowForAnybody) {
    if (!is_linux()) GTEST_SKIP() << "others do";
    const Fabric fabric;
    const Mport mport(0);
    std::uint64_t wanted = base;
    std::uint64_t handle = RIOMP_MAP_ANY_ADDR;
    EXPECT_EQ(softrio_guarded_map(mport, &wanted, page, &handle), -EOPNOTSUPP);
    EXPECT_EQ(softrio_permit(mport, handle, Mport(1).destid, SOFTRIO_WRITE), -EOPNOTSUPP);
}

}  // namespace
}  // namespace incast::softrio
