// What the protocol itself costs: RUs, BUs and EM in one thread on inproc, no payload, null sinks; process CPU time per
// MFP delivered, everything counted: units, queues, the transport's own work.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include <sys/wait.h>
#include <unistd.h>

#include "support/protocol.h"
#if INCAST_COST_OF_VERBS
#include "transport/verbs/verbs.h"
#endif

namespace {

using namespace incast;
using namespace incast::protocol;

const char* name_of(Scheme scheme) {
    return scheme == Scheme::push ? "push" : "pull-write";
}

/// protocol_cost_verbs: on a mock device, whose own instructions tools that count them tell apart (mock_queues.cpp).
std::unique_ptr<transport::Medium> medium() {
#if INCAST_COST_OF_VERBS
    return transport::verbs::make({{"bind", "127.0.0.1"}}).value();
#else
    return transport::inproc::make({}).value();
#endif
}

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double wall_seconds() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Roster {
    const char* name;
    std::uint32_t rus;
    std::uint32_t bus;
    bool folded;
};

/// Time in the steps of the RUs, the BUs and the EM, where they are apart.
struct Parts {
    double rus = 0;
    double bus = 0;
    double em = 0;
};

/// As Cluster::round, but takes the time of each kind of node: four readings of the clock, whatever the number of
/// nodes.
void timed_round(testing::Cluster& cluster, const Roster& roster, Parts& parts) {
    cluster.now += 1'000'000;
    const auto step = [&](std::uint32_t from, std::uint32_t to) {
        for (std::uint32_t node = from; node < to; ++node) {
            cluster.step(node);
        }
    };
    const double start = wall_seconds();
    step(0, roster.rus);
    const double after_rus = wall_seconds();
    step(roster.rus, roster.rus + roster.bus);
    const double after_bus = wall_seconds();
    step(roster.rus + roster.bus, roster.rus + roster.bus + 1);
    parts.rus += after_rus - start;
    parts.bus += after_bus - after_rus;
    parts.em += wall_seconds() - after_bus;
}

bool measure(const Roster& roster, Scheme scheme, std::uint32_t credits, std::uint64_t mfps, std::uint32_t room_bytes) {
    Config config = testing::make_config(roster.rus, roster.bus, roster.folded, 1, room_bytes);
    config.scheme = scheme;
    config.credits = credits;
    config.retention_meps = 2 * credits * roster.bus;
    config.detection_deadline = time_never / 4;
    config.heartbeat = time_never / 16;
    config.late_after = time_never / 4;
    testing::Cluster cluster(config, 0, true, {}, nullptr, medium());
    const std::uint64_t warm_up = 8 * std::uint64_t{roster.bus};
    if (!cluster.run_until([&] { return cluster.ledger.commits >= warm_up; })) {
        std::printf("%s: did not start\n", roster.name);
        return false;
    }
    const std::uint64_t first = cluster.ledger.commits;
    Parts parts;
    std::uint64_t rounds = 0;
    const double start = cpu_seconds();
    while ((cluster.ledger.commits - first) * roster.rus < mfps) {
        if (roster.folded) {
            cluster.round();
        } else {
            timed_round(cluster, roster, parts);
        }
        ++rounds;
    }
    const double seconds = cpu_seconds() - start;
    const auto delivered = static_cast<double>((cluster.ledger.commits - first) * roster.rus);
    std::uint64_t messages = 0;
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        messages += cluster.node(node).counters().messages_sent;
    }
    const double per_mfp = static_cast<double>(messages) / (delivered + static_cast<double>(first * roster.rus));
    std::printf("%-28s %-10s credits %3u  %7.1f ns CPU per MFP", roster.name, name_of(scheme), credits,
                seconds / delivered * 1e9);
    if (!roster.folded) {
        std::printf("  (RU %.0f, BU %.0f, EM %.0f)", parts.rus / delivered * 1e9, parts.bus / delivered * 1e9,
                    parts.em / delivered * 1e9);
    }
    std::printf("  %.2f M MFP/s, %.3f messages per MFP, %.0f MFP per round\n", delivered / seconds / 1e6, per_mfp,
                delivered / static_cast<double>(rounds));
    return true;
}

/// In a process of its own: what was measured before has left no mark on its memory.
bool measure_apart(const Roster& roster, Scheme scheme, std::uint32_t credits, std::uint64_t mfps,
                   std::uint32_t room_bytes) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child < 0) {
        std::perror("fork");
        return false;
    }
    if (child == 0) {
        const bool measured = measure(roster, scheme, credits, mfps, room_bytes);
        std::fflush(stdout);
        _exit(measured ? 0 : 1);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

// usage: protocol_cost [MFPS [CASE [ROOM]]]
//   CASE  only the cases whose name contains it: "4 RU + 4 BU + EM push 16"
//   ROOM  bytes a slot has for the body of each MFP, none of which is used: heads lie that far apart
int main(int argc, char** argv) {
    const std::uint64_t mfps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2'000'000;
    const std::string_view only = argc > 2 ? argv[2] : "";
    const auto room_bytes = static_cast<std::uint32_t>(argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 0);
    struct Case {
        Roster roster;
        std::uint32_t credits;
        std::uint64_t times_mfps;
    };
    constexpr Case cases[] = {
        {{"4 RU + 4 BU + EM", 4, 4, false}, 4, 1},          {{"4 RU + 4 BU + EM", 4, 4, false}, 16, 1},
        {{"4 RU + 4 BU + EM", 4, 4, false}, 64, 1},         {{"64 x (RU+BU), EM on one", 64, 64, true}, 4, 1},
        {{"64 x (RU+BU), EM on one", 64, 64, true}, 16, 1}, {{"1000 RU + 4 BU + EM", 1000, 4, false}, 4, 4},
    };
    bool all = true;
    for (const Scheme scheme : {Scheme::push, Scheme::pull_write}) {
        for (const Case& each : cases) {
            const std::string name =
                std::string(each.roster.name) + " " + name_of(scheme) + " " + std::to_string(each.credits);
            if (name.find(only) == std::string::npos) {
                continue;
            }
            all = measure_apart(each.roster, scheme, each.credits, each.times_mfps * mfps, room_bytes) && all;
        }
    }
    return all ? 0 : 1;
}
