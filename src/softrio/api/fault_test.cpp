// Processes that are killed or stopped at any moment: nobody else hangs, and everybody is told.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "support/softrio_api.h"

namespace incast::softrio {
namespace {

constexpr int kills = 20;
constexpr std::uint32_t window_bytes = 1 << 20;

std::mt19937 seeded() {
    constexpr unsigned seed = 5;
    ::testing::Test::RecordProperty("seed", seed);
    return std::mt19937(seed);
}

/// Some time within which a process does many things: a kill after it hits it anywhere.
void some_moment(std::mt19937& random) {
    const std::int64_t until = now_ms() + static_cast<std::int64_t>(random() % 5);
    while (now_ms() < until)
        ::poll(nullptr, 0, 1);
}

riomp_sock_t listen_at(riomp_mailbox_t mailbox, std::uint16_t channel) {
    riomp_sock_t socket = nullptr;
    EXPECT_EQ(riomp_sock_socket(mailbox, &socket), 0);
    EXPECT_EQ(riomp_sock_bind(socket, channel), 0);
    EXPECT_EQ(riomp_sock_listen(socket), 0);
    return socket;
}

TEST(Faults, KilledTargetOfWritesAndDoorbells) {
    const Fabric fabric("", 1);
    std::mt19937 random = seeded();
    Mport own(0);
    for (int round = 0; round < kills; ++round) {
        Child target([](const Child::Line& line) {
            Mport mport(0);
            // On linux they would stay taken when it is killed.
            if (!is_linux()) mport.listen(0, 10);
            const OpenWindow window(mport, window_bytes);
            line.say(mport.destid);
            line.say(window.base);
            EXPECT_EQ(line.hear(), 1U);  // killed before
        });
        const auto destid = static_cast<std::uint32_t>(target.hear());
        const std::uint64_t base = target.hear();
        const std::vector<std::uint8_t> bytes(window_bytes, 7);
        EXPECT_EQ(write_to(own, destid, base, bytes), 0);
        std::uniform_int_distribution<int> when(0, 20);
        const int kill_after = when(random);
        for (int number = 0; number < kill_after; ++number) {
            EXPECT_EQ(write_to(own, destid, base, bytes), 0);
            EXPECT_EQ(own.ring(destid, 3), 0);
        }
        target.kill();
        if (is_linux()) {  // its port is still there
            EXPECT_TRUE(eventually([&] { return write_to(own, destid, base, bytes) == -EIO; }));
            EXPECT_EQ(own.ring(destid, 3), 0);
            continue;
        }
        EXPECT_TRUE(eventually([&] { return write_to(own, destid, base, bytes) == -ENODEV; }));
        EXPECT_EQ(own.ring(destid, 3), -ENODEV);
        std::uint32_t value = 0;
        EXPECT_EQ(riomp_mgmt_rcfg_read(own, destid, HC_MP, 0, 4, &value), -ENODEV);
    }
}

TEST(Faults, KilledWritersLeaveNothing) {
    const Fabric fabric("", 1);
    std::mt19937 random = seeded();
    Mport own(0);
    own.listen(0, 10);
    for (int round = 0; round < kills; ++round) {
        OpenWindow window(own, window_bytes);
        Child writer([&](const Child::Line& line) {
            Mport mport(0);
            const std::vector<std::uint8_t> bytes(window_bytes, 7);
            EXPECT_EQ(write_to(mport, own.destid, window.base, bytes), 0);
            line.say(1);
            while (true) {
                (void)write_to(mport, own.destid, window.base, bytes);
                (void)mport.ring(own.destid, 3);
            }
        });
        ASSERT_EQ(writer.hear(), 1U);
        some_moment(random);
        writer.kill();
        // Dead in the middle of a write or not: the window closes, and the queue works.
        EXPECT_EQ(riomp_dma_ibwin_free(own, &window.handle), 0);
        while (own.hear() == 3) {
        }
        EXPECT_EQ(own.ring(own.destid, 9), 0);
        int heard = 3;  // what it rang before its death is heard, on udp also later than what rang after it
        while (heard == 3) {
            ASSERT_TRUE(own.polls(deadline_ms));
            heard = own.hear();
        }
        EXPECT_EQ(heard, 9);
    }
}

TEST(Faults, StoppedTargetStillTakesWrites) {
    SKIP_ON_UDP("needs the target's thread: StoppedPeerIsGoneAtTheDeadline");
    const Fabric fabric("retry_ms=100", 1);
    const std::uint16_t doorbells = is_linux() ? 10 : 512;  // as many as wait for a process
    Mport own(0, 0);
    Child target([&](const Child::Line& line) {
        Mport mport(0, 0);
        mport.listen(0, 1000);
        const OpenWindow window(mport, window_bytes);
        line.say(mport.destid);
        line.say(window.base);
        for (int number = 0; number < doorbells; ++number)
            EXPECT_EQ(mport.hear(), number);
        EXPECT_EQ(window.data[0], 7);
        line.say(1);
        EXPECT_EQ(line.hear(), 2U);
    });
    const auto destid = static_cast<std::uint32_t>(target.hear());
    const std::uint64_t base = target.hear();
    target.stop();
    // First contact while it is stopped: nothing of it is needed.
    EXPECT_EQ(write_to(own, destid, base, {7}), 0);
    for (std::uint16_t number = 0; number < doorbells; ++number)
        EXPECT_EQ(own.ring(destid, number), 0);
    if (!is_linux()) {
        EXPECT_EQ(own.ring(destid, doorbells), -EAGAIN) << "full, and told so by the deadline";
    }
    target.resume();
    EXPECT_EQ(target.hear(), 1U);
    target.say(2);
    EXPECT_TRUE(target.finish());
}

TEST(Faults, StoppedPeerIsGoneAtTheDeadline) {
    if (!is_udp()) GTEST_SKIP() << "others need nothing of the target: StoppedTargetStillTakesWrites";
    const Fabric fabric("", 1);
    Mport own(0, 0);
    Child target([](const Child::Line& line) {
        const Mport mport(0, 0);
        const OpenWindow window(mport, window_bytes);
        line.say(mport.destid);
        line.say(window.base);
        EXPECT_EQ(line.hear(), 1U);
        EXPECT_EQ(window.data[1], 8);
    });
    const auto destid = static_cast<std::uint32_t>(target.hear());
    const std::uint64_t base = target.hear();
    EXPECT_EQ(write_to(own, destid, base, {7}), 0);
    target.stop();
    const std::int64_t before = now_ms();
    EXPECT_EQ(write_to(own, destid, base, {7}), -ENODEV);
    EXPECT_LT(now_ms() - before, deadline_ms);
    target.resume();
    EXPECT_TRUE(eventually([&] { return write_to(own, destid, base + 1, {8}) == 0; })) << "it is back";
    target.say(1);
    EXPECT_TRUE(target.finish());
}

TEST(Faults, StoppedWriterDelaysNobodyForLong) {
    SKIP_ON_LINUX("the kernel keeps a window open as long as its memory is mapped");
    const Fabric fabric("", 1);
    std::mt19937 random = seeded();
    const Mport own(0);
    for (int round = 0; round < 5; ++round) {
        OpenWindow window(own, window_bytes);
        Child writer([&](const Child::Line& line) {
            const Mport mport(0);
            const std::vector<std::uint8_t> bytes(window_bytes, 7);
            EXPECT_EQ(write_to(mport, own.destid, window.base, bytes), 0);
            line.say(1);
            while (write_to(mport, own.destid, window.base, bytes) == 0) {
            }
            line.say(2);
        });
        ASSERT_EQ(writer.hear(), 1U);
        some_moment(random);
        writer.stop();
        const std::int64_t before = now_ms();
        const int error = riomp_dma_ibwin_free(own, &window.handle);
        EXPECT_LT(now_ms() - before, deadline_ms);
        EXPECT_TRUE(error == 0 || error == -EBUSY) << error;
        std::memset(window.data, 1, window_bytes);
        writer.resume();
        EXPECT_EQ(writer.hear(), 2U) << "its writes fail from then on";
        if (error == -EBUSY) {
            EXPECT_EQ(riomp_dma_ibwin_free(own, &window.handle), 0);
        } else {
            // Freed: nothing of it has landed since.
            EXPECT_EQ(window.data[0], 1);
            EXPECT_EQ(window.data[window_bytes - 1], 1);
        }
        EXPECT_TRUE(writer.finish());
    }
}

TEST(Faults, WindowFreedUnderWriters) {
    SKIP_ON_LINUX("the kernel keeps a window open as long as its memory is mapped");
    const Fabric fabric("", 1);
    const Mport own(0);
    std::uint64_t start = 0;
    std::uint64_t size = 0;
    ASSERT_EQ(get_rsvd_phys_mem(RSVD_PHYS_MEM, &start, &size), 0);
    constexpr std::uint64_t at = 0x1000'0000;
    Child writer([&](const Child::Line& line) {
        const Mport mport(0);
        const std::vector<std::uint8_t> bytes(window_bytes, 7);
        while (!line.is_heard()) {
            const int error = write_to(mport, own.destid, at, bytes);
            EXPECT_TRUE(error == 0 || error == -EIO) << error;
        }
    });
    for (int round = 0; round < 100; ++round) {
        OpenWindow window(own, window_bytes, at, start);
        EXPECT_TRUE(eventually([&] { return window.data[window_bytes - 1] == 7; }));
        EXPECT_EQ(riomp_dma_ibwin_free(own, &window.handle), 0);
        // The memory is this process's again.
        std::memset(window.data, round & 1, window_bytes);
        for (int look = 0; look < 1000; ++look)
            ASSERT_EQ(window.data[std::ptrdiff_t{1000} * look], round & 1);
    }
    writer.say(1);
    EXPECT_TRUE(writer.finish());
}

TEST(Faults, KilledWhileConnecting) {
    SKIP_ON_LINUX("the kernel keeps the requests of those who have gone");
    const Fabric fabric("", 1);
    std::mt19937 random = seeded();
    riomp_mailbox_t mailbox = nullptr;
    ASSERT_EQ(riomp_sock_mbox_create_handle(0, 0, &mailbox), 0);
    const std::uint32_t destid = Mport(0).destid;
    riomp_sock_t listener = listen_at(mailbox, 70);
    for (int round = 0; round < kills; ++round) {
        Child client([&](const Child::Line& line) {
            riomp_mailbox_t own = nullptr;
            EXPECT_EQ(riomp_sock_mbox_create_handle(0, 0, &own), 0);
            line.say(1);
            while (true) {
                riomp_sock_t socket = nullptr;
                EXPECT_EQ(riomp_sock_socket(own, &socket), 0);
                (void)riomp_sock_connect(socket, destid, 70, nullptr);
                (void)riomp_sock_close(&socket);
            }
        });
        ASSERT_EQ(client.hear(), 1U);
        if (round % 2 == 0) some_moment(random);
        riomp_sock_t made = nullptr;
        if (round % 3 != 0) {
            EXPECT_EQ(riomp_sock_accept(listener, &made, deadline_ms, nullptr), 0);
            some_moment(random);
        }
        client.kill();
        if (made != nullptr) {
            rapidio_mport_socket_msg* message = nullptr;
            EXPECT_EQ(riomp_sock_receive(made, &message, deadline_ms, nullptr), -ECONNRESET);
            EXPECT_EQ(riomp_sock_close(&made), 0);
        }
        if (is_udp()) {
            // Until its death is noticed a request of its may be accepted; such a connection is lost at once.
            while (riomp_sock_accept(listener, &made, 1, &once) == 0) {
                rapidio_mport_socket_msg* message = nullptr;
                EXPECT_EQ(riomp_sock_receive(made, &message, deadline_ms, nullptr), -ECONNRESET);
                EXPECT_EQ(riomp_sock_close(&made), 0);
            }
        }
        EXPECT_EQ(riomp_sock_accept(listener, &made, 1, &once), -ETIME) << "the dead are not accepted";
    }
    EXPECT_EQ(riomp_sock_close(&listener), 0);
    EXPECT_EQ(riomp_sock_mbox_destroy_handle(&mailbox), 0);
}

TEST(Faults, KilledServer) {
    const Fabric fabric("", 1);
    std::mt19937 random = seeded();
    riomp_mailbox_t mailbox = nullptr;
    ASSERT_EQ(riomp_sock_mbox_create_handle(0, 0, &mailbox), 0);
    for (int round = 0; round < kills; ++round) {
        Child server([](const Child::Line& line) {
            riomp_mailbox_t own = nullptr;
            EXPECT_EQ(riomp_sock_mbox_create_handle(0, 0, &own), 0);
            riomp_sock_t listener = listen_at(own, 70);
            line.say(Mport(0).destid);
            riomp_sock_t made = nullptr;
            EXPECT_EQ(riomp_sock_accept(listener, &made, deadline_ms, nullptr), 0);
            rapidio_mport_socket_msg* message = nullptr;
            while (riomp_sock_receive(made, &message, deadline_ms, nullptr) == 0) {
            }
        });
        const auto destid = static_cast<std::uint32_t>(server.hear());
        riomp_sock_t socket = nullptr;
        ASSERT_EQ(riomp_sock_socket(mailbox, &socket), 0);
        if (round % 2 == 0) {
            EXPECT_EQ(riomp_sock_connect(socket, destid, 70, nullptr), 0);
            rapidio_mport_socket_msg message{};
            const auto messages = static_cast<int>(random() % 300);
            for (int number = 0; number < messages; ++number)
                EXPECT_EQ(riomp_sock_send(socket, &message, 4096, nullptr), 0);
            server.kill();
            EXPECT_TRUE(eventually([&] { return riomp_sock_send(socket, &message, 4096, nullptr) == -ECONNRESET; }));
            rapidio_mport_socket_msg* in = &message;
            EXPECT_EQ(riomp_sock_receive(socket, &in, deadline_ms, nullptr), -ECONNRESET);
        } else {
            server.stop();
            // It cannot accept; killed while this waits or after.
            EXPECT_EQ(riomp_sock_connect(socket, destid, 71, nullptr), is_udp() ? -ENODEV : -ETIME);
            server.kill();
            EXPECT_EQ(riomp_sock_connect(socket, destid, 70, nullptr), is_linux() ? -ETIME : -ENODEV);
            round += 4;  // three seconds each
        }
        EXPECT_EQ(riomp_sock_close(&socket), 0);
    }
    EXPECT_EQ(riomp_sock_mbox_destroy_handle(&mailbox), 0);
}

TEST(Faults, DeadEndpointLeavesNothing) {
    SKIP_ON_UDP("there are no names: the kernel closes its socket");
    SKIP_ON_LINUX("there are no names: the kernel closes its files");
    const Fabric fabric("", 1);
    const Mport own(0);
    const auto names = [&] {
        std::ifstream list("/proc/net/unix");
        int found = 0;
        for (std::string line; std::getline(list, line);)
            found += line.find(fabric.name()) != std::string::npos && !line.ends_with("/calls");
        return found;
    };
    const int before = names();
    std::uint32_t destid = 0;
    for (int round = 0; round < 3; ++round) {
        Child other([](const Child::Line& line) {
            const Mport mport(0);
            const OpenWindow window(mport, window_bytes);
            line.say(mport.destid);
            EXPECT_EQ(line.hear(), 1U);
        });
        const auto its = static_cast<std::uint32_t>(other.hear());
        EXPECT_TRUE(round == 0 || its == destid) << "the id of the dead is free again";
        destid = its;
        EXPECT_GT(names(), before);
        other.kill();
        EXPECT_EQ(names(), before);
    }
}

}  // namespace
}  // namespace incast::softrio
