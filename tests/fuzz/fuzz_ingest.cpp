// Arbitrary datagrams at a readout unit's boards: the first byte says which format and how large MEPs are, then comes
// each datagram behind its length (2 bytes). Whatever comes, every event is counted once, and what is made is a valid
// MFP of its source and its events.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "ingest/packet.h"
#include "ingest/window.h"

namespace {

namespace ingest = incast::ingest;
namespace wire = incast::wire;

constexpr std::uint32_t cap = 2048;
constexpr std::uint32_t open_meps = 4;
constexpr std::uint32_t places = 12;

void must(bool holds) {
    if (!holds) std::abort();
}

struct Unit {
    explicit Unit(std::uint32_t events)
        : packing(events),
          memory(std::size_t{places} * cap),
          window({.source = 5,
                  .packing = events,
                  .total_events = 1000,
                  .open_meps = open_meps,
                  .places = places,
                  .cap_bytes = cap,
                  .stride_bytes = cap},
                 memory) {}

    [[nodiscard]] bool has_ended() const { return next * packing >= 1000; }
    void make() {
        const ingest::Made made = window.make(wire::SourceFlag::late);
        const auto mfp = wire::MfpView::parse(incast::Bytes(memory).subspan(next % places * cap, made.bytes));
        must(mfp.ok());
        must(mfp->header().first_event == next * packing && mfp->header().source == 5);
        must(mfp->size() == std::min<std::uint64_t>(packing, 1000 - next * packing));
        must(mfp->payload_bytes() == made.goodput_bytes);
        ++next;
    }

    std::uint32_t packing;
    std::vector<std::byte> memory;
    ingest::Window window;
    std::uint64_t next = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1) return 0;
    incast::Bytes rest = std::as_bytes(std::span(data, size)).subspan(1);
    ingest::PacketReader reader((data[0] & 1U) == 0 ? ingest::Format::mfp : ingest::Format::mef);
    Unit unit(1 + (data[0] >> 1U) % 16);
    std::uint64_t came = 0;
    while (rest.size() >= 2) {
        const std::size_t length = std::to_integer<std::size_t>(rest[0]) | std::to_integer<std::size_t>(rest[1]) << 8U;
        rest = rest.subspan(2);
        const incast::Bytes datagram = rest.first(std::min(length, rest.size()));
        rest = rest.subspan(datagram.size());
        const auto packet = reader.read(datagram, [&](std::uint16_t) { return unit.window.highest(); });
        if (!packet || packet->header().source != 5) continue;
        while (unit.window.take(*packet) == ingest::Window::Answer::ahead && !unit.has_ended()) {
            must(unit.window.wants_next() > unit.next);
            if (unit.window.wants_next() - unit.next > 2000) break;  // as good as never
            unit.make();
        }
        while (!unit.has_ended() && unit.window.is_complete(unit.next)) {
            unit.make();
        }
        came = unit.window.counts().packets;
    }
    const ingest::Counts& counts = unit.window.counts();
    must(counts.taken_events + counts.duplicate_events + counts.late_events + counts.stray_events >= came);
    for (int more = 0; more < 16 && !unit.has_ended(); ++more) {
        unit.make();
    }
    return 0;
}
