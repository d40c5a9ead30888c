// What the protocol itself costs: RUs, BUs and EM in one thread on inproc, no payload, null sinks; process CPU time per
// MFP delivered, everything counted: units, queues, the transport's own work.
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "protocol/test_support.h"

namespace {

using namespace incast;
using namespace incast::protocol;

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Shape {
    const char* name;
    std::uint32_t rus;
    std::uint32_t bus;
    bool folded;
};

bool measure(const Shape& shape, Scheme scheme, std::uint32_t credits, std::uint64_t mfps) {
    Config config = testing::make_config(shape.rus, shape.bus, shape.folded, 1, 64);
    config.scheme = scheme;
    config.credits = credits;
    config.retention_meps = 2 * credits * shape.bus;
    config.detection_deadline = time_never / 4;
    config.heartbeat = time_never / 16;
    config.late_after = time_never / 4;
    testing::Cluster cluster(config, 0, true);
    const std::uint64_t warm_up = 8 * std::uint64_t{shape.bus};
    if (!cluster.run_until([&] { return cluster.ledger.commits >= warm_up; })) {
        std::printf("%s: did not start\n", shape.name);
        return false;
    }
    const std::uint64_t first = cluster.ledger.commits;
    const double start = cpu_seconds();
    while ((cluster.ledger.commits - first) * shape.rus < mfps) {
        cluster.round();
    }
    const double seconds = cpu_seconds() - start;
    const auto delivered = static_cast<double>((cluster.ledger.commits - first) * shape.rus);
    std::uint64_t messages = 0;
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        messages += cluster[node].node->counters().messages_sent;
    }
    std::printf("%-28s %-10s credits %3u  %7.1f ns CPU per MFP  (%.2f M MFP/s, %.3f messages per MFP)\n", shape.name,
                scheme == Scheme::push ? "push" : "pull-write", credits, seconds / delivered * 1e9,
                delivered / seconds / 1e6,
                static_cast<double>(messages) / (delivered + static_cast<double>(first * shape.rus)));
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t mfps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2'000'000;
    bool all = true;
    for (const Scheme scheme : {Scheme::push, Scheme::pull_write}) {
        for (const std::uint32_t credits : {4U, 16U, 64U}) {
            all = measure({"4 RU + 4 BU + EM", 4, 4, false}, scheme, credits, mfps) && all;
        }
        all = measure({"64 x (RU+BU), EM on one", 64, 64, true}, scheme, 16, mfps) && all;
        all = measure({"1000 RU + 4 BU + EM", 1000, 4, false}, scheme, 16, 4 * mfps) && all;
        all = measure({"4 RU + 1000 BU + EM", 4, 1000, false}, scheme, 16, 4 * mfps) && all;
        all = measure({"1000 x (RU+BU), EM on one", 1000, 1000, true}, scheme, 4, 4 * mfps) && all;
    }
    return all ? 0 : 1;
}
