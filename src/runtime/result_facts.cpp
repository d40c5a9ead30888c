// What a result says of its run beside figures: configuration, machine, versions.
#include <nlohmann/json.hpp>

#include "runtime/config_table.h"
#include "runtime/json.h"
#include "runtime/results.h"

namespace incast::runtime {

nlohmann::ordered_json config_json(const std::map<std::string, std::string>& values) {
    OrderedJson json;
    for (const auto& [key, value] : values) {
        const KeySpec* spec = find_key(key);
        OrderedJson* at = &json;
        std::size_t start = 0;
        for (std::size_t dot = key.find('.'); dot != std::string::npos; start = dot + 1, dot = key.find('.', start)) {
            at = &(*at)[key.substr(start, dot - start)];
        }
        OrderedJson& leaf = (*at)[key.substr(start)];
        if (spec != nullptr && spec->kind == Kind::boolean) {
            leaf = value == "true";
        } else if (spec != nullptr && (spec->kind == Kind::count || spec->kind == Kind::real) && value != "auto") {
            leaf = OrderedJson::parse(value);
        } else {
            leaf = value;
        }
    }
    return json;
}

nlohmann::ordered_json machine_json(const Machine& machine) {
    return {{"host", machine.host},
            {"cpu_model", machine.cpu_model},
            {"cores", machine.cores},
            {"last_level_cache_bytes", machine.last_level_cache_bytes},
            {"memory_bytes", machine.memory_bytes},
            {"kernel", machine.kernel}};
}

nlohmann::ordered_json versions_json() {
    const Versions built = versions();
    return {
        {"incast", built.incast}, {"git", built.git}, {"compiler", built.compiler}, {"build_type", built.build_type}};
}

}  // namespace incast::runtime
