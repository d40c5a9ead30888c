// What a run tells the world while it goes: progress on standard output, warnings on standard error, everything in
// log.txt, and samples.jsonl. Plain files and lines; what they mean is described in docs/running.md. None of these can
// end the run: what cannot be written is said once, is left out whole, and is listed in the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>
#include <spdlog/logger.h>

#include <incast/result.h>
#include <incast/transport.h>

#include "runtime/record/disk_watch.h"
#include "runtime/record/record_file.h"
#include "runtime/report/display.h"

namespace incast::runtime {

enum class Progress : std::uint8_t { none, text, json };
enum class Level : std::uint8_t { info, warning, error };

class Reporter {
public:
    /// Takes the folder, and makes it if it is not there. `replace`: an old run's files are removed. Error: it cannot
    /// be written, or belongs to another run.
    static Result<std::unique_ptr<Reporter>> open(const std::filesystem::path& directory, Progress progress,
                                                  bool replace = false);
    ~Reporter();
    Reporter(const Reporter&) = delete;
    Reporter& operator=(const Reporter&) = delete;

    /// `length`: how long it is to last, where that is known.
    void phase(std::string_view name, std::optional<Time> length = {});
    /// What the run is about to do: a label and a text in each row.
    void plan(const std::vector<std::pair<std::string, std::string>>& rows);
    /// One line for a person.
    void notice(Level level, std::string_view text);
    /// An interval of the whole run (progress).
    void interval(const nlohmann::ordered_json& sample);
    /// An interval of one node (samples.jsonl).
    void node_sample(const nlohmann::ordered_json& sample);
    /// What went wrong, for a machine (audit.jsonl); see audit.h.
    void audit(const nlohmann::ordered_json& entry);
    /// Begins the file of a trace anew. Error: it cannot be made.
    Result<Ok> begin_trace(const std::filesystem::path& file);
    /// So many whole lines of it; nothing if none was begun.
    void trace(std::string_view text, std::uint64_t lines);
    /// A line for a machine that is neither of the above, e.g. where to join.
    void event(const nlohmann::ordered_json& event);
    void result(const std::filesystem::path& file, std::string_view summary);

    /// Whole or not at all. False: it was said why, and the result lists the file.
    bool write_file(std::string_view name, std::string_view content);
    /// The same of a table or a ledger that was written by others.
    void is_incomplete(std::string_view name, std::optional<std::uint64_t> missing, std::string_view reason);
    /// Warns once before a disk is full. `left`: until the end of the run; nothing: not known.
    void look_at_disks(Time now, std::optional<Time> left);
    void watch_disk(const std::filesystem::path& folder) { disks_.emplace_back(folder); }
    /// For result.json: what is not whole, and why.
    [[nodiscard]] nlohmann::ordered_json incomplete_files() const;

    [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

private:
    class LogSink;
    class ConsoleSink;
    /// A file that grows, and what was said of it.
    struct Stream {
        RecordFile file;
        std::string_view lost_words;
        bool told_trouble = false;
        bool told_recovery = false;
    };
    struct Incomplete {
        std::string file;
        std::optional<std::uint64_t> missing;
        std::string reason;
    };

    Reporter(std::filesystem::path directory, Progress progress, RecordFile log, RecordFile samples, RecordFile audit);
    void line(const nlohmann::ordered_json& json, Display::Worth worth = Display::Worth::always);
    void tell_of(Stream& stream);

    std::filesystem::path directory_;
    Progress progress_;
    Display output_;
    Display console_;
    Stream log_file_;
    Stream samples_;
    Stream audit_;
    std::optional<Stream> trace_;
    std::vector<Incomplete> incomplete_;
    std::vector<DiskWatch> disks_;
    std::shared_ptr<spdlog::logger> log_;
};

}  // namespace incast::runtime
