#include "runtime/results/info.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "runtime/config/json.h"
#include "runtime/machine/machine.h"
#include "runtime/results/results.h"
#include "sim/fabric/fabric.h"
#include "transport/builtin/builtin.h"

namespace incast::runtime {
namespace {

nlohmann::ordered_json info() {
    nlohmann::ordered_json transports = nlohmann::ordered_json::array();
    for (const transport::Descriptor& each : transport::builtin_transports()) {
        const Result<std::unique_ptr<transport::Medium>> medium = transport::make_medium(each, {});
        const std::string missing = !medium                        ? medium.error().message
                                    : each.missing_here != nullptr ? each.missing_here()
                                                                   : std::string();
        nlohmann::ordered_json entry{{"name", each.name},
                                     {"summary", each.summary},
                                     {"available", missing.empty()},
                                     {"traits", traits_json(each.traits)}};
        if (!missing.empty()) {
            entry["reason"] = missing;
        }
        if (!each.untested.empty()) {
            entry["untested_on_hardware"] = each.untested;
        }
        transports.push_back(std::move(entry));
    }
    for (const std::string& name : transport::outside_transports()) {
        const Result<const transport::Descriptor*> found = transport::load_outside(name);
        nlohmann::ordered_json entry{
            {"name", name}, {"summary", found ? (*found)->summary : "from outside"}, {"available", found.ok()}};
        if (found) {
            entry["traits"] = traits_json((*found)->traits);
        } else {
            entry["reason"] = found.error().message;
        }
        transports.push_back(std::move(entry));
    }
    return {{"versions", versions_json()},
            {"transports", std::move(transports)},
            {"machine", machine_json(read_machine())}};
}

}  // namespace

std::string info_json() {
    return info().dump(2) + "\n";
}

std::string info_text() {
    const nlohmann::ordered_json all = info();
    const Machine machine = read_machine();
    std::string text = fmt::format("incast-node {} ({}, {})\n", versions().incast, versions().git, versions().compiler);
    text += fmt::format("machine: {}, {} cores, last-level cache {}, memory {}, {}\n", machine.cpu_model, machine.cores,
                        base::format_bytes(static_cast<double>(machine.last_level_cache_bytes)),
                        base::format_bytes(static_cast<double>(machine.memory_bytes)), machine.kernel);
    for (const nlohmann::ordered_json& transport : all["transports"]) {
        text += fmt::format("transport {:8} {}: {}\n", transport["name"].get<std::string>(),
                            transport["available"].get<bool>() ? "yes" : "no",
                            transport.contains("reason") ? transport["reason"].get<std::string>()
                                                         : transport["summary"].get<std::string>());
        if (transport.contains("untested_on_hardware")) {
            text += fmt::format("{:19}untested on hardware: {}\n", "",
                                transport["untested_on_hardware"].get<std::string>());
        }
    }
    return text;
}

Result<std::string> fabric_json(const std::filesystem::path& file) {
    const Result<sim::fabric::Fabric> fabric = sim::fabric::read(file);
    if (!fabric) {
        return fabric.error();
    }
    if (const Result<Ok> talks = sim::fabric::can_talk(*fabric); !talks) {
        return Error{file.string() + ": " + talks.error().message};
    }
    OrderedJson json{{"name", fabric->name}, {"description", fabric->description}};
    json["hosts"] = OrderedJson::array();
    json["switches"] = OrderedJson::array();
    json["cables"] = OrderedJson::array();
    for (const auto& node : fabric->topology.nodes) {
        if (node.is_host) {
            json["hosts"].push_back(node.name);
        } else {
            constexpr const char* kinds[]{"shared-buffer", "credit", "input-fifo", "deep-buffer"};
            const auto kind = fabric->settings.switches[node.settings].kind;
            json["switches"].push_back({{"name", node.name}, {"kind", kinds[static_cast<std::size_t>(kind)]}});
        }
    }
    for (const auto& cable : fabric->topology.cables) {
        json["cables"].push_back(
            {{"ends", {fabric->topology.nodes[cable.one].name, fabric->topology.nodes[cable.two].name}},
             {"bits_per_s", cable.rate.bits_per_s},
             {"delay_ps", cable.propagation}});
    }
    return json.dump() + "\n";
}

}  // namespace incast::runtime
