#include "runtime/sinks/flusher.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace incast::sinks {

namespace {

constexpr std::chrono::milliseconds between_tries_of_lines{100};

/// errno is still the same afterwards.
Error os_error(const std::filesystem::path& path, std::string_view what) {
    const int reason = errno;
    Error error{fmt::format("{}: {}: {}", path.string(), what, std::system_category().message(reason))};
    errno = reason;
    return error;
}

}  // namespace

bool lacks_room(int error) {
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

Result<OpenFile> OpenFile::create(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        return os_error(path, errno == EEXIST ? "holds another run" : "cannot make it");
    }
    return OpenFile(descriptor, path);
}

Result<OpenFile> OpenFile::folder(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        return os_error(path, "cannot open the folder");
    }
    return OpenFile(descriptor, path);
}

OpenFile::~OpenFile() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

Error OpenFile::error(std::string_view what) const {
    return os_error(path_, what);
}

Flusher::Flusher(OpenFile folder, OpenFile manifest, const MepFileOptions& options)
    : folder_(std::move(folder)),
      manifest_(std::move(manifest)),
      fsync_(options.fsync),
      fsync_interval_(options.fsync_interval / ps_per_ns),
      waits_(options.on_full == OnFull::wait),
      thread_([this] { run(); }) {}

Flusher::~Flusher() {
    (void)finish();
}

Result<Ok> Flusher::finish() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    work_.notify_one();
    if (thread_.joinable()) {
        thread_.join();
    }
    return late_error_ ? Result<Ok>(*late_error_) : Result<Ok>(Ok{});
}

void Flusher::submit(Commit commit) {
    {
        const std::lock_guard lock(mutex_);
        submitted_ = std::move(commit);
    }
    work_.notify_one();
}

std::optional<Result<Ok>> Flusher::finished() {
    const std::lock_guard lock(mutex_);
    std::optional<Result<Ok>> result = std::exchange(finished_, std::nullopt);
    if (result && late_error_) {
        result.emplace(*late_error_);
    }
    return result;
}

std::string Flusher::shortage() const {
    const std::lock_guard lock(mutex_);
    return shortage_;
}

void Flusher::run() {
    std::unique_lock lock(mutex_);
    const auto woken = [this] { return stop_ || submitted_; };
    for (;;) {
        const bool owed = owes_;
        if (owed) {
            work_.wait_until(lock, synchronise_at_, woken);
        } else {
            work_.wait(lock, woken);
        }
        if (submitted_) {
            const Commit commit = std::move(*submitted_);
            submitted_.reset();
            lock.unlock();
            Result<Ok> result = make_durable(commit);
            lock.lock();
            finished_ = std::move(result);
        }
        if (owed && (stop_ || std::chrono::steady_clock::now() >= synchronise_at_)) {
            lock.unlock();
            const Result<Ok> result = synchronise();
            lock.lock();
            if (!result && !late_error_) {
                late_error_ = result.error();
            }
        }
        if (stop_ && !submitted_ && !owes_) {
            return;
        }
    }
}

Result<Ok> Flusher::write_lines(std::string_view lines) const {
    const off_t before = ::lseek(manifest_.descriptor(), 0, SEEK_END);
    for (std::string_view left = lines; !left.empty();) {
        const ssize_t written = ::write(manifest_.descriptor(), left.data(), left.size());
        if (written < 0 && errno != EINTR) {
            const Error error = manifest_.error("cannot write");
            const int reason = errno;
            [[maybe_unused]] const int cut = before < 0 ? -1 : ::ftruncate(manifest_.descriptor(), before);
            errno = reason;
            return error;  // and none of these lines is there
        }
        left.remove_prefix(written > 0 ? static_cast<std::size_t>(written) : 0);
    }
    return Ok{};
}

Result<Ok> Flusher::write_lines_once_there_is_room(std::string_view lines) {
    for (;;) {
        Result<Ok> written = write_lines(lines);
        const bool again = !written && waits_ && lacks_room(errno);
        std::unique_lock lock(mutex_);
        shortage_ = again ? written.error().message : std::string();
        if (!again || work_.wait_for(lock, between_tries_of_lines, [this] { return stop_; })) {
            return written;
        }
    }
}

Result<Ok> Flusher::make_durable(const Commit& commit) {
    if (fsync_ != Fsync::commit) {
        if (fsync_ == Fsync::interval) {
            if (!owes_) {
                synchronise_at_ = std::chrono::steady_clock::now() + fsync_interval_;
            }
            for (const auto& file : commit.data) {
                if (unsynchronised_.data.empty() || unsynchronised_.data.back() != file) {
                    unsynchronised_.data.push_back(file);
                }
            }
            unsynchronised_.new_files = unsynchronised_.new_files || commit.new_files;
            owes_ = true;
        }
        return write_lines_once_there_is_room(commit.lines);
    }
    for (const auto& file : commit.data) {
        if (::fdatasync(file->descriptor()) != 0) {
            return file->error("cannot make it durable");
        }
    }
    if (commit.new_files && ::fsync(folder_.descriptor()) != 0) {
        return folder_.error("cannot make it durable");
    }
    if (Result<Ok> written = write_lines_once_there_is_room(commit.lines); !written) {
        return written;
    }
    if (::fdatasync(manifest_.descriptor()) != 0) {
        return manifest_.error("cannot make it durable");
    }
    return Ok{};
}

Result<Ok> Flusher::synchronise() {
    const Commit owed = std::exchange(unsynchronised_, {});
    owes_ = false;
    for (const auto& file : owed.data) {
        if (::fdatasync(file->descriptor()) != 0) {
            return file->error("cannot make it durable");
        }
    }
    if (owed.new_files && ::fsync(folder_.descriptor()) != 0) {
        return folder_.error("cannot make it durable");
    }
    if (::fdatasync(manifest_.descriptor()) != 0) {
        return manifest_.error("cannot make it durable");
    }
    return Ok{};
}

}  // namespace incast::sinks
