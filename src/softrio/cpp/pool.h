// Pieces of any size from one range of memory: what programs put over reserved memory, where the original library's
// earlier versions gave 8 pieces of 2 MB.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace incast::rio {

/// Deals in offsets; whose bytes they are does not matter. First fit, and free neighbours become one.
class Pool {
public:
    struct Limits {
        std::uint64_t piece_bytes = UINT64_MAX;
        std::uint64_t pieces = UINT64_MAX;
    };
    static constexpr Limits old_limits{.piece_bytes = 2 << 20, .pieces = 8};

    explicit Pool(std::uint64_t bytes) : Pool(bytes, Limits{}) {}
    Pool(std::uint64_t bytes, const Limits& limits);

    /// `alignment`: a power of two. Nothing: no room, or a limit.
    [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t bytes, std::uint64_t alignment = 4096);
    /// False: no piece begins there.
    bool give_back(std::uint64_t offset);
    [[nodiscard]] std::uint64_t free_bytes() const { return free_bytes_; }
    [[nodiscard]] std::uint64_t largest_free() const;

private:
    Limits limits_;
    std::map<std::uint64_t, std::uint64_t> free_;   // offset -> bytes
    std::map<std::uint64_t, std::uint64_t> taken_;  // offset -> bytes
    std::uint64_t free_bytes_ = 0;
};

}  // namespace incast::rio
