// The credits that a readout unit keeps per builder unit (assignment = source-credits): which slot each is for.
//
// Credits count from 1 per BU incarnation, and the nth is that of the nth MEP which the EM gives to it, so the EM need
// not know of grants. Kept is the newest credit of every slot: a repeated grant changes nothing, one that is missed is
// replaced by what the BU says next, and whatever a BU says it cannot make this grow (EB-C1, EB-T8). What is further
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
    /// `window`: MEPs that may be under way at once. `before`: Config::credits_before.
    CreditBook(std::size_t bus, std::uint32_t slots, std::size_t window, std::uint32_t before, Plant plant)
        : slots_(slots),
          ahead_(std::min<std::uint64_t>(16 * (slots + window), most_ahead)),
          before_(before),
          plant_(plant),
          builders_(bus, nothing_known()),
          of_slot_(bus * slots),
          later_(bus * slots) {}

    /// False: no such slot, older than what is known, or further ahead than it can be.
    bool add(std::uint32_t bu, const wire::CreditEntry& entry) {
        Builder& builder = builders_[bu];
        const std::uint64_t credit = unwrapped(builder, entry.credit);
        if (entry.slot >= slots_ || credit < known(bu)[entry.slot]) {
            return false;
        }
        if (is_far(builder, credit)) {
            if (!builder.is_known) {
                later(bu)[entry.slot] = entry.credit + std::uint64_t{1};
            }
            return !builder.is_known;
        }
        known(bu)[entry.slot] = credit;
        builder.newest = std::max(builder.newest, credit);
        return true;
    }

    /// Whatever the EM gives to that BU from its first MEP on is announced here.
    void start(std::uint32_t bu) { announced(bu, before_); }

    /// The EM gave a MEP to that credit. The BU may have been told of more of them, but every one that is not announced
    /// here yet waits for this RU, so it is one of those under way; and further slots may be open.
    void announced(std::uint32_t bu, std::uint32_t credit) {
        Builder& builder = builders_[bu];
        if (builder.is_known) {
            builder.announced = std::max(builder.announced, unwrapped(builder, credit));
            return;
        }
        builder = {.newest = 0, .announced = unwrapped(builder, credit), .is_known = true};
        for (std::uint32_t slot = 0; slot < slots_; ++slot) {
            std::uint64_t& granted = known(bu)[slot];
            granted = granted < builder.announced || is_far(builder, granted) ? 0 : granted;
            if (later(bu)[slot] != 0) {
                const std::uint64_t other = unwrapped(builder, static_cast<std::uint32_t>(later(bu)[slot] - 1));
                granted = is_far(builder, other) ? granted : std::max(granted, other);
            }
            builder.newest = std::max(builder.newest, granted);
        }
    }

    /// wire::unknown_slot: that credit was not granted.
    [[nodiscard]] std::uint16_t slot_of(std::uint32_t bu, std::uint32_t credit) const {
        const std::uint64_t wanted = unwrapped(builders_[bu], credit);
        if (wanted > builders_[bu].newest) {
            const bool guess = plant_ == Plant::uncredited_send && credit % 8 == 5;
            return guess ? static_cast<std::uint16_t>(credit % slots_) : wire::unknown_slot;
        }
        const std::uint64_t* const begin = known(bu);
        const std::uint64_t* const found = std::find(begin, begin + slots_, wanted);
        return found != begin + slots_ ? static_cast<std::uint16_t>(found - begin) : wire::unknown_slot;
    }

    /// They are void: that incarnation of the BU is gone. `from_start`: as start(); otherwise an announcement must come
    /// first that says how far it is.
    void clear(std::uint32_t bu, bool from_start) {
        if (plant_ != Plant::kept_credits) {
            std::fill_n(known(bu), slots_, 0);
            std::fill_n(later(bu), slots_, 0);
            builders_[bu] = nothing_known();
            if (from_start) {
                start(bu);
            }
        }
    }

private:
    // Credits are counted in 64 bits here, of which messages carry 32: each is one of those around the announced ones.
    static constexpr std::uint64_t first_round = std::uint64_t{1} << 32U;
    static constexpr std::uint64_t most_ahead = std::uint64_t{1} << 30U;
    struct Builder {
        std::uint64_t newest = 0;     // granted
        std::uint64_t announced = 0;  // by the EM
        bool is_known = false;        // how far the BU is: before, what seems far is kept apart
    };
    [[nodiscard]] Builder nothing_known() const { return {.announced = first_round + before_}; }
    [[nodiscard]] static std::uint64_t unwrapped(const Builder& builder, std::uint32_t credit) {
        const auto ahead = static_cast<std::int32_t>(credit - static_cast<std::uint32_t>(builder.announced));
        return builder.announced + static_cast<std::uint64_t>(std::int64_t{ahead});
    }
    /// Attempts that were given up take credits, too, so it is generous: it is to tell a lie from a busy run.
    [[nodiscard]] bool is_far(const Builder& builder, std::uint64_t credit) const {
        return credit > builder.announced + ahead_ && plant_ != Plant::believed_grant;
    }
    std::uint64_t* known(std::uint32_t bu) { return of_slot_.data() + std::size_t{bu} * slots_; }
    std::uint64_t* later(std::uint32_t bu) { return later_.data() + std::size_t{bu} * slots_; }
    [[nodiscard]] const std::uint64_t* known(std::uint32_t bu) const {
        return of_slot_.data() + std::size_t{bu} * slots_;
    }

    std::uint32_t slots_;
    std::uint64_t ahead_;  // of the announced credits
    std::uint32_t before_;
    Plant plant_;
    std::vector<Builder> builders_;
    std::vector<std::uint64_t> of_slot_;  // per BU and slot
    std::vector<std::uint64_t> later_;    // the same and 1 more, if the BU should turn out to be so far; 0: nothing
};

}  // namespace incast::protocol
