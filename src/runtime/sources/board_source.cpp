#include "runtime/sources/board_source.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include "base/later.h"
#include "base/units.h"
#include "runtime/sources/ring_source.h"
#include "wire/body_checksum.h"

namespace incast::sources {
namespace {

constexpr Time look_often = 200 * ps_per_us;  // for datagrams, while they come
constexpr Time look_seldom = ps_per_ms;
constexpr Time comes_for = 20 * ps_per_ms;
constexpr Time between_looks = ps_per_s;  // for boards that fell silent or out of step
constexpr std::uint32_t silent_looks = 2;
constexpr int batches_at_once = 64;

/// Datagrams that the kernel had no room for since the socket was opened.
std::uint64_t overflow_of(int fd) {
    std::array<std::uint32_t, SK_MEMINFO_VARS> values{};
    socklen_t bytes = sizeof values;
    if (fd < 0 || ::getsockopt(fd, SOL_SOCKET, SO_MEMINFO, values.data(), &bytes) != 0) return 0;
    return bytes > SK_MEMINFO_DROPS * sizeof(std::uint32_t) ? values[SK_MEMINFO_DROPS] : 0;
}

}  // namespace

Result<Ok> BoardSource::open_socket(const protocol::Config& config, std::uint32_t first_source) {
    const auto unit = static_cast<std::uint32_t>(config.sources[first_source].ru);
    std::optional<datagram::Address> at = datagram::parse_ip(options_.address);
    if (!at) {
        return Error{fmt::format("source.address = {}: expected an IP address of this host", options_.address)};
    }
    at->port = options_.port == 0 ? std::uint16_t{0} : static_cast<std::uint16_t>(options_.port + unit);
    if (const int error = socket_.bind(*at); error != 0) {
        return Error{fmt::format("readout unit {} cannot listen for boards at {}: {}", unit, datagram::to_string(*at),
                                 std::generic_category().message(error))};
    }
    at->port = socket_.local_port();
    address_ = datagram::to_string(*at);
    return Ok{};
}

Result<Ok> BoardSource::attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                               std::uint32_t count) {
    if (transport.capabilities().phantom_bodies) {
        return Error{"source.kind = udp: boards are real, and this network is simulated"};
    }
    if (Result<Ok> opened = open_socket(config, first_source); !opened) return opened;
    open_ = options_.window_meps;
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
                                           .packing = options_.packing,
                                           .total_events = options_.total_events,
                                           .open_meps = static_cast<std::uint32_t>(open_),
                                           .places = static_cast<std::uint32_t>(places_),
                                           .cap_bytes = spec.cap_bytes,
                                           .stride_bytes = stride};
        windows_.emplace_back(window, memory_.subspan(offsets_[index], places_ * stride));
        index_of_[spec.id] = index;
    }
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

/// Of a MEP of which no board was heard; at once if it was so with the one before.
Time BoardSource::impatient_at() const {
    if (next_ < known_below_) return time_never;
    return is_silent_ ? 0 : base::later(quiet_since_, options_.patience);
}

/// All boards of this readout unit are silent, while others are not.
void BoardSource::give_up(Time, protocol::MepId mep) {
    if (mep != next_) return;
    give_up_below_ = std::max(give_up_below_, mep + 1);
    is_silent_ = true;
}

void BoardSource::start(Time now, protocol::MepId first, std::uint64_t) {
    quiet_since_ = now;
    next_ = known_below_ = give_up_below_ = first;
    for (ingest::Window& window : windows_) {
        window.start(first);
    }
    next_ready_ = now;
}

/// Of the MEPs below that, something came, or of one behind them: they are waited for from now on.
void BoardSource::note_known(Time now, std::uint64_t below) {
    for (; known_below_ < below; ++known_below_) {
        known_since_[known_below_ % open_] = now;
    }
}

/// False: it waits until the window has moved on.
bool BoardSource::take(Time now, Bytes datagram) {
    const auto near = [this](std::uint16_t source) {
        const auto found = index_of_.find(source);
        return found == index_of_.end() ? 0 : windows_[found->second].highest();
    };
    const Result<wire::MfpView> packet = reader_.read(datagram, near);
    const auto found = packet ? index_of_.find(packet->header().source) : index_of_.end();
    if (found == index_of_.end()) {
        ++refused_;
        if (refusal_.empty()) {
            refusal_ = packet ? fmt::format("it is of source {}, which another readout unit has, or none",
                                            packet->header().source)
                              : packet.error().message;
        }
        return true;
    }
    ingest::Window& window = windows_[found->second];
    if (window.take(*packet) == ingest::Window::Answer::ahead) {
        give_up_below_ = std::max(give_up_below_, window.wants_next());
        return false;
    }
    last_datagram_ = now;
    is_silent_ = is_silent_ && window.known_below() <= next_;
    note_known(now, window.known_below());
    return true;
}

/// Takes what has come, until the next MEP is complete or a datagram is ahead of the window.
void BoardSource::drain(Time now) {
    for (int batches = 0; batches < batches_at_once;) {
        if (!held_) {
            held_ = socket_.take();
        }
        if (!held_) {
            if (is_complete()) return;
            ++batches;
            const bool may_be_more = socket_.fetch();
            held_ = socket_.take();
            if (!held_) {
                if (may_be_more) continue;
                return;
            }
        }
        if (!take(now, *held_)) return;
        held_.reset();
    }
}

bool BoardSource::is_complete() const {
    return std::ranges::all_of(windows_, [this](const ingest::Window& window) { return window.is_complete(next_); });
}

bool BoardSource::may_give_up(Time now) const {
    return next_ < give_up_below_ ||
           (next_ < known_below_ && now >= base::later(known_since_[next_ % open_], options_.patience));
}

bool BoardSource::produce(Time now, protocol::MepId mep) {
    if (mep != next_ || (options_.total_events != 0 && mep >= total_meps())) {
        next_ready_ = time_never;
        return false;
    }
    if (!is_complete()) {
        drain(now);
        if (!is_complete() && !may_give_up(now)) {
            next_ready_ = now + (now - last_datagram_ < comes_for ? look_often : look_seldom);
            return false;
        }
    }
    make(now);
    return true;
}

void BoardSource::make(Time now) {
    const std::uint64_t first = next_ * options_.packing;
    const std::uint64_t left = options_.total_events == 0 ? options_.packing : options_.total_events - first;
    const auto events = static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.packing, left));
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

SourceStats BoardSource::stats(Time) {
    stats_.refused_datagrams = refused_;
    stats_.overflow_datagrams = overflow_of(socket_.fd());
    stats_.boards = {};
    for (const ingest::Window& window : windows_) {
        add(stats_.boards, window.counts());
    }
    return stats_;
}

std::vector<ingest::Counts> BoardSource::counts_of_boards() const {
    std::vector<ingest::Counts> counts;
    counts.reserve(windows_.size());
    for (const ingest::Window& window : windows_) {
        counts.push_back(window.counts());
    }
    return counts;
}

void BoardSource::tell_of(std::uint32_t index, bool others_sent, std::vector<std::string>& news) {
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

std::vector<std::string> BoardSource::take_news(Time now) {
    std::vector<std::string> news;
    if (!told_address_ && !windows_.empty()) {
        told_address_ = true;
        news.push_back(windows_.size() == 1
                           ? fmt::format("the board of source {} sends to {}", windows_.front().source(), address_)
                           : fmt::format("the boards of sources {} to {} send to {}", windows_.front().source(),
                                         windows_.back().source(), address_));
    }
    if (!told_refusal_ && !refusal_.empty()) {
        told_refusal_ = true;
        news.push_back(fmt::format("a datagram for {} is refused: {}; so are others like it", address_, refusal_));
    }
    if (now - told_at_ < between_looks) return news;
    told_at_ = now;
    bool any_sent = false;
    for (std::uint32_t index = 0; index < windows_.size(); ++index) {
        any_sent = any_sent || windows_[index].counts().packets > told_[index].packets;
    }
    for (std::uint32_t index = 0; index < windows_.size(); ++index) {
        tell_of(index, any_sent, news);
    }
    return news;
}

}  // namespace incast::sources
