// What a simulated region holds: no bytes, only the heads that landed, by offset, and whose body lies behind each.
// Reads land as writes do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <incast/transport.h>

#include "base/large_pages.h"
#include "base/prefetch.h"
#include "base/prng.h"

namespace incast::sim {

/// The parts in which a write or read lands. A body is modelled as two halves, so that one torn by a crash or an
/// overwrite can be told.
enum Part : std::uint8_t { part_head = 1, part_first_half = 2, part_second_half = 4, part_all = 7 };

/// One place that writes or reads were aimed at.
struct Area {
    std::uint64_t offset = 0;  // in its region
    std::array<std::byte, max_head_bytes> head{};
    std::uint64_t head_write = 0;               // World's number of the transfer whose head lies here; 0: none
    std::array<std::uint64_t, 2> body_write{};  // and of those whose halves of the body do
    std::uint8_t head_bytes = 0;
};

/// Offset -> Area: open addressing, stable addresses, never iterated (its order would depend on its history). Memory is
/// by number of places written, not by the size of the region, which may be terabytes: some 125 bytes for each.
class AreaMap {
public:
    /// Hints that this place will be read soon: the first finds out where it is, the second needs that.
    void prefetch_slot(std::uint64_t offset) const {
        if (slots_.empty()) return;
        __builtin_prefetch(&slots_[base::mix64(offset) & (slots_.size() - 1)]);
        areas_.prefetch_index();
    }
    void prefetch_area(std::uint64_t offset) const {
        if (slots_.empty()) return;
        std::size_t index = base::mix64(offset) & (slots_.size() - 1);
        while (slots_[index].area != none && slots_[index].tag != tag_of(offset))
            index = (index + 1) & (slots_.size() - 1);
        if (slots_[index].area != none) base::prefetch(areas_[slots_[index].area]);
    }

    [[nodiscard]] const Area* find(std::uint64_t offset) const {
        if (slots_.empty()) return nullptr;
        const std::uint32_t area = slots_[locate(offset)].area;
        return area == none ? nullptr : &areas_[area];
    }

    Area& at(std::uint64_t offset) {
        if ((areas_.size() + 1) * 2 > slots_.size()) grow();
        Slot& slot = slots_[locate(offset)];
        if (slot.area == none) {
            slot = {static_cast<std::uint32_t>(areas_.size()), tag_of(offset)};
            areas_.emplace_back().offset = offset;
        }
        return areas_[slot.area];
    }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    struct Slot {
        std::uint32_t area = none;
        std::uint32_t tag = 0;  // so that areas that only lie nearby are not read, each of which comes from memory
    };

    [[nodiscard]] static std::uint32_t tag_of(std::uint64_t offset) {
        return static_cast<std::uint32_t>(base::mix64(offset) >> 32);
    }

    /// The slot of `offset`, or the free one where it belongs.
    [[nodiscard]] std::size_t locate(std::uint64_t offset) const {
        const std::uint32_t tag = tag_of(offset);
        std::size_t index = base::mix64(offset) & (slots_.size() - 1);
        while (slots_[index].area != none && (slots_[index].tag != tag || areas_[slots_[index].area].offset != offset))
            index = (index + 1) & (slots_.size() - 1);
        return index;
    }

    void grow() {
        slots_.assign(slots_.empty() ? 16 : slots_.size() * 2, Slot{});
        for (std::uint32_t area = 0; area < areas_.size(); ++area)
            slots_[locate(areas_[area].offset)] = {area, tag_of(areas_[area].offset)};
    }

    std::vector<Slot> slots_;
    base::Blocks<Area> areas_;
};

}  // namespace incast::sim
