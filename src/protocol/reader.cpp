#include "protocol/reader.h"

#include <algorithm>
#include <cstring>

#include "base/fifo.h"
#include "base/prefetch.h"

namespace incast::protocol {

namespace {

/// Sources keep their MFPs in one region each, at most.
constexpr std::size_t max_regions_per_ru = 4096;
constexpr std::size_t header_bytes = 128;  // of a MFP with some twenty events

}  // namespace

Reader::Reader(Port& port, const Shape& shape)
    : port_(port),
      shape_(shape),
      places_(std::size_t{shape.slots} * shape.layout.source_offset.size()),
      contributions_(std::size_t{shape.slots} * shape.rus.size()),
      units_(shape.rus.size()),
      due_(shape.rus.size()) {
    for (std::size_t ru = 0; ru < units_.size(); ++ru) {
        units_[ru].tasks = base::Fifo<Task>(std::size_t{shape.slots} * shape.rus[ru].sources);
        units_[ru].regions.reserve(std::min<std::size_t>(shape.rus[ru].sources, max_regions_per_ru));
    }
}

/// What was pending has completed before (TC-F4).
void Reader::on_connection_lost(std::uint32_t ru) {
    units_[ru].tasks.clear();
    units_[ru].regions.clear();
    due_.reset(ru);
    for (std::uint32_t slot = 0; slot < shape_.slots; ++slot) {
        of(slot, ru) = {};
    }
}

bool Reader::on_region(Peer from, std::uint32_t ru, const wire::ControlView& message) {
    const auto body = message.body<wire::ControlKind::source_region>();
    Unit& unit = units_[ru];
    if (std::ranges::find(unit.regions, body.region, &std::pair<std::uint16_t, Remote>::first) != unit.regions.end()) {
        return true;  // told again, because the one after it could not be sent
    }
    const std::optional<Blob> key = wire::key_in<wire::ControlKind::source_region>(message);
    if (!key || unit.regions.size() == unit.regions.capacity()) {
        return false;
    }
    const Result<Remote> remote = port_.transport().import_key(from, *key);
    if (remote) {
        unit.regions.emplace_back(body.region, *remote);
    }
    return remote.ok();
}

void Reader::expect(std::uint32_t slot, std::uint32_t ru) {
    of(slot, ru) = {shape_.rus[ru].sources, 0, false};
}

bool Reader::take_offer(std::uint32_t slot, std::uint32_t ru, const wire::OfferEntry& entry) {
    const Shape::Ru& unit = shape_.rus[ru];
    Contribution& contribution = of(slot, ru);
    // Offered in order: the next source is known.
    const std::uint32_t source = unit.first_source + unit.sources - contribution.to_offer;
    const auto region = std::ranges::find(units_[ru].regions, entry.region, &std::pair<std::uint16_t, Remote>::first);
    if (contribution.to_offer == 0 || entry.head.source != source || region == units_[ru].regions.end() ||
        entry.head.body_bytes > port_.config().sources[source].cap_bytes) {
        return false;
    }
    places_[place(slot, source)] = {entry.head, region->second, entry.offset};
    --contribution.to_offer;
    if (port_.config().views) {
        // Whoever takes the event looks at the MFP's header first: it comes from the RU's memory meanwhile.
        const Bytes mfp = view(slot, source);
        if (!mfp.empty()) {
            base::prefetch(mfp.data(), std::min(mfp.size(), header_bytes));
        }
    }
    return true;
}

Bytes Reader::view(std::uint32_t slot, std::uint32_t source) const {
    const Place& where = places_[place(slot, source)];
    return port_.transport().view({where.remote, where.offset}, where.head.body_bytes);
}

void Reader::begin(std::uint32_t slot, std::uint32_t ru) {
    const Shape::Ru& unit = shape_.rus[ru];
    of(slot, ru).to_read = unit.sources;
    for (std::uint32_t source = unit.first_source; source < unit.first_source + unit.sources; ++source) {
        units_[ru].tasks.must_push({slot, source});
    }
    due_.set(ru);
}

Reader::Finished Reader::finish(std::uint32_t slot, std::uint32_t ru, bool ok) {
    Contribution& contribution = of(slot, ru);
    contribution.failed = contribution.failed || !ok;
    if (--contribution.to_read > 0) {
        return {slot, ru, Done::no};
    }
    return {slot, ru, contribution.failed ? Done::failed : Done::placed};
}

std::optional<Reader::Finished> Reader::post(std::uint32_t ru, Task task, bool is_void) {
    const Place& from = places_[place(task.slot, task.source)];
    if (is_void || from.head.body_bytes == 0) {
        return finish(task.slot, ru, !is_void);
    }
    const SlotLayout::Place to = shape_.layout.at(task.slot, task.source);
    const Slice into{own_regions_[to.region], from.head.body_bytes, to.offset + sizeof(wire::Head)};
    const Token token = token_bit | Token{task.slot} << 32 | task.source;
    switch (port_.transport().read(shape_.rus[ru].node, {from.remote, from.offset}, into, token)) {
        case Post::done:
            return finish(task.slot, ru, true);
        case Post::pending:
            if (port_.config().plant == Plant::unfinished_read) {
                return finish(task.slot, ru, true);
            }
            return Finished{task.slot, ru, Done::no};
        case Post::again:
            ++port_.counters().back_pressure;
            return std::nullopt;
        case Post::refused:
            break;  // the connection is going down: its event clears everything
    }
    return std::nullopt;
}

Reader::Finished Reader::on_completed(Token token, Status status) {
    const auto slot = static_cast<std::uint32_t>((token & ~token_bit) >> 32);
    const auto source = static_cast<std::uint32_t>(token);
    const Peer node = port_.config().sources[source].ru;
    const std::uint32_t ru = shape_.ru_of_node[static_cast<std::size_t>(node)];
    if (of(slot, ru).to_read == 0) {
        return {slot, ru, Done::no};
    }
    return finish(slot, ru, status == Status::ok);
}

}  // namespace incast::protocol
