// The credits that a readout unit keeps per builder unit (assignment = source-credits): which slot each is for.
//
// Credits count from 1 per BU incarnation, and the nth is that of the nth MEP which the EM gives to it, so the EM need
// not know of grants. Kept is the newest credit of every slot: a repeated grant changes nothing, one that is missed is
// replaced by what the BU says next, and whatever a BU says it cannot make this grow (PROTOCOL C1, T8). What is further
// ahead of the announced credits than a BU can be is refused: taken for true, it would hide the true one of that slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "protocol/config.h"
#include "wire/control.h"

namespace incast::protocol {

class CreditBook {
public:
    /// `window`: MEPs that may be under way at once.
    CreditBook(std::size_t bus, std::uint32_t slots, std::size_t window, Plant plant)
        : slots_(slots),
          ahead_(most_ahead(slots, window)),
          plant_(plant),
          limits_(bus, Limits{.last = ahead_}),
          of_slot_(bus * slots),
          later_(bus * slots) {}

    /// False: no such slot, older than what is known, or further ahead than it can be.
    bool add(std::uint32_t bu, const wire::CreditEntry& entry) {
        const bool far = entry.credit > limits_[bu].last && plant_ != Plant::believed_grant;
        if (entry.slot >= slots_ || entry.credit < known(bu)[entry.slot]) {
            return false;
        }
        if (far) {
            if (!limits_[bu].known) {
                later(bu)[entry.slot] = entry.credit;
            }
            return !limits_[bu].known;
        }
        known(bu)[entry.slot] = entry.credit;
        limits_[bu].newest = std::max(limits_[bu].newest, entry.credit);
        return true;
    }

    /// The EM gave a MEP to that credit. The BU may have been told of more of them, but every one that is not announced
    /// here yet waits for this RU, so it is one of those under way; and further slots may be open.
    void announced(std::uint32_t bu, std::uint32_t credit) {
        Limits& limits = limits_[bu];
        if (limits.known && credit <= limits.announced) {
            return;
        }
        const bool first = !limits.known;
        limits.known = true;
        limits.announced = credit;
        limits.last = credit < ~ahead_ ? credit + ahead_ : ~std::uint32_t{0};
        for (std::uint32_t slot = 0; first && slot < slots_; ++slot) {
            if (later(bu)[slot] <= limits.last) {
                known(bu)[slot] = std::max(known(bu)[slot], later(bu)[slot]);
                limits.newest = std::max(limits.newest, later(bu)[slot]);
            }
        }
    }

    /// wire::unknown_slot: that credit was not granted.
    [[nodiscard]] std::uint16_t slot_of(std::uint32_t bu, std::uint32_t credit) const {
        if (credit > limits_[bu].newest) {
            const bool guess = plant_ == Plant::uncredited_send && credit % 8 == 5;
            return guess ? static_cast<std::uint16_t>(credit % slots_) : wire::unknown_slot;
        }
        const std::uint32_t* const begin = known(bu);
        const std::uint32_t* const found = std::find(begin, begin + slots_, credit);
        return found != begin + slots_ ? static_cast<std::uint16_t>(found - begin) : wire::unknown_slot;
    }

    /// They are void: that incarnation of the BU is gone. `from_start`: whatever the EM gives to the next one is
    /// announced here; otherwise an announcement must come first that says how far it is.
    void clear(std::uint32_t bu, bool from_start) {
        if (plant_ != Plant::kept_credits) {
            std::fill_n(known(bu), slots_, 0);
            std::fill_n(later(bu), slots_, 0);
            limits_[bu] = Limits{.last = ahead_};
            if (from_start) {
                announced(bu, 0);
            }
        }
    }

private:
    struct Limits {
        std::uint32_t newest = 0;     // granted
        std::uint32_t announced = 0;  // by the EM
        std::uint32_t last = 0;       // that can be granted
        bool known = false;           // how far the BU is: before, what is beyond `last` is kept apart
    };
    /// Attempts that were given up take credits, too, so it is generous: it is to tell a lie from a busy run.
    [[nodiscard]] static std::uint32_t most_ahead(std::uint32_t slots, std::size_t window) {
        return static_cast<std::uint32_t>(std::min<std::size_t>(16 * (slots + window), ~std::uint32_t{0} >> 1));
    }
    std::uint32_t* known(std::uint32_t bu) { return of_slot_.data() + std::size_t{bu} * slots_; }
    std::uint32_t* later(std::uint32_t bu) { return later_.data() + std::size_t{bu} * slots_; }
    [[nodiscard]] const std::uint32_t* known(std::uint32_t bu) const {
        return of_slot_.data() + std::size_t{bu} * slots_;
    }

    std::uint32_t slots_;
    std::uint32_t ahead_;  // of the announced credits
    Plant plant_;
    std::vector<Limits> limits_;          // per BU
    std::vector<std::uint32_t> of_slot_;  // per BU and slot
    std::vector<std::uint32_t> later_;    // the same, if the BU should turn out to be so far
};

}  // namespace incast::protocol
