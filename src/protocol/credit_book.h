// The credits that a readout unit keeps per builder unit (assignment = source-credits): which slot each is for.
//
// Credits count from 1 per BU incarnation, and the nth is that of the nth MEP which the EM gives to it, so the EM need
// not know of grants. Kept is the newest credit of every slot: a repeated grant changes nothing, one that is missed is
// replaced by what the BU says next, and whatever a BU says it cannot make this grow (PROTOCOL C1, T8).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "protocol/config.h"
#include "wire/control.h"

namespace incast::protocol {

class CreditBook {
public:
    CreditBook(std::size_t bus, std::uint32_t slots, Plant plant)
        : slots_(slots), plant_(plant), newest_(bus), of_slot_(bus * slots) {}

    /// False: no such slot, or it is older than what is known.
    bool add(std::uint32_t bu, const wire::CreditEntry& entry) {
        if (entry.slot >= slots_ || entry.credit < known(bu)[entry.slot]) {
            return false;
        }
        known(bu)[entry.slot] = entry.credit;
        newest_[bu] = std::max(newest_[bu], entry.credit);
        return true;
    }

    /// wire::unknown_slot: that credit was not granted.
    [[nodiscard]] std::uint16_t slot_of(std::uint32_t bu, std::uint32_t credit) const {
        if (credit > newest_[bu]) {
            const bool guess = plant_ == Plant::uncredited_send && credit % 8 == 5;
            return guess ? static_cast<std::uint16_t>(credit % slots_) : wire::unknown_slot;
        }
        const std::uint32_t* const begin = known(bu);
        const std::uint32_t* const found = std::find(begin, begin + slots_, credit);
        return found != begin + slots_ ? static_cast<std::uint16_t>(found - begin) : wire::unknown_slot;
    }

    /// They are void: that incarnation of the BU is gone.
    void clear(std::uint32_t bu) {
        if (plant_ != Plant::kept_credits) {
            newest_[bu] = 0;
            std::fill_n(known(bu), slots_, 0);
        }
    }

private:
    std::uint32_t* known(std::uint32_t bu) { return of_slot_.data() + std::size_t{bu} * slots_; }
    [[nodiscard]] const std::uint32_t* known(std::uint32_t bu) const {
        return of_slot_.data() + std::size_t{bu} * slots_;
    }

    std::uint32_t slots_;
    Plant plant_;
    std::vector<std::uint32_t> newest_;   // per BU
    std::vector<std::uint32_t> of_slot_;  // per BU and slot
};

}  // namespace incast::protocol
