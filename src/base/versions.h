// Which versions of a protocol two programs speak, and which of them they choose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace incast::base {

/// From the oldest to the newest that a program speaks.
struct Versions {
    std::uint32_t oldest = 1;
    std::uint32_t newest = 1;

    [[nodiscard]] constexpr bool contains(std::uint32_t version) const {
        return oldest <= version && version <= newest;
    }
    /// As it stands in a hello: the newest in the lower byte, the oldest in the upper one. Who speaks one alone says
    /// that one, as 0.1.0 does.
    [[nodiscard]] constexpr std::uint16_t packed() const {
        return static_cast<std::uint16_t>(newest | (oldest == newest ? 0 : oldest << 8U));
    }
    /// Nothing: the oldest would be newer than the newest.
    [[nodiscard]] static constexpr std::optional<Versions> unpack(std::uint16_t packed) {
        const std::uint32_t newest = packed & 0xffU;
        const std::uint32_t oldest = packed >> 8U;
        if (oldest > newest) return std::nullopt;
        return Versions{oldest == 0 ? newest : oldest, newest};
    }
    [[nodiscard]] constexpr bool is_one() const { return oldest == newest; }
    friend bool operator==(const Versions&, const Versions&) = default;
};

/// The versions that both speak; the newest of them is chosen.
[[nodiscard]] constexpr std::optional<Versions> common(Versions one, Versions other) {
    const Versions both{std::max(one.oldest, other.oldest), std::min(one.newest, other.newest)};
    return both.oldest <= both.newest ? std::optional(both) : std::nullopt;
}

/// The version of this program as a number: major, minor and patch have eight bits each.
[[nodiscard]] std::uint32_t program_number();
/// "0.1.0"; "" for 0, which is of a program that does not say it.
[[nodiscard]] std::string program_text(std::uint32_t number);

/// The reason of a refusal, for both sides: "it speaks versions 3 to 4 of tcp (Incast 0.3.0), this one version 1
/// (Incast 0.1.0)". Without a range theirs is unknown, and so is a program that is empty.
[[nodiscard]] std::string no_common_version(std::string_view protocol, std::optional<Versions> theirs,
                                            std::string_view their_program, Versions ours);

}  // namespace incast::base
