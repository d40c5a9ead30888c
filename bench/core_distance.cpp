// How far apart cores are: the time a cache line takes from one to the other. Cores of a virtual machine may be moved
// by its host from one second to the next: on Zen 4 some 30 or some 150 ns were seen, as within one last-level cache or
// across two. What copies between processes is then on another machine.
//
// Neighbours of the cores that may be used are taken in pairs. Prints one line of JSON.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>

namespace {

constexpr std::size_t most_pairs = 16;
constexpr int batches = 40;  // their median counts: an interrupt spoils one
constexpr int rounds = 200;  // of a batch

std::vector<int> usable_cores() {
    cpu_set_t set{};
    std::vector<int> cores;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
    return cores;
}

void stay_on(int core) {
    cpu_set_t set{};
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // if it fails the figure is the kernel's choice of cores
}

template <class Values>
double median(Values values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// One way, in ns: two threads write the same line in turn.
double one_way_ns(int here, int there) {
    struct alignas(256) Line {  // apart from what else the threads use: neighbouring lines are fetched along
        std::atomic<int> turn{0};
    };
    static Line line;
    line.turn = 0;
    std::thread other([&] {
        stay_on(there);
        for (int turn = 1; turn < 2 * batches * rounds; turn += 2) {
            while (line.turn.load(std::memory_order_acquire) != turn) {
            }
            line.turn.store(turn + 1, std::memory_order_release);
        }
    });
    stay_on(here);
    std::array<double, batches> found{};
    int turn = 0;
    for (double& each : found) {
        const auto begin = std::chrono::steady_clock::now();
        for (int round = 0; round < rounds; ++round, turn += 2) {
            line.turn.store(turn + 1, std::memory_order_release);
            while (line.turn.load(std::memory_order_acquire) != turn + 2) {
            }
        }
        each =
            std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / (2.0 * rounds);
    }
    other.join();
    return median(found);
}

}  // namespace

int main() {
    const std::vector<int> cores = usable_cores();
    if (cores.size() < 2) {
        std::fprintf(stderr, "core_distance: one core is no distance from itself\n");
        return 1;
    }
    std::vector<double> found;
    for (std::size_t first = 0; first + 1 < cores.size() && found.size() < most_pairs; first += 2)
        found.push_back(one_way_ns(cores[first], cores[first + 1]));
    std::string each;
    for (const double ns : found)
        each += (each.empty() ? "" : ", ") + std::to_string(ns);
    std::printf("{\"ns\": %.1f, \"pairs_ns\": [%s]}\n", median(found), each.c_str());
    return 0;
}
