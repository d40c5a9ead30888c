// What becomes of a run when nodes are lost, or are taken out of it.
#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/phases/run_control.h"

namespace incast::runtime {
namespace {

/// With fewer units of a kind the run ends.
struct Rule {
    std::uint32_t role;
    std::uint64_t least;
    const char* unit;
};

std::array<Rule, 2> rules_of(const RunConfig& config) {
    return {{{protocol::role_ru, config.least_rus, "readout"}, {protocol::role_bu, config.least_bus, "builder"}}};
}

std::string effect_without(std::uint32_t roles) {
    return std::string((roles & protocol::role_bu) != 0 ? "; its MEPs are built by others" : "") +
           ((roles & protocol::role_ru) != 0 ? "; MEPs without its fragments are flagged" : "");
}

}  // namespace

std::uint64_t RunControl::left(std::uint32_t roles) const {
    return static_cast<std::uint64_t>(std::ranges::count_if(
        nodes_, [roles](const NodeRecord& record) { return (record.roles & roles) != 0 && !record.lost; }));
}

std::string RunControl::too_few_without(std::uint32_t node) const {
    const NodeRecord& record = nodes_[node];
    for (const Rule& rule : rules_of(plan_.config)) {
        const std::uint64_t others = left(rule.role) - ((record.roles & rule.role) != 0 && !record.lost ? 1 : 0);
        if ((record.roles & rule.role) != 0 && others < rule.least) {
            return fmt::format("run.least_{}_units = {}, and {} {} left without it", rule.unit, rule.least, others,
                               others == 1 ? "is" : "are");
        }
    }
    return "";
}

std::string RunControl::why_needed(std::uint32_t node) const {
    std::string who = "the run needs node " + node_name(node, nodes_[node].roles);
    if (plan_.ends_with(node)) {
        return who;
    }
    const std::string few = too_few_without(node);
    return few.empty() ? "" : fmt::format("{}: {}", who, few);
}

void RunControl::lost(Time now, std::uint32_t node, const std::string& why) {
    if (node >= nodes_.size() || nodes_[node].lost || phase_ == Phase::done) {
        return;
    }
    NodeRecord& record = nodes_[node];
    record.lost = true;
    record.why_lost = why;
    ++record.losses;
    if (phase_ == Phase::closing) {
        return;
    }
    troubles_.lost(now, node);
    const std::string who = fmt::format("node {} lost: {}", node_name(node, record.roles), why);
    const AuditEntry entry{"lost", node, "", why, nullptr};
    if (phase_ == Phase::joining) {
        end_with(Outcome::not_joined, who + "; not all nodes had joined", now);  // whichever it is
    } else if (plan_.is_net()) {
        end_with(Outcome::node_lost, who + "; without it the pattern is another one, and the run ends here", now);
    } else if ((record.roles & protocol::role_em) != 0) {
        end_with(Outcome::event_manager_lost, who + "; without the event manager the run ends here", now);
    } else if (plan_.ends_with(node)) {
        end_with(Outcome::node_lost,
                 fmt::format("{}; over {} the run ends with any of its nodes", who, plan_.config.transport), now);
    } else if (left(protocol::role_bu) == 0 || left(protocol::role_ru) == 0) {
        end_with(Outcome::node_lost,
                 fmt::format("{}; no {} unit is left", who, left(protocol::role_bu) != 0 ? "readout" : "builder"), now);
    } else if (const std::string few = too_few_without(node); plan_.config.on_loss == OnLoss::stop || !few.empty()) {
        reporter_.notice(Level::warning,
                         fmt::format("{}; the run stops ({})", who, few.empty() ? "run.on_loss = stop" : few));
        outcome_ = Outcome::node_lost;
        reason_ = who;
        stop(now);
    } else {
        audit_.say(now, Level::warning, who + effect_without(record.roles), entry);
        return;
    }
    audit_.say(now, Level::warning, "", entry);
}

void RunControl::taken_out(Time now, std::uint32_t node) {
    if (node >= nodes_.size() || phase_ >= Phase::closing) {
        return;
    }
    NodeRecord& record = nodes_[node];
    record.lost = true;
    record.why_lost = "taken out by command";
    troubles_.taken_out(now, node);
    audit_.say(now, Level::info,
               fmt::format("node {} is out by command{}", node_name(node, record.roles), effect_without(record.roles)),
               {"taken_out", node, "", record.why_lost, nullptr});
}

}  // namespace incast::runtime
