#include "runtime/copy_speed.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>

#include <sys/mman.h>

#include "base/stream_copy.h"
#include "runtime/machine.h"

namespace incast::runtime {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t piece_bytes = std::size_t{64} << 10;
constexpr std::size_t slice_bytes = 4 * mib;
constexpr std::size_t source_bytes = 64 * mib;  // of which nothing is left in a cache when a slice comes round again
constexpr std::size_t slices = source_bytes / slice_bytes;

struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const { munmap(memory, bytes); }
};
using Memory = std::unique_ptr<std::byte, Unmap>;

Memory touched(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Memory(nullptr, Unmap{bytes});
    madvise(memory, bytes, MADV_HUGEPAGE);  // touched faster; a refusal makes no difference to the ratio
    std::memset(memory, 1, bytes);
    return Memory(static_cast<std::byte*>(memory), Unmap{bytes});
}

void copy_plain(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}

/// A destination that is gone round in pieces, and how long each slice took.
struct Way {
    void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes);
    Memory destination;
    std::size_t bytes;
    std::size_t at = 0;
    std::array<Time, slices> took{};

    void time_slice(const std::byte* from, Time& into) {
        const Time begin = monotonic_now();
        for (std::size_t done = 0; done < slice_bytes; done += piece_bytes) {
            copy(destination.get() + at, from + done, piece_bytes);
            at = at + 2 * piece_bytes > bytes ? 0 : at + piece_bytes;
        }
        base::fence_streams();
        into = std::max<Time>(monotonic_now() - begin, 1);
    }
};

}  // namespace

double plain_over_streaming(std::uint64_t cached_bytes) {
    const std::size_t in_cache = std::clamp<std::size_t>(cached_bytes, piece_bytes, source_bytes);
    const Memory source = touched(source_bytes);
    Way plain{copy_plain, touched(in_cache), in_cache};
    Way streaming{base::copy_streaming, touched(source_bytes), source_bytes};
    if (!source || !plain.destination || !streaming.destination) return 1.0;
    // In turn, as a machine that others use is faster in one moment than in the next, and the two of a moment against
    // each other; twice the way round the source, so that each has copied each slice.
    for (std::size_t turn = 0; turn < 2 * slices; ++turn) {
        Way& way = (turn + turn / slices) % 2 == 0 ? plain : streaming;
        way.time_slice(source.get() + turn % slices * slice_bytes, way.took[turn / 2]);
    }
    std::array<double, slices> ratios{};
    std::ranges::transform(streaming.took, plain.took, ratios.begin(), std::divides<double>());
    std::ranges::nth_element(ratios, ratios.begin() + slices / 2);
    return ratios[slices / 2];
}

}  // namespace incast::runtime
