// Memory that is used densely and read in no order, in pages of 2 MiB where the system grants them on request (Linux:
// transparent huge pages, madvise): most of such reads of many megabytes then find their translation in the TLB.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace incast::base {

/// For vectors: what is shorter than two large pages comes from the heap as usual.
template <class T>
class LargePages {
public:
    using value_type = T;
    static constexpr std::size_t page_bytes = std::size_t{2} << 20;

    LargePages() = default;
    template <class U>
    LargePages(const LargePages<U>& /*other*/) {}  // NOLINT(google-explicit-constructor): what allocators have

    [[nodiscard]] T* allocate(std::size_t count) {
        const std::size_t bytes = count * sizeof(T);
        if (bytes < 2 * page_bytes) return std::allocator<T>().allocate(count);
        // The last page may not be full, and then is not to be a large one.
        void* const memory = std::aligned_alloc(page_bytes, (bytes + page_bytes - 1) & ~(page_bytes - 1));
        if (memory == nullptr) throw std::bad_alloc();
        (void)::madvise(memory, bytes & ~(page_bytes - 1), MADV_HUGEPAGE);  // a wish
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, std::size_t count) {
        if (count * sizeof(T) < 2 * page_bytes) {
            std::allocator<T>().deallocate(memory, count);
        } else {
            std::free(memory);
        }
    }
    friend bool operator==(const LargePages&, const LargePages&) { return true; }
};

/// Records by index, with stable addresses; each block holds twice as many as the one before.
template <class T>
class Blocks {
    static_assert(std::is_trivially_destructible_v<T>);

public:
    Blocks() = default;
    Blocks(const Blocks&) = delete;
    Blocks& operator=(const Blocks&) = delete;
    Blocks(Blocks&& other) noexcept : blocks_(std::exchange(other.blocks_, {})), size_(std::exchange(other.size_, 0)) {}
    ~Blocks() {
        for (std::size_t block = 0; block < blocks_.size(); ++block)
            LargePages<T>().deallocate(blocks_[block], first_records << block);
    }

    [[nodiscard]] std::size_t size() const { return size_; }
    T& emplace_back() {
        if (size_ == first_records * ((std::size_t{1} << blocks_.size()) - 1))
            blocks_.push_back(LargePages<T>().allocate(first_records << blocks_.size()));
        return *new (&(*this)[size_++]) T{};
    }
    /// A hint that records will be looked up: of what tells where they are.
    void prefetch_index() const { __builtin_prefetch(static_cast<const void*>(blocks_.data())); }
    T& back() { return (*this)[size_ - 1]; }
    T& operator[](std::size_t index) { return *place(index); }
    const T& operator[](std::size_t index) const { return *place(index); }

private:
    static constexpr std::size_t first_records = 64;
    [[nodiscard]] T* place(std::size_t index) const {
        const std::size_t from = index + first_records;
        const auto block = static_cast<unsigned>(std::bit_width(from) - std::bit_width(first_records));
        return blocks_[block] + (from - (first_records << block));
    }
    std::vector<T*> blocks_;
    std::size_t size_ = 0;
};

}  // namespace incast::base
