#include "runtime/machine/copy_speed.h"

#include <cstdint>
#include <fstream>
#include <stop_token>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/machine/machine.h"

namespace incast::runtime {
namespace {

constexpr std::uint64_t mib = 1U << 20U;

/// Until it ends, new threads have that much stack each, and this process that much more memory.
class MemoryLimit {
public:
    MemoryLimit(std::uint64_t stack_bytes, std::uint64_t further_bytes) {
        EXPECT_EQ(pthread_getattr_default_np(&attributes_), 0);
        pthread_attr_t large = attributes_;
        EXPECT_EQ(pthread_attr_setstacksize(&large, stack_bytes), 0);
        EXPECT_EQ(pthread_setattr_default_np(&large), 0);
        EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
        rlimit limit = before_;
        limit.rlim_cur = mapped_bytes() + further_bytes;
        EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    }
    ~MemoryLimit() {
        EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0);
        EXPECT_EQ(pthread_setattr_default_np(&attributes_), 0);
    }
    MemoryLimit(const MemoryLimit&) = delete;
    MemoryLimit& operator=(const MemoryLimit&) = delete;

private:
    static std::uint64_t mapped_bytes() {
        std::uint64_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    }

    pthread_attr_t attributes_{};
    rlimit before_{};
};

TEST(CopySpeed, IsOfThisProcessor) {
    for (const unsigned cores : {1U, 2U, 100U}) {
        const double ratio = plain_over_streaming(mib, cores);
        EXPECT_GT(ratio, 0.05);
        EXPECT_LT(ratio, 20);
    }
    EXPECT_EQ(read_machine().plain_over_streaming, &plain_over_streaming);
}

TEST(CopySpeed, IsFoundBesideOthersToo) {
    std::vector<std::jthread> others;
    const unsigned spinning = 2 * std::thread::hardware_concurrency();
    others.reserve(spinning);
    for (unsigned other = 0; other < spinning; ++other) {
        others.emplace_back([](const std::stop_token& end) {
            while (!end.stop_requested()) {
            }
        });
    }
    const double ratio = plain_over_streaming(mib, 2);
    EXPECT_GT(ratio, 0.001);
    EXPECT_LT(ratio, 1000);
}

TEST(CopySpeed, IsOfTheThreadsThatCanBeStarted) {
    // Beside 64 MiB of source and 4 of destination there is place for the stack of one.
    const MemoryLimit limit(128 * mib, (64 + 4 + 128 + 60) * mib);
    const double ratio = plain_over_streaming(mib, 4);
    EXPECT_GT(ratio, 0.05);
    EXPECT_LT(ratio, 20);
}

TEST(CopySpeed, IsOfThisThreadIfNoneCanBeStarted) {
    const MemoryLimit limit(128 * mib, (64 + 4 + 60) * mib);
    const double ratio = plain_over_streaming(mib, 4);
    EXPECT_GT(ratio, 0.05);
    EXPECT_LT(ratio, 20);
}

}  // namespace
}  // namespace incast::runtime
