#include "farm/once_sink.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <random>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

namespace incast::farm {

namespace {

/// False: errno says why.
bool write_all(int descriptor, std::span<const Bytes> segments) {
    std::array<iovec, 256> parts;
    static_assert(std::tuple_size_v<decltype(parts)> <= IOV_MAX);
    std::size_t done = 0;  // of the first segment
    while (!segments.empty()) {
        const std::size_t n = std::min(segments.size(), parts.size());
        for (std::size_t index = 0; index < n; ++index) {
            const Bytes rest = index == 0 ? segments[0].subspan(done) : segments[index];
            parts[index] = {const_cast<std::byte*>(rest.data()), rest.size()};
        }
        const ssize_t written = ::writev(descriptor, parts.data(), static_cast<int>(n));
        if (written < 0 && errno != EINTR) {
            return false;
        }
        done += written < 0 ? 0 : static_cast<std::size_t>(written);
        for (; !segments.empty() && done >= segments.front().size(); segments = segments.subspan(1)) {
            done -= segments.front().size();
        }
    }
    return true;
}

}  // namespace

Result<std::unique_ptr<OnceSink>> OnceSink::open(const sinks::SinkOptions& options, const protocol::Config& config) {
    auto packer = sinks::MepPacker::make(config, options.missing);
    if (!packer) {
        return Error{"--once: " + packer.error().message};
    }
    std::error_code error;
    std::filesystem::create_directories(options.files.path, error);
    if (error) {
        return Error{fmt::format("--once: {}: cannot make the folder: {}", options.files.path, error.message())};
    }
    auto folder = sinks::OpenFile::folder(options.files.path);
    if (!folder) {
        return Error{"--once: " + folder.error().message};
    }
    return std::unique_ptr<OnceSink>(
        new OnceSink(options, config, std::move(packer).value(), std::move(folder).value()));
}

OnceSink::OnceSink(const sinks::SinkOptions& options, const protocol::Config& config, sinks::MepPacker packer,
                   sinks::OpenFile folder)
    : MeteredSink(options),
      path_(options.files.path),
      run_(config.run),
      own_(fmt::format("{:08x}", std::random_device{}())),
      packer_(std::move(packer)),
      folder_(std::move(folder)) {}

protocol::Sink::Taken OnceSink::take(Time now, const protocol::BuiltMep& mep) {
    if (!failure_.empty()) {
        return Taken::busy;
    }
    if (mep.n_events != 0) {  // else there is nothing that a MEP could say
        const Work work(*this);
        if (const auto committed = commit(mep); !committed) {
            failure_ = "--once: " + committed.error().message;
            return Taken::busy;
        }
    }
    count(mep);
    count_latency(now, begin_of(mep));
    return Taken::done;
}

Result<Ok> OnceSink::commit(const protocol::BuiltMep& mep) {
    const std::string name = fmt::format("{}-{:012}.mep", run_, mep.mep);
    if (::faccessat(folder_.descriptor(), name.c_str(), F_OK, 0) == 0) {
        ++already_meps_;
        return Ok{};
    }
    const auto packed = packer_.pack(mep);
    if (!packed) {
        return packed.error();
    }
    note_wrong(packer_.wrong());
    const std::string hidden = fmt::format(".{}.{}", name, own_);
    auto file = sinks::OpenFile::create(std::filesystem::path(path_) / hidden);
    if (!file) {
        return file.error();
    }
    Result<Ok> result = Ok{};
    if (!write_all(file->descriptor(), packed->segments) || ::fdatasync(file->descriptor()) != 0) {
        result = file->error("cannot write");
    } else if (::linkat(folder_.descriptor(), hidden.c_str(), folder_.descriptor(), name.c_str(), 0) != 0) {
        if (errno == EEXIST) {
            ++already_meps_;
        } else {
            result = file->error("cannot be given the name " + name);
        }
    }
    if (::unlinkat(folder_.descriptor(), hidden.c_str(), 0) != 0 && result) {
        result = file->error("cannot be removed");
    }
    // The name is durable before anybody hears of it, also if another one gave it a moment ago.
    if (::fsync(folder_.descriptor()) != 0 && result) {
        result = folder_.error("cannot synchronise");
    }
    return result;
}

}  // namespace incast::farm
