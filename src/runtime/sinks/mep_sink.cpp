#include "runtime/sinks/mep_sink.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <limits.h>
#include <sys/uio.h>

#include "base/crc.h"
#include "wire/mep.h"

namespace incast::sinks {

namespace {

// How often a commit in progress is looked at: well below what a disk takes, well above what looking costs.
constexpr Time poll_interval = 200 * ps_per_us;
constexpr std::size_t most_error_lines = 8;

}  // namespace

Result<std::unique_ptr<MepSink>> MepSink::open(const SinkOptions& options, const protocol::Config& config) {
    if (options.phantom_bodies) {
        return Error{
            "sink mep: this transport moves no payload, so there is nothing to write; verify, touch and null work"};
    }
    std::vector<std::uint16_t> ids;
    std::ranges::transform(config.sources, std::back_inserter(ids), &protocol::SourceSpec::id);
    std::ranges::sort(ids);
    if (const auto twice = std::ranges::adjacent_find(ids); twice != ids.end()) {
        return Error{fmt::format("sink mep: source id {} occurs twice, a MEP needs distinct ones", *twice)};
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
        new MepSink(options, config, std::move(folder).value(), std::move(manifest).value()));
}

MepSink::MepSink(const SinkOptions& options, const protocol::Config& config, OpenFile folder, OpenFile manifest)
    : MeteredSink(options),
      options_(options.files),
      name_(fmt::format("{}-{}", options.node, options.incarnation)),
      by_id_(config.sources.size()),
      phantoms_(config.sources.size()),
      header_(wire::mep_header_bytes(static_cast<std::uint32_t>(config.sources.size()))),
      mfps_(config.sources.size()),
      segments_(wire::mep_max_segments(config.sources.size())),
      flusher_(std::move(folder), std::move(manifest)) {
    std::ranges::transform(config.sources, std::back_inserter(ids_), &protocol::SourceSpec::id);
    std::iota(by_id_.begin(), by_id_.end(), 0U);
    std::ranges::sort(by_id_, {}, [this](std::uint32_t source) { return ids_[source]; });
    filling_.commit.new_files = true;  // the manifest
}

void MepSink::fail(const std::string& why) {
    if (failure_.empty()) {
        failure_ = "sink mep: " + why;
    }
}

protocol::Sink::Taken MepSink::take(Time now, const protocol::BuiltMep& mep) {
    now_ = now;
    commit_if_due(now);
    if (!failure_.empty() || filling_.bytes + flushing_.bytes > options_.most_uncommitted_bytes) {
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
        if (!write(mep)) {
            return Taken::busy;
        }
    }
    if (filling_.meps.empty()) {
        filling_.oldest = now;
    }
    filling_.meps.push_back({mep.mep, begin_of(mep)});
    count(mep);
    commit_if_due(now);
    return Taken::pending;
}

Bytes MepSink::mfp_of(const protocol::BuiltMep& mep, std::uint32_t source, std::string& flags) {
    const protocol::BuiltSource& built = mep.sources[source];
    wire::SourceFlag flag = built.flag;
    if (!wire::is_missing(flag)) {
        const Result<wire::MfpView> mfp = wire::MfpView::parse(built.body);
        const auto note = [&](const std::string& why) {
            ++stats_.verify_errors;
            if (stats_.first_errors.size() < most_error_lines) {
                stats_.first_errors.push_back(fmt::format("MEP {} source {}: {}", mep.mep, ids_[source], why));
            }
        };
        if (!mfp) {
            note(mfp.error().message);
            flag = wire::SourceFlag::bad_checksum;
        } else if (mfp->header().source != ids_[source] || mfp->header().first_event != mep.first_event ||
                   mfp->size() != mep.n_events) {
            note(fmt::format("holds events {} + {} of source {}, expected {} + {}", mfp->header().first_event,
                             mfp->size(), mfp->header().source, mep.first_event, mep.n_events));
            flag = wire::SourceFlag::desync;
        } else {
            // A manifest says what its bytes say.
            if (const wire::SourceFlag said = mfp->flag(); said >= wire::SourceFlag::missing_dead) {
                flags +=
                    fmt::format("{}\"{}\": \"{}\"", flags.empty() ? "" : ", ", ids_[source], wire::to_string(said));
            }
            return mfp->bytes();
        }
    }
    std::vector<std::byte>& phantom = phantoms_[source];
    phantom.resize(wire::phantom_bytes(mep.n_events));
    if (!wire::write_phantom(phantom, mep.first_event, mep.n_events, ids_[source], flag)) {
        fail(fmt::format("MEP {} source {}: no phantom of {} events", mep.mep, ids_[source], mep.n_events));
    }
    flags += fmt::format("{}\"{}\": \"{}\"", flags.empty() ? "" : ", ", ids_[source], wire::to_string(flag));
    return phantom;
}

bool MepSink::write(const protocol::BuiltMep& mep) {
    std::string flags;
    for (std::size_t index = 0; index < by_id_.size(); ++index) {
        mfps_[index] = mfp_of(mep, by_id_[index], flags);
    }
    const Result<wire::GatheredMep> gathered = wire::gather_mep(mfps_, header_, segments_);
    if (!gathered) {
        fail(fmt::format("MEP {}: {}", mep.mep, gathered.error().message));
        return false;
    }
    if ((file_ == nullptr || file_bytes_ >= options_.roll_bytes) && !begin_file()) {
        return false;
    }
    const std::span<const Bytes> segments(segments_.data(), gathered->n_segments);
    std::uint32_t checksum = 0;
    for (const Bytes segment : segments) {
        checksum = base::crc32c(segment, checksum);
    }
    if (!write_all(segments)) {
        return false;
    }
    fmt::format_to(std::back_inserter(filling_.commit.lines),
                   "{{\"file\": \"{}\", \"offset\": {}, \"bytes\": {}, \"mep\": {}, \"attempt\": {}, \"redelivered\": "
                   "{}, \"first_event\": {}, "
                   "\"n_events\": {}, \"n_mfps\": {}, \"flags\": {{{}}}, \"crc32c\": \"{:08x}\"}}\n",
                   file_name_, file_bytes_, gathered->packet_bytes, mep.mep, mep.attempt, mep.redelivered,
                   mep.first_event, mep.n_events, mfps_.size(), flags, checksum);
    if (filling_.commit.data.empty() || filling_.commit.data.back() != file_) {
        filling_.commit.data.push_back(file_);
    }
    file_bytes_ += gathered->packet_bytes;
    filling_.bytes += gathered->packet_bytes;
    return true;
}

bool MepSink::write_all(std::span<const Bytes> segments) {
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
            // What was written of this MEP stays behind the manifest; nothing is appended to this file any more.
            fail(file_->error("cannot write").message);
            return false;
        }
        for (done += static_cast<std::size_t>(written); !segments.empty() && done >= segments.front().size();) {
            done -= segments.front().size();
            segments = segments.subspan(1);
        }
    }
    return true;
}

bool MepSink::begin_file() {
    const std::string name = fmt::format("{}-{}.mep", name_, next_file_);
    auto file = OpenFile::create(std::filesystem::path(options_.path) / name);
    if (!file) {
        fail(file.error().message);
        return false;
    }
    ++next_file_;
    file_ = std::make_shared<const OpenFile>(std::move(file).value());
    file_name_ = name;
    file_bytes_ = 0;
    filling_.commit.new_files = true;
    return true;
}

void MepSink::commit_if_due(Time now) {
    if (flush_in_progress_ || !flushing_.meps.empty() || filling_.meps.empty() || !failure_.empty()) {
        return;
    }
    if (filling_.bytes >= options_.commit_bytes || now >= filling_.oldest + options_.commit_interval) {
        flushing_ = std::exchange(filling_, {});
        told_ = 0;
        flush_in_progress_ = true;
        flusher_.submit(std::move(flushing_.commit));
    }
}

std::size_t MepSink::durable(Time now, std::span<protocol::MepId> meps) {
    now_ = now;
    if (flush_in_progress_) {
        if (const auto result = flusher_.finished()) {
            flush_in_progress_ = false;
            if (!*result) {
                fail(result->error().message);
                flushing_ = {};
            }
        }
    }
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

Time MepSink::next_deadline() const {
    if (flush_in_progress_) {
        return now_ + poll_interval;
    }
    if (!flushing_.meps.empty()) {
        return now_;  // more to tell
    }
    return filling_.meps.empty() || !failure_.empty() ? time_never : filling_.oldest + options_.commit_interval;
}

}  // namespace incast::sinks
