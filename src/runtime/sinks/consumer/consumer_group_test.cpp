// Several handles as one. With real processes: tests/process/test_consumer.py.
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <incast/consumer.h>

#include "consumer/futex.h"
#include "support/consumer_sink.h"

namespace incast::sinks {
namespace {

class ConsumerGroupTest : public ConsumerSinkTest {
public:
    using ConsumerSinkTest::expect_whole;

protected:
    /// Thousands, one at a time: it falls asleep in between. `prepared` runs in the thread that takes them.
    void pass_events_to_a_sleeping_group(bool (*prepared)());
};

/// Frees the group.
struct Group {
    Group() { EXPECT_EQ(incast_consumer_group_make(&raw), INCAST_CONSUMER_OK); }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    ~Group() { incast_consumer_group_free(raw); }
    void add(const Handle& consumer) const {
        EXPECT_EQ(incast_consumer_group_add(raw, consumer.raw), INCAST_CONSUMER_OK);
    }
    incast_consumer_group* raw = nullptr;
};

/// Two of them, and what the group says.
struct GroupOfTwo {
    GroupOfTwo(Handle&& first, Handle&& second) : one(std::move(first)), two(std::move(second)) {
        group.add(one);
        group.add(two);
    }
    /// What next() gave is whole.
    void expect_and_release() {
        ConsumerGroupTest::expect_whole(whose == one.raw ? one : two, event);
        EXPECT_EQ(incast_consumer_release(whose, &event), INCAST_CONSUMER_OK);
    }
    int next(int timeout_ms) { return incast_consumer_group_next(group.raw, timeout_ms, &event, &whose); }

    Handle one;
    Handle two;
    Group group;  // ends before its members
    incast_consumer_event event{};
    incast_consumer* whose = nullptr;
};

void ConsumerGroupTest::pass_events_to_a_sleeping_group(bool (*prepared)()) {
    constexpr std::uint64_t total = 2000;
    make(Policy::block, 2, 2);
    Handle one = attach();
    Handle two = attach();
    std::atomic<std::uint64_t> seen = 0;
    const auto begin = std::chrono::steady_clock::now();
    std::thread consuming([&] {
        ASSERT_TRUE(prepared());
        GroupOfTwo both(std::move(one), std::move(two));
        while (both.next(-1) == 1) {
            both.expect_and_release();
            ++seen;
        }
    });
    while (durable_.size() < total) {
        tick(10 * ps_per_us);
        if (next_ < total) {
            (void)offer();
        }
        if (sink_->prepare_wait()) {
            pollfd waiting{sink_->wait_fd(), POLLIN, 0};
            ::poll(&waiting, 1, 1);
        }
        // It looks around every 100 ms, so without being woken it gets there too, but in minutes.
        if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(60)) {
            ADD_FAILURE() << "it was not woken";
            break;
        }
    }
    sink_.reset();
    consuming.join();
    EXPECT_EQ(seen, total);
}

TEST_F(ConsumerGroupTest, AGroupTakesTheEventsOfAllItsMembersInTurn) {
    make(Policy::block, 2, 4);
    GroupOfTwo both(attach(), attach());
    EXPECT_EQ(incast_consumer_group_add(both.group.raw, both.two.raw), INCAST_CONSUMER_ARGUMENT) << "twice";
    EXPECT_EQ(both.next(0), 0);
    for (int count = 0; count < 4; ++count) {  // each is handed two of them
        ASSERT_EQ(offer(), Taken::held_pending);
    }
    incast_consumer* before = nullptr;
    for (int count = 0; count < 4; ++count) {
        ASSERT_EQ(both.next(5000), 1);
        EXPECT_TRUE(both.whose == both.one.raw || both.whose == both.two.raw);
        EXPECT_NE(both.whose, before);
        before = both.whose;
        both.expect_and_release();
    }
    tick();
    EXPECT_EQ(durable_.size(), 4U);
    EXPECT_EQ(both.next(20), 0) << "the limit is kept";
    EXPECT_EQ(both.whose, nullptr);
}

TEST_F(ConsumerGroupTest, AGroupThatNeverSleepsSeesWhatComes) {
    make(Policy::block, 2, 4);
    GroupOfTwo both(attach(), attach());
    EXPECT_EQ(both.next(0), 0) << "both were found empty";
    for (int count = 0; count < 4; ++count) {
        ASSERT_EQ(offer(), Taken::held_pending);
        EXPECT_EQ(both.next(0), 1);
    }
}

TEST_F(ConsumerGroupTest, ABusyMemberDoesNotKeepTheOthersWaiting) {
    make(Policy::block, 2, 4);
    GroupOfTwo both(attach(), attach());
    EXPECT_EQ(both.next(20), 0) << "both were found empty";
    ASSERT_EQ(offer(), Taken::held_pending);
    ASSERT_EQ(both.next(5000), 1);
    for (int count = 0; count < 4; ++count) {  // the busy one, which holds one already, gets some of them too
        ASSERT_EQ(offer(), Taken::held_pending);
    }
    incast_consumer* before = both.whose;
    for (int count = 0; count < 4; ++count) {
        ASSERT_EQ(both.next(5000), 1);
        EXPECT_NE(both.whose, before);
        before = both.whose;
    }
}

TEST_F(ConsumerGroupTest, AGroupGoesOnWithoutThoseThatEnded) {
    make(Policy::drop, 3, 1);
    const Handle one = attach();
    Handle two = attach();
    const Handle three = attach();
    const Group group;
    for (const Handle* each : {&one, static_cast<const Handle*>(&two), &three}) {
        group.add(*each);
    }
    EXPECT_EQ(incast_consumer_group_remove(group.raw, two.raw), INCAST_CONSUMER_OK);
    EXPECT_EQ(incast_consumer_group_remove(group.raw, two.raw), INCAST_CONSUMER_ARGUMENT) << "it is no member";
    two = Handle();
    for (int count = 0; count < 20; ++count) {
        (void)!::write(incast_consumer_fd(three.raw), "x", 1);  // who talks too much is ejected
    }
    tick();
    incast_consumer_event event{};
    incast_consumer* whose = nullptr;
    EXPECT_EQ(incast_consumer_group_next(group.raw, 5000, &event, &whose), INCAST_CONSUMER_EJECTED);
    EXPECT_EQ(whose, three.raw);
    ASSERT_EQ(offer(), Taken::held);
    ASSERT_EQ(incast_consumer_group_next(group.raw, 5000, &event, &whose), 1);
    EXPECT_EQ(whose, one.raw);
    sink_.reset();
    EXPECT_EQ(incast_consumer_group_next(group.raw, 5000, &event, &whose), INCAST_CONSUMER_ENDED);
    EXPECT_EQ(whose, one.raw);
    EXPECT_EQ(incast_consumer_group_next(group.raw, -1, &event, &whose), INCAST_CONSUMER_ENDED);
    EXPECT_EQ(whose, nullptr) << "nobody is left";
}

TEST_F(ConsumerGroupTest, ASleepingGroupIsWokenByAnyMember) {
    pass_events_to_a_sleeping_group([] { return true; });
}

/// As kernels before 5.16 are, for the calling thread.
bool forget_how_to_sleep_on_several() {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, consumer::waitv_call_number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(program), program};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(ConsumerGroupTest, WhereItCannotSleepOnWordsAGroupSleepsOnSockets) {
    pass_events_to_a_sleeping_group([] {
        EXPECT_TRUE(forget_how_to_sleep_on_several());
        return !consumer::can_sleep_on_several();
    });
}

}  // namespace
}  // namespace incast::sinks
