// Nodes of this host kept apart on its cores.
//
// Linux puts three of four busy nodes on one of two cores and leaves them there for long: each ran a moment ago, so it
// counts as cache-hot, and the node that is alone looks busy, as it yields where it finds nothing to do. So each node
// is kept on one core while nobody else wants the cores; when somebody does, it is the kernel that has to share them
// out.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <vector>

#include <sched.h>
#include <sys/types.h>

#include <incast/transport.h>

namespace incast::runtime {

/// Whether to keep nodes where they are, from what all programs and our own took of the cores.
class PlacementRule {
public:
    static constexpr Time interval = 500 * ps_per_ms;  // shorter, the kernel's ticks of 10 ms would show

    /// CPU time since some moment, on the cores that the nodes may use; at the first call, then every `interval`.
    /// In nanoseconds: picoseconds of many cores would fill 64 bits within days.
    bool keeps(Time now, std::int64_t busy_ns, std::int64_t own_ns);

private:
    static constexpr std::int64_t others_share = 8;  // they want the cores if they take more than 1/8 of one
    static constexpr Time first_pause = 2 * ps_per_s;
    static constexpr Time longest_pause = 64 * ps_per_s;

    bool keeps_ = true;
    Time at_ = -1;
    std::int64_t others_ns_ = 0;
    Time quiet_from_ = 0;
    Time pause_ = first_pause;  // of quiet before nodes are kept again; twice as long each time that was too early
};

/// User and system time of cores, interrupts included, since it was first read; what a hypervisor steals is nobody's
/// that could be given way to.
class CoreTime {
public:
    /// `stat`: /proc/stat, proc_stat(5).
    std::int64_t read_ns(std::istream& stat, const std::vector<int>& cores);

private:
    std::optional<std::int64_t> first_ticks_;
};

class Placement {
public:
    /// `nodes` of this host; they are kept if that is a multiple of the cores, so that all cores have as many.
    explicit Placement(std::size_t nodes);
    ~Placement() = default;
    Placement(const Placement&) = delete;
    Placement& operator=(const Placement&) = delete;

    /// `pids` of the nodes, in their order; 0: not here at present. True: whether they are kept has changed.
    bool tick(Time now, std::span<const pid_t> pids);
    [[nodiscard]] bool keeps() const { return keeps_; }
    [[nodiscard]] Time next_deadline() const { return next_; }

private:
    struct Node {
        pid_t pid = 0;
        std::int64_t cpu_ns = 0;
        bool placed = false;    // as keeps_ says
        bool is_known = false;  // whether it has a seat of its own (seat.h)
        bool is_seated = false;
    };
    [[nodiscard]] std::int64_t own_ns(std::span<const pid_t> pids);
    void place();

    std::vector<int> cores_;  // that this process may use
    cpu_set_t all_{};
    PlacementRule rule_;
    CoreTime core_time_;
    bool keeps_ = false;
    std::vector<Node> nodes_;
    std::int64_t ended_ns_ = 0;  // CPU time of processes that were here
    Time next_ = 0;              // time_never: this is not for these nodes
};

}  // namespace incast::runtime
