#include "runtime/sinks/mep_sink.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/crc.h"

namespace incast::sinks {

namespace {

// How often a commit in progress is looked at: well below what a disk takes, well above what looking costs.
constexpr Time look_at_commit_interval = 200 * ps_per_us;
// How often a MEP is tried again that found no room.
constexpr Time between_tries = 100 * ps_per_ms;

}  // namespace

Result<std::unique_ptr<MepSink>> MepSink::open(const SinkOptions& options, const protocol::Config& config) {
    if (options.phantom_bodies) {
        return Error{
            "sink mep: this transport moves no payload, so there is nothing to write; verify, touch and null work"};
    }
    Result<MepPacker> packer = MepPacker::make(config, options.missing);
    if (!packer) {
        return Error{"sink mep: " + packer.error().message};
    }
    const std::filesystem::path path = options.files.path;
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) {
        return Error{fmt::format("sink mep: {}: cannot make the folder: {}", path.string(), error.message())};
    }
    auto folder = OpenFile::folder(path);
    if (!folder) {
        return Error{"sink mep: " + folder.error().message};
    }
    auto manifest = OpenFile::create(path / fmt::format("manifest-{}-{}.jsonl", options.node, options.incarnation));
    if (!manifest) {
        return Error{"sink mep: " + manifest.error().message};
    }
    return std::unique_ptr<MepSink>(
        new MepSink(options, std::move(packer).value(), std::move(folder).value(), std::move(manifest).value()));
}

MepSink::MepSink(const SinkOptions& options, MepPacker packer, OpenFile folder, OpenFile manifest)
    : MeteredSink(options),
      options_(options.files),
      missing_(options.missing),
      name_(fmt::format("{}-{}", options.node, options.incarnation)),
      packer_(std::move(packer)),
      flusher_(std::move(folder), std::move(manifest), options.files) {
    filling_.commit.new_files = true;  // the manifest
}

void MepSink::fail(const std::string& why) {
    if (failure_.empty()) {
        failure_ = "sink mep: " + why;
    }
    shortage_.clear();
}

void MepSink::lack(Time now, const std::string& why) {
    if (options_.on_full == OnFull::wait && lacks_room(errno)) {
        shortage_ = why;
        retry_at_ = now + between_tries;
    } else {
        fail(why);
    }
}

std::string MepSink::failure() const {
    const bool settled = flush_failed_ || (filling_.meps.empty() && flushing_.meps.empty());
    return failure_.empty() || !settled ? std::string()
                                        : fmt::format("{}; {} MEPs with {} events are in its files, each of them whole",
                                                      failure_, durable_meps_, durable_events_);
}

std::string MepSink::shortage() const {
    const std::string why = shortage_.empty() ? flusher_.shortage() : shortage_;
    return why.empty() ? why : "sink mep: " + why;
}

protocol::Sink::Taken MepSink::take(Time now, const protocol::BuiltMep& mep) {
    now_ = now;
    commit_if_due(now);
    const bool waits = !shortage_.empty() && now < retry_at_;
    if (!failure_.empty() || waits || filling_.bytes + flushing_.bytes > options_.most_uncommitted_bytes) {
        return Taken::busy;
    }
    if (mep.n_events == 0) {
        // Not one source is left, so not even the number of events is known; a MEP cannot express that. The ledger has
        // it.
        count(mep);
        return Taken::done;
    }
    {
        const Work work(*this);
        if (!write(now, mep)) {
            return Taken::busy;
        }
    }
    shortage_.clear();
    if (filling_.meps.empty()) {
        filling_.oldest = now;
    }
    filling_.meps.push_back({mep.mep, mep.n_events, begin_of(mep)});
    count(mep);
    commit_if_due(now);
    return Taken::pending;
}

bool MepSink::write(Time now, const protocol::BuiltMep& mep) {
    const Result<MepPacker::Packed> packed = packer_.pack(mep);
    if (!packed) {
        fail(packed.error().message);
        return false;
    }
    const bool old = options_.roll_interval != 0 && now >= file_begun_ + options_.roll_interval;
    if ((file_ == nullptr || file_bytes_ >= options_.roll_bytes || old) && !begin_file(now)) {
        return false;
    }
    const std::span<const Bytes> segments = packed->segments;
    std::uint32_t checksum = 0;
    for (const Bytes segment : segments) {
        checksum = base::crc32c(segment, checksum);
    }
    if (!write_all(now, segments)) {
        return false;
    }
    note_wrong(packer_.wrong());
    fmt::format_to(std::back_inserter(filling_.commit.lines),
                   "{{\"file\": \"{}\", \"offset\": {}, \"bytes\": {}, \"mep\": {}, \"attempt\": {}, \"redelivered\": "
                   "{}, \"first_event\": {}, "
                   "\"n_events\": {}, \"n_mfps\": {}, \"flags\": {{{}}}, \"crc32c\": \"{:08x}\"{}{}}}\n",
                   file_name_, file_bytes_, packed->bytes, mep.mep, mep.attempt, mep.redelivered, mep.first_event,
                   mep.n_events, packer_.sources(), packer_.flags(), checksum,
                   packer_.checksums().empty() ? "" : fmt::format(", \"mfp_crc32c\": {{{}}}", packer_.checksums()),
                   missing_ == Missing::lhcb ? ", \"missing\": \"lhcb\"" : "");
    if (filling_.commit.data.empty() || filling_.commit.data.back() != file_) {
        filling_.commit.data.push_back(file_);
    }
    file_bytes_ += packed->bytes;
    filling_.bytes += packed->bytes;
    return true;
}

bool MepSink::write_all(Time now, std::span<const Bytes> segments) {
    std::array<iovec, 256> parts;  // below the IOV_MAX of every system
    static_assert(std::tuple_size_v<decltype(parts)> <= IOV_MAX);
    std::size_t done = 0;  // of the first segment
    while (!segments.empty()) {
        const std::size_t n = std::min(segments.size(), parts.size());
        for (std::size_t index = 0; index < n; ++index) {
            const Bytes rest = index == 0 ? segments[0].subspan(done) : segments[index];
            parts[index] = {const_cast<std::byte*>(rest.data()), rest.size()};
        }
        const ssize_t written = ::writev(file_->descriptor(), parts.data(), static_cast<int>(n));
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            lack(now, file_->error("cannot write").message);
            // A part of this MEP is behind the manifest, and void; but other MEPs could not follow it.
            if (::ftruncate(file_->descriptor(), static_cast<off_t>(file_bytes_)) != 0) {
                fail(file_->error("cannot take back a part of a MEP").message);
            }
            return false;
        }
        for (done += static_cast<std::size_t>(written); !segments.empty() && done >= segments.front().size();) {
            done -= segments.front().size();
            segments = segments.subspan(1);
        }
    }
    return true;
}

bool MepSink::begin_file(Time now) {
    const std::string name = fmt::format("{}-{}.mep", name_, next_file_);
    auto file = OpenFile::create(std::filesystem::path(options_.path) / name);
    if (!file) {
        lack(now, file.error().message);
        return false;
    }
    ++next_file_;
    file_ = std::make_shared<const OpenFile>(std::move(file).value());
    file_name_ = name;
    file_bytes_ = 0;
    file_begun_ = now;
    filling_.commit.new_files = true;
    return true;
}

void MepSink::commit_if_due(Time now) {
    if (flush_in_progress_ || !flushing_.meps.empty() || filling_.meps.empty() || flush_failed_) {
        return;
    }
    // What was taken before it failed is whole.
    if (filling_.bytes >= options_.commit_bytes || now >= filling_.oldest + options_.commit_interval ||
        !failure_.empty()) {
        flushing_ = std::exchange(filling_, {});
        told_ = 0;
        flush_in_progress_ = true;
        flusher_.submit(std::move(flushing_.commit));
    }
}

void MepSink::settle_commit() {
    const auto result = flush_in_progress_ ? flusher_.finished() : std::nullopt;
    if (!result) {
        return;
    }
    flush_in_progress_ = false;
    if (!*result) {
        fail(result->error().message);
        flush_failed_ = true;
        flushing_ = {};
    }
    for (const Pending& pending : flushing_.meps) {
        ++durable_meps_;
        durable_events_ += pending.n_events;
    }
}

std::size_t MepSink::durable(Time now, std::span<protocol::MepId> meps) {
    now_ = now;
    settle_commit();
    std::size_t told = 0;
    if (!flush_in_progress_) {
        for (; told < meps.size() && told_ < flushing_.meps.size(); ++told, ++told_) {
            meps[told] = flushing_.meps[told_].mep;
            count_latency(now, flushing_.meps[told_].begin);
        }
        if (told_ == flushing_.meps.size()) {
            flushing_ = {};
            told_ = 0;
        }
    }
    commit_if_due(now);
    return told;
}

void MepSink::close() {
    const Result<Ok> ended = flusher_.finish();
    if (const std::string why = shortage_.empty() ? flusher_.shortage() : shortage_; !why.empty()) {
        fail(why + ", and the run is over");
    }
    settle_commit();
    if (!ended) {
        fail(ended.error().message);
    }
    filling_ = {};  // behind the manifest, and void
    flushing_ = {};
}

Time MepSink::next_deadline() const {
    if (flush_in_progress_) {
        return now_ + look_at_commit_interval;
    }
    if (!flushing_.meps.empty()) {
        return now_;  // more to tell
    }
    const Time retry = shortage_.empty() ? time_never : retry_at_;
    const bool nothing = filling_.meps.empty() || flush_failed_;
    return std::min(retry, nothing ? time_never : filling_.oldest + options_.commit_interval);
}

}  // namespace incast::sinks
