#include "runtime/machine/placement.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>
#include <utility>

#include <unistd.h>

namespace incast::runtime {
namespace {

constexpr std::int64_t ns_per_s = 1'000'000'000;

std::int64_t cpu_ns(clockid_t clock) {
    timespec time{};
    return clock_gettime(clock, &time) == 0 ? time.tv_sec * ns_per_s + time.tv_nsec : 0;
}

std::int64_t cpu_ns_of(pid_t pid) {
    clockid_t clock = 0;
    return clock_getcpuclockid(pid, &clock) == 0 ? cpu_ns(clock) : 0;
}

}  // namespace

std::int64_t CoreTime::read_ns(std::istream& stat, const std::vector<int>& cores) {
    std::string name;
    std::int64_t ticks = 0;
    while (stat >> name) {
        std::int64_t user = 0;
        std::int64_t nice = 0;
        std::int64_t system = 0;
        std::int64_t idle = 0;
        std::int64_t io_wait = 0;
        std::int64_t irq = 0;
        std::int64_t soft_irq = 0;
        const bool is_core = name.starts_with("cpu") && name.size() > 3;
        if (is_core && (stat >> user >> nice >> system >> idle >> io_wait >> irq >> soft_irq) &&
            std::ranges::find(cores, std::stoi(name.substr(3))) != cores.end()) {
            ticks += user + nice + system + irq + soft_irq;
        }
        std::getline(stat, name);
    }
    if (!first_ticks_) first_ticks_ = ticks;
    return (ticks - *first_ticks_) * (ns_per_s / std::max(1L, sysconf(_SC_CLK_TCK)));
}

bool PlacementRule::keeps(Time now, std::int64_t busy_ns, std::int64_t own_ns) {
    const std::int64_t others_ns = busy_ns - own_ns;
    if (at_ < 0) {
        at_ = quiet_from_ = now;
        others_ns_ = others_ns;
        return keeps_;
    }
    const bool wanted = (others_ns - others_ns_) * others_share > (now - at_) / ps_per_ns;
    at_ = now;
    others_ns_ = others_ns;
    if (wanted) {
        quiet_from_ = now;
        if (keeps_) {
            keeps_ = false;
            pause_ = std::min(pause_ * 2, longest_pause);
        }
    } else if (!keeps_ && now - quiet_from_ >= pause_) {
        keeps_ = true;
    }
    return keeps_;
}

Placement::Placement(std::size_t nodes) {
    if (sched_getaffinity(0, sizeof all_, &all_) == 0) {
        for (int core = 0; core < CPU_SETSIZE; ++core) {
            if (CPU_ISSET(core, &all_)) cores_.push_back(core);
        }
    }
    if (cores_.empty() || nodes < cores_.size() || nodes % cores_.size() != 0) next_ = time_never;
}

bool Placement::tick(Time now, std::span<const pid_t> pids) {
    if (now < next_) return false;
    next_ = now + PlacementRule::interval;
    const bool before = keeps_;
    const std::int64_t own = own_ns(pids);
    std::ifstream stat("/proc/stat");
    keeps_ = rule_.keeps(now, core_time_.read_ns(stat, cores_), own);
    if (keeps_ != before) {
        for (Node& node : nodes_)
            node.placed = false;
    }
    place();
    return keeps_ != before;
}

std::int64_t Placement::own_ns(std::span<const pid_t> pids) {
    nodes_.resize(pids.size());
    std::int64_t own = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (std::size_t index = 0; index < pids.size(); ++index) {
        Node& node = nodes_[index];
        if (node.pid != pids[index]) {
            ended_ns_ += node.cpu_ns;
            node = {.pid = pids[index]};
        }
        // One that has just ended has no clock any longer.
        if (node.pid > 0) node.cpu_ns = std::max(node.cpu_ns, cpu_ns_of(node.pid));
        own += node.cpu_ns;
    }
    return own + ended_ns_;
}

void Placement::place() {
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        Node& node = nodes_[index];
        if (node.pid <= 0 || node.placed) continue;
        if (!std::exchange(node.is_known, true)) {
            cpu_set_t its{};
            node.is_seated = sched_getaffinity(node.pid, sizeof its, &its) == 0 && !CPU_EQUAL(&its, &all_);
        }
        node.placed = true;
        if (node.is_seated) continue;
        cpu_set_t core{};
        CPU_SET(cores_[index % cores_.size()], &core);
        sched_setaffinity(node.pid, sizeof core, keeps_ ? &core : &all_);  // fails only if it has just ended
    }
}

}  // namespace incast::runtime
