// How many events MEPs hold.
#pragma once

#include <cstdint>

namespace incast::runtime {

/// `packing`, but for the last MEP of every pass over the input.
struct MepEvents {
    std::uint32_t packing = 0;
    std::uint64_t pass_meps = 0;  // 0 = no end
    std::uint32_t last = 0;       // in the last MEP of a pass

    [[nodiscard]] std::uint32_t of(std::uint64_t mep) const {
        return pass_meps != 0 && (mep + 1) % pass_meps == 0 ? last : packing;
    }
    /// In all MEPs below that one.
    [[nodiscard]] std::uint64_t below(std::uint64_t mep) const {
        return mep * packing - (pass_meps != 0 ? mep / pass_meps * (packing - last) : 0);
    }
    /// So many MEPs hold at least these events.
    [[nodiscard]] std::uint64_t meps_for(std::uint64_t events) const {
        const std::uint64_t pass_events = below(pass_meps);
        const std::uint64_t passes = pass_meps != 0 ? events / pass_events : 0;
        return passes * pass_meps + (events - passes * pass_events + packing - 1) / packing;
    }
};

}  // namespace incast::runtime
