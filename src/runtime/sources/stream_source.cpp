#include "runtime/sources/stream_source.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include "datagram/address.h"
#include "os/socket.h"

namespace incast::sources {
namespace {

constexpr Time between_accepts = ps_per_ms;
constexpr int most_reads_at_once = 64;   // of one connection
constexpr std::size_t spare_lines = 16;  // besides one for each source
constexpr std::size_t most_told = 256;   // of connections that come and go over and over
constexpr std::uint64_t least_most_packet = std::uint64_t{1} << 20U;
constexpr std::uint64_t caps_of_a_packet = 4;

}  // namespace

Result<Ok> StreamSource::listen(const protocol::Config& config, std::uint32_t first_source) {
    const auto unit = static_cast<std::uint32_t>(config.sources[first_source].ru);
    std::optional<datagram::Address> at = datagram::parse_ip(options_.address);
    if (!at) {
        return Error{fmt::format("source.address = {}: expected an IP address of this host", options_.address)};
    }
    at->port = options_.port == 0 ? std::uint16_t{0} : static_cast<std::uint16_t>(options_.port + unit);
    Result<os::Descriptor> listener = os::listen_on(datagram::to_string(*at));
    if (!listener) {
        return Error{fmt::format("readout unit {}, for boards: {}", unit, listener.error().message)};
    }
    listener_ = std::move(listener).value();
    address_ = os::local_address(listener_.fd());
    return Ok{};
}

Result<Ok> StreamSource::attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                                std::uint32_t count) {
    if (transport.capabilities().phantom_bodies) {
        return Error{"source.kind = tcp: boards are real, and this network is simulated"};
    }
    if (Result<Ok> listening = listen(config, first_source); !listening) return listening;
    std::uint64_t largest = 0;
    for (std::uint32_t index = 0; index < count; ++index) {
        const protocol::SourceSpec& spec = config.sources[first_source + index];
        index_of_[spec.id] = index;
        largest = std::max<std::uint64_t>(largest, spec.cap_bytes);
    }
    most_packet_bytes_ = std::max(least_most_packet, caps_of_a_packet * largest);
    owners_.assign(count, nullptr);
    was_owned_.assign(count, false);
    return make_windows(transport, config, first_source, count);
}

void StreamSource::tell(std::string news) {
    if (news_.size() < most_told) news_.push_back(std::move(news));
}

/// Who connects.
void StreamSource::look(Time now) {
    if (now - looked_at_ < between_accepts) return;
    looked_at_ = now;
    for (;;) {
        std::string peer;
        os::Descriptor socket = os::accept_one(listener_.fd(), peer);
        if (!socket.is_open()) {
            if (os::Spare::is_needed_for(errno)) spare_.turn_away(listener_);
            return;
        }
        make_room(now);
        if (lines_.size() >= owners_.size() + spare_lines) {
            tell(fmt::format("a connection from {} is turned away: there are {} already", peer, lines_.size()));
            continue;
        }
        lines_.push_back(std::make_unique<Line>(
            Line{std::move(socket), std::move(peer), ingest::Stream(most_packet_bytes_), now, 0, 0, false}));
    }
}

/// Of connections that are nobody's, the one that has said nothing for longest goes where all places are taken.
void StreamSource::make_room(Time now) {
    if (lines_.size() < owners_.size() + spare_lines) return;
    Line* oldest = nullptr;
    for (const auto& line : lines_) {
        const bool owns = std::ranges::find(owners_, line.get()) != owners_.end();
        if (!owns && now - line->heard >= contested_for && (oldest == nullptr || line->heard < oldest->heard)) {
            oldest = line.get();
        }
    }
    if (oldest == nullptr) return;
    part_with(*oldest, "is closed: it sends nothing, and others wait");
    std::erase_if(lines_, [](const auto& line) { return line->is_over; });
}

void StreamSource::drain(Time now) {
    look(now);
    for (std::size_t at = 0; at < lines_.size(); ++at) {
        take_from(now, *lines_[at]);
    }
    std::erase_if(lines_, [](const auto& line) { return line->is_over; });
}

void StreamSource::take_from(Time now, Line& line) {
    int reads = 0;
    while (!line.is_over && line.ahead_until <= next()) {
        const Result<std::optional<wire::MfpView>> packet = line.stream.peek();
        if (!packet) {
            note_refused({});
            part_with(line, fmt::format("is closed: what it sends is no MFP: {}", packet.error().message));
        } else if (*packet) {
            if (!take(now, line, **packet)) return;
            line.stream.pop(**packet);
        } else if (is_complete() || ++reads > most_reads_at_once || !receive(now, line)) {
            return;
        }
    }
}

/// False: nothing has come.
bool StreamSource::receive(Time now, Line& line) {
    const std::span<std::byte> room = line.stream.room();
    const ssize_t bytes = ::recv(line.socket.fd(), room.data(), room.size(), 0);
    if (bytes > 0) {
        line.heard = now;
        line.stream.took(static_cast<std::size_t>(bytes));
        return true;
    }
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    const std::string how = bytes == 0 ? "has ended" : "broke: " + std::generic_category().message(errno);
    part_with(line, line.stream.is_empty() ? how : how + ", within a packet, which is dropped");
    return false;
}

/// Nothing of it is there that was not looked at, and nothing has come for long.
bool StreamSource::is_silent(Time now, const Line& line) const {
    if (line.ahead_until > next() || now - line.heard < contested_for) return false;
    std::byte first{};
    return ::recv(line.socket.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
}

StreamSource::Right StreamSource::right_to(Time now, Line& line, std::uint32_t index) {
    Line*& owner = owners_[index];
    if (owner == &line) return Right::has;
    const std::uint16_t id = windows()[index].source();
    if (owner != nullptr && is_silent(now, *owner)) {
        tell(fmt::format("source {} comes from {} now, as nothing comes from {} any more", id, line.peer, owner->peer));
        owner = nullptr;
    } else if (owner != nullptr) {
        if (line.contested_since == 0) {
            line.contested_since = now;
            tell(
                fmt::format("source {} comes from {} and {}: the second one waits for the end of the first, and is "
                            "refused if there is none",
                            id, owner->peer, line.peer));
        }
        return now - line.contested_since < contested_for ? Right::waits : Right::none;
    } else if (was_owned_[index]) {
        tell(fmt::format("source {} is back, from {}", id, line.peer));
    }
    owner = &line;
    line.contested_since = 0;
    was_owned_[index] = true;
    return Right::has;
}

/// False: the packet waits.
bool StreamSource::take(Time now, Line& line, const wire::MfpView& packet) {
    const std::uint16_t id = packet.header().source;
    const auto found = index_of_.find(id);
    if (found == index_of_.end()) {
        note_refused(
            fmt::format("a packet from {} is of source {}, which another readout unit has, or none", line.peer, id));
        return true;
    }
    const std::uint32_t index = found->second;
    const Right right = right_to(now, line, index);
    if (right == Right::waits) return false;
    if (right == Right::none) {
        note_refused(
            fmt::format("a packet from {} is of source {}, which {} sends", line.peer, id, owners_[index]->peer));
        return true;
    }
    ingest::Window& window = windows()[index];
    const std::uint64_t taken = window.counts().taken_events;
    if (window.take(packet) == ingest::Window::Answer::ahead) {
        line.ahead_until = window.wants_next();
        note_known(now, std::min(window.wants_next(), next() + open_meps()));
        // Sources behind it on the same connection cannot come before it.
        for (std::uint32_t other = 0; other < owners_.size(); ++other) {
            if (owners_[other] == &line && !windows()[other].is_complete(next())) expect(other, false);
        }
        return false;
    }
    note_taken(now, window);
    if (window.counts().taken_events > taken) expect(index, true);
    return true;
}

void StreamSource::part_with(Line& line, const std::string& why) {
    std::vector<std::uint16_t> sources;
    for (std::uint32_t index = 0; index < owners_.size(); ++index) {
        if (owners_[index] != &line) continue;
        owners_[index] = nullptr;
        sources.push_back(windows()[index].source());
    }
    if (!sources.empty()) {
        tell(
            fmt::format("the connection from {} (source{} {}) {}; later events are flagged late for {} until somebody "
                        "sends them",
                        line.peer, sources.size() == 1 ? "" : "s", fmt::join(sources, ", "), why,
                        sources.size() == 1 ? "it" : "them"));
    } else if (!line.stream.is_empty() || line.contested_since != 0) {
        tell(fmt::format("a connection from {} {}", line.peer, why));
    }
    line.is_over = true;
    line.socket.close();
}

/// What waited long enough for them waits for them no more.
void StreamSource::gave_up() {
    for (std::uint32_t index = 0; index < windows().size(); ++index) {
        if (!windows()[index].is_complete(next())) expect(index, false);
    }
}

std::vector<std::string> StreamSource::take_news(Time now) {
    look(now);
    std::vector<std::string> news;
    if (!told_address_ && !windows().empty()) {
        told_address_ = true;
        const std::uint16_t first = windows().front().source();
        news.push_back(windows().size() == 1 ? fmt::format("the board of source {} connects to {}", first, address_)
                                             : fmt::format("the boards of sources {} to {} connect to {}", first,
                                                           windows().back().source(), address_));
    }
    std::ranges::move(news_, std::back_inserter(news));
    news_.clear();
    if (const std::string refusal = take_refusal(); !refusal.empty()) {
        news.push_back(fmt::format("{}; it is refused, and others like it", refusal));
    }
    tell_of_sources(now, news);
    return news;
}

}  // namespace incast::sources
