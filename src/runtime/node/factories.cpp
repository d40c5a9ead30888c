#include "runtime/node/factories.h"

#include <filesystem>

#include "runtime/filters/filters.h"
#include "runtime/machine/machine.h"
#include "runtime/plan/source_options.h"

namespace incast::runtime {
namespace {

constexpr std::uint32_t verify_every = 64;  // sink.verify = sampled, as its help says

Time sink_cpu_clock() {
    return static_cast<Time>(thread_cpu_ns()) * ps_per_ns;
}

}  // namespace

Result<std::unique_ptr<sources::RuntimeSource>> make_source(const Plan& plan) {
    return sources::make_source(source_options(plan));
}

Result<std::unique_ptr<sinks::RuntimeSink>> make_sink(const Plan& plan, std::uint32_t node, std::uint32_t incarnation,
                                                      bool phantom_bodies) {
    const RunConfig& config = plan.config;
    sinks::SinkOptions options;
    options.kind = config.sink_kind;
    options.verify = config.verify;
    options.sample_every = verify_every;
    options.source = source_options(plan);
    options.missing = config.missing;
    options.files.path = config.sink_path;
    options.files.roll_bytes = config.file_bytes;
    options.files.roll_interval = config.file_time;
    options.files.fsync = config.fsync;
    options.files.fsync_interval = config.fsync_interval;
    options.files.on_full = config.on_full;
    options.command = {config.command, config.buffer_bytes, config.on_failure};
    options.policy = config.policy;
    options.consumer = {config.sink_name,
                        config.delivery,
                        config.consumer_policy,
                        static_cast<std::uint32_t>(config.sink_consumers),
                        static_cast<std::uint32_t>(config.window),
                        config.patience};
    options.node = node;
    options.incarnation = incarnation;
    options.open_loop = config.trigger_rate > 0;
    options.phantom_bodies = phantom_bodies;
    options.cpu_clock = config.sink_kind == SinkKind::null ? nullptr : &sink_cpu_clock;
    return sinks::make_sink(options, plan.protocol);
}

Result<std::unique_ptr<protocol::Filter>> make_filter(const Plan& plan, std::uint32_t node) {
    const RunConfig& config = plan.config;
    using Made = std::unique_ptr<protocol::Filter>;
    if (!protocol::two_stages(config.scheme)) {
        return Made();
    }
    if (config.filter_kind == FilterKind::plugin) {
        return filters::open_plugin(std::filesystem::absolute(config.filter_path), config.filter_argument,
                                    plan.protocol);
    }
    if (config.filter_kind == FilterKind::command) {
        return filters::start_command(config.filter_command, node, plan.protocol);
    }
    return Made(std::make_unique<filters::ShareFilter>(config.filter_accept, config.seed));
}

}  // namespace incast::runtime
