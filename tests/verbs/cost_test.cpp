// What the transport costs the processor: nothing is allocated where events are built, and chains leave by one
// doorbell.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "mock_verbs.h"
#include "support/protocol.h"
#include "transport/verbs/verbs.h"

namespace {

std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t bytes) {
    if (!incast::mock_verbs::is_inside()) ++allocations;
    void* const made = std::malloc(bytes > 0 ? bytes : 1);
    if (made == nullptr) std::abort();
    return made;
}

}  // namespace

void* operator new(std::size_t bytes) {
    return counted(bytes);
}
void* operator new[](std::size_t bytes) {
    return counted(bytes);
}
void operator delete(void* what) noexcept {
    std::free(what);
}
void operator delete[](void* what) noexcept {
    std::free(what);
}
void operator delete(void* what, std::size_t) noexcept {
    std::free(what);
}
void operator delete[](void* what, std::size_t) noexcept {
    std::free(what);
}

namespace incast::protocol {
namespace {

class Cost : public ::testing::TestWithParam<Scheme> {};

TEST_P(Cost, NothingIsAllocatedAndChainsLeaveByOneDoorbell) {
    mock_verbs::reset();
    Config config = testing::make_config(4, 4, false, 1, 0);
    config.scheme = GetParam();
    config.credits = 16;
    config.retention_meps = 2 * config.credits * 4;
    config.detection_deadline = time_never / 4;
    config.heartbeat = time_never / 16;
    config.late_after = time_never / 4;
    testing::Cluster cluster(config, 0, true, {}, nullptr, transport::verbs::make({{"bind", "127.0.0.1"}}).value());
    const auto build = [&](std::uint64_t meps) {
        const std::uint64_t until = cluster.ledger.commits + meps;
        return cluster.run_until([&] { return cluster.ledger.commits >= until; });
    };
    ASSERT_TRUE(build(2000)) << "queues have the size that they will have";
    const std::uint64_t allocated = allocations;
    const mock_verbs::Counts before = mock_verbs::counts();
    ASSERT_TRUE(build(2000));
    const mock_verbs::Counts after = mock_verbs::counts();
    EXPECT_EQ(allocations - allocated, 0U) << "of 8000 MFPs";
    EXPECT_LT(after.post_send - before.post_send, after.requests - before.requests) << "chains are of several requests";
    EXPECT_EQ(after.registrations, before.registrations);
}

INSTANTIATE_TEST_SUITE_P(Schemes, Cost, ::testing::Values(Scheme::push, Scheme::pull_write));

}  // namespace
}  // namespace incast::protocol
