// The suite sees what it is for: run with a planted violation, the tests of its clause fail.
#include "planted.h"

#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

namespace incast::conformance {
namespace {

/// The exit status of this program, run for one clause.
int run_with(const std::string& variable, const Planted& planted) {
    std::string program = "conformance";
    std::string filter = "--gtest_filter=Builtin/Conformance." + std::string(planted.clause) + "_*/" +
                         std::string(planted.transport) + "_one_thread";
    std::string plant = variable + "=" + std::string(planted.name);
    std::vector<char*> environment{plant.data()};
    for (char** each = environ; *each != nullptr; ++each)
        if (std::strncmp(*each, "GTEST_", 6) != 0) environment.push_back(*each);
    environment.push_back(nullptr);
    std::vector<char*> arguments{program.data(), filter.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t process = -1;
    const int error =
        ::posix_spawn(&process, "/proc/self/exe", &actions, nullptr, arguments.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    int status = -1;
    if (error != 0 || ::waitpid(process, &status, 0) != process || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

TEST(ConformancePlanted, EveryViolationIsCaughtByTheTestsOfItsClause) {
    if (outside()) GTEST_SKIP() << looks_at_the_tree;
    for (const Planted& planted : planted_violations()) {
        SCOPED_TRACE(planted.name);
        EXPECT_EQ(run_with("NO_PLANT", planted), 0) << "the same without it";
        EXPECT_EQ(run_with("INCAST_PLANT", planted), 1);
    }
}

}  // namespace
}  // namespace incast::conformance
