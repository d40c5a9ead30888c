#include "softrio/wire/crc16.h"

#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace incast::softrio::wire {

namespace {

constexpr std::uint16_t polynomial = 0x1021;
constexpr std::uint16_t first = 0xFFFF;
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

#if defined(__x86_64__)
// x^power modulo the polynomial: what a half is multiplied with to stand that many bits further on.
constexpr std::uint64_t power_of_x(unsigned power) {
    return times_x(1, power);
}

__attribute__((target("pclmul,ssse3"))) inline __m128i fold(__m128i value, __m128i by, __m128i next) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(value, by, 0x11), _mm_clmulepi64_si128(value, by, 0x00)),
                         next);
}

__attribute__((target("pclmul,ssse3"))) std::uint16_t by_multiplication(const std::byte* at, std::size_t blocks,
                                                                        std::uint16_t crc) {
    const __m128i reversed = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const auto load = [&](std::size_t index) __attribute__((target("pclmul,ssse3"))) {
        return _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + index * block)), reversed);
    };
    const __m128i by_one =
        _mm_set_epi64x(static_cast<long long>(power_of_x(128 + 64)), static_cast<long long>(power_of_x(128)));
    const __m128i by_four =
        _mm_set_epi64x(static_cast<long long>(power_of_x(512 + 64)), static_cast<long long>(power_of_x(512)));
    __m128i value = _mm_xor_si128(load(0), _mm_set_epi64x(static_cast<long long>(crc) << 48, 0));
    std::size_t index = 1;
    if (blocks >= 8) {
        __m128i second = load(1);
        __m128i third = load(2);
        __m128i fourth = load(3);
        for (index = 4; index + 4 <= blocks; index += 4) {
            value = fold(value, by_four, load(index));
            second = fold(second, by_four, load(index + 1));
            third = fold(third, by_four, load(index + 2));
            fourth = fold(fourth, by_four, load(index + 3));
        }
        value = fold(fold(fold(value, by_one, second), by_one, third), by_one, fourth);
    }
    for (; index < blocks; ++index)
        value = fold(value, by_one, load(index));
    alignas(block) std::array<std::byte, block> last;
    _mm_store_si128(reinterpret_cast<__m128i*>(last.data()), _mm_shuffle_epi8(value, reversed));
    return short_crc(last.data(), block, 0);
}

bool can_multiply() {
    static const bool can = __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("ssse3") != 0;
    return can;
}
#endif

}  // namespace

std::uint16_t crc16_by_table(std::span<const std::byte> bytes) {
    const std::size_t odd = bytes.size() % block;
    std::uint16_t crc = short_crc(bytes.data(), odd, first);
    for (std::size_t at = odd; at < bytes.size(); at += block)
        crc = short_crc(bytes.data() + at, block, crc);
    return crc;
}

std::uint16_t crc16(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
    if (bytes.size() >= 2 * block && can_multiply()) {
        const std::size_t odd = bytes.size() % block;
        const std::uint16_t crc = short_crc(bytes.data(), odd, first);
        return by_multiplication(bytes.data() + odd, bytes.size() / block, crc);
    }
#endif
    return crc16_by_table(bytes);
}

}  // namespace incast::softrio::wire
