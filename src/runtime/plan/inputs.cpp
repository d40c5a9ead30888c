#include "runtime/plan/inputs.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace incast::runtime {
namespace {

using sources::InputFile;

double share_left_out(const InputFile& file) {
    return file.events == 0 ? 0.0 : static_cast<double>(file.left_out_events) / static_cast<double>(file.events);
}

std::string line_of(const Plan& plan, const InputFile& file) {
    const Inputs& inputs = plan.inputs;
    std::string line = file.mfps == 0
                           ? fmt::format("{} is empty", file.name)
                           : fmt::format("{} holds {} events from {} on", file.name, file.events, file.first_event);
    line += fmt::format(", the run has {} from {} on", inputs.events, inputs.first_event);
    if (file.absent_events > 0) {
        line += fmt::format("; {} are without it, flagged desync", file.absent_events);
    }
    if (file.left_out_mfps > 0) {
        line += fmt::format("; {} of its events in {} MFP{} are left out (first: event {} at byte {})",
                            file.left_out_events, file.left_out_mfps, file.left_out_mfps == 1 ? "" : "s",
                            file.left_out_id, file.left_out_at);
    }
    return line;
}

}  // namespace

std::vector<std::string> input_warnings(const Plan& plan) {
    constexpr std::size_t most = 5;
    std::vector<std::string> lines;
    std::size_t uneven = 0;
    for (const InputFile& file : plan.inputs.files) {
        if (!file.whole() && ++uneven <= most) {
            lines.push_back(line_of(plan, file));
        }
    }
    if (uneven > most) {
        lines.push_back(fmt::format("and {} more files do not fit the run; result.json lists all", uneven - most));
    }
    return lines;
}

nlohmann::ordered_json inputs_json(const Plan& plan) {
    InputFile sum;
    nlohmann::ordered_json uneven = nlohmann::ordered_json::array();
    for (const InputFile& file : plan.inputs.files) {
        sum.left_out_mfps += file.left_out_mfps;
        sum.left_out_events += file.left_out_events;
        sum.absent_events += file.absent_events;
        if (!file.whole()) {
            uneven.push_back({{"file", file.name},
                              {"source", file.source},
                              {"mfps", file.mfps},
                              {"events", file.events},
                              {"first_event", file.first_event},
                              {"absent_events", file.absent_events},
                              {"left_out_mfps", file.left_out_mfps},
                              {"left_out_events", file.left_out_events}});
        }
    }
    return {{"files", plan.inputs.files.size()},  {"first_event", plan.inputs.first_event},
            {"events", plan.inputs.events},       {"absent_events", sum.absent_events},
            {"left_out_mfps", sum.left_out_mfps}, {"left_out_events", sum.left_out_events},
            {"uneven", std::move(uneven)}};
}

std::string too_much_left_out(const Plan& plan) {
    const auto worst = std::ranges::max_element(plan.inputs.files, {}, share_left_out);
    if (worst == plan.inputs.files.end() || share_left_out(*worst) <= plan.config.fail_above_incomplete) {
        return {};
    }
    return fmt::format("{} of the {} events of {} are left out ({:.3g} %)", worst->left_out_events, worst->events,
                       worst->name, 100 * share_left_out(*worst));
}

}  // namespace incast::runtime
