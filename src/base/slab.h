// Memory whose size is fixed at construction and of which only what is used is ever touched: pages of it that nobody
// wrote to cost nothing. With a thousand peers, what every pair of nodes might need at worst is gigabytes, and what
// they do need is little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

namespace incast::base {

/// `capacity` records without content: one must be written before it is read.
template <class T>
class Raw {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

public:
    explicit Raw(std::size_t capacity) : bytes_(std::make_unique_for_overwrite<std::byte[]>(capacity * sizeof(T))) {}
    T& operator[](std::size_t index) { return reinterpret_cast<T*>(bytes_.get())[index]; }
    const T& operator[](std::size_t index) const { return reinterpret_cast<const T*>(bytes_.get())[index]; }

private:
    std::unique_ptr<std::byte[]> bytes_;
};

/// Records by index; one that was given back is the next to be taken.
template <class T>
class Slab {
    static_assert(sizeof(T) >= sizeof(std::uint32_t));

public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    explicit Slab(std::size_t capacity = 0) : capacity_(static_cast<std::uint32_t>(capacity)), records_(capacity) {}

    /// none: all are in use. What the record holds is not specified.
    std::uint32_t take() {
        if (free_ == none) {
            return touched_ < capacity_ ? touched_++ : none;
        }
        const std::uint32_t index = free_;
        std::memcpy(&free_, static_cast<const void*>(&records_[index]), sizeof free_);
        return index;
    }
    void give_back(std::uint32_t index) {
        std::memcpy(static_cast<void*>(&records_[index]), &free_, sizeof free_);
        free_ = index;
    }
    T& operator[](std::uint32_t index) { return records_[index]; }
    const T& operator[](std::uint32_t index) const { return records_[index]; }

private:
    std::uint32_t capacity_;
    std::uint32_t touched_ = 0;  // records below were in use at some time
    std::uint32_t free_ = none;  // a list through the free ones of these
    Raw<T> records_;
};

/// Many first-in first-out queues that share a Slab.
template <class T>
class Queues {
public:
    struct Queue {
        std::uint32_t first = Slab<T>::none;
        std::uint32_t last = Slab<T>::none;
        std::uint32_t size = 0;
        [[nodiscard]] bool empty() const { return size == 0; }
    };

    /// Of all queues together.
    explicit Queues(std::size_t capacity = 0) : nodes_(capacity) {}

    /// False if there is no room: nothing happened.
    [[nodiscard]] bool push(Queue& queue, const T& item) {
        const std::uint32_t index = nodes_.take();
        if (index == Slab<Node>::none) {
            return false;
        }
        nodes_[index] = {item, Slab<Node>::none};
        (queue.empty() ? queue.first : nodes_[queue.last].next) = index;
        queue.last = index;
        ++queue.size;
        return true;
    }
    /// See Fifo::must_push.
    void must_push(Queue& queue, const T& item) {
        if (!push(queue, item)) [[unlikely]] {
            std::abort();
        }
    }
    [[nodiscard]] const T& front(const Queue& queue) const { return nodes_[queue.first].item; }
    void pop(Queue& queue) {
        const std::uint32_t index = queue.first;
        queue.first = nodes_[index].next;
        --queue.size;
        nodes_.give_back(index);
    }
    void clear(Queue& queue) {
        while (!queue.empty()) {
            pop(queue);
        }
    }
    /// The items in order, until `take` is false for one.
    template <class Take>
    void each(const Queue& queue, Take&& take) const {
        std::uint32_t index = queue.first;
        for (std::uint32_t left = queue.size; left > 0 && take(nodes_[index].item); --left) {
            index = nodes_[index].next;
        }
    }

private:
    struct Node {
        T item;
        std::uint32_t next;
    };
    Slab<Node> nodes_;
};

}  // namespace incast::base
