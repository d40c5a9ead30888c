#include "sim/sim_medium.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <string>

#include "sim/models/ideal.h"
#include "sim/models/packet.h"
#include "transport/settings.h"

namespace incast::sim {
namespace {

using base::Kind;
using transport::Values;

constexpr double one_second = ps_per_s;

constexpr std::array setting_list{
    base::number(Kind::rate, "rate", "100Gb/s", 1e3, 1e14, "of each endpoint's link out and link in"),
    base::number(Kind::duration, "latency", "1us", 0, 10 * one_second,
                 "of the network between the links; an unhindered transfer takes this and its bytes divided by the "
                 "rate"),
    base::text("fabric", "", "network of the packet model (docs/fabrics.md); rate and latency are then the file's",
               "a file, or empty"),
    base::number(Kind::duration, "poll_interval", "0s", 0, one_second,
                 "nodes look at what has arrived, and at the time, at whole multiples of it; 0: at once"),
    base::number(Kind::duration, "sample_interval", "10us", 0, one_second,
                 "packet model: of the time series of queues and links, which grows when the series is full; 0: none"),
    base::text("trace", "", "every message, write and read as a line (docs/simulation.md)", "a file, or empty"),
    base::number(Kind::count, "trace_lines", "1000000", 1, 1'000'000'000, "then the trace ends"),
};

Result<std::unique_ptr<Model>> make_model(const Values& values) {
    if (const std::string& file = values.text("fabric"); !file.empty()) {
        const Result<fabric::Fabric> read = fabric::read(std::filesystem::path(file));
        if (!read) return Error{"transport.sim.fabric = " + read.error().message};
        Result<std::unique_ptr<PacketModel>> model = PacketModel::make(*read);
        if (!model) return Error{"transport.sim.fabric = " + file + ": " + model.error().message};
        const Time interval = values.time("sample_interval");
        if (interval != 0) (*model)->record({.interval = interval, .seed = read->settings.seed});
        return std::unique_ptr<Model>(std::move(*model));
    }
    return std::unique_ptr<Model>(std::make_unique<IdealModel>(
        IdealSettings{.rate_bytes_per_s = static_cast<std::uint64_t>(std::llround(values.number("rate"))),
                      .latency = values.time("latency")}));
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

std::span<const base::Setting> settings() {
    return setting_list;
}

Result<std::unique_ptr<transport::Medium>> make_sim_medium(const transport::Settings& given) {
    const Result<Values> values = Values::read(transport_name, setting_list, given);
    if (!values) return values.error();
    Result<std::unique_ptr<Model>> model = make_model(*values);
    if (!model) return model.error();
    auto medium = std::make_unique<SimMedium>(std::move(*model), values->time("poll_interval"));
    medium->ask_for_trace(std::filesystem::path(values->text("trace")), values->whole("trace_lines"));
    return std::unique_ptr<transport::Medium>(std::move(medium));
}

}  // namespace incast::sim
