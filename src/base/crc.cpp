#include "base/crc.h"

#include <array>
#include <cstring>

#if defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace incast::base {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t index = 0; index < 256; ++index) {
        std::uint32_t value = index;
        for (int bit = 0; bit < 8; ++bit) {
            value = (value >> 1) ^ ((value & 1U) != 0 ? 0x82f63b78U : 0U);
        }
        table[index] = value;
    }
    return table;
}

constexpr std::array<std::uint32_t, 256> table = make_table();

std::uint32_t by_table(std::span<const std::byte> bytes, std::uint32_t state) {
    for (const std::byte byte : bytes) {
        state = (state >> 8) ^ table[(state ^ static_cast<std::uint32_t>(byte)) & 0xffU];
    }
    return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::span<const std::byte> bytes, std::uint32_t state) {
    std::uint64_t wide = state;
    while (bytes.size() >= sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data(), sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
        bytes = bytes.subspan(sizeof word);
    }
    return by_table(bytes, static_cast<std::uint32_t>(wide));
}

bool has_instruction() {
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__aarch64__) && defined(__linux__)
__attribute__((target("+crc"))) std::uint32_t by_instruction(std::span<const std::byte> bytes, std::uint32_t state) {
    while (bytes.size() >= sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data(), sizeof word);
        state = __crc32cd(state, word);
        bytes = bytes.subspan(sizeof word);
    }
    return by_table(bytes, state);
}

bool has_instruction() {
    return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#else
constexpr bool has_instruction() {
    return false;
}
constexpr auto by_instruction = by_table;
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
    const std::uint32_t state = ~previous;
    return ~(has_instruction() ? by_instruction(bytes, state) : by_table(bytes, state));
}

}  // namespace incast::base
