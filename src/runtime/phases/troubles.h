// What goes wrong between the nodes while the run goes on: who was dropped, why, for how long and at what cost; and
// counters that should stay where they are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/resolve.h"
#include "runtime/record/metrics.h"
#include "runtime/report/audit.h"

namespace incast::runtime {

class Troubles {
public:
    Troubles(const Plan& plan, Audit& audit) : plan_(plan), audit_(audit), out_(plan.n_nodes), watched_(plan.n_nodes) {}

    /// Of all nodes since the start.
    struct Cost {
        std::uint64_t incomplete_events = 0;
        std::uint64_t reassigned_meps = 0;
    };
    /// The event manager says so. `known`: the node's process is gone, which was said.
    void changed(Time now, const ViewChange& change, bool known, Cost cost);
    /// A node's process is gone, which was said: that it was dropped needs no line.
    void lost(Time now, std::uint32_t node);
    /// So it is, as somebody asked for it.
    void taken_out(Time now, std::uint32_t node);
    /// A node's sums, with those of processes before.
    void counted(Time now, std::uint32_t node, const NodeTotals& totals);
    /// `over`: the run is.
    void tick(Time now, Cost cost, bool over);
    [[nodiscard]] Time next_deadline() const;

    static constexpr Time counter_gap = 10 * ps_per_s;  // between two lines on the same counter
    /// A connection that ended is often that of a process that did: so long until that is known.
    static constexpr Time last_words_within = 2 * ps_per_s;

private:
    static constexpr std::size_t counters = 5;
    struct Out {
        bool out = false;
        Time since = 0;  // by the event manager's clock
        std::string why;
        bool by_command = false;
        Cost before;
        std::optional<Time> length;  // it is back
        Time told_at = time_never;   // when those that built without it have said so
        bool unsaid = false;         // that it was dropped
        Time said_at = time_never;   // when that is said at the latest
        std::string line;
    };
    struct Watched {
        std::array<std::uint64_t, counters> told{};
        std::array<Time, counters> quiet_until{};
        std::array<std::uint64_t, counters> now{};
    };
    void say_dropped(Time now, std::uint32_t node);
    void tell(Time now, std::uint32_t node, Cost cost, Time length);
    void tell_counter(Time now, std::uint32_t node, std::size_t counter);
    [[nodiscard]] std::string name_of(std::uint32_t node) const;

    const Plan& plan_;
    Audit& audit_;
    std::vector<Out> out_;
    std::vector<Watched> watched_;
    Time em_clock_ = 0;  // latest change, and when it was heard
    Time heard_ = 0;
};

}  // namespace incast::runtime
