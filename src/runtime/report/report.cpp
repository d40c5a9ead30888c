#include "runtime/report/report.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "base/units.h"
#include "base/utf8.h"
#include "runtime/record/result_directory.h"

namespace incast::runtime {
namespace {

constexpr std::string_view level_names[]{"info", "warning", "error"};

std::string_view view_of(const spdlog::memory_buf_t& text) {
    return {text.data(), text.size()};
}

}  // namespace

class Reporter::LogSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
    explicit LogSink(RecordFile& file) : file_(file) {}

private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        file_.append(view_of(line));
    }
    void flush_() override {}
    RecordFile& file_;
};

class Reporter::ConsoleSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
    explicit ConsoleSink(Display& display) : display_(display) {}

private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        const std::string_view text = view_of(line);
        display_.line(text.substr(0, text.find_last_not_of('\n') + 1));
    }
    void flush_() override {}
    Display& display_;
};

Result<std::unique_ptr<Reporter>> Reporter::open(const std::filesystem::path& directory, Progress progress,
                                                 bool replace) {
    std::error_code code;
    if (const std::string path = std::filesystem::absolute(directory, code).string(); !base::is_utf8(path)) {
        return Error{fmt::format("--output {}: its path '{}' is not UTF-8; allowed: a path in UTF-8",
                                 directory.string(), base::shown(path))};
    }
    Result<RecordFile> log = take_directory(directory, replace);
    if (!log) {
        return log.error();
    }
    const std::filesystem::path whole = std::filesystem::absolute(directory);
    Result<RecordFile> samples = RecordFile::create(whole / "samples.jsonl");
    Result<RecordFile> audit = RecordFile::create(whole / "audit.jsonl");
    for (const Result<RecordFile>* file : {&samples, &audit}) {
        if (!*file) {
            return Error{fmt::format("--output {}: {}; allowed: a folder that can be written", directory.string(),
                                     file->error().message)};
        }
    }
    return std::unique_ptr<Reporter>(
        new Reporter(whole, progress, std::move(*log), std::move(*samples), std::move(*audit)));
}

Reporter::Reporter(std::filesystem::path directory, Progress progress, RecordFile log, RecordFile samples,
                   RecordFile audit)
    : directory_(std::move(directory)),
      progress_(progress),
      output_(STDOUT_FILENO),
      console_(STDERR_FILENO),
      log_file_{std::move(log), "lines of the log"},
      samples_{std::move(samples), "samples"},
      audit_{std::move(audit), "entries"},
      disks_{DiskWatch(directory_)} {
    auto file = std::make_shared<LogSink>(log_file_.file);
    file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    auto console = std::make_shared<ConsoleSink>(console_);
    // A reader of JSON lines shows the notices itself.
    console->set_level(progress == Progress::json ? spdlog::level::off : spdlog::level::warn);
    console->set_pattern("incast-node: %v");
    log_ = std::make_shared<spdlog::logger>("incast", spdlog::sinks_init_list{file, console});
}

Reporter::~Reporter() = default;

void Reporter::line(const nlohmann::ordered_json& json, Display::Worth worth) {
    output_.line(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), worth);
}

void Reporter::phase(std::string_view name, std::optional<Time> length) {
    log_->info("phase: {}", name);
    nlohmann::ordered_json phase{{"type", "phase"}, {"phase", name}, {"seconds", nullptr}};
    if (length) {
        phase["seconds"] = base::seconds(*length);
    }
    event(phase);
    if (progress_ == Progress::text) {
        output_.line(name);
    }
    tell_of(log_file_);
}

void Reporter::plan(const std::vector<std::pair<std::string, std::string>>& rows) {
    nlohmann::ordered_json shown = nlohmann::ordered_json::array();
    for (const auto& [label, text] : rows) {
        log_->info("{}: {}", label, text);
        shown.push_back({label, text});
        if (progress_ == Progress::text) {
            output_.line(fmt::format("{:<10}{}", label, text));
        }
    }
    event({{"type", "plan"}, {"rows", std::move(shown)}});
}

void Reporter::notice(Level level, std::string_view text) {
    log_->log(level == Level::info      ? spdlog::level::info
              : level == Level::warning ? spdlog::level::warn
                                        : spdlog::level::err,
              "{}", text);
    event({{"type", "notice"}, {"level", level_names[static_cast<std::size_t>(level)]}, {"text", text}});
    if (progress_ == Progress::text && level == Level::info) {
        output_.line(text);
    }
    tell_of(log_file_);
}

void Reporter::event(const nlohmann::ordered_json& event) {
    if (progress_ == Progress::json) {
        line(event);
    }
}

void Reporter::interval(const nlohmann::ordered_json& sample) {
    if (progress_ == Progress::json) {
        line(sample, Display::Worth::while_read);
    } else if (progress_ == Progress::text) {
        output_.line(fmt::format("  {:7.1f} s  {:>12}/s  {:12.0f} events/s", sample.value("t", 0.0),
                                 base::format_bytes(sample.value("goodput_bytes_per_s", 0.0)),
                                 sample.value("events_per_s", 0.0)),
                     Display::Worth::while_read);
    }
}

void Reporter::node_sample(const nlohmann::ordered_json& sample) {
    samples_.file.append(sample.dump() + '\n');
    tell_of(samples_);
}

void Reporter::audit(const nlohmann::ordered_json& entry) {
    audit_.file.append(entry.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
    tell_of(audit_);
}

Result<Ok> Reporter::begin_trace(const std::filesystem::path& file) {
    Result<RecordFile> made = RecordFile::create(file);
    if (!made) {
        return made.error();
    }
    trace_.emplace(Stream{std::move(*made), "lines of the trace"});
    return Ok{};
}

void Reporter::trace(std::string_view text, std::uint64_t lines) {
    if (!trace_) return;
    trace_->file.append(text, lines);
    tell_of(*trace_);
}

void Reporter::result(const std::filesystem::path& file, std::string_view summary) {
    log_->info("{}", summary);
    log_->info("result: {}", file.string());
    event({{"type", "result"}, {"path", file.string()}});
    if (progress_ == Progress::text) {
        output_.line(fmt::format("{}\nresult: {}", summary, file.string()));
    }
    tell_of(log_file_);
}

/// Once that it cannot be written, and once that it can again: a disk that is full now and then is not said each time.
void Reporter::tell_of(Stream& stream) {
    const RecordFile& file = stream.file;
    if (!file.well() && !stream.told_trouble) {
        stream.told_trouble = true;
        notice(Level::warning,
               fmt::format("'{}' cannot be written: {}; the run goes on, {} are missing until there is room",
                           file.path().string(), file.reason(), stream.lost_words));
    } else if (file.well() && stream.told_trouble && !stream.told_recovery) {
        stream.told_recovery = true;
        notice(Level::info, fmt::format("'{}' is written again; {} {} are missing", file.path().string(),
                                        file.missing(), stream.lost_words));
    }
}

bool Reporter::write_file(std::string_view name, std::string_view content) {
    const Result<Ok> written = write_whole(directory_ / name, content);
    if (!written) {
        notice(Level::warning, written.error().message + "; the run goes on without it");
        const std::string& message = written.error().message;
        is_incomplete(name, {}, message.substr(message.rfind(": ") + 2));
    }
    return written.ok();
}

void Reporter::is_incomplete(std::string_view name, std::optional<std::uint64_t> missing, std::string_view reason) {
    std::erase_if(incomplete_, [name](const Incomplete& known) { return known.file == name; });
    incomplete_.push_back({std::string(name), missing, std::string(reason)});
}

void Reporter::look_at_disks(Time now, std::optional<Time> left) {
    for (DiskWatch& disk : disks_) {
        if (const std::optional<std::string> warning = disk.look(now, left)) {
            notice(Level::warning, *warning);
        }
    }
}

nlohmann::ordered_json Reporter::incomplete_files() const {
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const Stream* stream : {&samples_, &audit_, &log_file_, trace_ ? &*trace_ : nullptr}) {
        if (stream != nullptr && stream->file.missing() > 0) {
            files.push_back({{"file", stream->file.path().filename().string()},
                             {"missing", stream->file.missing()},
                             {"reason", stream->file.reason()}});
        }
    }
    for (const Incomplete& file : incomplete_) {
        files.push_back({{"file", file.file},
                         {"missing", file.missing ? nlohmann::ordered_json(*file.missing) : nlohmann::ordered_json()},
                         {"reason", file.reason}});
    }
    return files;
}

}  // namespace incast::runtime
