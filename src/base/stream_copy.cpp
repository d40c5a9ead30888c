#include "base/stream_copy.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace incast::base {

#if defined(__x86_64__)

namespace {

constexpr std::size_t line_bytes = 64;
// The prefetchers of a core follow several streams, but none of them beyond its page: reading four pages side by side
// keeps Intel's busy where one stream would wait for memory at the start of every page. AMD's (Zen 4) do better with
// one. bench/streaming_copy shows it, docs/experiments.md has the figures.
constexpr std::size_t side_by_side = 4;
constexpr std::size_t page_lines = 4096 / line_bytes;

// `ways` runs of whole lines, `apart` bytes from one another; `to` is aligned to lines. SSE2 is part of x86-64; wider
// stores are used where the processor has them.
template <std::size_t ways>
void stream_sse2(std::byte* to, const std::byte* from, std::size_t lines, std::size_t apart) {
    for (; lines > 0; --lines, to += line_bytes, from += line_bytes) {
        for (std::size_t way = 0; way < ways; ++way) {
            const auto* source = reinterpret_cast<const __m128i*>(from + way * apart);
            auto* place = reinterpret_cast<__m128i*>(to + way * apart);
            const __m128i a = _mm_loadu_si128(source);
            const __m128i b = _mm_loadu_si128(source + 1);
            const __m128i c = _mm_loadu_si128(source + 2);
            const __m128i d = _mm_loadu_si128(source + 3);
            _mm_stream_si128(place, a);
            _mm_stream_si128(place + 1, b);
            _mm_stream_si128(place + 2, c);
            _mm_stream_si128(place + 3, d);
        }
    }
}

template <std::size_t ways>
__attribute__((target("avx"))) void stream_avx(std::byte* to, const std::byte* from, std::size_t lines,
                                               std::size_t apart) {
    for (; lines > 0; --lines, to += line_bytes, from += line_bytes) {
        __m256i low[ways];
        __m256i high[ways];
        for (std::size_t way = 0; way < ways; ++way) {
            const auto* source = reinterpret_cast<const __m256i*>(from + way * apart);
            low[way] = _mm256_loadu_si256(source);
            high[way] = _mm256_loadu_si256(source + 1);
        }
        for (std::size_t way = 0; way < ways; ++way) {
            auto* place = reinterpret_cast<__m256i*>(to + way * apart);
            _mm256_stream_si256(place, low[way]);
            _mm256_stream_si256(place + 1, high[way]);
        }
    }
}

template <std::size_t ways>
__attribute__((target("avx512f"))) void stream_avx512(std::byte* to, const std::byte* from, std::size_t lines,
                                                      std::size_t apart) {
    for (; lines > 0; --lines, to += line_bytes, from += line_bytes) {
        __m512i line[ways];
        for (std::size_t way = 0; way < ways; ++way)
            line[way] = _mm512_loadu_si512(from + way * apart);
        for (std::size_t way = 0; way < ways; ++way)
            _mm512_stream_si512(reinterpret_cast<__m512i*>(to + way * apart), line[way]);
    }
}

using StreamWays = void (*)(std::byte*, const std::byte*, std::size_t, std::size_t);

template <std::size_t ways, StreamWays stream>
void copy_with(std::byte* to, const std::byte* from, std::size_t bytes) {
    const std::size_t before = (line_bytes - reinterpret_cast<std::uintptr_t>(to) % line_bytes) % line_bytes;
    if (bytes < before + ways * line_bytes) {
        std::memcpy(to, from, bytes);
        return;
    }
    std::memcpy(to, from, before);
    std::size_t done = before;
    constexpr std::size_t page_bytes = page_lines * line_bytes;
    for (; bytes - done >= ways * page_bytes; done += ways * page_bytes) {
        stream(to + done, from + done, page_lines, page_bytes);
    }
    // Less than four pages are left: a quarter of them each, and a rest of less than a line for each.
    const std::size_t lines = (bytes - done) / line_bytes / ways;
    stream(to + done, from + done, lines, lines * line_bytes);
    done += ways * lines * line_bytes;
    std::memcpy(to + done, from + done, bytes - done);
}

const bool has_avx = __builtin_cpu_supports("avx") != 0;
const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0;

const std::array all_stores{
    StreamingStores{"AVX-512", 1, has_avx512, copy_with<1, stream_avx512<1>>},
    StreamingStores{"AVX-512", side_by_side, has_avx512, copy_with<side_by_side, stream_avx512<side_by_side>>},
    StreamingStores{"AVX", 1, has_avx, copy_with<1, stream_avx<1>>},
    StreamingStores{"AVX", side_by_side, has_avx, copy_with<side_by_side, stream_avx<side_by_side>>},
    StreamingStores{"SSE2", 1, true, copy_with<1, stream_sse2<1>>},
    StreamingStores{"SSE2", side_by_side, true, copy_with<side_by_side, stream_sse2<side_by_side>>},
};

const auto copy_best = std::ranges::find_if(all_stores, [](const StreamingStores& stores) {
                           return stores.here && (stores.streams == 1) == (__builtin_cpu_is("amd") != 0);
                       })->copy;

}  // namespace

std::span<const StreamingStores> streaming_stores() {
    return all_stores;
}

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
    copy_best(to, from, bytes);
}

void fence_streams() {
    _mm_sfence();
}

#else

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}
void fence_streams() {}
std::span<const StreamingStores> streaming_stores() {
    return {};
}

#endif

}  // namespace incast::base
