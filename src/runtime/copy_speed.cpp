#include "runtime/copy_speed.h"

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "base/stream_copy.h"
#include "runtime/machine.h"

namespace incast::runtime {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t piece_bytes = std::size_t{64} << 10;
constexpr std::size_t shortest_bytes = 4 * mib;  // in less time a clock tick or an interrupt weighs too much
constexpr std::size_t longest_bytes = 16 * mib;  // all of it is quick enough for the start of a run
constexpr std::size_t source_bytes = 64 * mib;   // of which nothing is left in a cache when it is gone round again
constexpr unsigned pairs = 6;
constexpr unsigned laps_before = 3;    // until a cache that is almost full holds what it can of what is gone round
constexpr unsigned most_threads = 16;  // more find nothing else, and take longer to start

struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const { munmap(memory, bytes); }
};
using Memory = std::unique_ptr<std::byte, Unmap>;

/// On pages as sources have them, or slots, which are shared and seldom huge.
Memory touched(std::size_t bytes, bool huge_pages) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Memory(nullptr, Unmap{bytes});
    madvise(memory, bytes, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);  // a hint
    std::memset(memory, 1, bytes);
    return Memory(static_cast<std::byte*>(memory), Unmap{bytes});
}

void copy_plain(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}

using Copy = void(std::byte* to, const std::byte* from, std::size_t bytes);

/// What one thread goes round.
struct Destination {
    std::byte* memory;
    std::size_t bytes;
};

/// A source that all threads go round, and where this one is.
struct Source {
    const std::byte* memory;
    std::size_t at;
};

/// How long it takes to copy so much that way, in which the destination is gone round at least once.
Time time_lap(Copy* copy, const Destination& to, Source& from, std::size_t lap_bytes) {
    const Time begin = monotonic_now();
    for (std::size_t done = 0; done < lap_bytes; done += piece_bytes) {
        copy(to.memory + done % to.bytes, from.memory + from.at, piece_bytes);
        from.at = (from.at + piece_bytes) % source_bytes;
    }
    base::fence_streams();
    return std::max<Time>(monotonic_now() - begin, 1);
}

}  // namespace

double plain_over_streaming(std::uint64_t cached_bytes, unsigned cores) {
    const unsigned threads = std::clamp(cores, 1U, most_threads);
    const std::size_t in_cache =
        std::clamp<std::size_t>(cached_bytes, piece_bytes, longest_bytes) / piece_bytes * piece_bytes;
    const std::size_t lap_bytes = std::max(in_cache, shortest_bytes);
    const Memory memory = touched(source_bytes, true);
    const Memory slots = touched(in_cache * threads, false);
    if (!memory || !slots) return 1.0;
    std::barrier together(threads);
    std::vector<double> ratios(std::size_t{pairs} * threads);
    const auto measure = [&](std::size_t thread) {
        const Destination to{slots.get() + thread * in_cache, in_cache};
        Source source{memory.get(), source_bytes / piece_bytes * thread / threads * piece_bytes};
        // All at once, as nodes copy, which share the cache and the memory.
        const auto time = [&](Copy* copy) {
            together.arrive_and_wait();
            for (unsigned lap = 0; lap < laps_before; ++lap)
                time_lap(copy, to, source, lap_bytes);
            return static_cast<double>(time_lap(copy, to, source, lap_bytes));
        };
        // In turn, as a machine that others use is faster in one moment than in the next.
        for (unsigned pair = 0; pair < pairs; ++pair) {
            const double first = time(pair % 2 == 0 ? copy_plain : base::copy_streaming);
            const double second = time(pair % 2 == 0 ? base::copy_streaming : copy_plain);
            ratios[thread * pairs + pair] = pair % 2 == 0 ? second / first : first / second;
        }
    };
    unsigned started = 1;
    {
        std::vector<std::jthread> others;
        others.reserve(threads);
        try {
            for (; started < threads; ++started)
                others.emplace_back(measure, started);
        } catch (const std::system_error&) {
            // A limit on threads or on memory: those that run are measured, and wait for no more.
            for (unsigned missing = started; missing < threads; ++missing)
                together.arrive_and_drop();
        }
        measure(0);
    }
    ratios.resize(std::size_t{pairs} * started);
    const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
    std::ranges::nth_element(ratios, middle);
    return *middle;
}

}  // namespace incast::runtime
