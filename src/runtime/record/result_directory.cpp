#include "runtime/record/result_directory.h"

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace incast::runtime {
namespace {

constexpr const char* log_name = "log.txt";

/// Everything that the engine and the command line write there on behalf of a run, the most telling first.
constexpr std::string_view files_of_a_run[]{
    "result.json",        "samples.jsonl",      "audit.jsonl",    "ledger.bin",        "config.toml",
    "machine.jsonl",      "dips.json",          "diagnosis.json", "network_ports.csv", "metrics.json",
    "network_queues.csv", "network_series.csv", "flows.csv",      "flows.parquet",     "config.toml.part",
    "result.json.part",   "metrics.json.part"};

Error unusable(const std::filesystem::path& directory, std::string_view why) {
    return {fmt::format("--output {}: {}; allowed: a folder that can be written", directory.string(), why)};
}

std::vector<std::string> left_by_a_run(const std::filesystem::path& directory) {
    std::vector<std::string> found;
    std::error_code code;
    for (const std::string_view name : files_of_a_run) {
        if (std::filesystem::exists(std::filesystem::symlink_status(directory / name, code))) {
            found.emplace_back(name);
        }
    }
    return found;
}

}  // namespace

Result<RecordFile> take_directory(const std::filesystem::path& directory, bool replace) {
    std::error_code code;
    std::filesystem::create_directories(directory, code);
    if (code) {
        return unusable(directory, code.message());
    }
    const std::filesystem::path log = directory / log_name;
    while (true) {
        struct stat before{};
        const bool there = ::lstat(log.c_str(), &before) == 0;
        Result<RecordFile> opened = RecordFile::open(log);
        if (!opened) {
            return unusable(directory, opened.error().message);
        }
        // A file system without locks refuses them otherwise; then nothing keeps runs apart.
        if (::flock(opened->fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            return Error{
                fmt::format("--output {}: a run is at work there; allowed: another folder", directory.string())};
        }
        struct stat locked{};
        if (::fstat(opened->fd(), &locked) == 0 && locked.st_nlink == 0) {
            continue;  // it was removed between the two calls
        }
        std::vector<std::string> old = left_by_a_run(directory);
        if (there && locked.st_size > 0) {
            old.emplace_back(log_name);
        }
        if (!old.empty() && !replace) {
            if (!there) {
                ::unlink(log.c_str());
            }
            return Error{
                fmt::format("--output {}: holds {}{} of another run; allowed: another folder, or --force, which "
                            "removes that run's files",
                            directory.string(), old[0], old.size() > 1 ? " and other files" : "")};
        }
        for (const std::string& name : old) {
            if (name != log_name && !std::filesystem::remove(directory / name, code) && code) {
                return unusable(directory, fmt::format("{} cannot be removed: {}", name, code.message()));
            }
        }
        if (Result<Ok> begun = opened->begin_anew(); !begun) {
            return unusable(directory, begun.error().message);
        }
        return opened;
    }
}

}  // namespace incast::runtime
