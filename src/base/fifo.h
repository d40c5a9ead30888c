// A queue with a capacity fixed at construction.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/prefetch.h"
#include "base/slab.h"

namespace incast::base {

/// A first-in first-out queue with a capacity fixed at construction; memory that it never needs is never touched.
template <class T>
class Fifo {
public:
    explicit Fifo(std::size_t capacity = 0)
        : capacity_(std::bit_ceil(std::max<std::size_t>(capacity, 1))), items_(capacity_) {}

    [[nodiscard]] bool empty() const { return head_ == tail_; }
    [[nodiscard]] bool full() const { return tail_ - head_ == capacity_; }
    [[nodiscard]] std::size_t size() const { return tail_ - head_; }
    [[nodiscard]] std::size_t capacity() const { return capacity_; }

    /// False if full: nothing happened.
    [[nodiscard]] bool push(const T& item) {
        if (full()) {
            return false;
        }
        items_[tail_++ & (capacity_ - 1)] = item;
        return true;
    }
    /// For where there is room by construction. What would be dropped is part of an event or of what frees one, so if
    /// there is none the process ends: others notice a dead node, and nobody a lost entry.
    void must_push(const T& item) {
        if (!push(item)) [[unlikely]] {
            std::abort();
        }
    }
    [[nodiscard]] T& front() { return items_[head_ & (capacity_ - 1)]; }
    void pop() { ++head_; }
    void pop(std::size_t many) { head_ += many; }
    /// Counted from the front.
    [[nodiscard]] T& operator[](std::size_t index) { return items_[(head_ + index) & (capacity_ - 1)]; }
    [[nodiscard]] const T& operator[](std::size_t index) const { return items_[(head_ + index) & (capacity_ - 1)]; }
    void clear() { head_ = tail_; }
    /// The others keep their order.
    template <class Unwanted>
    void remove_if(Unwanted&& unwanted) {
        std::size_t kept = 0;
        for (std::size_t index = 0; index < size(); ++index) {
            if (const T item = (*this)[index]; !unwanted(item)) {
                (*this)[kept++] = item;
            }
        }
        tail_ = head_ + kept;
    }

private:
    std::size_t capacity_;
    Raw<T> items_;
    std::size_t head_ = 0;
    std::size_t tail_ = 0;
};

}  // namespace incast::base
