#include "runtime/plan/inputs.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace incast::runtime {
namespace {

using sources::InputFile;

double share_left_out(const InputFile& file) {
    return file.events == 0 ? 0.0 : static_cast<double>(file.left_out_events) / static_cast<double>(file.events);
}

std::string name_of(const InputFile& file) {
    return file.host.empty() ? file.name : file.host + ": " + file.name;
}

std::string line_of(const Inputs& inputs, const InputFile& file) {
    std::string line = file.mfps == 0
                           ? fmt::format("{} is empty", name_of(file))
                           : fmt::format("{} holds {} events from {} on", name_of(file), file.events, file.first_event);
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

std::vector<std::string> input_warnings(const Plan& plan, const Inputs& inputs, std::uint32_t node,
                                        std::uint32_t nodes) {
    constexpr std::size_t most = 5;
    std::vector<std::string> lines;
    std::size_t uneven = 0;
    for (std::size_t index = 0; index < inputs.files.size(); ++index) {
        const bool asked = static_cast<std::uint32_t>(plan.protocol.sources[index].ru) - node < nodes;
        if (asked && !inputs.files[index].whole() && ++uneven <= most) {
            lines.push_back(line_of(inputs, inputs.files[index]));
        }
    }
    if (uneven > most) {
        lines.push_back(fmt::format("and {} more files do not fit the run; result.json lists all", uneven - most));
    }
    return lines;
}

nlohmann::ordered_json inputs_json(const Inputs& inputs) {
    InputFile sum;
    nlohmann::ordered_json uneven = nlohmann::ordered_json::array();
    std::map<std::string, std::uint64_t> elsewhere;
    for (const InputFile& file : inputs.files) {
        sum.left_out_mfps += file.left_out_mfps;
        sum.left_out_events += file.left_out_events;
        sum.absent_events += file.absent_events;
        if (!file.host.empty()) {
            ++elsewhere[file.host];
        }
        if (!file.whole()) {
            uneven.push_back({{"file", file.name},
                              {"source", file.source},
                              {"mfps", file.mfps},
                              {"events", file.events},
                              {"first_event", file.first_event},
                              {"absent_events", file.absent_events},
                              {"left_out_mfps", file.left_out_mfps},
                              {"left_out_events", file.left_out_events}});
            if (!file.host.empty()) {
                uneven.back()["host"] = file.host;
            }
        }
    }
    nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
    for (const auto& [host, files] : elsewhere) {
        hosts.push_back({{"host", host}, {"files", files}});
    }
    return {{"files", inputs.files.size()},
            {"first_event", inputs.first_event},
            {"events", inputs.events},
            {"absent_events", sum.absent_events},
            {"left_out_mfps", sum.left_out_mfps},
            {"left_out_events", sum.left_out_events},
            {"uneven", std::move(uneven)},
            {"elsewhere", std::move(hosts)}};
}

std::string too_much_left_out(const Inputs& inputs, double most) {
    const auto worst = std::ranges::max_element(inputs.files, {}, share_left_out);
    if (worst == inputs.files.end() || share_left_out(*worst) <= most) {
        return {};
    }
    return fmt::format("{} of the {} events of {} are left out ({:.3g} %)", worst->left_out_events, worst->events,
                       name_of(*worst), 100 * share_left_out(*worst));
}

}  // namespace incast::runtime
