#include "runtime/machine/placement.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace incast::runtime {
namespace {

/// What a rule says of intervals in which others take so much of a core.
class Watch {
public:
    Watch() { rule_.keeps(0, 0, 0); }
    bool next(double others) {
        now_ += PlacementRule::interval;
        own_ns_ += 2 * interval_ns;
        others_ns_ += static_cast<std::int64_t>(others * static_cast<double>(interval_ns));
        return rule_.keeps(now_, own_ns_ + others_ns_, own_ns_);
    }
    /// Intervals without others until nodes are kept again.
    int quiet_until_kept() {
        int intervals = 1;
        while (!next(0) && intervals < 1000)
            ++intervals;
        return intervals;
    }

private:
    static constexpr std::int64_t interval_ns = PlacementRule::interval / ps_per_ns;
    PlacementRule rule_;
    Time now_ = 0;
    std::int64_t own_ns_ = 0;
    std::int64_t others_ns_ = 0;
};

TEST(PlacementRule, KeepsNodesUntilOthersWantTheCores) {
    Watch watch;
    EXPECT_TRUE(watch.next(0));
    EXPECT_TRUE(watch.next(0.1)) << "the kernel's ticks, a shell";
    EXPECT_FALSE(watch.next(0.3));
    EXPECT_FALSE(watch.next(0)) << "not at once again";
}

/// 1000 cores, each busy for 100 years: a host that is never idle and never restarted.
TEST(CoreTime, CountsFromItsFirstReading) {
    CoreTime cores;
    std::vector<int> all;
    const auto stat = [&](std::int64_t more) {
        std::string text = "cpu  1 2 3 4 5 6 7 8 9 10\n";
        for (int core = 0; core < 1000; ++core)
            text +=
                "cpu" + std::to_string(core) + " " + std::to_string(315'576'000'000 + more) + " 0 0 7 7 0 0 7 0 0\n";
        return std::istringstream(text + "intr 1\n");
    };
    for (int core = 0; core < 1000; ++core)
        all.push_back(core);
    std::istringstream first = stat(0);
    EXPECT_EQ(cores.read_ns(first, all), 0);
    std::istringstream second = stat(50);
    EXPECT_EQ(cores.read_ns(second, all), std::int64_t{1000} * 50 * (1'000'000'000 / sysconf(_SC_CLK_TCK)));
}

TEST(PlacementRule, KeepsThemAgainAfterAPauseThatGrows) {
    Watch watch;
    int last = 0;
    for (int time = 0; time < 3; ++time) {
        EXPECT_FALSE(watch.next(1));
        const int intervals = watch.quiet_until_kept();
        EXPECT_GT(intervals, last);
        last = intervals;
    }
    for (int time = 0; time < 20; ++time) {
        EXPECT_FALSE(watch.next(1));
        last = watch.quiet_until_kept();
    }
    EXPECT_LE(last * PlacementRule::interval, 65 * ps_per_s) << "but not without end";
}

/// Processes that wait until they are killed.
class Waiting {
public:
    explicit Waiting(std::size_t count) {
        while (pids.size() < count) {
            const pid_t pid = fork();
            if (pid == 0) {
                while (true)
                    pause();
            }
            pids.push_back(pid);
        }
    }
    ~Waiting() {
        for (const pid_t pid : pids) {
            kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    std::vector<pid_t> pids;
};

std::vector<int> cores_of(pid_t pid) {
    cpu_set_t set{};
    std::vector<int> cores;
    if (sched_getaffinity(pid, sizeof set, &set) == 0) {
        for (int core = 0; core < CPU_SETSIZE; ++core) {
            if (CPU_ISSET(core, &set)) cores.push_back(core);
        }
    }
    return cores;
}

TEST(Placement, AsManyNodesOnEachCore) {
    const std::vector<int> cores = cores_of(0);
    const Waiting nodes(2 * cores.size());
    Placement placement(nodes.pids.size());
    EXPECT_TRUE(placement.tick(ps_per_s, nodes.pids));
    ASSERT_TRUE(placement.keeps());
    std::vector<int> used;
    for (const pid_t pid : nodes.pids) {
        ASSERT_EQ(cores_of(pid).size(), 1U);
        used.push_back(cores_of(pid).front());
    }
    for (const int core : cores)
        EXPECT_EQ(std::ranges::count(used, core), 2) << core;
    EXPECT_GT(placement.next_deadline(), ps_per_s);
}

TEST(Placement, NodesAreLeftAloneWhereCoresWouldHaveMoreThanOthers) {
    const std::vector<int> cores = cores_of(0);
    const Waiting nodes(cores.size() + 1);
    if (nodes.pids.size() % cores.size() == 0) GTEST_SKIP() << "one core: every number is a multiple";
    Placement placement(nodes.pids.size());
    EXPECT_EQ(placement.next_deadline(), time_never);
    EXPECT_FALSE(placement.tick(ps_per_s, nodes.pids));
    EXPECT_EQ(cores_of(nodes.pids.front()), cores);
    EXPECT_EQ(Placement(0).next_deadline(), time_never);
}

}  // namespace
}  // namespace incast::runtime
