// What a run tells the world while it goes: progress on standard output, warnings on standard error, everything in
// log.txt, and samples.jsonl. Plain files and lines; what they mean is described in docs/running.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>
#include <spdlog/logger.h>

#include <incast/result.h>

#include "runtime/record_file.h"

namespace incast::runtime {

enum class Progress : std::uint8_t { none, text, json };
enum class Level : std::uint8_t { info, warning, error };

class Reporter {
public:
    /// Makes the folder if it is not there. Error: it cannot be written.
    static Result<std::unique_ptr<Reporter>> open(const std::filesystem::path& directory, Progress progress);
    ~Reporter();
    Reporter(const Reporter&) = delete;
    Reporter& operator=(const Reporter&) = delete;

    void phase(std::string_view name);
    /// One line for a person.
    void notice(Level level, std::string_view text);
    /// An interval of the whole run (progress).
    void interval(const nlohmann::ordered_json& sample);
    /// An interval of one node (samples.jsonl).
    void node_sample(const nlohmann::ordered_json& sample);
    /// What went wrong, for a machine (audit.jsonl); see audit.h.
    void audit(const nlohmann::ordered_json& entry);
    /// A line for a machine that is neither of the above, e.g. where to join.
    void event(const nlohmann::ordered_json& event);
    void result(const std::filesystem::path& file, std::string_view summary);

    [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

private:
    Reporter(std::filesystem::path directory, Progress progress);
    void line(const nlohmann::ordered_json& json);
    std::filesystem::path directory_;
    Progress progress_;
    std::ofstream samples_;
    std::optional<RecordFile> audit_;
    std::shared_ptr<spdlog::logger> log_;
};

}  // namespace incast::runtime
