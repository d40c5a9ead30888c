#include "runtime/sinks/flusher.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace incast::sinks {

namespace {

Error os_error(const std::filesystem::path& path, std::string_view what) {
    return Error{fmt::format("{}: {}: {}", path.string(), what, std::system_category().message(errno))};
}

}  // namespace

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

Flusher::Flusher(OpenFile folder, OpenFile manifest)
    : folder_(std::move(folder)), manifest_(std::move(manifest)), thread_([this] { run(); }) {}

Flusher::~Flusher() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    work_.notify_one();
    thread_.join();
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
    return std::exchange(finished_, std::nullopt);
}

void Flusher::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        work_.wait(lock, [this] { return stop_ || submitted_; });
        if (!submitted_) {
            return;
        }
        const Commit commit = std::move(*submitted_);
        submitted_.reset();
        lock.unlock();
        Result<Ok> result = make_durable(commit);
        lock.lock();
        finished_ = std::move(result);
    }
}

Result<Ok> Flusher::make_durable(const Commit& commit) const {
    for (const auto& file : commit.data) {
        if (::fdatasync(file->descriptor()) != 0) {
            return file->error("cannot make it durable");
        }
    }
    if (commit.new_files && ::fsync(folder_.descriptor()) != 0) {
        return folder_.error("cannot make it durable");
    }
    for (std::string_view left = commit.lines; !left.empty();) {
        const ssize_t written = ::write(manifest_.descriptor(), left.data(), left.size());
        if (written < 0 && errno != EINTR) {
            return manifest_.error("cannot write");
        }
        left.remove_prefix(written > 0 ? static_cast<std::size_t>(written) : 0);
    }
    if (::fdatasync(manifest_.descriptor()) != 0) {
        return manifest_.error("cannot make it durable");
    }
    return Ok{};
}

}  // namespace incast::sinks
