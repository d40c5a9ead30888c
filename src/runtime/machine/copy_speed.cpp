#include "runtime/machine/copy_speed.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "base/stream_copy.h"
#include "runtime/machine/machine.h"
#include "runtime/machine/run_clock.h"

namespace incast::runtime {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t piece_bytes = std::size_t{64} << 10;
constexpr std::size_t shortest_bytes = 4 * mib;  // in less time a clock tick or an interrupt weighs too much
constexpr std::size_t longest_bytes = 16 * mib;  // all of it is quick enough for the start of a run
constexpr std::size_t source_bytes = 64 * mib;   // of which nothing is left in a cache when it is gone round again
constexpr unsigned pairs = 6;                    // that count
constexpr unsigned most_pairs = 36;  // of which others may take turns on the cores: for half a second, as they start
constexpr double least_share = 0.9;  // of a core in a pair that counts
constexpr auto rest_beside_others = std::chrono::milliseconds(10);
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
std::int64_t time_lap(Copy* copy, const Destination& to, Source& from, std::size_t lap_bytes) {
    const std::int64_t begin_ns = monotonic_ns();
    for (std::size_t done = 0; done < lap_bytes; done += piece_bytes) {
        copy(to.memory + done % to.bytes, from.memory + from.at, piece_bytes);
        from.at = (from.at + piece_bytes) % source_bytes;
    }
    base::fence_streams();
    return std::max<std::int64_t>(monotonic_ns() - begin_ns, 1);
}

/// The last lap of some in a row, and how much of a core they had since all threads were let go.
struct Laps {
    double last;
    double share;
};

/// What one thread finds in a pair; 0 of one that could not be started.
struct Reading {
    double plain_over_streaming = 0;
    bool beside_others = false;  // who took turns on its core
};

Reading reading_of(const Laps& plain, const Laps& streaming) {
    return {streaming.last / plain.last, std::min(plain.share, streaming.share) < least_share};
}

/// Of the pairs in which all cores were theirs, or of all if there are none.
double middle_of(std::span<const Reading> readings, std::size_t threads) {
    std::vector<double> alone;
    std::vector<double> all;
    for (; !readings.empty(); readings = readings.subspan(threads)) {
        const auto pair = readings.first(threads);
        const bool beside_others = std::ranges::any_of(pair, &Reading::beside_others);
        for (const Reading& reading : pair) {
            if (reading.plain_over_streaming == 0) continue;
            all.push_back(reading.plain_over_streaming);
            if (!beside_others) alone.push_back(reading.plain_over_streaming);
        }
    }
    std::vector<double>& ratios = alone.empty() ? all : alone;
    const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
    std::ranges::nth_element(ratios, middle);
    return *middle;
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
    std::int64_t let_go_ns = 0;
    std::barrier together(threads, [&let_go_ns]() noexcept { let_go_ns = monotonic_ns(); });
    std::vector<Reading> readings(std::size_t{most_pairs} * threads);
    const auto measure = [&](std::size_t thread) {
        const Destination to{slots.get() + thread * in_cache, in_cache};
        Source source{memory.get(), source_bytes / piece_bytes * thread / threads * piece_bytes};
        // All at once, as nodes copy, which share the cache and the memory.
        const auto time = [&](Copy* copy) {
            together.arrive_and_wait();
            const std::int64_t begin_ns = let_go_ns;
            const std::uint64_t cpu_begin_ns = thread_cpu_ns();
            for (unsigned lap = 0; lap < laps_before; ++lap)
                time_lap(copy, to, source, lap_bytes);
            const std::int64_t last_ns = time_lap(copy, to, source, lap_bytes);
            const auto cpu_ns = static_cast<double>(thread_cpu_ns() - cpu_begin_ns);
            return Laps{static_cast<double>(last_ns), cpu_ns / static_cast<double>(monotonic_ns() - begin_ns)};
        };
        // In turn, as a machine that others use is faster in one moment than in the next.
        unsigned counted = 0;
        for (unsigned pair = 0; pair < most_pairs && counted < pairs; ++pair) {
            const Laps first = time(pair % 2 == 0 ? copy_plain : base::copy_streaming);
            const Laps second = time(pair % 2 == 0 ? base::copy_streaming : copy_plain);
            const std::span<Reading> all = std::span(readings).subspan(std::size_t{pair} * threads, threads);
            all[thread] = pair % 2 == 0 ? reading_of(first, second) : reading_of(second, first);
            together.arrive_and_wait();
            // Consumers that start beside the run use the cache that nodes will have: wait for them.
            if (std::ranges::any_of(all, &Reading::beside_others)) {
                std::this_thread::sleep_for(rest_beside_others);
            } else {
                ++counted;
            }
        }
    };
    {
        unsigned started = 1;
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
    return middle_of(readings, threads);
}

}  // namespace incast::runtime
