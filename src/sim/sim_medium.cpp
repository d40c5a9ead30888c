#include "sim/sim_medium.h"

#include <algorithm>
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
    transport::Parameter{"sample_interval", "10us", "time", "0..1s",
                         "packet model: of the time series of queues and links, which grows when the series is full; "
                         "0: none"},
    transport::Parameter{"trace", "", "", "a file, or empty",
                         "every message, write and read as a line (docs/simulation.md)"},
    transport::Parameter{"trace_lines", "1000000", "", "1..1000000000", "then the trace ends"},
};

Error out_of_range(std::string_view name, std::string_view text, std::string_view range) {
    return Error{std::string(name) + " = '" + std::string(text) + "': expected " + std::string(range)};
}

Result<Time> time_of(const transport::Settings& settings, std::string_view name, Time least, Time most) {
    const std::string_view text = transport::value_of(parameter_list, settings, name);
    const auto time = base::parse_duration(text);
    if (time && *time >= least && *time <= most) return *time;
    const auto* const parameter = std::ranges::find(parameter_list, name, &transport::Parameter::name);
    return out_of_range(name, text, parameter->range);
}

Result<std::unique_ptr<Model>> make_model(const transport::Settings& settings) {
    const Result<Time> interval = time_of(settings, "sample_interval", 0, ps_per_s);
    if (!interval) return interval.error();
    if (const std::string_view file = transport::value_of(parameter_list, settings, "fabric"); !file.empty()) {
        const Result<fabric::Fabric> read = fabric::read(std::filesystem::path(file));
        if (!read) return read.error();
        Result<std::unique_ptr<PacketModel>> model = PacketModel::make(*read);
        if (!model) return model.error();
        if (*interval != 0) (*model)->record({.interval = *interval, .seed = read->settings.seed});
        return std::unique_ptr<Model>(std::move(*model));
    }
    const std::string_view rate_text = transport::value_of(parameter_list, settings, "rate");
    const auto rate = base::parse_bytes_per_s(rate_text);
    if (!rate || !(*rate >= 1e3) || !(*rate <= 1e14)) return out_of_range("rate", rate_text, "1kB/s..100TB/s");
    const Result<Time> latency = time_of(settings, "latency", 0, 10 * ps_per_s);
    if (!latency) return latency.error();
    const IdealSettings ideal{.rate_bytes_per_s = static_cast<std::uint64_t>(std::llround(*rate)), .latency = *latency};
    return std::unique_ptr<Model>(std::make_unique<IdealModel>(ideal));
}

}  // namespace

Result<std::unique_ptr<Transport>> SimMedium::endpoint(const transport::EndpointOptions& options) {
    return world_.endpoint(options);
}

void SimMedium::begin_trace(MessageTrace::Writer writer) {
    trace_ = std::make_unique<MessageTrace>(std::move(writer), trace_lines_);
    trace_->watch(world_);
}

void SimMedium::end_trace() {
    if (trace_ == nullptr) return;
    trace_->flush();
    world_.observe(nullptr);
    trace_.reset();
}

std::span<const transport::Parameter> parameters() {
    return parameter_list;
}

Result<std::unique_ptr<transport::Medium>> make_sim_medium(const transport::Settings& settings) {
    if (auto known = transport::check_names(transport_name, parameter_list, settings); !known) return known.error();
    Result<std::unique_ptr<Model>> model = make_model(settings);
    if (!model) return model.error();
    const Result<std::uint64_t> lines = transport::number_of(parameter_list, settings, "trace_lines", 1, 1'000'000'000);
    if (!lines) return lines.error();
    const Result<Time> poll = time_of(settings, "poll_interval", 0, ps_per_s);
    if (!poll) return poll.error();
    auto medium = std::make_unique<SimMedium>(std::move(*model), *poll);
    medium->ask_for_trace(std::filesystem::path(transport::value_of(parameter_list, settings, "trace")), *lines);
    return std::unique_ptr<transport::Medium>(std::move(medium));
}

}  // namespace incast::sim
