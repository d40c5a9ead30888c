#include "runtime/report.h"

#include <cstdio>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/units.h"

namespace incast::runtime {

Result<std::unique_ptr<Reporter>> Reporter::open(const std::filesystem::path& directory, Progress progress) {
    std::error_code code;
    std::filesystem::create_directories(directory, code);
    if (code) {
        return Error{
            fmt::format("--output {}: {}; allowed: a folder that can be written", directory.string(), code.message())};
    }
    std::unique_ptr<Reporter> reporter(new Reporter(std::filesystem::absolute(directory), progress));
    reporter->samples_.open(reporter->directory_ / "samples.jsonl", std::ios::trunc);
    if (!reporter->samples_) {
        return Error{fmt::format("--output {}: samples.jsonl cannot be written; allowed: a folder that can be written",
                                 directory.string())};
    }
    Result<RecordFile> audit = RecordFile::create(reporter->directory_ / "audit.jsonl");
    if (!audit) {
        return Error{fmt::format("--output {}: {}; allowed: a folder that can be written", directory.string(),
                                 audit.error().message)};
    }
    reporter->audit_ = std::move(*audit);
    try {
        auto file =
            std::make_shared<spdlog::sinks::basic_file_sink_st>((reporter->directory_ / "log.txt").string(), true);
        file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
        auto console = std::make_shared<spdlog::sinks::stderr_sink_st>();
        // A reader of JSON lines shows the notices itself.
        console->set_level(progress == Progress::json ? spdlog::level::off : spdlog::level::warn);
        console->set_pattern("incast-node: %v");
        reporter->log_ = std::make_shared<spdlog::logger>("incast", spdlog::sinks_init_list{file, console});
        reporter->log_->flush_on(spdlog::level::info);
    } catch (const spdlog::spdlog_ex& error) {
        return Error{
            fmt::format("--output {}: {}; allowed: a folder that can be written", directory.string(), error.what())};
    }
    return reporter;
}

Reporter::Reporter(std::filesystem::path directory, Progress progress)
    : directory_(std::move(directory)), progress_(progress) {}
Reporter::~Reporter() = default;

void Reporter::line(const nlohmann::ordered_json& json) {
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    std::fflush(stdout);
}

void Reporter::phase(std::string_view name) {
    log_->info("phase: {}", name);
    event({{"type", "phase"}, {"phase", name}});
    if (progress_ == Progress::text) {
        fmt::print("{}\n", name);
        std::fflush(stdout);
    }
}

void Reporter::notice(Level level, std::string_view text) {
    constexpr std::string_view names[]{"info", "warning", "error"};
    log_->log(level == Level::info      ? spdlog::level::info
              : level == Level::warning ? spdlog::level::warn
                                        : spdlog::level::err,
              "{}", text);
    event({{"type", "notice"}, {"level", names[static_cast<std::size_t>(level)]}, {"text", text}});
    if (progress_ == Progress::text && level == Level::info) {
        fmt::print("{}\n", text);
        std::fflush(stdout);
    }
}

void Reporter::event(const nlohmann::ordered_json& event) {
    if (progress_ == Progress::json) {
        line(event);
    }
}

void Reporter::interval(const nlohmann::ordered_json& sample) {
    event(sample);
    if (progress_ == Progress::text) {
        fmt::print("  {:7.1f} s  {:>12}/s  {:12.0f} events/s\n", sample.value("t", 0.0),
                   base::format_bytes(sample.value("goodput_bytes_per_s", 0.0)), sample.value("events_per_s", 0.0));
        std::fflush(stdout);
    }
}

void Reporter::node_sample(const nlohmann::ordered_json& sample) {
    samples_ << sample.dump() << '\n' << std::flush;
}

void Reporter::audit(const nlohmann::ordered_json& entry) {
    audit_->append(entry.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
}

void Reporter::result(const std::filesystem::path& file, std::string_view summary) {
    log_->info("{}", summary);
    log_->info("result: {}", file.string());
    event({{"type", "result"}, {"path", file.string()}});
    if (progress_ == Progress::text) {
        fmt::print("{}\nresult: {}\n", summary, file.string());
        std::fflush(stdout);
    }
}

}  // namespace incast::runtime
