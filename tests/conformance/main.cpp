// The program: the suite, or an agent of it in a process of its own.
#include <span>

#include <gtest/gtest.h>

#include "runner.h"

int main(int argc, char** argv) {
    if (const auto status = incast::conformance::serve_as_agent(std::span(argv, static_cast<std::size_t>(argc))))
        return *status;
    if (const auto status = incast::conformance::serve_as_rank()) return *status;
    testing::InitGoogleTest(&argc, argv);
    const int status = RUN_ALL_TESTS();
    incast::conformance::dismiss_ranks();
    return status;
}
