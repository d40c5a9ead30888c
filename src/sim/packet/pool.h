// Packets and messages by 32-bit index, taken once and used again; lists that run through them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/large_pages.h"
#include "sim/packet/types.h"

namespace incast::sim::packet {

/// Records with a member `next`, which links the free ones. Growing moves them: hold indices, not references, across
/// take().
template <class T>
class IndexPool {
public:
    std::uint32_t take() {
        if (free_ == nil) grow();
        const std::uint32_t index = free_;
        free_ = records_[index].next;
        ++in_use_;
        return index;
    }
    void give_back(std::uint32_t index) {
        records_[index].next = free_;
        free_ = index;
        --in_use_;
    }
    [[nodiscard]] std::uint64_t in_use() const { return in_use_; }
    /// Also of nil: nothing.
    void prefetch(std::uint32_t index) const {
        if (index < records_.size()) __builtin_prefetch(&records_[index]);
    }
    T& operator[](std::uint32_t index) { return records_[index]; }
    const T& operator[](std::uint32_t index) const { return records_[index]; }

private:
    void grow() {
        const auto old = static_cast<std::uint32_t>(records_.size());
        const std::uint32_t larger = old == 0 ? 1024 : old * 2;
        records_.resize(larger);
        for (std::uint32_t index = larger; index-- > old;) {
            records_[index].next = free_;
            free_ = index;
        }
    }
    std::vector<T, base::LargePages<T>> records_;
    std::uint32_t free_ = nil;
    std::uint64_t in_use_ = 0;
};

/// First in, first out, through the members `next` of the records of a pool.
struct Chain {
    std::uint32_t head = nil;
    std::uint32_t tail = nil;

    [[nodiscard]] bool empty() const { return head == nil; }
    template <class Records>
    void push(Records& records, std::uint32_t index) {
        records[index].next = nil;
        if (head == nil) {
            head = index;
        } else {
            records[tail].next = index;
        }
        tail = index;
    }
    template <class Records>
    std::uint32_t pop(Records& records) {
        const std::uint32_t index = head;
        head = records[index].next;
        return index;
    }
};

/// First in, first out, of small values; grows by doubling, never shrinks.
template <class T>
class Ring {
public:
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] std::uint32_t size() const { return size_; }
    T& front() { return values_[first_]; }
    T& operator[](std::uint32_t index) { return values_[(first_ + index) & mask()]; }
    const T& operator[](std::uint32_t index) const { return values_[(first_ + index) & mask()]; }
    void push(const T& value) {
        if (size_ == values_.size()) grow();
        values_[(first_ + size_) & mask()] = value;
        ++size_;
    }
    void pop() {
        first_ = (first_ + 1) & mask();
        --size_;
    }

private:
    [[nodiscard]] std::uint32_t mask() const { return static_cast<std::uint32_t>(values_.size()) - 1; }
    void grow() {
        std::vector<T> larger(values_.empty() ? 8 : values_.size() * 2);
        for (std::uint32_t index = 0; index < size_; ++index)
            larger[index] = (*this)[index];
        values_.swap(larger);
        first_ = 0;
    }
    std::vector<T> values_;
    std::uint32_t first_ = 0;
    std::uint32_t size_ = 0;
};

}  // namespace incast::sim::packet
