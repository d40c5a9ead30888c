// A program that writes anything into the memory that it shares with a readout unit: the first byte says how large MEPs
// are, then come writes behind their heads of 5 bytes: what (1: it only counts), place in the ring (2), length (1), by
// how many lines the count of what is committed goes on (1, signed). Whatever comes, no more is read than there is, and
// what is made is a valid MFP of the source and its events.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "ingest/window.h"
#include "runtime/sources/program_ring.h"
#include "source/layout.h"

namespace {

namespace ingest = incast::ingest;
namespace source = incast::source;
namespace wire = incast::wire;

constexpr std::uint32_t cap = 2048;
constexpr std::uint32_t open_meps = 4;
constexpr std::uint32_t places = 12;
constexpr std::uint64_t ring_bytes = 64 * source::line_bytes;

void must(bool holds) {
    if (!holds) std::abort();
}

struct alignas(source::line_bytes) Line {
    std::byte bytes[source::line_bytes] = {};
};

struct Unit {
    explicit Unit(std::uint32_t events)
        : packing(events),
          file(source::file_bytes(ring_bytes) / source::line_bytes),
          ring(std::as_writable_bytes(std::span(file)), ring_bytes),
          memory(std::size_t{places} * cap),
          window({.source = 5,
                  .packing = events,
                  .total_events = 1000,
                  .open_meps = open_meps,
                  .places = places,
                  .cap_bytes = cap,
                  .stride_bytes = cap},
                 memory) {}

    [[nodiscard]] source::RingHeader& header() { return *reinterpret_cast<source::RingHeader*>(file.data()); }
    [[nodiscard]] std::span<std::byte> data() {
        return std::as_writable_bytes(std::span(file)).subspan(sizeof(source::RingHeader));
    }
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
    void take() {
        for (int packets = 0; packets < 64; ++packets) {
            const std::optional<incast::Bytes> packet = ring.peek();
            if (!packet) return;
            must(packet->data() >= data().data() && packet->data() + packet->size() <= data().data() + data().size());
            // From a copy of just its size, so that a read beyond it is seen.
            const std::vector<std::byte> alone(packet->begin(), packet->end());
            const auto answer = window.take_shared(alone);
            if (answer && *answer == ingest::Window::Answer::ahead) {
                must(window.wants_next() > next);
                if (has_ended() || window.wants_next() - next > 2000) return;
                make();
                continue;
            }
            ring.pop();
            ring.tell(next * packing);
            while (!has_ended() && window.is_complete(next))
                make();
        }
    }

    std::uint32_t packing;
    std::vector<Line> file;
    incast::sources::ProgramRing ring;
    std::vector<std::byte> memory;
    ingest::Window window;
    std::uint64_t next = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1) return 0;
    std::span rest(data, size);
    Unit unit(1 + rest[0] % 16U);
    rest = rest.subspan(1);
    while (rest.size() >= 5) {
        const bool writes = rest[0] != 1;
        const std::size_t place = (rest[1] | std::size_t{rest[2]} << 8U) % ring_bytes;
        const std::size_t length = rest[3];
        const auto lines = static_cast<std::int8_t>(rest[4]);
        rest = rest.subspan(5);
        if (writes) {
            const std::size_t taken = std::min({length, rest.size(), ring_bytes - place});
            std::memcpy(unit.data().data() + place, rest.data(), taken);
            rest = rest.subspan(taken);
        }
        unit.header().committed +=
            static_cast<std::uint64_t>(std::int64_t{lines} * static_cast<std::int64_t>(source::line_bytes));
        unit.take();
    }
    for (int more = 0; more < 16 && !unit.has_ended(); ++more) {
        unit.make();
    }
    return 0;
}
