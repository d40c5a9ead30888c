#include "runtime/record/record_file.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace incast::runtime {
namespace {

std::filesystem::path unfinished(const std::filesystem::path& file) {
    std::filesystem::path part = file;
    part += ".part";
    return part;
}

/// Zero, or the error.
int write_at(int fd, std::string_view bytes, std::uint64_t offset) {
    while (!bytes.empty()) {
        const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (written <= 0) {
            if (written < 0 && errno == EINTR) continue;
            return written < 0 ? errno : ENOSPC;
        }
        bytes.remove_prefix(static_cast<std::size_t>(written));
        offset += static_cast<std::uint64_t>(written);
    }
    return 0;
}

}  // namespace

std::string reason_of(int error_number) {
    return std::generic_category().message(error_number);
}

Result<RecordFile> RecordFile::create(const std::filesystem::path& file) {
    Result<RecordFile> opened = open(file);
    if (opened) {
        if (const Result<Ok> begun = opened->begin_anew(); !begun) {
            return begun.error();
        }
    }
    return opened;
}

Result<RecordFile> RecordFile::open(const std::filesystem::path& file) {
    os::Descriptor opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (opened.fd() < 0) {
        return Error{fmt::format("'{}' cannot be made: {}", file.string(), reason_of(errno))};
    }
    return RecordFile(std::move(opened), file);
}

Result<Ok> RecordFile::begin_anew() {
    if (::ftruncate(file_.fd(), 0) != 0) {
        return Error{fmt::format("'{}' cannot be emptied: {}", path_.string(), reason_of(errno))};
    }
    bytes_ = 0;
    return Ok{};
}

bool RecordFile::cut_back() {
    return ::ftruncate(file_.fd(), static_cast<off_t>(bytes_)) == 0;
}

bool RecordFile::append(std::string_view text, std::uint64_t records) {
    int error = 0;
    if (torn_ && !cut_back()) {
        error = errno;
    } else {
        torn_ = false;
        error = write_at(file_.fd(), text, bytes_);
    }
    well_ = error == 0;
    if (well_) {
        bytes_ += text.size();
        return true;
    }
    torn_ = !cut_back();
    reason_ = reason_of(error);
    missing_ += records;
    return false;
}

Result<Ok> write_whole(const std::filesystem::path& file, std::string_view content) {
    const std::filesystem::path part = unfinished(file);
    const auto failed = [&file](int error) {
        return Error{fmt::format("'{}' cannot be written: {}", file.string(), reason_of(error))};
    };
    os::Descriptor opened(::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (opened.fd() < 0) {
        return failed(errno);
    }
    int error = write_at(opened.fd(), content, 0);
    if (error == 0 && ::ftruncate(opened.fd(), static_cast<off_t>(content.size())) != 0) {
        error = errno;
    }
    // A file system that writes later says here that it cannot.
    if (error == 0 && ::close(opened.release()) != 0) {
        error = errno;
    }
    if (error == 0 && ::rename(part.c_str(), file.c_str()) != 0) {
        error = errno;
    }
    if (error != 0) {
        ::unlink(part.c_str());
        return failed(error);
    }
    return Ok{};
}

bool reserve_for(const std::filesystem::path& file, std::uint64_t bytes) {
    const std::filesystem::path part = unfinished(file);
    const os::Descriptor opened(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (opened.fd() < 0) {
        return false;
    }
    int error = EINTR;
    while (error == EINTR) {
        error = ::posix_fallocate(opened.fd(), 0, static_cast<off_t>(bytes));
    }
    if (error != 0) {
        ::unlink(part.c_str());
    }
    return error == 0;
}

void give_up_reserve(const std::filesystem::path& file) {
    ::unlink(unfinished(file).c_str());
}

}  // namespace incast::runtime
