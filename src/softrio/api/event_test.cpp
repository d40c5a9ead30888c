#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "support/softrio_api.h"

namespace incast::softrio {
namespace {

TEST(Events, DoorbellsArriveInOrderWithTheirSource) {
    const Fabric fabric;
    Mport sender(0);
    Mport receiver(1);
    receiver.listen(10, 19);
    EXPECT_EQ(receiver.hear(), -EAGAIN);
    for (std::uint16_t payload = 10; payload < 20; ++payload)
        EXPECT_EQ(sender.ring(receiver.destid, payload), 0);
    for (int payload = 10; payload < 20; ++payload) {
        std::uint32_t source = 0;
        EXPECT_EQ(receiver.hear_sent(&source), payload);
        EXPECT_EQ(source, sender.destid);
    }
    EXPECT_EQ(receiver.hear(), -EAGAIN);
    EXPECT_EQ(sender.ring(999, 10), -ENODEV);
}

TEST(Events, OnlyWhatWasEnabledIsQueued) {
    const Fabric fabric;
    Mport sender(0);
    Mport stranger(2);
    Mport receiver(1);
    EXPECT_EQ(sender.ring(receiver.destid, 7), 0) << "lost, and the sender cannot know";
    ASSERT_EQ(riomp_mgmt_dbrange_enable(receiver, sender.destid, 5, 9), 0);
    EXPECT_EQ(sender.ring(receiver.destid, 7), 0) << "the mask is still empty";
    if (is_linux()) {
        // It is delivered in order: what was rung before has found nobody by now.
        Mport behind(1);
        behind.listen(1000, 1000);
        EXPECT_EQ(sender.ring(receiver.destid, 1000), 0);
        EXPECT_EQ(behind.hear_sent(), 1000);
    }
    unsigned mask = 99;
    EXPECT_EQ(riomp_mgmt_get_event_mask(receiver, &mask), 0);
    EXPECT_EQ(mask, 0U);
    ASSERT_EQ(riomp_mgmt_set_event_mask(receiver, RIO_EVENT_DOORBELL), 0);
    EXPECT_EQ(riomp_mgmt_get_event_mask(receiver, &mask), 0);
    EXPECT_EQ(mask, static_cast<unsigned>(RIO_EVENT_DOORBELL));
    EXPECT_EQ(riomp_mgmt_get_event_mask(receiver, nullptr), -EINVAL);
    EXPECT_EQ(sender.ring(receiver.destid, 4), 0);
    EXPECT_EQ(sender.ring(receiver.destid, 10), 0);
    EXPECT_EQ(stranger.ring(receiver.destid, 7), 0);
    EXPECT_EQ(receiver.hear(), -EAGAIN);
    EXPECT_EQ(sender.ring(receiver.destid, 9), 0);
    EXPECT_EQ(receiver.hear_sent(), 9);
    EXPECT_EQ(riomp_mgmt_dbrange_disable(receiver, sender.destid, 5, 8), -EINVAL) << "not what was enabled";
    EXPECT_EQ(riomp_mgmt_dbrange_disable(receiver, sender.destid, 5, 9), 0);
    EXPECT_EQ(sender.ring(receiver.destid, 9), 0);
    EXPECT_EQ(receiver.hear(), -EAGAIN);
}

TEST(Events, RangesAreExclusive) {
    const Fabric fabric;
    Mport sender(0);
    Mport first(1);
    Mport second(1);
    first.listen(0, 99);
    EXPECT_EQ(riomp_mgmt_dbrange_enable(second, 0xFFFF, 99, 200), -EBUSY);
    EXPECT_EQ(riomp_mgmt_dbrange_enable(second, 0xFFFF, 3, 2), -EINVAL);
    second.listen(100, 200);
    EXPECT_EQ(sender.ring(first.destid, 100), 0);
    EXPECT_EQ(sender.ring(first.destid, 99), 0);
    EXPECT_EQ(first.hear_sent(), 99);
    EXPECT_EQ(second.hear_sent(), 100);
    EXPECT_FALSE(first.polls());
    Mport third(1);
    for (std::uint16_t number = 0; number < 32; ++number)
        EXPECT_EQ(riomp_mgmt_dbrange_enable(third, 0xFFFF, 300 + number, 300 + number), 0);
    EXPECT_EQ(riomp_mgmt_dbrange_enable(third, 0xFFFF, 400, 400), is_linux() ? 0 : -ENOMEM);
}

TEST(Events, TheDescriptorPolls) {
    const Fabric fabric;
    Mport sender(0);
    Mport receiver(1);
    receiver.listen(0, 100);
    for (int round = 0; round < 3; ++round) {
        EXPECT_FALSE(receiver.polls());
        EXPECT_EQ(sender.ring(receiver.destid, 1), 0);
        EXPECT_EQ(sender.ring(receiver.destid, 2), 0);
        EXPECT_TRUE(receiver.polls(deadline_ms));
        EXPECT_EQ(receiver.hear_sent(), 1);
        EXPECT_TRUE(receiver.polls(deadline_ms));
        EXPECT_EQ(receiver.hear_sent(), 2);
        EXPECT_FALSE(receiver.polls());
    }
}

TEST(Events, OnDemandTheDescriptorPollsOnceArmed) {
    const Fabric fabric;
    Mport sender(0);
    Mport receiver(1, O_NONBLOCK | SOFTRIO_ON_DEMAND);
    receiver.listen(0, 100);
    EXPECT_EQ(softrio_arm(sender), -EINVAL);
    for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(sender.ring(receiver.destid, 1), 0);
        EXPECT_FALSE(receiver.polls());
        EXPECT_TRUE(arrives([&] { return softrio_arm(receiver) == 1; }));
        EXPECT_EQ(receiver.hear(), 1);
        EXPECT_EQ(softrio_arm(receiver), 0);
        EXPECT_FALSE(receiver.polls());
        EXPECT_EQ(sender.ring(receiver.destid, 2), 0);
        EXPECT_TRUE(receiver.polls(deadline_ms));
        EXPECT_EQ(sender.ring(receiver.destid, 3), 0);
        EXPECT_EQ(receiver.hear_sent(), 2);
        EXPECT_EQ(receiver.hear_sent(), 3);
        EXPECT_FALSE(receiver.polls());
        EXPECT_EQ(receiver.hear(), -EAGAIN);
    }
}

/// Each doorbell comes while the other side makes up its mind to sleep. INCAST_TEST_ROUNDS: how many.
TEST(Events, WhoArmsAndSleepsIsWoken) {
    const Fabric fabric;
    Mport sender(0);
    Mport receiver(1, O_NONBLOCK | SOFTRIO_ON_DEMAND);
    receiver.listen(0, 65535);
    const char* wanted = std::getenv("INCAST_TEST_ROUNDS");  // NOLINT(concurrency-mt-unsafe)
    const int rounds = wanted == nullptr ? 300 : std::atoi(wanted);
    std::atomic<int> heard = 0;
    std::thread sleeper([&] {
        while (heard < rounds) {
            const int payload = receiver.hear();
            if (payload >= 0) {
                EXPECT_EQ(payload, heard % 65536);
                ++heard;
            } else if (softrio_arm(receiver) == 0 && !receiver.polls(deadline_ms)) {
                ADD_FAILURE() << "not woken in round " << heard;
                heard = rounds;
            }
        }
    });
    for (int round = 0; round < rounds; ++round) {
        EXPECT_EQ(sender.ring(receiver.destid, static_cast<std::uint16_t>(round % 65536)), 0);
        while (heard <= round)
            std::this_thread::yield();
    }
    sleeper.join();
}

TEST(Events, BlockingHandleWaits) {
    const Fabric fabric;
    Mport sender(0);
    Mport receiver(1, 0);
    receiver.listen(0, 65535);
    constexpr int rounds = 200;
    std::thread echo([&] {
        Mport back(1, 0);
        for (int round = 0; round < rounds; ++round) {
            std::uint32_t source = 0;
            EXPECT_EQ(receiver.hear(&source), round);
            EXPECT_EQ(back.ring(source, static_cast<std::uint16_t>(round)), 0);
        }
    });
    Mport waits(0, 0);
    waits.listen(0, 65535);
    for (int round = 0; round < rounds; ++round) {
        EXPECT_EQ(sender.ring(receiver.destid, static_cast<std::uint16_t>(round)), 0);
        EXPECT_EQ(waits.hear(), round);
    }
    echo.join();
}

TEST(Events, DestroyingAHandleEndsItsWaits) {
    const Fabric fabric;
    const Mport keeps_the_port(0);
    riomp_mport_t handle = nullptr;
    ASSERT_EQ(riomp_mgmt_mport_create_handle(0, 0, &handle), 0);
    std::atomic<pid_t> thread = 0;
    std::thread waiter([handle, &thread] {
        thread = ::gettid();
        riomp_mgmt_event event{};
        EXPECT_EQ(riomp_mgmt_get_event(handle, &event), -EBADF);
    });
    EXPECT_TRUE(eventually([&] {
        std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/wchan");
        std::string function;
        return (file >> function) && function.starts_with("futex");
    }));
    EXPECT_EQ(riomp_mgmt_mport_destroy_handle(&handle), 0);
    EXPECT_EQ(handle, nullptr);
    waiter.join();
}

TEST(Events, FullQueueMeansRetry) {
    SKIP_ON_LINUX("the driver drops what comes while 10 are unread, and tells nobody");
    const Fabric fabric("retry_ms=50");
    Mport hasty(0);
    Mport patient(0, 0);
    Mport receiver(1);
    receiver.listen(0, 65535);
    for (std::uint16_t payload = 0; payload < 512; ++payload)
        ASSERT_EQ(hasty.ring(receiver.destid, payload), 0);
    EXPECT_EQ(hasty.ring(receiver.destid, 512), -EAGAIN);
    const std::int64_t before = now_ms();
    EXPECT_EQ(patient.ring(receiver.destid, 512), -EAGAIN);
    EXPECT_GE(now_ms() - before, 50);
    EXPECT_EQ(receiver.hear(), 0);
    EXPECT_EQ(patient.ring(receiver.destid, 512), 0);
    for (int payload = 1; payload <= 512; ++payload)
        EXPECT_EQ(receiver.hear(), payload) << "none is lost";
    EXPECT_EQ(receiver.hear(), -EAGAIN);
}

TEST(Events, ManySendersLoseNothing) {
    SKIP_ON_LINUX("the driver drops what comes while 10 are unread, and tells nobody");
    const Fabric fabric;
    constexpr int senders = 4;
    constexpr std::uint16_t each = 5000;
    Mport receiver(0);
    receiver.listen(0, each);
    std::vector<std::unique_ptr<Child>> children;
    for (int number = 0; number < senders; ++number) {
        children.push_back(std::make_unique<Child>([&](const Child::Line& line) {
            Mport own(0, 0);
            line.say(own.destid);
            for (std::uint16_t payload = 0; payload < each; ++payload)
                EXPECT_TRUE(eventually([&] { return own.ring(receiver.destid, payload) == 0; }));
        }));
    }
    std::vector<std::pair<std::uint32_t, int>> next;
    for (const auto& child : children)
        next.emplace_back(static_cast<std::uint32_t>(child->hear()), 0);
    int received = 0;
    while (received < senders * each && receiver.polls(deadline_ms)) {
        std::uint32_t source = 0;
        const int payload = receiver.hear(&source);
        ASSERT_GE(payload, 0);
        for (auto& [sender, expected] : next) {
            if (sender != source) continue;
            ASSERT_EQ(payload, expected++);
        }
        ++received;
    }
    EXPECT_EQ(received, senders * each);
    for (const auto& child : children)
        EXPECT_TRUE(child->finish());
}

TEST(Events, OtherKinds) {
    const Fabric fabric;
    const Mport mport(0);
    riomp_mgmt_event event{};
    event.header = RIO_EVENT_PORTWRITE;
    EXPECT_EQ(riomp_mgmt_send_event(mport, &event), -EOPNOTSUPP);
    EXPECT_EQ(riomp_mgmt_send_event(mport, nullptr), -EINVAL);
    EXPECT_EQ(riomp_mgmt_get_event(mport, nullptr), -EINVAL);
    EXPECT_EQ(riomp_mgmt_pwrange_enable(mport, 0xFFFF'FFFF, 1, 2), 0);
    EXPECT_EQ(riomp_mgmt_pwrange_enable(mport, 0xFFFF'FFFF, 2, 1), -EINVAL);
    EXPECT_EQ(riomp_mgmt_pwrange_disable(mport, 0xFFFF'FFFF, 1, 2), 0);
    EXPECT_EQ(riomp_mgmt_pwrange_disable(mport, 0xFFFF'FFFF, 1, 2), -EINVAL);
}

TEST(Events, PortWritesArrive) {
    if (!is_linux()) GTEST_SKIP() << "nobody sends any there";
    const Fabric fabric;
    Mport receiver(0);
    ASSERT_EQ(riomp_mgmt_pwrange_enable(receiver, 0xFFFF0000, 0x50000, 0x5FFFF), 0);
    ASSERT_EQ(riomp_mgmt_set_event_mask(receiver, RIO_EVENT_DOORBELL | RIO_EVENT_PORTWRITE), 0);
    for (const char* tag : {"0x60001", "0x50001"}) {
        std::ofstream sender("/sys/bus/platform/devices/rio_soft.1/portwrite");
        sender << receiver.destid << ' ' << tag << " 7\n";
        ASSERT_TRUE(sender.flush());
    }
    ASSERT_TRUE(receiver.polls(deadline_ms));
    riomp_mgmt_event event{};
    ASSERT_EQ(riomp_mgmt_get_event(receiver, &event), 0);
    EXPECT_EQ(event.header, static_cast<unsigned>(RIO_EVENT_PORTWRITE));
    EXPECT_EQ(event.u.portwrite.payload[0], 0x50001U) << "the other is none of its";
    EXPECT_EQ(event.u.portwrite.payload[1], 7U);
    EXPECT_EQ(riomp_mgmt_pwrange_disable(receiver, 0xFFFF0000, 0x50000, 0x5FFFF), 0);
}

}  // namespace
}  // namespace incast::softrio
