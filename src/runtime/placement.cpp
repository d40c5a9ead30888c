#include "runtime/placement.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>

#include <unistd.h>

namespace incast::runtime {
namespace {

/// User and system time of these cores, interrupts included (/proc/stat, proc_stat(5)); what a hypervisor steals is
/// nobody's that could be given way to.
Time busy_time(const std::vector<int>& cores) {
    const Time tick = ps_per_s / std::max(1L, sysconf(_SC_CLK_TCK));
    std::ifstream stat("/proc/stat");
    std::string name;
    Time busy = 0;
    while (stat >> name) {
        Time user = 0;
        Time nice = 0;
        Time system = 0;
        Time idle = 0;
        Time io_wait = 0;
        Time irq = 0;
        Time soft_irq = 0;
        const bool is_core = name.starts_with("cpu") && name.size() > 3;
        if (is_core && (stat >> user >> nice >> system >> idle >> io_wait >> irq >> soft_irq) &&
            std::ranges::find(cores, std::stoi(name.substr(3))) != cores.end()) {
            busy += (user + nice + system + irq + soft_irq) * tick;
        }
        std::getline(stat, name);
    }
    return busy;
}

Time cpu_time(clockid_t clock) {
    timespec time{};
    return clock_gettime(clock, &time) == 0 ? time.tv_sec * ps_per_s + time.tv_nsec * ps_per_ns : 0;
}

Time cpu_time_of(pid_t pid) {
    clockid_t clock = 0;
    return clock_getcpuclockid(pid, &clock) == 0 ? cpu_time(clock) : 0;
}

}  // namespace

bool PlacementRule::keeps(Time now, Time busy, Time own) {
    const Time others = busy - own;
    if (at_ < 0) {
        at_ = quiet_from_ = now;
        others_ = others;
        return keeps_;
    }
    const bool wanted = (others - others_) * others_share > now - at_;
    at_ = now;
    others_ = others;
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
    const Time own = own_time(pids);
    keeps_ = rule_.keeps(now, busy_time(cores_), own);
    if (keeps_ != before) {
        for (Node& node : nodes_)
            node.placed = false;
    }
    place();
    return keeps_ != before;
}

Time Placement::own_time(std::span<const pid_t> pids) {
    nodes_.resize(pids.size());
    Time own = cpu_time(CLOCK_PROCESS_CPUTIME_ID);
    for (std::size_t index = 0; index < pids.size(); ++index) {
        Node& node = nodes_[index];
        if (node.pid != pids[index]) {
            ended_ += node.cpu_time;
            node = {.pid = pids[index]};
        }
        // One that has just ended has no clock any longer.
        if (node.pid > 0) node.cpu_time = std::max(node.cpu_time, cpu_time_of(node.pid));
        own += node.cpu_time;
    }
    return own + ended_;
}

void Placement::place() {
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        Node& node = nodes_[index];
        if (node.pid <= 0 || node.placed) continue;
        cpu_set_t core{};
        CPU_SET(cores_[index % cores_.size()], &core);
        sched_setaffinity(node.pid, sizeof core, keeps_ ? &core : &all_);  // fails only if it has just ended
        node.placed = true;
    }
}

}  // namespace incast::runtime
