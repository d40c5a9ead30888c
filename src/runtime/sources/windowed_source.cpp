#include "runtime/sources/windowed_source.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/later.h"
#include "base/units.h"
#include "runtime/sources/ring_source.h"
#include "wire/body_checksum.h"

namespace incast::sources {
namespace {

constexpr Time look_often = 200 * ps_per_us;  // for packets, while they come
constexpr Time look_seldom = ps_per_ms;
constexpr Time comes_for = 20 * ps_per_ms;
constexpr Time between_looks = ps_per_s;  // for sources that fell silent or out of step
constexpr std::uint32_t silent_looks = 2;

}  // namespace

Result<Ok> WindowedSource::make_windows(Transport& transport, const protocol::Config& config,
                                        std::uint32_t first_source, std::uint32_t count) {
    open_ = arrival_.window_meps;
    places_ = config.retention_meps + open_;
    std::uint64_t bytes = 0;
    offsets_.clear();
    for (std::uint32_t index = 0; index < count; ++index) {
        offsets_.push_back(bytes);
        bytes += places_ * ring_stride(config.sources[first_source + index].cap_bytes);
    }
    const Result<Local> region = transport.allocate(bytes);
    if (!region) return Error{fmt::format("places of {} bytes: {}", bytes, region.error().message)};
    region_ = *region;
    memory_ = transport.memory(*region);
    std::ranges::fill(memory_, std::byte{0});  // page faults belong here (EB-M6)
    stats_.ring_bytes = bytes;
    for (std::uint32_t index = 0; index < count; ++index) {
        const protocol::SourceSpec& spec = config.sources[first_source + index];
        const std::uint64_t stride = ring_stride(spec.cap_bytes);
        const ingest::WindowOptions window{.source = spec.id,
                                           .packing = arrival_.packing,
                                           .total_events = arrival_.total_events,
                                           .open_meps = static_cast<std::uint32_t>(open_),
                                           .places = static_cast<std::uint32_t>(places_),
                                           .cap_bytes = spec.cap_bytes,
                                           .stride_bytes = stride};
        windows_.emplace_back(window, memory_.subspan(offsets_[index], places_ * stride));
    }
    expected_.assign(count, true);
    told_.resize(count);
    known_since_.resize(open_);
    pieces_.resize(places_ * count);
    checksum_ = config.checksum;
    for (std::uint64_t place = 0; place < places_; ++place) {
        for (std::uint32_t index = 0; index < count; ++index) {
            const std::uint64_t stride = ring_stride(config.sources[first_source + index].cap_bytes);
            pieces_[place * count + index].body = {region_, 0, offsets_[index] + place * stride};
        }
    }
    return Ok{};
}

/// Of a MEP of which nothing was heard; at once if it was so with the one before.
Time WindowedSource::impatient_at() const {
    if (next_ < known_below_) return time_never;
    return is_silent_ ? 0 : base::later(quiet_since_, arrival_.patience);
}

/// All sources of this readout unit are silent, while others are not.
void WindowedSource::give_up(Time, protocol::MepId mep) {
    if (mep != next_) return;
    give_up_below(mep + 1);
    is_silent_ = true;
}

void WindowedSource::give_up_below(std::uint64_t mep) {
    give_up_below_ = std::max(give_up_below_, mep);
}

void WindowedSource::start(Time now, protocol::MepId first, std::uint64_t) {
    quiet_since_ = now;
    next_ = known_below_ = give_up_below_ = first;
    for (ingest::Window& window : windows_) {
        window.start(first);
    }
    next_ready_ = now;
}

void WindowedSource::note_known(Time now, std::uint64_t below) {
    for (; known_below_ < below; ++known_below_) {
        known_since_[known_below_ % open_] = now;
    }
}

void WindowedSource::note_taken(Time now, const ingest::Window& window) {
    last_packet_ = now;
    is_silent_ = is_silent_ && window.known_below() <= next_;
    note_known(now, window.known_below());
}

void WindowedSource::note_refused(std::string why) {
    ++refused_;
    if (refusal_.empty()) refusal_ = std::move(why);
}

/// Of a MEP that nobody has anything of, nothing is waited for, but it is not complete either.
bool WindowedSource::is_complete() const {
    bool all_whole = true;
    for (std::size_t index = 0; index < windows_.size(); ++index) {
        const bool whole = windows_[index].is_complete(next_);
        if (!whole && expected_[index]) return false;
        all_whole = all_whole && whole;
    }
    return all_whole || next_ < known_below_;
}

bool WindowedSource::may_give_up(Time now) const {
    return next_ < give_up_below_ ||
           (next_ < known_below_ && now >= base::later(known_since_[next_ % open_], arrival_.patience));
}

bool WindowedSource::produce(Time now, protocol::MepId mep) {
    if (mep != next_ || (arrival_.total_events != 0 && mep >= total_meps())) {
        next_ready_ = time_never;
        return false;
    }
    if (!is_complete()) {
        drain(now);
        if (!is_complete()) {
            if (!may_give_up(now)) {
                next_ready_ = now + (now - last_packet_ < comes_for ? look_often : look_seldom);
                return false;
            }
            gave_up();
        }
    }
    make(now);
    return true;
}

void WindowedSource::make(Time now) {
    const std::uint64_t first = next_ * arrival_.packing;
    const std::uint64_t left = arrival_.total_events == 0 ? arrival_.packing : arrival_.total_events - first;
    const auto events = static_cast<std::uint32_t>(std::min<std::uint64_t>(arrival_.packing, left));
    for (std::uint32_t index = 0; index < windows_.size(); ++index) {
        protocol::Piece& piece = pieces_[next_ % places_ * windows_.size() + index];
        const ingest::Made made = windows_[index].make(wire::SourceFlag::late);
        piece.first_event = first;
        piece.n_events = events;
        piece.body.length = made.bytes;
        piece.goodput_bytes = made.goodput_bytes;
        piece.flag = made.flag;
        piece.trigger = next_ < known_below_ ? known_since_[next_ % open_] : now;
        if (is_checked(checksum_, next_)) {
            piece.checksum = wire::body_checksum(memory_.subspan(piece.body.offset, made.bytes));
        }
        stats_.goodput_bytes += made.goodput_bytes;
        stats_.truncated_mfps += made.flag == wire::SourceFlag::truncated ? 1 : 0;
        stats_.desync_mfps += made.flag == wire::SourceFlag::desync ? 1 : 0;
    }
    stats_.accepted_events += events;
    stats_.offered_events += events;
    ++stats_.meps;
    ++next_;
    known_below_ = std::max(known_below_, next_);
    quiet_since_ = now;
}

SourceStats WindowedSource::stats(Time) {
    stats_.refused_datagrams = refused_;
    stats_.boards = {};
    for (const ingest::Window& window : windows_) {
        add(stats_.boards, window.counts());
    }
    return stats_;
}

std::vector<ingest::Counts> WindowedSource::counts_of_boards() const {
    std::vector<ingest::Counts> counts;
    counts.reserve(windows_.size());
    for (const ingest::Window& window : windows_) {
        counts.push_back(window.counts());
    }
    return counts;
}

void WindowedSource::tell_of(std::uint32_t index, bool others_sent, std::vector<std::string>& news) {
    const ingest::Window& window = windows_[index];
    const ingest::Counts& counts = window.counts();
    Told& told = told_[index];
    const std::uint16_t id = window.source();
    if (counts.restarts > told.restarts) {
        news.push_back(fmt::format(
            "source {} counts events from 0 again; its fragments are flagged desync until its ids are the run's", id));
    } else if (window.is_in_step() != told.in_step) {
        news.push_back(window.is_in_step()
                           ? fmt::format("source {} is in step again", id)
                           : fmt::format("source {} has ids near {}, which are not the run's; its fragments are "
                                         "flagged desync",
                                         id, window.highest()));
    }
    if (counts.jumps > told.jumps) {
        news.push_back(fmt::format("source {} left out more events than source.window holds", id));
    }
    if (counts.size_changes > told.size_changes) {
        news.push_back(fmt::format("source {} sends {} events in a packet now", id, window.events_per_packet()));
    }
    const bool sent = counts.packets > told.packets;
    told.quiet_looks = sent ? 0 : told.quiet_looks + (others_sent ? 1 : 0);
    if (told.is_silent ? sent : told.quiet_looks >= silent_looks) {
        told.is_silent = !sent;
        news.push_back(sent ? fmt::format("source {} sends again", id)
                            : fmt::format("source {} is silent, while others send", id));
    }
    told.restarts = counts.restarts;
    told.jumps = counts.jumps;
    told.size_changes = counts.size_changes;
    told.packets = counts.packets;
    told.in_step = window.is_in_step();
}

void WindowedSource::tell_of_sources(Time now, std::vector<std::string>& news) {
    if (now - told_at_ < between_looks) return;
    told_at_ = now;
    bool any_sent = false;
    for (std::uint32_t index = 0; index < windows_.size(); ++index) {
        any_sent = any_sent || windows_[index].counts().packets > told_[index].packets;
    }
    for (std::uint32_t index = 0; index < windows_.size(); ++index) {
        tell_of(index, any_sent, news);
    }
}

std::string WindowedSource::take_refusal() {
    return std::exchange(told_refusal_, told_refusal_ || !refusal_.empty()) ? std::string() : refusal_;
}

}  // namespace incast::sources
