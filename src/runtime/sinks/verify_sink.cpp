#include "runtime/sinks/verify_sink.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "wire/mfp.h"

namespace incast::sinks {

namespace {

constexpr std::size_t most_error_lines = 8;

}  // namespace

SeenMeps::SeenMeps(std::uint64_t window) : seen_(std::bit_ceil(window)) {}

bool SeenMeps::insert(protocol::MepId mep) {
    const std::uint64_t window = seen_.size();
    if (mep + window < end_) {
        return false;
    }
    for (; end_ <= mep; ++end_) {
        if (mep - end_ >= window) {
            end_ = mep - window;  // a jump: everything in between would be cleared over and over
            continue;
        }
        seen_[end_ & (window - 1)] = false;
    }
    const bool is_new = !seen_[mep & (window - 1)];
    seen_[mep & (window - 1)] = true;
    return is_new;
}

// A MEP that is more than the retention behind another was released by every RU, so it was committed before.
VerifySink::VerifySink(const SinkOptions& options, const protocol::Config& config,
                       std::unique_ptr<Expectation> expectation)
    : MeteredSink(options),
      verify_(options.verify),
      sample_every_(std::max(options.sample_every, 1U)),
      phantom_bodies_(options.phantom_bodies),
      drops_allowed_(options.policy == sources::Policy::drop),
      sources_(config.sources),
      expectation_(std::move(expectation)),
      seen_(4 * std::uint64_t{config.retention_meps} + 64) {}

protocol::Sink::Taken VerifySink::take(Time now, const protocol::BuiltMep& mep) {
    {
        const Work work(*this);
        check(mep);
    }
    count(mep);
    count_latency(now, begin_of(mep));
    return Taken::done;
}

void VerifySink::report(std::string line) {
    ++stats_.verify_errors;
    if (stats_.first_errors.size() < most_error_lines) {
        stats_.first_errors.push_back(std::move(line));
    }
}

void VerifySink::check(const protocol::BuiltMep& mep) {
    if (!seen_.insert(mep.mep) && !mep.redelivered) {
        report(fmt::format("MEP {}: delivered again, not marked as redelivered", mep.mep));
    }
    if (mep.sources.size() != sources_.size()) {
        report(fmt::format("MEP {}: {} sources, expected {}", mep.mep, mep.sources.size(), sources_.size()));
        return;
    }
    const bool lines = !phantom_bodies_ &&
                       (verify_ == Verify::full || (verify_ == Verify::sampled && stats_.meps % sample_every_ == 0));
    std::uint32_t missing = 0;
    std::uint32_t flagged = 0;
    std::uint64_t goodput = 0;
    for (std::uint32_t source = 0; source < sources_.size(); ++source) {
        const protocol::BuiltSource& built = mep.sources[source];
        missing += wire::is_missing(built.flag) ? 1 : 0;
        flagged += wire::is_defect(built.flag) ? 1 : 0;
        goodput += built.head != nullptr ? built.head->goodput_bytes : 0;
        check_source(mep, source, lines);
    }
    if (missing != mep.missing_sources || flagged != mep.flagged_sources || goodput != mep.goodput_bytes) {
        report(fmt::format(
            "MEP {}: claims {} missing and {} flagged sources and {} goodput bytes, its parts have {}, "
            "{} and {}",
            mep.mep, mep.missing_sources, mep.flagged_sources, mep.goodput_bytes, missing, flagged, goodput));
    }
    stats_.lines_checked_meps += lines ? 1 : 0;
}

/// That an RU dropped its fragments is its own to say; that nothing but an empty MFP comes then is checked.
std::string VerifySink::check_dropped(const protocol::BuiltSource& built, std::uint16_t id) const {
    const wire::Head& head = *built.head;
    if (head.goodput_bytes != 0 || head.body_bytes != wire::phantom_bytes(head.n_events)) {
        return fmt::format("flagged dropped, yet {} bytes with {} of fragments", head.body_bytes, head.goodput_bytes);
    }
    if (phantom_bodies_) {
        return {};
    }
    const Result<wire::MfpView> parsed = wire::MfpView::parse(built.body);
    if (!parsed) {
        return parsed.error().message;
    }
    const wire::MfpHeader& header = parsed->header();
    if (!parsed->phantom() || parsed->flag() != wire::SourceFlag::dropped || header.source != id ||
        header.first_event != head.first_event || header.n_fragments != head.n_events) {
        return "flagged dropped, yet its MFP is not the empty one that says so";
    }
    return {};
}

void VerifySink::check_source(const protocol::BuiltMep& mep, std::uint32_t source, bool lines) {
    const protocol::BuiltSource& built = mep.sources[source];
    const protocol::SourceSpec& spec = sources_[source];
    std::string wrong;
    if (wire::is_missing(built.flag)) {
        if (built.head == nullptr && built.body.empty()) {
            return;
        }
        wrong = "flagged missing, yet there is data";
    } else if (built.head == nullptr) {
        wrong = "neither there nor flagged missing";
    } else {
        const wire::Head& head = *built.head;
        ++stats_.structure_checked_mfps;
        if (head.mep != mep.mep || head.source != source) {
            wrong = fmt::format("is source index {} of MEP {}", head.source, head.mep);
        } else if (head.first_event != mep.first_event || head.n_events != mep.n_events) {
            wrong = fmt::format("events {} + {}, but the MEP has {} + {}", head.first_event, head.n_events,
                                mep.first_event, mep.n_events);
        } else if (!phantom_bodies_ && built.body.size() != head.body_bytes) {
            wrong = fmt::format("body of {} bytes, its head says {}", built.body.size(), head.body_bytes);
        } else if (built.flag == wire::SourceFlag::dropped && drops_allowed_) {
            wrong = check_dropped(built, spec.id);
        } else if (built.flag != wire::SourceFlag::bad_checksum) {  // of which it is said that its bytes are not right
            wrong = expectation_->check(mep.mep, source, built, lines);
        }
    }
    if (!wrong.empty()) {
        report(fmt::format("MEP {} source {} (node {}): {}", mep.mep, spec.id, static_cast<std::uint32_t>(spec.ru),
                           wrong));
    }
}

}  // namespace incast::sinks
