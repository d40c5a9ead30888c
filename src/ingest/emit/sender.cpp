#include "ingest/emit/sender.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

namespace incast::ingest {

namespace {

constexpr std::size_t most_queued = 64;
constexpr std::size_t most_segments = 64;
constexpr std::size_t most_piece_bytes = 65'000;

}  // namespace

std::string reason(const char* what) {
    return fmt::format("{}: {}", what, std::generic_category().message(errno));
}

Result<std::unique_ptr<Sender>> Sender::open(bool is_v6) {
    auto made = std::make_unique<Sender>();
    made->socket_ = os::Descriptor(::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!made->socket_.is_open()) return Error{reason("a socket for boards")};
    return made;
}

Result<Ok> Sender::add(const datagram::Address& to, std::span<const std::byte> bytes) {
    const bool joins = !pieces_.empty() && pieces_.back().to == to && !pieces_.back().is_complete &&
                       bytes.size() <= pieces_.back().segment && pieces_.back().count < most_segments &&
                       pieces_.back().bytes.size() + bytes.size() <= most_piece_bytes;
    if (!joins) {
        if (pieces_.size() == most_queued) {
            if (Result<Ok> sent = send(); !sent) return sent;
        }
        pieces_.push_back({to, {}, bytes.size(), 0, false});
    }
    Piece& piece = pieces_.back();
    piece.bytes.insert(piece.bytes.end(), bytes.begin(), bytes.end());
    ++piece.count;
    piece.is_complete = bytes.size() < piece.segment;
    return Ok{};
}

Result<Ok> Sender::send() {
    for (const Piece& piece : pieces_) {
        if (Result<Ok> sent = send(piece); !sent) return sent;
    }
    pieces_.clear();
    return Ok{};
}

Result<Ok> Sender::send(const Piece& piece) {
    sockaddr_storage at{};
    const socklen_t at_bytes = datagram::fill(piece.to, at);
    const std::size_t step = has_segments_ && piece.count > 1 ? piece.bytes.size() : piece.segment;
    for (std::size_t offset = 0; offset < piece.bytes.size();) {
        iovec vector{const_cast<std::byte*>(piece.bytes.data()) + offset, std::min(step, piece.bytes.size() - offset)};
        msghdr header{};
        header.msg_name = &at;
        header.msg_namelen = at_bytes;
        header.msg_iov = &vector;
        header.msg_iovlen = 1;
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> control{};
        if (vector.iov_len > piece.segment) {
            header.msg_control = control.data();
            header.msg_controllen = control.size();
            cmsghdr* const said = CMSG_FIRSTHDR(&header);
            said->cmsg_level = SOL_UDP;
            said->cmsg_type = UDP_SEGMENT;
            said->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
            const auto segment = static_cast<std::uint16_t>(piece.segment);
            std::memcpy(CMSG_DATA(said), &segment, sizeof segment);
        }
        if (::sendmsg(socket_.fd(), &header, 0) >= 0) {
            offset += vector.iov_len;
            continue;
        }
        if (errno == EINTR || errno == ECONNREFUSED) continue;
        if (vector.iov_len > piece.segment && (errno == EINVAL || errno == EIO || errno == EMSGSIZE)) {
            has_segments_ = false;  // a kernel or a device that cannot cut pieces, or an MTU below a datagram
            return send(piece);
        }
        return Error{reason("sending to a readout unit")};
    }
    return Ok{};
}

std::int64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * ns_per_s + now.tv_nsec;
}

void sleep_until(std::int64_t at_ns) {
    const timespec until{at_ns / ns_per_s, at_ns % ns_per_s};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

}  // namespace incast::ingest
