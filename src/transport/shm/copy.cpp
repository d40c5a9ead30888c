#include "transport/shm/copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace incast::transport::shm {

#if defined(__x86_64__)

namespace {

constexpr std::size_t line_bytes = 64;

// Whole lines, `to` aligned to them. SSE2 is part of x86-64; wider stores are used where the processor has them.
void stream_sse2(std::byte* to, const std::byte* from, std::size_t lines) {
    for (; lines > 0; --lines, to += line_bytes, from += line_bytes) {
        const auto* source = reinterpret_cast<const __m128i*>(from);
        auto* place = reinterpret_cast<__m128i*>(to);
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

__attribute__((target("avx"))) void stream_avx(std::byte* to, const std::byte* from, std::size_t lines) {
    for (; lines > 0; --lines, to += line_bytes, from += line_bytes) {
        const auto* source = reinterpret_cast<const __m256i*>(from);
        auto* place = reinterpret_cast<__m256i*>(to);
        const __m256i a = _mm256_loadu_si256(source);
        const __m256i b = _mm256_loadu_si256(source + 1);
        _mm256_stream_si256(place, a);
        _mm256_stream_si256(place + 1, b);
    }
}

using Stream = void (*)(std::byte*, const std::byte*, std::size_t);
const Stream stream_lines = __builtin_cpu_supports("avx") ? stream_avx : stream_sse2;

}  // namespace

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
    const std::size_t before = (line_bytes - reinterpret_cast<std::uintptr_t>(to) % line_bytes) % line_bytes;
    if (bytes < before + line_bytes) {
        std::memcpy(to, from, bytes);
        return;
    }
    std::memcpy(to, from, before);
    const std::size_t lines = (bytes - before) / line_bytes;
    stream_lines(to + before, from + before, lines);
    const std::size_t done = before + lines * line_bytes;
    std::memcpy(to + done, from + done, bytes - done);
}

void fence_streams() {
    _mm_sfence();
}

const char* streaming_stores() {
    return stream_lines == stream_avx ? "AVX" : "SSE2";
}

#else

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}
void fence_streams() {}
const char* streaming_stores() {
    return "none";
}

#endif

}  // namespace incast::transport::shm
