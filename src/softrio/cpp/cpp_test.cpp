#include <array>
#include <random>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <librsvdmem.h>
#include <softrio.h>

#include "softrio/cpp/channel.h"
#include "softrio/cpp/memory.h"
#include "softrio/cpp/pool.h"

namespace incast::rio {
namespace {

std::string fresh_fabric() {
    std::random_device random;  // a name, which decides nothing
    return "shm:test-" + std::to_string(random()) + "-" + std::to_string(random());
}

MasterPort joined(const std::string& fabric) {
    auto port = MasterPort::join(fabric, O_NONBLOCK | SOFTRIO_ON_DEMAND);
    EXPECT_TRUE(port) << port.error().message;
    return std::move(*port);
}

TEST(Pool, PiecesOfAnySize) {
    Pool pool(1 << 20);
    const auto first = pool.take(100'000);
    const auto second = pool.take(5'000, 64);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(*first, 0U);
    EXPECT_EQ(*second % 64, 0U);
    EXPECT_FALSE(pool.take(1 << 20));
    EXPECT_FALSE(pool.take(0));
    EXPECT_TRUE(pool.give_back(*first));
    EXPECT_FALSE(pool.give_back(*first)) << "twice";
    EXPECT_FALSE(pool.give_back(7));
    EXPECT_TRUE(pool.give_back(*second));
    EXPECT_EQ(pool.largest_free(), 1U << 20) << "neighbours have become one";
    EXPECT_EQ(pool.take(1 << 20), 0U);
}

TEST(Pool, NeverGivesTheSameByteTwice) {
    constexpr std::uint64_t bytes = 1 << 16;
    std::mt19937 random(3);
    Pool pool(bytes);
    std::map<std::uint64_t, std::uint64_t> taken;
    for (int round = 0; round < 5000; ++round) {
        if (taken.empty() || random() % 2 == 0) {
            const std::uint64_t size = 1 + random() % 4000;
            const auto at = pool.take(size, 8);
            if (!at) continue;
            ASSERT_LE(*at + size, bytes);
            const auto next = taken.lower_bound(*at);
            ASSERT_TRUE(next == taken.end() || *at + size <= next->first);
            ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= *at);
            taken.emplace(*at, size);
        } else {
            auto each = taken.begin();
            std::advance(each, random() % taken.size());
            ASSERT_TRUE(pool.give_back(each->first));
            taken.erase(each);
        }
        std::uint64_t used = 0;
        for (const auto& [at, size] : taken)
            used += size;
        ASSERT_EQ(pool.free_bytes(), bytes - used);
    }
}

TEST(Pool, OldLimits) {
    Pool pool(64 << 20, Pool::old_limits);
    EXPECT_FALSE(pool.take((2 << 20) + 1));
    for (int piece = 0; piece < 8; ++piece)
        EXPECT_TRUE(pool.take(2 << 20));
    EXPECT_FALSE(pool.take(4096));
}

TEST(MasterPort, WritesReadsAndDoorbells) {
    const std::string fabric = fresh_fabric();
    const MasterPort sender = joined(fabric);
    MasterPort receiver = joined(fabric);
    auto memory = Memory::allocate(receiver, 10'000);
    ASSERT_TRUE(memory) << memory.error().message;
    auto mapping = Mapping::of(receiver, *memory, 0, 10'000);
    ASSERT_TRUE(mapping);
    constexpr std::uint64_t address = 0x4000'0000;
    auto window = Window::open(receiver, *memory, 0, 10'000, address);
    ASSERT_TRUE(window);
    EXPECT_FALSE(Window::open(receiver, *memory, 0, 4096, address)) << "one is there";
    ASSERT_FALSE(receiver.listen(3, 5));
    std::array<std::byte, 100> bytes{};
    bytes.fill(std::byte{6});
    EXPECT_FALSE(sender.write(receiver.destid(), address + 7, bytes, Completion::placed));
    EXPECT_EQ(mapping->bytes()[106], std::byte{6});
    EXPECT_EQ(mapping->bytes()[107], std::byte{0});
    Cookie cookie = 0;
    ASSERT_FALSE(sender.start_read(receiver.destid(), address + 50, std::span(bytes), cookie));
    EXPECT_EQ(sender.ended(cookie, 1000), std::error_code());
    EXPECT_EQ(bytes[57], std::byte{0});
    EXPECT_EQ(sender.write(receiver.destid(), address + 9'950, bytes, Completion::placed), std::error_code())
        << "a window is whole pages";
    EXPECT_EQ(sender.write(receiver.destid(), address + 12'250, bytes, Completion::placed), std::errc::io_error);
    EXPECT_EQ(sender.write(999, address, bytes, Completion::placed), std::errc::no_such_device);
    EXPECT_FALSE(receiver.hear());
    EXPECT_TRUE(receiver.arm());
    EXPECT_FALSE(sender.ring(receiver.destid(), 4));
    EXPECT_FALSE(receiver.arm()) << "one is queued";
    const auto heard = receiver.hear();
    ASSERT_TRUE(heard);
    EXPECT_EQ(heard->source, sender.destid());
    EXPECT_EQ(heard->payload, 4);
    const auto others = sender.endpoints();
    ASSERT_TRUE(others);
    EXPECT_EQ(*others, std::vector<Destid>{receiver.destid()});
    EXPECT_FALSE(window->close());
    EXPECT_EQ(sender.write(receiver.destid(), address, bytes, Completion::placed), std::errc::io_error);
}

TEST(MasterPort, APoolOverReservedMemory) {
    const MasterPort port = joined(fresh_fabric());
    auto memory = Memory::reserved(port, RSVD_PHYS_MEM);
    ASSERT_TRUE(memory) << memory.error().message;
    EXPECT_FALSE(Memory::reserved(port, "NOTHING"));
    Pool pool(memory->bytes());
    EXPECT_TRUE(pool.take(4096));
    const auto at = pool.take(100 << 20);
    ASSERT_TRUE(at) << "far beyond the old 2 MB";
    auto mapping = Mapping::of(port, *memory, *at, 100 << 20);
    ASSERT_TRUE(mapping);
    mapping->bytes().back() = std::byte{1};
    auto window = Window::open(port, *memory, *at, 100 << 20, 0x1'0000'0000);
    ASSERT_TRUE(window);
    EXPECT_EQ(window->bytes(), 100U << 20);
}

TEST(MasterPort, OldLimitsAreTheFabrics) {
    const MasterPort port = joined(fresh_fabric() + "?limits=old");
    EXPECT_FALSE(Memory::allocate(port, (2 << 20) + 1));
    std::vector<Memory> all;
    for (int piece = 0; piece < 8; ++piece) {
        auto memory = Memory::allocate(port, 2 << 20);
        ASSERT_TRUE(memory);
        all.push_back(std::move(*memory));
    }
    EXPECT_FALSE(Memory::allocate(port, 4096));
    all.pop_back();
    EXPECT_TRUE(Memory::allocate(port, 4096)) << "what has ended is given back";
}

TEST(Channel, MessagesGoBothWays) {
    const std::string fabric = fresh_fabric();
    const MasterPort client = joined(fabric);
    const MasterPort server = joined(fabric);
    auto client_mailbox = Mailbox::open(client);
    auto server_mailbox = Mailbox::open(server);
    ASSERT_TRUE(client_mailbox && server_mailbox);
    Socket listener = server_mailbox->socket();
    ASSERT_FALSE(listener.listen(100));
    Socket accepted;
    EXPECT_EQ(listener.accept(accepted, 1), std::errc::timed_out);
    std::thread serving([&] { EXPECT_FALSE(listener.accept(accepted, 20'000)); });
    Socket connection = client_mailbox->socket();
    EXPECT_FALSE(connection.connect(server.destid(), 100));
    serving.join();
    Letter letter;
    letter.payload()[0] = std::byte{5};
    EXPECT_FALSE(connection.send(letter, 1));
    Letter got;
    EXPECT_FALSE(accepted.receive(got, 20'000));
    EXPECT_EQ(got.payload()[0], std::byte{5});
    EXPECT_EQ(accepted.receive(got, 1), std::errc::timed_out);
    connection.close();
    EXPECT_EQ(accepted.receive(got, 20'000), std::errc::connection_reset);
}

}  // namespace
}  // namespace incast::rio
