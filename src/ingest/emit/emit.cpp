#include "ingest/emit/emit.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "os/descriptor.h"

namespace incast::ingest {

namespace {

constexpr std::int64_t ns_per_s = 1'000'000'000;
constexpr std::size_t most_queued = 64;
constexpr std::size_t most_segments = 64;
constexpr std::size_t most_piece_bytes = 65'000;

std::string reason(const char* what) {
    return fmt::format("{}: {}", what, std::generic_category().message(errno));
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

/// Sends packets with few system calls, and waits where there is no room: what was handed to it went out.
class Sender {
public:
    static Result<std::unique_ptr<Sender>> open(bool is_v6) {
        auto made = std::make_unique<Sender>();
        made->socket_ = os::Descriptor(::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (!made->socket_.is_open()) return Error{reason("a socket for boards")};
        return made;
    }
    Result<Ok> add(const datagram::Address& to, std::span<const std::byte> bytes) {
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
    Result<Ok> send() {
        for (const Piece& piece : pieces_) {
            if (Result<Ok> sent = send(piece); !sent) return sent;
        }
        pieces_.clear();
        return Ok{};
    }

private:
    struct Piece {
        datagram::Address to;
        std::vector<std::byte> bytes;
        std::size_t segment;
        std::size_t count;
        bool is_complete;  // its last datagram is a shorter one
    };

    Result<Ok> send(const Piece& piece) {
        sockaddr_storage at{};
        const socklen_t at_bytes = datagram::fill(piece.to, at);
        const std::size_t step = has_segments_ && piece.count > 1 ? piece.bytes.size() : piece.segment;
        for (std::size_t offset = 0; offset < piece.bytes.size();) {
            iovec vector{const_cast<std::byte*>(piece.bytes.data()) + offset,
                         std::min(step, piece.bytes.size() - offset)};
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

    os::Descriptor socket_;
    std::vector<Piece> pieces_;
    bool has_segments_ = true;
};

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

void note(std::FILE* record, std::uint16_t source, const Board::Packet& packet) {
    const std::string_view fate = packet.is_lost      ? "lost"
                                  : packet.is_twice   ? "twice"
                                  : packet.behind > 0 ? "late"
                                                      : "sent";
    std::fputs(fmt::format("{} {} {} {}\n", source, packet.first_event, packet.events, fate).c_str(), record);
}

nlohmann::ordered_json json_of(const Board& board, std::string to) {
    const Board::Sums& sums = board.sums();
    return {{"source", board.source()},
            {"to", std::move(to)},
            {"packets", sums.packets},
            {"events", sums.events},
            {"lost_packets", sums.lost_packets},
            {"lost_events", sums.lost_events},
            {"twice_packets", sums.twice_packets},
            {"twice_events", sums.twice_events},
            {"late_packets", sums.late_packets},
            {"sent_bytes", sums.sent_bytes},
            {"restarts", sums.restarts},
            {"silent", sums.is_silent}};
}

}  // namespace

std::uint32_t address_of_board(std::uint32_t index, std::uint32_t n_boards, std::uint32_t n_addresses) {
    const std::uint32_t each = (n_boards + n_addresses - 1) / n_addresses;
    return index / each;
}

Result<std::string> emit(const EmitSettings& settings, const volatile std::sig_atomic_t& stop) {
    std::vector<Board> boards;
    for (std::uint32_t index = 0; index < settings.n_boards; ++index) {
        Result<Board> board = Board::make(settings.boards, static_cast<std::uint16_t>(settings.first_id + index));
        if (!board) return board.error();
        boards.push_back(std::move(board).value());
    }
    const bool is_v6 = settings.to.front().is_v6;
    if (std::ranges::any_of(settings.to, [&](const datagram::Address& to) { return to.is_v6 != is_v6; })) {
        return Error{"--to: IPv4 and IPv6 addresses in one list; allowed: one kind"};
    }
    Result<std::unique_ptr<Sender>> sender = Sender::open(is_v6);
    if (!sender) return sender.error();
    const File record(settings.record.empty() ? nullptr : std::fopen(settings.record.c_str(), "we"));
    if (!settings.record.empty() && !record) return Error{reason(settings.record.c_str())};

    const auto n_addresses = static_cast<std::uint32_t>(settings.to.size());
    Result<Ok> sent = Ok{};
    const auto to_of = [&](std::uint32_t index) -> const datagram::Address& {
        return settings.to[address_of_board(index, settings.n_boards, n_addresses)];
    };
    const std::int64_t begin = now_ns();
    bool any = true;
    for (std::uint64_t round = 0; any && stop == 0 && sent; ++round) {
        if (settings.rate_hz > 0) {
            const double due = static_cast<double>(round) * settings.boards.packet_events / settings.rate_hz;
            const std::int64_t at = begin + static_cast<std::int64_t>(due * static_cast<double>(ns_per_s));
            if (at > now_ns()) {
                sent = (*sender)->send();
                sleep_until(at);
            }
        }
        any = false;
        for (std::uint32_t index = 0; index < boards.size() && sent; ++index) {
            Board& board = boards[index];
            // All boards make as many events, whatever they pack.
            while (!board.is_done() && board.sums().events < (round + 1) * settings.boards.packet_events && sent) {
                const Board::Packet packet = board.next([&](std::span<const std::byte> bytes) {
                    if (sent) sent = (*sender)->add(to_of(index), bytes);
                });
                if (record && packet.events > 0) note(record.get(), board.source(), packet);
            }
            any = any || !board.is_done();
        }
    }
    for (std::uint32_t index = 0; index < boards.size(); ++index) {
        boards[index].finish([&](std::span<const std::byte> bytes) {
            if (sent) sent = (*sender)->add(to_of(index), bytes);
        });
    }
    if (sent) sent = (*sender)->send();
    if (!sent) return sent.error();
    if (record && (std::fflush(record.get()) != 0 || std::ferror(record.get()) != 0)) {
        return Error{reason(settings.record.c_str())};
    }
    nlohmann::ordered_json result;
    result["seconds"] = static_cast<double>(now_ns() - begin) / static_cast<double>(ns_per_s);
    for (std::uint32_t index = 0; index < boards.size(); ++index) {
        result["boards"].push_back(json_of(boards[index], datagram::to_string(to_of(index))));
    }
    return result.dump();
}

}  // namespace incast::ingest
