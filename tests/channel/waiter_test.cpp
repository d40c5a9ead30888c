// How long it pays to look before one sleeps, and who waits for a hub: what wakes it, and that it sleeps otherwise.
#include "channel/hub/waiter.h"

#include <array>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "channel/hub/spin.h"
#include "os/descriptor.h"
#include "pair.h"
#include "transport/shm/shm.h"

namespace incast::channel {
namespace {

constexpr Time long_time = 60 * ps_per_s;  // nobody waits for so long here

Recipe within_host() {
    return {"shm", std::string(transport::shm::transport_name), {}};
}

Time processor_time() {
    rusage used{};
    (void)::getrusage(RUSAGE_THREAD, &used);
    const auto of = [](const timeval& time) { return time.tv_sec * ps_per_s + time.tv_usec * ps_per_us; };
    return of(used.ru_utime) + of(used.ru_stime);
}

/// That thread of this process sleeps, or it has not done so for a second.
void until_asleep(pid_t thread) {
    for (const Time end = now() + ps_per_s; now() < end; std::this_thread::yield()) {
        std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
        std::string text;
        std::getline(file, text);
        if (text.find(") S ") != std::string::npos) return;
    }
}

/// Until it has nothing to do.
void drive(Hub& hub) {
    do
        (void)hub.poll(now());
    while (!hub.prepare_wait());
}

/// What both sides had to say of their beginning is over.
void settle(Pair& pair) {
    for (int quiet = 0; quiet < 100;)
        quiet = pair.sides[0].poll() || pair.sides[1].poll() ? 0 : quiet + 1;
}

constexpr bool by_looking = false;
constexpr bool by_sleeping = true;

TEST(Spin, IsAsLongAsItHasPaid) {
    Spin spin(50);
    EXPECT_EQ(spin.now(), 0) << "it has not paid yet";
    spin.learn(10, by_sleeping);
    EXPECT_EQ(spin.now(), 20);
    spin.learn(3, by_looking);
    EXPECT_EQ(spin.now(), 20) << "a shorter wait is found as well";
    spin.learn(30, by_looking);
    EXPECT_EQ(spin.now(), 50) << "at most the longest";
    spin.learn(50, by_looking);
    EXPECT_EQ(spin.now(), 50);
    spin.learn(101, by_sleeping);
    EXPECT_EQ(spin.now(), 25) << "the peer computes";
    for (int each = 0; each < 10; ++each)
        spin.learn(1'000'000, by_sleeping);
    EXPECT_EQ(spin.now(), 0);
    Spin none(0);
    none.learn(0, by_sleeping);
    none.learn(10, by_looking);
    EXPECT_EQ(none.now(), 0);
}

TEST(Spin, IsRareWhereThePeerRunsOnceThisSideSleeps) {
    Spin spin(50);
    int looked = 0;
    const auto wait = [&](int times) {
        for (int each = 0; each < times; ++each) {
            looked += spin.now() > 0 ? 1 : 0;
            spin.learn(spin.now() + 15, by_sleeping);
        }
    };
    wait(7);
    EXPECT_EQ(looked, 2) << "then one wait was slept through, then three";
    wait(1000);
    EXPECT_LT(looked, 12);
    wait(300);
    for (int each = 0; each < 300 && spin.now() == 0; ++each)
        spin.learn(15, by_sleeping);
    EXPECT_EQ(spin.now(), 30) << "it goes on trying";
    for (int each = 0; each < 20; ++each)
        spin.learn(10, by_looking);
    spin.learn(60, by_sleeping);
    EXPECT_EQ(spin.now(), 0);
    spin.learn(15, by_sleeping);
    EXPECT_EQ(spin.now(), 30) << "it has paid in between";
}

TEST(Waiter, SleepsUntilTheTimeIsOver) {
    Pair pair(within_host());
    settle(pair);
    Waiter waiter(pair.hub(0));
    const Time begin = now();
    const Time used = processor_time();
    for (const Time longest = 300 * ps_per_ms; now() - begin < longest;)
        (void)waiter.wait(begin + longest - now());
    EXPECT_LT(processor_time() - used, 150 * ps_per_ms) << "it looks all the time";
    EXPECT_FALSE(waiter.wait(0));
}

TEST(Waiter, IsWokenByAWriteAndByAnEnd) {
    Pair pair(within_host());
    const auto [a, b] = pair.join(pair.options());
    settle(pair);
    const pid_t waiting = ::gettid();
    for (const bool ends : {false, true}) {
        std::thread other([&, sender = b] {
            until_asleep(waiting);
            if (ends)
                pair.hub(1).finish(sender);
            else
                (void)pair.hub(1).write(sender, Bytes(reinterpret_cast<const std::byte*>("abc"), 3));
            pair.hub(1).flush(sender);
            drive(pair.hub(1));
        });
        Waiter waiter(pair.hub(0));
        const Time begin = now();
        while (pair.hub(0).readable(a).empty() && !pair.hub(0).has_ended(a)) {
            (void)waiter.wait(long_time);
            if (now() - begin > long_time / 2) break;
        }
        other.join();
        EXPECT_LT(now() - begin, long_time / 2) << (ends ? "the end" : "the bytes");
        EXPECT_EQ(pair.hub(0).has_ended(a), ends);
        if (!ends) {
            std::array<std::byte, 3> into;
            EXPECT_EQ(pair.hub(0).read(a, into), 3U);
        }
    }
}

TEST(Waiter, LooksAtMemoryThatNobodyAnnounces) {
    Pair pair(within_host());
    const auto [a, b] = pair.join(pair.options(Way::memory));
    settle(pair);
    Waiter waiter(pair.hub(0), {.longest_spin = 0, .look_every = ps_per_ms});
    const pid_t waiting = ::gettid();
    std::thread other([&, sender = b] {
        until_asleep(waiting);
        (void)pair.hub(1).write(sender, Bytes(reinterpret_cast<const std::byte*>("abc"), 3));
        pair.hub(1).flush(sender);
        drive(pair.hub(1));
    });
    const Time begin = now();
    while (pair.hub(0).readable(a).empty() && now() - begin < long_time / 2)
        (void)waiter.wait(long_time);
    other.join();
    EXPECT_LT(now() - begin, long_time / 2);
    EXPECT_EQ(waiter.spin(), 0);
}

TEST(Waiter, IsWokenByADescriptorOfSomebodyElse) {
    Pair pair(within_host());
    settle(pair);
    const os::Descriptor wake(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    Waiter waiter(pair.hub(0));
    const Time begin = now();
    while (waiter.wait(long_time, wake.fd())) {
    }
    EXPECT_LT(now() - begin, long_time / 2) << "it slept though its descriptor was readable";
}

}  // namespace
}  // namespace incast::channel
