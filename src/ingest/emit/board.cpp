#include "ingest/emit/board.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "wire/bytes.h"

namespace incast::ingest {

namespace {

constexpr std::uint8_t emitted_align_log2 = 3;
constexpr std::uint8_t emitted_type = 16;  // of banks and fragments
constexpr std::uint32_t most_behind = 8;
constexpr std::uint32_t partition = 0x7FFF;

std::uint32_t most_bytes(const BoardSettings& settings) {
    return static_cast<std::uint32_t>(std::floor(settings.fragment_bytes * (1 + settings.spread)));
}

std::uint32_t most_events(const BoardSettings& settings, std::uint16_t source) {
    std::uint32_t most = settings.packet_events;
    for (const Turn& turn : settings.sizes) {
        if (turn.source == source) most = std::max(most, turn.events);
    }
    return most;
}

}  // namespace

std::uint32_t fragment_bytes(const BoardSettings& settings, std::uint16_t source, std::uint64_t event) {
    if (settings.spread == 0) return settings.fragment_bytes;
    const std::uint64_t drawn = base::mix64(base::mix64(settings.seed + source) ^ event);
    const double share = static_cast<double>(drawn >> 11U) * 0x1.0p-53;  // 0 .. 1
    return static_cast<std::uint32_t>(settings.fragment_bytes * (1 - settings.spread + 2 * settings.spread * share));
}

void fill_fragment(std::uint16_t source, std::uint64_t event, std::span<std::byte> fragment) {
    auto low = static_cast<std::uint8_t>(event + source);
    for (std::byte& each : fragment) {
        each = std::byte{low++};
    }
    std::memcpy(fragment.data(), &event, std::min(fragment.size(), sizeof event));
    if (fragment.size() > sizeof event) {
        std::memcpy(fragment.data() + sizeof event, &source, std::min(fragment.size() - sizeof event, sizeof source));
    }
}

Board::Board(const BoardSettings& settings, std::uint16_t source)
    : settings_(settings),
      source_(source),
      random_(base::mix64(settings.seed) + source),
      next_event_(settings.first_event),
      packet_(settings.most_bytes),
      banks_(most_packet_bytes) {}

Result<Board> Board::make(const BoardSettings& settings, std::uint16_t source) {
    const std::uint32_t events = most_events(settings, source);
    const std::uint64_t fragment = most_bytes(settings);
    const std::uint64_t bytes =
        settings.format == Format::mfp
            ? wire::mfp_bytes(events, static_cast<std::uint32_t>(fragment), emitted_align_log2).packet_bytes
            : wire::mef_header_bytes + events * (wire::mef_event_header_bytes + wire::raw_bank_bytes(fragment));
    if (events == 0 || bytes > settings.most_bytes) {
        return Error{fmt::format("{} events of {} B are {} B; a {} holds 1 event at least and {} B at most", events,
                                 fragment, bytes, settings.most_bytes == most_packet_bytes ? "datagram" : "packet",
                                 settings.most_bytes)};
    }
    return Board(settings, source);
}

Board::Packet Board::make_packet() {
    Packet packet;
    if (is_done()) return packet;
    const std::uint64_t made = sums_.events;
    const auto is_due = [&](const Turn& turn) { return turn.source == source_ && made >= turn.at; };
    if (std::ranges::any_of(settings_.silences, is_due)) {
        sums_.is_silent = true;
        return packet;
    }
    if (static_cast<std::uint64_t>(std::ranges::count_if(settings_.restarts, is_due)) > sums_.restarts) {
        ++sums_.restarts;
        next_event_ = 0;
    }
    packet.events = settings_.packet_events;
    for (const Turn& turn : settings_.sizes) {
        if (is_due(turn)) packet.events = turn.events;
    }
    if (settings_.events != 0) {
        packet.events = static_cast<std::uint32_t>(std::min<std::uint64_t>(packet.events, settings_.events - made));
    }
    packet.first_event = next_event_;
    next_event_ += packet.events;
    packet.is_lost = random_.chance(settings_.lost_per_million);
    packet.is_twice = random_.chance(settings_.twice_per_million);
    packet.behind =
        random_.chance(settings_.late_per_million) ? 1 + static_cast<std::uint32_t>(random_.below(most_behind)) : 0;
    packet.is_twice = packet.is_twice && !packet.is_lost && packet.behind == 0;
    packet.behind = packet.is_lost ? 0 : packet.behind;
    ++sums_.packets;
    sums_.events += packet.events;
    sums_.lost_packets += packet.is_lost ? 1 : 0;
    sums_.lost_events += packet.is_lost ? packet.events : 0;
    sums_.twice_packets += packet.is_twice ? 1 : 0;
    sums_.twice_events += packet.is_twice ? packet.events : 0;
    sums_.late_packets += packet.behind > 0 ? 1 : 0;
    if (!packet.is_lost) write(packet);
    return packet;
}

/// Fits: make() saw to it.
void Board::write(const Packet& packet) {
    sizes_.resize(packet.events);
    for (std::uint32_t index = 0; index < packet.events; ++index) {
        sizes_[index] = fragment_bytes(settings_, source_, packet.first_event + index);
    }
    if (settings_.format == Format::mef) {
        wire::MefWriter writer =
            wire::MefWriter::begin(packet_, static_cast<std::uint32_t>(packet.first_event), partition).value();
        std::vector<std::byte> body;
        for (std::uint32_t index = 0; index < packet.events; ++index) {
            const std::uint64_t event = packet.first_event + index;
            body.resize(sizes_[index]);
            fill_fragment(source_, event, body);
            const wire::RawBank bank{
                .type = emitted_type, .source = static_cast<std::int16_t>(source_), .body = Bytes(body)};
            const std::size_t bytes = wire::write_raw_bank(banks_, bank).value();
            writer.add(static_cast<std::uint16_t>(event), Bytes(banks_).first(bytes));
        }
        packet_bytes_ = writer.finish();
        return;
    }
    wire::MfpHeader header;
    header.first_event = packet.first_event;
    header.source = source_;
    header.align_log2 = emitted_align_log2;
    packet_bytes_ = wire::lay_out_mfp(packet_, header, emitted_type, sizes_).value().packet_bytes;
    std::uint64_t offset = wire::mfp_prefix_bytes(packet.events, false);
    for (std::uint32_t index = 0; index < packet.events; ++index) {
        fill_fragment(source_, packet.first_event + index, std::span(packet_).subspan(offset, sizes_[index]));
        offset += wire::round_up(sizes_[index], 1U << emitted_align_log2);
    }
}

}  // namespace incast::ingest
