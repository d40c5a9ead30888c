#include "ingest/emit/emit.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ingest/emit/sender.h"
#include "ingest/emit/streams.h"

namespace incast::ingest {

namespace {

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

/// How packets get to readout units.
class Outlet {
public:
    static Result<Outlet> open(const EmitSettings& settings, const volatile std::sig_atomic_t& stop);
    Result<Ok> add(std::uint32_t board, std::span<const std::byte> bytes) {
        return streams_ ? streams_->add(connections_[board], bytes) : sender_->add(to_of(board), bytes);
    }
    Result<Ok> send() { return streams_ ? streams_->send() : sender_->send(); }
    [[nodiscard]] const datagram::Address& to_of(std::uint32_t board) const {
        return settings_
            ->to[address_of_board(board, settings_->n_boards, static_cast<std::uint32_t>(settings_->to.size()))];
    }
    [[nodiscard]] std::uint64_t unsent_bytes() const { return streams_ ? streams_->unsent_bytes() : 0; }

private:
    explicit Outlet(const EmitSettings& settings) : settings_(&settings) {}
    Result<Ok> connect(const volatile std::sig_atomic_t& stop);

    const EmitSettings* settings_;
    std::unique_ptr<Sender> sender_;        // udp
    std::unique_ptr<Streams> streams_;      // tcp
    std::vector<std::size_t> connections_;  // by board
};

Result<Outlet> Outlet::open(const EmitSettings& settings, const volatile std::sig_atomic_t& stop) {
    Outlet outlet(settings);
    if (settings.carrier == Carrier::tcp) {
        if (Result<Ok> connected = outlet.connect(stop); !connected) return connected.error();
        return outlet;
    }
    const bool is_v6 = settings.to.front().is_v6;
    if (std::ranges::any_of(settings.to, [&](const datagram::Address& to) { return to.is_v6 != is_v6; })) {
        return Error{"--to: IPv4 and IPv6 addresses in one list; allowed: one kind"};
    }
    Result<std::unique_ptr<Sender>> sender = Sender::open(is_v6);
    if (!sender) return sender.error();
    outlet.sender_ = std::move(sender).value();
    return outlet;
}

Result<Ok> Outlet::connect(const volatile std::sig_atomic_t& stop) {
    streams_ = std::make_unique<Streams>(stop);
    std::size_t connections = 0;
    std::uint32_t boards = 0;  // of the last one
    for (std::uint32_t board = 0; board < settings_->n_boards; ++board) {
        const bool joins = boards > 0 && boards < settings_->boards_per_connection && to_of(board) == to_of(board - 1);
        boards = joins ? boards + 1 : 1;
        if (!joins) {
            if (Result<Ok> connected = streams_->connect(to_of(board)); !connected) return connected;
            ++connections;
        }
        connections_.push_back(connections - 1);
    }
    return Ok{};
}

}  // namespace

std::uint32_t address_of_board(std::uint32_t index, std::uint32_t n_boards, std::uint32_t n_addresses) {
    const std::uint32_t each = (n_boards + n_addresses - 1) / n_addresses;
    return index / each;
}

Result<Emitted> emit(const EmitSettings& settings, const volatile std::sig_atomic_t& stop) {
    std::vector<Board> boards;
    for (std::uint32_t index = 0; index < settings.n_boards; ++index) {
        Result<Board> board = Board::make(settings.boards, static_cast<std::uint16_t>(settings.first_id + index));
        if (!board) return board.error();
        boards.push_back(std::move(board).value());
    }
    Result<Outlet> opened = Outlet::open(settings, stop);
    if (!opened) return opened.error();
    Outlet& outlet = *opened;
    const File record(settings.record.empty() ? nullptr : std::fopen(settings.record.c_str(), "we"));
    if (!settings.record.empty() && !record) return Error{reason(settings.record.c_str())};

    Result<Ok> sent = Ok{};
    const std::int64_t begin = now_ns();
    bool any = true;
    for (std::uint64_t round = 0; any && stop == 0 && sent; ++round) {
        if (settings.rate_hz > 0) {
            const double due = static_cast<double>(round) * settings.boards.packet_events / settings.rate_hz;
            const std::int64_t at = begin + static_cast<std::int64_t>(due * static_cast<double>(ns_per_s));
            if (at > now_ns()) {
                sent = outlet.send();
                sleep_until(at);
            }
        }
        any = false;
        for (std::uint32_t index = 0; index < boards.size() && sent; ++index) {
            Board& board = boards[index];
            // All boards make as many events, whatever they pack.
            while (!board.is_done() && board.sums().events < (round + 1) * settings.boards.packet_events && sent) {
                const Board::Packet packet = board.next([&](std::span<const std::byte> bytes) {
                    if (sent) sent = outlet.add(index, bytes);
                });
                if (record && packet.events > 0) note(record.get(), board.source(), packet);
            }
            any = any || !board.is_done();
        }
    }
    for (std::uint32_t index = 0; index < boards.size(); ++index) {
        boards[index].finish([&](std::span<const std::byte> bytes) {
            if (sent) sent = outlet.add(index, bytes);
        });
    }
    if (sent) sent = outlet.send();
    if (!sent && settings.carrier == Carrier::udp) return sent.error();
    if (record && (std::fflush(record.get()) != 0 || std::ferror(record.get()) != 0)) {
        return Error{reason(settings.record.c_str())};
    }
    nlohmann::ordered_json result;
    result["seconds"] = static_cast<double>(now_ns() - begin) / static_cast<double>(ns_per_s);
    for (std::uint32_t index = 0; index < boards.size(); ++index) {
        result["boards"].push_back(json_of(boards[index], datagram::to_string(outlet.to_of(index))));
    }
    if (settings.carrier == Carrier::tcp) result["unsent_bytes"] = outlet.unsent_bytes();
    return Emitted{result.dump(), sent ? std::string() : sent.error().message};
}

}  // namespace incast::ingest
