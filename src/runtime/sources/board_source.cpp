#include "runtime/sources/board_source.h"

#include <array>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

namespace incast::sources {
namespace {

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
    for (std::uint32_t index = 0; index < count; ++index) {
        index_of_[config.sources[first_source + index].id] = index;
    }
    return make_windows(transport, config, first_source, count);
}

/// False: it waits until the window has moved on.
bool BoardSource::take(Time now, Bytes datagram) {
    const auto near = [this](std::uint16_t source) {
        const auto found = index_of_.find(source);
        return found == index_of_.end() ? 0 : windows()[found->second].highest();
    };
    const Result<wire::MfpView> packet = reader_.read(datagram, near);
    const auto found = packet ? index_of_.find(packet->header().source) : index_of_.end();
    if (found == index_of_.end()) {
        note_refused(
            packet ? fmt::format("it is of source {}, which another readout unit has, or none", packet->header().source)
                   : packet.error().message);
        return true;
    }
    ingest::Window& window = windows()[found->second];
    if (window.take(*packet) == ingest::Window::Answer::ahead) {
        give_up_below(window.wants_next());
        return false;
    }
    note_taken(now, window);
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

SourceStats BoardSource::stats(Time now) {
    SourceStats stats = WindowedSource::stats(now);
    stats.overflow_datagrams = overflow_of(socket_.fd());
    return stats;
}

std::vector<std::string> BoardSource::take_news(Time now) {
    std::vector<std::string> news;
    if (!told_address_ && !windows().empty()) {
        told_address_ = true;
        news.push_back(windows().size() == 1
                           ? fmt::format("the board of source {} sends to {}", windows().front().source(), address_)
                           : fmt::format("the boards of sources {} to {} send to {}", windows().front().source(),
                                         windows().back().source(), address_));
    }
    if (const std::string refusal = take_refusal(); !refusal.empty()) {
        news.push_back(fmt::format("a datagram for {} is refused: {}; so are others like it", address_, refusal));
    }
    tell_of_sources(now, news);
    return news;
}

}  // namespace incast::sources
