#include "sim/sim_medium.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <string>

#include "base/units.h"
#include "sim/models/ideal.h"
#include "sim/models/packet.h"
#include "transport/settings.h"

namespace incast::sim {
namespace {

constexpr std::array parameter_list{
    transport::Parameter{"rate", "100Gb/s", "bytes per second", "1kB/s..100TB/s",
                         "of each endpoint's link out and link in"},
    transport::Parameter{"latency", "1us", "time", "0..10s",
                         "of the network between the links; an unhindered transfer takes this and its "
                         "bytes divided by the rate"},
    transport::Parameter{"fabric", "", "", "a file, or empty",
                         "network of the packet model (docs/fabrics.md); rate and latency are then the file's"},
    transport::Parameter{"poll_interval", "0s", "time", "0..1s",
                         "nodes look at what has arrived, and at the time, at whole multiples of it; 0: at once"},
};

Error out_of_range(std::string_view name, std::string_view text, std::string_view range) {
    return Error{std::string(name) + " = '" + std::string(text) + "': expected " + std::string(range)};
}

}  // namespace

std::span<const transport::Parameter> parameters() {
    return parameter_list;
}

Result<std::unique_ptr<transport::Medium>> make_sim_medium(const transport::Settings& settings) {
    if (auto known = transport::check_names("sim", parameter_list, settings); !known) return known.error();
    const std::string_view poll_text = transport::value_of(parameter_list, settings, "poll_interval");
    const auto poll = base::parse_duration(poll_text);
    if (!poll || *poll < 0 || *poll > ps_per_s) return out_of_range("poll_interval", poll_text, "0..1s");
    if (const std::string_view file = transport::value_of(parameter_list, settings, "fabric"); !file.empty()) {
        const Result<fabric::Fabric> read = fabric::read(std::filesystem::path(file));
        if (!read) return read.error();
        Result<std::unique_ptr<PacketModel>> model = PacketModel::make(*read);
        if (!model) return model.error();
        return std::unique_ptr<transport::Medium>(std::make_unique<SimMedium>(std::move(*model), *poll));
    }
    const std::string_view rate_text = transport::value_of(parameter_list, settings, "rate");
    const auto rate = base::parse_bytes_per_s(rate_text);
    if (!rate || !(*rate >= 1e3) || !(*rate <= 1e14)) return out_of_range("rate", rate_text, "1kB/s..100TB/s");
    const std::string_view latency_text = transport::value_of(parameter_list, settings, "latency");
    const auto latency = base::parse_duration(latency_text);
    if (!latency || *latency < 0 || *latency > 10 * ps_per_s) return out_of_range("latency", latency_text, "0..10s");
    const IdealSettings ideal{.rate_bytes_per_s = static_cast<std::uint64_t>(std::llround(*rate)), .latency = *latency};
    return std::unique_ptr<transport::Medium>(std::make_unique<SimMedium>(std::make_unique<IdealModel>(ideal), *poll));
}

}  // namespace incast::sim
