// The simulated network as a transport of the built-in list.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "sim/message_trace.h"
#include "sim/world.h"
#include "transport/medium.h"

namespace incast::sim {

/// One world, shared by all endpoints that the medium makes. Single-threaded, and it must outlive the endpoints' use.
/// The driver binds its nodes to world() as actors and calls world().advance(); without actors, poll(now) moves the
/// clock.
class SimMedium final : public transport::Medium {
public:
    explicit SimMedium(std::unique_ptr<Model> model, Time poll_interval = 0) : world_(std::move(model)) {
        world_.poll_every(poll_interval);
    }
    Result<std::unique_ptr<Transport>> endpoint(const transport::EndpointOptions& options) override;
    [[nodiscard]] World& world() { return world_; }
    /// Of what is posted and arrives, a trace is asked for, with so many lines. An empty path: none is.
    void ask_for_trace(std::filesystem::path file, std::uint64_t most_lines) {
        trace_file_ = std::move(file);
        trace_lines_ = most_lines;
    }
    [[nodiscard]] const std::filesystem::path& trace_file() const { return trace_file_; }
    /// Writes it, from the first endpoint on, until end_trace().
    void begin_trace(MessageTrace::Writer writer);
    void end_trace();

private:
    World world_;
    std::filesystem::path trace_file_;
    std::uint64_t trace_lines_ = 0;
    std::unique_ptr<MessageTrace> trace_;
};

/// rate, latency: the ideal model's; fabric, sample_interval: the packet model's, instead of these; poll_interval and
/// trace: of the world.
inline constexpr std::string_view transport_name = "sim";
std::span<const base::Setting> settings();
/// A SimMedium on the ideal model, or on the packet model if a fabric is given. An unknown parameter or a bad value is
/// an error of one line.
Result<std::unique_ptr<transport::Medium>> make_sim_medium(const transport::Settings& given);

}  // namespace incast::sim
