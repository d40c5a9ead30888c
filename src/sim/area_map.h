// What a simulated region holds: no bytes, only the heads that landed, by offset, and whose body lies behind each.
// Reads land as writes do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <incast/transport.h>

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
/// by number of places written, not by the size of the region, which may be terabytes: some 115 bytes for each.
class AreaMap {
public:
    [[nodiscard]] const Area* find(std::uint64_t offset) const {
        if (slots_.empty()) return nullptr;
        const std::uint32_t area = slots_[locate(offset)];
        return area == none ? nullptr : &of(area);
    }

    Area& at(std::uint64_t offset) {
        if ((std::size_t{count_} + 1) * 2 > slots_.size()) grow();
        std::uint32_t& slot = slots_[locate(offset)];
        if (slot == none) {
            if (count_ % block_areas == 0) blocks_.push_back(std::make_unique<Area[]>(block_areas));
            slot = count_++;
            blocks_[slot / block_areas][slot % block_areas].offset = offset;
        }
        return blocks_[slot / block_areas][slot % block_areas];
    }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    static constexpr std::uint32_t block_areas = 64;

    [[nodiscard]] const Area& of(std::uint32_t area) const { return blocks_[area / block_areas][area % block_areas]; }

    /// The slot of `offset`, or the free one where it belongs.
    [[nodiscard]] std::size_t locate(std::uint64_t offset) const {
        std::size_t index = base::mix64(offset) & (slots_.size() - 1);
        while (slots_[index] != none && of(slots_[index]).offset != offset)
            index = (index + 1) & (slots_.size() - 1);
        return index;
    }

    void grow() {
        slots_.assign(slots_.empty() ? 16 : slots_.size() * 2, none);
        for (std::uint32_t area = 0; area < count_; ++area)
            slots_[locate(of(area).offset)] = area;
    }

    std::vector<std::uint32_t> slots_;  // numbers of areas
    std::vector<std::unique_ptr<Area[]>> blocks_;
    std::uint32_t count_ = 0;
};

}  // namespace incast::sim
