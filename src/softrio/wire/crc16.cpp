#include "softrio/wire/crc16.h"

#include <algorithm>
#include <array>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace incast::softrio::wire {

namespace {

constexpr std::uint16_t polynomial = 0x1021;
constexpr std::size_t block = 16;

constexpr std::uint16_t times_x(std::uint16_t value, unsigned power) {
    for (unsigned step = 0; step < power; ++step)
        value = static_cast<std::uint16_t>((value << 1) ^ ((value & 0x8000) != 0 ? polynomial : 0));
    return value;
}

/// tables[n][b]: b with n bytes behind it, times x^16, modulo the polynomial.
constexpr auto make_tables() {
    std::array<std::array<std::uint16_t, 256>, block> tables{};
    for (unsigned byte = 0; byte < 256; ++byte) {
        auto value = times_x(static_cast<std::uint16_t>(byte << 8), 8);
        for (auto& table : tables) {
            table[byte] = value;
            value = times_x(value, 8);
        }
    }
    return tables;
}

constexpr auto tables = make_tables();

/// At most 16 bytes.
std::uint16_t short_crc(const std::byte* at, std::size_t bytes, std::uint16_t crc) {
    std::uint16_t result = 0;
    for (std::size_t index = 0; index < bytes; ++index) {
        auto byte = static_cast<std::uint8_t>(at[index]);
        if (index == 0) byte ^= static_cast<std::uint8_t>(crc >> 8);
        if (index == 1) byte ^= static_cast<std::uint8_t>(crc);
        result ^= tables[bytes - 1 - index][byte];
    }
    if (bytes == 0) return crc;
    if (bytes == 1) result ^= static_cast<std::uint16_t>(crc << 8);
    return result;
}

std::uint16_t by_table(std::span<const std::byte> bytes) {
    const std::size_t odd = bytes.size() % block;
    std::uint16_t crc = short_crc(bytes.data(), odd, crc16_begin);
    for (std::size_t at = odd; at < bytes.size(); at += block)
        crc = short_crc(bytes.data() + at, block, crc);
    return crc;
}

/// Of the first three arguments of copy and take.
std::uint16_t by_table_of_parts(std::uint64_t high, std::uint64_t low, std::span<const std::byte> from) {
    std::array<std::byte, block> begin;
    for (std::size_t index = 0; index < block; ++index)
        begin[index] = static_cast<std::byte>((index < 8 ? high : low) >> (56 - index % 8 * 8));
    std::uint16_t crc = short_crc(begin.data(), block, 0);
    std::size_t at = 0;
    for (; at + block <= from.size(); at += block)
        crc = short_crc(from.data() + at, block, crc);
    return short_crc(from.data() + at, from.size() - at, crc);
}

using OfParts = std::uint16_t (*)(std::uint64_t high, std::uint64_t low, std::span<const std::byte> from);

template <OfParts of_parts>
std::uint16_t copy_by(std::uint64_t high, std::uint64_t low, std::span<const std::byte> from, std::byte* to) {
    std::ranges::copy(from, to);
    return of_parts(high, low, from);
}

template <OfParts of_parts>
bool take_by(std::uint64_t high, std::uint64_t low, std::span<const std::byte> from, std::uint16_t crc, std::byte* to) {
    if (of_parts(high, low, from) != crc) return false;
    if (to != nullptr) std::ranges::copy(from, to);
    return true;
}

#if defined(__x86_64__)
constexpr unsigned divisor = 0x1'0000 | polynomial;

/// x^power modulo the polynomial: what a part is multiplied with to stand that many bits further on.
consteval long long power_of_x(unsigned power) {
    return times_x(1, power);
}

/// x^64 divided by the polynomial, without the remainder.
consteval long long quotient_of_x64() {
    std::uint64_t quotient = 0;
    std::uint64_t rest = 1;
    for (int bit = 0; bit < 64; ++bit) {
        rest <<= 1;
        const std::uint64_t goes = rest >> 16;
        quotient = quotient << 1 | goes;
        if (goes != 0) rest ^= divisor;
    }
    return static_cast<long long>(quotient);
}

__attribute__((target("pclmul,ssse3"))) inline __m128i load(const std::byte* at, std::size_t index) {
    const __m128i reversed = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + index * block)), reversed);
}

/// `value`, its halves multiplied with those of `by`, and what stands where that comes to stand.
__attribute__((target("pclmul,ssse3"))) inline __m128i fold(__m128i value, __m128i by, __m128i next) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(value, by, 0x11), _mm_clmulepi64_si128(value, by, 0x00)),
                         next);
}

__attribute__((target("pclmul,ssse3"))) inline __m128i fold_rest(__m128i value, const std::byte* at, std::size_t index,
                                                                 std::size_t blocks) {
    const __m128i by_one = _mm_set_epi64x(power_of_x(128 + 64), power_of_x(128));
    for (; index < blocks; ++index)
        value = fold(value, by_one, load(at, index));
    return value;
}

/// What 80 bits leave when they are divided by the polynomial (Barrett's reduction).
__attribute__((target("pclmul,ssse3"))) inline std::uint16_t short_remainder(__m128i value) {
    const __m128i power = _mm_set_epi64x(0, power_of_x(64));
    const __m128i division = _mm_set_epi64x(quotient_of_x64(), divisor);
    value = _mm_xor_si128(_mm_clmulepi64_si128(value, power, 0x01), _mm_move_epi64(value));
    const __m128i quotient = _mm_srli_si128(_mm_clmulepi64_si128(_mm_srli_epi64(value, 16), division, 0x10), 6);
    return static_cast<std::uint16_t>(
        _mm_cvtsi128_si64(_mm_xor_si128(value, _mm_clmulepi64_si128(quotient, division, 0x00))));
}

/// What 128 bits with 16 zeros behind them leave.
__attribute__((target("pclmul,ssse3"))) inline std::uint16_t remainder(__m128i value) {
    const __m128i power = _mm_set_epi64x(power_of_x(80), 0);
    return short_remainder(
        _mm_xor_si128(_mm_clmulepi64_si128(value, power, 0x11), _mm_slli_si128(_mm_move_epi64(value), 2)));
}

__attribute__((target("pclmul,ssse3"))) inline __m128i begin_with(std::uint16_t crc) {
    const std::uint64_t high = std::uint64_t{crc} << 48;
    return _mm_set_epi64x(static_cast<long long>(high), 0);
}

__attribute__((target("pclmul,ssse3"))) std::uint16_t by_multiplication(std::span<const std::byte> bytes) {
    if (bytes.size() < 2 * block) return by_table(bytes);
    const std::size_t odd = bytes.size() % block;
    const std::size_t blocks = bytes.size() / block;
    const std::byte* at = bytes.data() + odd;
    __m128i value = _mm_xor_si128(load(at, 0), begin_with(short_crc(bytes.data(), odd, crc16_begin)));
    std::size_t index = 1;
    if (blocks >= 8) {
        const __m128i by_four = _mm_set_epi64x(power_of_x(512 + 64), power_of_x(512));
        const __m128i by_one = _mm_set_epi64x(power_of_x(128 + 64), power_of_x(128));
        __m128i second = load(at, 1);
        __m128i third = load(at, 2);
        __m128i fourth = load(at, 3);
        for (index = 4; index + 4 <= blocks; index += 4) {
            value = fold(value, by_four, load(at, index));
            second = fold(second, by_four, load(at, index + 1));
            third = fold(third, by_four, load(at, index + 2));
            fourth = fold(fourth, by_four, load(at, index + 3));
        }
        value = fold(fold(fold(value, by_one, second), by_one, third), by_one, fourth);
    }
    return remainder(fold_rest(value, at, index, blocks));
}

__attribute__((target("pclmul,ssse3"))) std::uint16_t by_multiplication_of_parts(std::uint64_t high, std::uint64_t low,
                                                                                 std::span<const std::byte> from) {
    __m128i value = _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
    const std::size_t whole = from.size() / block * block;
    value = fold_rest(value, from.data(), 0, from.size() / block);
    return short_crc(from.data() + whole, from.size() - whole, remainder(value));
}

#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of gcc 12's own headers (PR 105593)
#endif
// Four blocks in one register.
__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) inline __m512i reverse(__m512i bytes) {
    return _mm512_shuffle_epi8(
        bytes, _mm512_broadcast_i32x4(_mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
}

__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) inline __m512i multiply(__m512i value, __m512i by) {
    return _mm512_xor_si512(_mm512_clmulepi64_epi128(value, by, 0x11), _mm512_clmulepi64_epi128(value, by, 0x00));
}

__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) inline __m512i fold_four(__m512i value,
                                                                                             __m512i next) {
    const __m512i by_four = _mm512_broadcast_i32x4(_mm_set_epi64x(power_of_x(512 + 64), power_of_x(512)));
    return _mm512_xor_si512(multiply(value, by_four), next);
}

/// Four blocks as one.
__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) inline __m128i gather(__m512i value) {
    // The first three go to where the last one is.
    const __m512i places = _mm512_set_epi64(0, 0, power_of_x(128 + 64), power_of_x(128), power_of_x(256 + 64),
                                            power_of_x(256), power_of_x(384 + 64), power_of_x(384));
    const __m512i moved = multiply(value, places);
    const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64(moved, 1));
    return _mm_xor_si128(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)),
                         _mm512_extracti32x4_epi32(value, 3));
}

__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) std::uint16_t by_wide_multiplication(
    std::span<const std::byte> bytes) {
    if (bytes.size() < 4 * block) return by_multiplication(bytes);
    const std::size_t odd = bytes.size() % block;
    const std::size_t blocks = bytes.size() / block;
    const std::byte* at = bytes.data() + odd;
    __m512i value = _mm512_xor_si512(reverse(_mm512_loadu_si512(at)),
                                     _mm512_zextsi128_si512(begin_with(short_crc(bytes.data(), odd, crc16_begin))));
    std::size_t index = 4;
    for (; index + 4 <= blocks; index += 4)
        value = fold_four(value, reverse(_mm512_loadu_si512(at + index * block)));
    return remainder(fold_rest(gather(value), at, index, blocks));
}

/// What the four blocks of which the last one ends so many blocks before the end are multiplied with, so that their sum
/// with 16 zeros behind the end is left: 80 bits.
template <unsigned behind>
__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) inline __m512i place(__m512i blocks) {
    constexpr unsigned last = behind * 128 + 16;
    return multiply(blocks, _mm512_set_epi64(power_of_x(last + 64), power_of_x(last), power_of_x(last + 192),
                                             power_of_x(last + 128), power_of_x(last + 320), power_of_x(last + 256),
                                             power_of_x(last + 448), power_of_x(last + 384)));
}

// The payload of most packets: no block waits for another one. It is loaded once: to load what was just stored, at
// another alignment, makes the CPU wait.
constexpr std::size_t wide_bytes = 256;

struct Payload {
    __m512i first, second, third, fourth;
};

__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) inline Payload load_payload(const std::byte* at) {
    return {_mm512_loadu_si512(at), _mm512_loadu_si512(at + 64), _mm512_loadu_si512(at + 128),
            _mm512_loadu_si512(at + 192)};
}

__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) inline void store(const Payload& payload,
                                                                                      std::byte* to) {
    _mm512_storeu_si512(to, payload.first);
    _mm512_storeu_si512(to + 64, payload.second);
    _mm512_storeu_si512(to + 128, payload.third);
    _mm512_storeu_si512(to + 192, payload.fourth);
}

__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) inline std::uint16_t crc_of(
    std::uint64_t high, std::uint64_t low, const Payload& payload) {
    const __m512i sum =
        _mm512_xor_si512(_mm512_xor_si512(place<12>(reverse(payload.first)), place<8>(reverse(payload.second))),
                         _mm512_xor_si512(place<4>(reverse(payload.third)), place<0>(reverse(payload.fourth))));
    const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    const __m128i data = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const __m128i begin = _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
    constexpr unsigned behind = wide_bytes * 8 + 16;
    return short_remainder(fold(begin, _mm_set_epi64x(power_of_x(behind + 64), power_of_x(behind)), data));
}

__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) std::uint16_t copy_by_wide_multiplication(
    std::uint64_t high, std::uint64_t low, std::span<const std::byte> from, std::byte* to) {
    if (from.size() != wide_bytes) return copy_by<by_multiplication_of_parts>(high, low, from, to);
    const Payload payload = load_payload(from.data());
    store(payload, to);
    return crc_of(high, low, payload);
}

__attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,ssse3"))) bool take_by_wide_multiplication(
    std::uint64_t high, std::uint64_t low, std::span<const std::byte> from, std::uint16_t crc, std::byte* to) {
    if (from.size() != wide_bytes) return take_by<by_multiplication_of_parts>(high, low, from, crc, to);
    const Payload payload = load_payload(from.data());
    if (crc_of(high, low, payload) != crc) return false;
    if (to != nullptr) store(payload, to);
    return true;
}
#ifndef __clang__
#pragma GCC diagnostic pop
#endif
#endif

const std::vector<Crc16Method>& methods() {
    static const std::vector<Crc16Method> all = [] {
        std::vector<Crc16Method> found = {{"tables", by_table, copy_by<by_table_of_parts>, take_by<by_table_of_parts>}};
#if defined(__x86_64__)
        if (__builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("ssse3") != 0) {
            found.push_back({"PCLMULQDQ", by_multiplication, copy_by<by_multiplication_of_parts>,
                             take_by<by_multiplication_of_parts>});
            if (__builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0)
                found.push_back(
                    {"VPCLMULQDQ", by_wide_multiplication, copy_by_wide_multiplication, take_by_wide_multiplication});
        }
#endif
        return found;
    }();
    return all;
}

}  // namespace

std::span<const Crc16Method> crc16_methods() {
    return methods();
}

std::uint16_t crc16(std::span<const std::byte> bytes) {
    static const auto fastest = methods().back().compute;
    return fastest(bytes);
}

}  // namespace incast::softrio::wire
