// What memory alone allows: threads that copy pieces from a source set they cycle through to a destination that is
// larger than the cache, past the cache (non-temporal stores) or by memcpy. The reference of event building over shared
// memory, which has to do the same copies.
//
// Prints "measuring" when the measured time begins, and one line of JSON at the end.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <sys/resource.h>

#include "base/crc.h"
#include "base/stream_copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
constexpr std::size_t line_bytes = 64;  // pieces are whole lines, and so are their places

void copy_plain(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}

#if defined(__x86_64__)
void copy_sse2(std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += line_bytes) {
        const auto* source = reinterpret_cast<const __m128i*>(from + at);
        auto* place = reinterpret_cast<__m128i*>(to + at);
        for (int part = 0; part < 4; ++part)
            _mm_stream_si128(place + part, _mm_load_si128(source + part));
    }
    _mm_sfence();
}

__attribute__((target("avx2"))) void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += line_bytes) {
        const auto* source = reinterpret_cast<const __m256i*>(from + at);
        auto* place = reinterpret_cast<__m256i*>(to + at);
        const __m256i a = _mm256_load_si256(source);
        const __m256i b = _mm256_load_si256(source + 1);
        _mm256_stream_si256(place, a);
        _mm256_stream_si256(place + 1, b);
    }
    _mm_sfence();
}

__attribute__((target("avx512f"))) void copy_avx512(std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += line_bytes) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_load_si512(from + at));
    }
    _mm_sfence();
}
#endif

/// What the shm transport does with large bodies.
void copy_as_transport(std::byte* to, const std::byte* from, std::size_t bytes) {
    incast::base::copy_streaming(to, from, bytes);
    incast::base::fence_streams();
}

/// No copy: each piece's checksum, which is what the reference of bench/checksum_cost.py does.
void checksum_only(std::byte* to, const std::byte* from, std::size_t bytes) {
    const std::uint32_t checksum = incast::base::crc32c({from, bytes});
    std::memcpy(to, &checksum, sizeof checksum);
}

struct Kind {
    std::string_view name;
    Copy copy;
    bool here;
    bool streams = false;
};

std::vector<Kind> kinds() {
    std::vector<Kind> all{
        {"memcpy", copy_plain, true}, {"transport", copy_as_transport, true}, {"crc32c", checksum_only, true}};
#if defined(__x86_64__)
    all.push_back({"sse2", copy_sse2, true, true});
    all.push_back({"avx2", copy_avx2, __builtin_cpu_supports("avx2") != 0, true});
    all.push_back({"avx512", copy_avx512, __builtin_cpu_supports("avx512f") != 0, true});
#endif
    return all;
}

struct Options {
    std::size_t threads = 4;
    std::size_t piece = 65536;
    std::size_t source = std::size_t{64} << 20;       // of all threads
    std::size_t destination = std::size_t{64} << 20;  // of all threads
    double seconds = 5;
    double warm_up = 1;
    std::string stores = "streaming";
    std::uint64_t turn = 0;  // pieces
};

struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

/// Touched, so that no page fault falls into the measured time; not zero, so that it is memory of its own.
Memory make_memory(std::size_t bytes, int fill) {
    constexpr std::size_t page_bytes = 4096;
    auto* memory =
        static_cast<std::byte*>(std::aligned_alloc(page_bytes, (bytes + page_bytes - 1) / page_bytes * page_bytes));
    if (memory == nullptr) {
        std::fprintf(stderr, "streaming_copy: no memory for %zu bytes\n", bytes);
        std::exit(1);
    }
    std::memset(memory, fill, bytes);
    return Memory(memory);
}

struct alignas(line_bytes) Worker {
    Memory source;
    Memory destination;
    std::size_t source_pieces = 0;
    std::size_t destination_pieces = 0;
    std::atomic<std::uint64_t> copied = 0;
};

std::atomic<bool> stop = false;
std::atomic<Copy> chosen = copy_plain;

void work(Worker& worker, std::size_t piece, std::uint64_t turn) {
    std::size_t from = 0;
    std::size_t to = 0;
    std::uint64_t pieces = 0;
    while (!stop.load(std::memory_order_relaxed)) {
        chosen.load(std::memory_order_relaxed)(worker.destination.get() + to * piece,
                                               worker.source.get() + from * piece, piece);
        from = from + 1 == worker.source_pieces ? 0 : from + 1;
        to = to + 1 == worker.destination_pieces ? 0 : to + 1;
        worker.copied.fetch_add(piece, std::memory_order_relaxed);
        if (++pieces == turn) {
            pieces = 0;
            std::this_thread::yield();
        }
    }
}

double wall_seconds() {
    using Clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void sleep_for(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::uint64_t copied_by(const std::vector<Worker>& workers) {
    std::uint64_t sum = 0;
    for (const Worker& worker : workers)
        sum += worker.copied.load(std::memory_order_relaxed);
    return sum;
}

/// The fastest plain non-temporal copy of this machine: slices of each in turn, during the warm-up.
Kind fastest_streaming(const std::vector<Worker>& workers, double seconds) {
    std::vector<Kind> candidates = kinds();
    std::erase_if(candidates, [](const Kind& kind) { return !kind.here || !kind.streams; });
    if (candidates.empty()) return kinds().front();
    constexpr int rounds = 4;
    std::vector<double> copied(candidates.size());
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            chosen = candidates[i].copy;
            const std::uint64_t before = copied_by(workers);
            const double start = wall_seconds();
            sleep_for(seconds / rounds / static_cast<double>(candidates.size()));
            copied[i] += static_cast<double>(copied_by(workers) - before) / (wall_seconds() - start);
        }
    }
    return candidates[static_cast<std::size_t>(std::ranges::max_element(copied) - copied.begin())];
}

/// What `--stores` may name on this processor.
std::vector<std::string> names_of_stores() {
    std::vector<std::string> names{"streaming"};
    for (const Kind& kind : kinds()) {
        if (kind.here) names.emplace_back(kind.name);
    }
    return names;
}

Options read_options(int argc, char** argv) {
    Options options;
    CLI::App app{"What memory alone allows: threads that copy pieces.", "streaming_copy"};
    app.option_defaults()->always_capture_default();
    app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
    app.add_option("--piece", options.piece, "bytes, a multiple of 64")->check(CLI::PositiveNumber);
    app.add_option("--source", options.source, "bytes of all threads");
    app.add_option("--destination", options.destination, "bytes of all threads");
    app.add_option("--seconds", options.seconds)->check(CLI::PositiveNumber);
    app.add_option("--warm-up", options.warm_up)->check(CLI::PositiveNumber);
    app.add_option(
           "--stores", options.stores,
           "streaming: the fastest of sse2, avx2 and avx512; transport: as shm does past the cache; crc32c: no copy,"
           " a checksum of each piece")
        ->check(CLI::IsMember(names_of_stores()));
    app.add_option("--turn", options.turn, "pieces after which a thread lets another one run; 0: never");
    app.callback([&options] {
        if (options.piece % line_bytes != 0) throw CLI::ValidationError("--piece", "a multiple of 64 bytes");
        if (std::min(options.source, options.destination) / options.threads < options.piece)
            throw CLI::ValidationError("--source and --destination", "at least a piece per thread");
    });
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        std::exit(app.exit(error));
    }
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = read_options(argc, argv);
    Kind kind = kinds().front();
    if (options.stores != "streaming") {
        const std::vector<Kind> all = kinds();
        kind = *std::ranges::find(all, options.stores, &Kind::name);
    }
    std::vector<Worker> workers(options.threads);
    for (Worker& worker : workers) {
        worker.source_pieces = options.source / options.threads / options.piece;
        worker.destination_pieces = options.destination / options.threads / options.piece;
        worker.source = make_memory(worker.source_pieces * options.piece, 0x5A);
        worker.destination = make_memory(worker.destination_pieces * options.piece, 0x11);
    }
    chosen = kind.copy;
    std::vector<std::thread> threads;
    threads.reserve(workers.size());
    for (Worker& worker : workers)
        threads.emplace_back(work, std::ref(worker), options.piece, options.turn);
    if (options.stores == "streaming") {
        kind = fastest_streaming(workers, options.warm_up);
        chosen = kind.copy;
    } else {
        sleep_for(options.warm_up);
    }
    std::printf("measuring\n");
    std::fflush(stdout);
    const std::uint64_t before = copied_by(workers);
    const double cpu = cpu_seconds();
    const double start = wall_seconds();
    sleep_for(options.seconds);
    const auto bytes = static_cast<double>(copied_by(workers) - before);
    const double seconds = wall_seconds() - start;
    const double used = cpu_seconds() - cpu;
    stop = true;
    for (std::thread& thread : threads)
        thread.join();
    std::printf(
        "{\"bytes_per_s\": %.0f, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"stores\": \"%.*s\", \"threads\": %zu,"
        " \"piece_bytes\": %zu, \"source_bytes\": %zu, \"destination_bytes\": %zu}\n",
        bytes / seconds, seconds, used, static_cast<int>(kind.name.size()), kind.name.data(), options.threads,
        options.piece, options.source, options.destination);
    return 0;
}
