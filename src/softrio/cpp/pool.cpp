#include "softrio/cpp/pool.h"

#include <algorithm>
#include <iterator>

namespace incast::rio {

Pool::Pool(std::uint64_t bytes, const Limits& limits) : limits_(limits), free_bytes_(bytes) {
    if (bytes > 0) free_.emplace(0, bytes);
}

std::optional<std::uint64_t> Pool::take(std::uint64_t bytes, std::uint64_t alignment) {
    if (bytes == 0 || bytes > limits_.piece_bytes || taken_.size() >= limits_.pieces) return std::nullopt;
    for (auto each = free_.begin(); each != free_.end(); ++each) {
        const auto [start, size] = *each;
        const std::uint64_t at = (start + alignment - 1) & ~(alignment - 1);
        if (at < start || at - start > size || bytes > size - (at - start)) continue;
        free_.erase(each);
        if (at > start) free_.emplace(start, at - start);
        if (const std::uint64_t left = size - (at - start) - bytes; left > 0) free_.emplace(at + bytes, left);
        taken_.emplace(at, bytes);
        free_bytes_ -= bytes;
        return at;
    }
    return std::nullopt;
}

bool Pool::give_back(std::uint64_t offset) {
    const auto found = taken_.find(offset);
    if (found == taken_.end()) return false;
    free_bytes_ += found->second;
    auto merged = free_.emplace(offset, found->second).first;
    taken_.erase(found);
    if (const auto next = std::next(merged); next != free_.end() && merged->first + merged->second == next->first) {
        merged->second += next->second;
        free_.erase(next);
    }
    if (merged != free_.begin()) {
        const auto before = std::prev(merged);
        if (before->first + before->second == merged->first) {
            before->second += merged->second;
            free_.erase(merged);
        }
    }
    return true;
}

std::uint64_t Pool::largest_free() const {
    std::uint64_t largest = 0;
    for (const auto& [start, size] : free_)
        largest = std::max(largest, size);
    return largest;
}

}  // namespace incast::rio
