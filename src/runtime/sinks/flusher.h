// The thread that makes files durable, so that a node's own thread never waits for a disk. One commit at a time.
// With Fsync::interval or never a commit is over once its lines are written; the first synchronises behind it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <incast/result.h>

#include "runtime/sinks/sink.h"

namespace incast::sinks {

/// An open file, closed with the object.
class OpenFile {
public:
    /// Made anew for appending. Error: it exists, or why it cannot be made.
    static Result<OpenFile> create(const std::filesystem::path& path);
    /// For fsync only.
    static Result<OpenFile> folder(const std::filesystem::path& path);
    OpenFile(OpenFile&& other) noexcept
        : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}
    OpenFile& operator=(OpenFile&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        std::swap(path_, other.path_);
        return *this;
    }
    ~OpenFile();
    [[nodiscard]] int descriptor() const { return descriptor_; }
    /// "<path>: <what>: <errno in words>"
    [[nodiscard]] Error error(std::string_view what) const;

private:
    OpenFile(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}
    int descriptor_;
    std::filesystem::path path_;
};

/// Whether an errno says that the disk, the quota or the file may hold no more, which may change.
bool lacks_room(int error);

/// Made durable in this order (docs/formats.md, rule 1): data, names of new files, lines of the manifest.
struct Commit {
    std::vector<std::shared_ptr<const OpenFile>> data;
    bool new_files = false;
    std::string lines;
};

class Flusher {
public:
    Flusher(OpenFile folder, OpenFile manifest, const MepFileOptions& options);
    /// Ends the commit in progress first, and synchronises what an interval has left.
    ~Flusher();
    Flusher(const Flusher&) = delete;
    Flusher& operator=(const Flusher&) = delete;

    /// Nothing may be in progress.
    void submit(Commit commit);
    /// Once per commit: that it is durable, or why it is not and never will be. Nothing while it is in progress.
    std::optional<Result<Ok>> finished();
    /// Why a commit in progress waits for room on the disk (OnFull::wait); empty: it does not.
    [[nodiscard]] std::string shortage() const;
    /// As the destructor does, and what waits for room is given up; nothing may be submitted any more. The error is of
    /// a synchronisation since.
    Result<Ok> finish();

private:
    void run();
    Result<Ok> make_durable(const Commit& commit);
    /// All or none; errno says why not.
    Result<Ok> write_lines(std::string_view lines) const;
    Result<Ok> write_lines_once_there_is_room(std::string_view lines);
    Result<Ok> synchronise();

    OpenFile folder_;
    OpenFile manifest_;
    Fsync fsync_;
    std::chrono::nanoseconds fsync_interval_;
    bool waits_;
    Commit unsynchronised_;  // interval: without its lines; the thread's own
    bool owes_ = false;      // there is something of the kind; the thread's own
    std::chrono::steady_clock::time_point synchronise_at_;

    mutable std::mutex mutex_;
    std::condition_variable work_;
    std::optional<Commit> submitted_;
    std::optional<Result<Ok>> finished_;
    std::optional<Error> late_error_;  // of a synchronisation behind its commits
    std::string shortage_;
    bool stop_ = false;
    std::thread thread_;  // last: it uses the others
};

}  // namespace incast::sinks
