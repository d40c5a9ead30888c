// What a simulated region holds: no bytes, only the heads that landed, by offset, and whose body lies behind each.
// Reads land as writes do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include <incast/transport.h>

#include "base/prng.h"

namespace incast::sim {

/// The parts in which a write or read lands. A body is modelled as two halves, so that one torn by a crash or an
/// overwrite can be told.
enum Part : std::uint8_t { part_head = 1, part_first_half = 2, part_second_half = 4, part_all = 7 };

/// One place that writes or reads were aimed at.
struct Area {
    std::array<std::byte, max_head_bytes> head{};
    std::uint8_t head_bytes = 0;
    std::uint64_t head_write = 0;               // World's number of the transfer whose head lies here; 0: none
    std::array<std::uint64_t, 2> body_write{};  // and of those whose halves of the body do
};

/// Offset -> Area: open addressing, stable addresses, never iterated (its order would depend on its history). Memory is
/// by number of places written, not by the size of the region, which may be terabytes.
class AreaMap {
public:
    [[nodiscard]] const Area* find(std::uint64_t offset) const {
        if (slots_.empty()) return nullptr;
        const Slot& slot = slots_[locate(offset)];
        return slot.area == none ? nullptr : &areas_[slot.area];
    }

    Area& at(std::uint64_t offset) {
        if ((areas_.size() + 1) * 2 > slots_.size()) grow();
        Slot& slot = slots_[locate(offset)];
        if (slot.area == none) {
            slot = {offset, static_cast<std::uint32_t>(areas_.size())};
            areas_.emplace_back();
        }
        return areas_[slot.area];
    }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    struct Slot {
        std::uint64_t offset = 0;
        std::uint32_t area = none;
    };

    /// The slot of `offset`, or the free one where it belongs.
    [[nodiscard]] std::size_t locate(std::uint64_t offset) const {
        std::size_t index = base::mix64(offset) & (slots_.size() - 1);
        while (slots_[index].area != none && slots_[index].offset != offset)
            index = (index + 1) & (slots_.size() - 1);
        return index;
    }

    void grow() {
        std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.area != none) slots_[locate(slot.offset)] = slot;
        }
    }

    std::vector<Slot> slots_;
    std::deque<Area> areas_;
};

}  // namespace incast::sim
