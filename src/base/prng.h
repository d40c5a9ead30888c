// Seeded pseudo-random numbers with the same bits on every compiler and library (std:: distributions differ between
// libraries). Generator: xoshiro256** by Blackman and Vigna (2018, public domain algorithm), seeded through splitmix64.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace incast::base {

/// One step of splitmix64; also a good 64-bit mixing function of its argument.
constexpr std::uint64_t mix64(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15ULL;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

class Prng {
public:
    explicit Prng(std::uint64_t seed) {
        for (std::uint64_t& word : state_) {
            seed += 0x9e3779b97f4a7c15ULL;
            word = mix64(seed);
        }
    }

    std::uint64_t next() {
        const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
        const std::uint64_t shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    /// Uniform in [0, bound), bound > 0. Multiply-shift; the bias is below bound / 2^64.
    std::uint64_t below(std::uint64_t bound) {
        __extension__ using Wide = unsigned __int128;
        return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
    }

    /// Uniform in [low, high].
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
    }

    /// True once in `per_million` of a million.
    bool chance(std::uint32_t per_million) { return below(1'000'000) < per_million; }

    /// Uniform in [0, 1), 53 bits.
    double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

private:
    std::array<std::uint64_t, 4> state_{};
};

}  // namespace incast::base
