// Memory of a world that is taken once and used again: records by index, message buffers, a FIFO that grows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <incast/transport.h>

#include "base/large_pages.h"

namespace incast::sim {

inline constexpr std::uint32_t nil = ~std::uint32_t{0};

/// Records by index, with stable addresses. A new record is value-initialised.
template <class T>
class Pool {
public:
    std::uint32_t take() {
        if (free_.empty()) {
            records_.emplace_back();
            return static_cast<std::uint32_t>(records_.size() - 1);
        }
        const std::uint32_t index = free_.back();
        free_.pop_back();
        records_[index] = T{};
        return index;
    }
    void give_back(std::uint32_t index) { free_.push_back(index); }
    [[nodiscard]] std::size_t in_use() const { return records_.size() - free_.size(); }
    T& operator[](std::uint32_t index) { return records_[index]; }
    const T& operator[](std::uint32_t index) const { return records_[index]; }

private:
    base::Blocks<T> records_;
    std::vector<std::uint32_t> free_;
};

/// Buffers for messages in four sizes, so that a million short ones in flight do not take 4 GB.
class BufferPool {
public:
    struct Buffer {
        std::byte* bytes = nullptr;
        std::uint16_t size = 0;  // in use
        std::uint8_t size_class = 0;
    };

    Buffer take(std::size_t size) {
        std::uint8_t size_class = 0;
        while (class_bytes[size_class] < size)
            ++size_class;
        std::vector<std::byte*>& list = free_[size_class];
        if (list.empty()) {
            memory_.push_back(std::make_unique<std::byte[]>(class_bytes[size_class]));
            list.push_back(memory_.back().get());
        }
        std::byte* bytes = list.back();
        list.pop_back();
        return {bytes, static_cast<std::uint16_t>(size), size_class};
    }
    void give_back(const Buffer& buffer) { free_[buffer.size_class].push_back(buffer.bytes); }

private:
    static constexpr std::array<std::size_t, 4> class_bytes = {64, 256, 1024, max_message_bytes};
    std::array<std::vector<std::byte*>, class_bytes.size()> free_;
    std::vector<std::unique_ptr<std::byte[]>> memory_;
};

/// First in, first out; grows by doubling, never shrinks.
template <class T>
class Fifo {
public:
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] std::size_t size() const { return size_; }
    void push(const T& value) {
        if (size_ == ring_.size()) grow();
        ring_[(first_ + size_) & (ring_.size() - 1)] = value;
        ++size_;
    }
    /// The one that `ahead` others are popped before.
    const T& operator[](std::size_t ahead) const { return ring_[(first_ + ahead) & (ring_.size() - 1)]; }
    T pop() {
        T value = ring_[first_];
        first_ = (first_ + 1) & (ring_.size() - 1);
        --size_;
        return value;
    }

private:
    void grow() {
        std::vector<T> larger(ring_.empty() ? 16 : ring_.size() * 2);
        for (std::size_t index = 0; index < size_; ++index)
            larger[index] = ring_[(first_ + index) & (ring_.size() - 1)];
        ring_.swap(larger);
        first_ = 0;
    }
    std::vector<T> ring_;
    std::size_t first_ = 0;
    std::size_t size_ = 0;
};

}  // namespace incast::sim
