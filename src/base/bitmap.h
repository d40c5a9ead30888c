// A set of small integers, sized once; no allocation afterwards.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/prefetch.h"
#include "base/slab.h"

namespace incast::base {

/// Up to 64 members live in the object itself: one cache line less to touch for most sets there are.
class Bitmap {
public:
    static constexpr std::size_t none = ~std::size_t{0};

    explicit Bitmap(std::size_t size = 0)
        : size_(static_cast<std::uint32_t>(size)), more_(size > 64 ? new std::uint64_t[words()]() : nullptr) {}
    Bitmap(const Bitmap& other) : Bitmap(other.size_) { *this = other; }
    Bitmap(Bitmap&& other) noexcept = default;
    Bitmap& operator=(Bitmap&& other) noexcept = default;
    ~Bitmap() = default;
    /// Allocates only if the sizes differ.
    Bitmap& operator=(const Bitmap& other) {
        if (this == &other) {
            return *this;
        }
        if (size_ != other.size_) {
            *this = Bitmap(other.size_);
        }
        one_ = other.one_;
        count_ = other.count_;
        if (more_) {
            std::copy_n(other.more_.get(), words(), more_.get());
        }
        return *this;
    }

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] bool test(std::size_t index) const { return ((word(index) >> (index % 64)) & 1U) != 0; }
    void set(std::size_t index) {
        std::uint64_t& bits = word(index);
        const std::uint64_t bit = std::uint64_t{1} << (index % 64);
        count_ += (bits & bit) == 0 ? 1U : 0U;
        bits |= bit;
    }
    void reset(std::size_t index) { take(index); }
    void assign(std::size_t index, bool member) {
        if (test(index) != member) {
            word(index) ^= std::uint64_t{1} << (index % 64);
            count_ += member ? 1U : ~0U;
        }
    }
    /// Takes it out; true if it was a member.
    bool take(std::size_t index) {
        std::uint64_t& bits = word(index);
        const std::uint64_t bit = std::uint64_t{1} << (index % 64);
        const bool was = (bits & bit) != 0;
        bits &= ~bit;
        count_ -= was ? 1U : 0U;
        return was;
    }
    void clear() {
        one_ = 0;
        if (more_) {
            std::fill_n(more_.get(), words(), 0);
        }
        count_ = 0;
    }

    /// A hint that it will be read soon.
    void prefetch() const {
        if (more_) {
            base::prefetch(more_.get(), words() * sizeof(std::uint64_t));
        }
    }

    [[nodiscard]] bool any() const { return count_ > 0; }
    [[nodiscard]] std::size_t count() const { return count_; }

    /// The first member at or after `from`; none if there is none.
    [[nodiscard]] std::size_t next(std::size_t from) const {
        if (from >= size_ || count_ == 0) {
            return none;
        }
        std::size_t index = from / 64;
        std::uint64_t bits = word(from) & (~std::uint64_t{0} << (from % 64));
        while (bits == 0) {
            if (!more_ || ++index >= words()) {
                return none;
            }
            bits = more_[index];
        }
        return index * 64 + static_cast<std::size_t>(std::countr_zero(bits));
    }
    /// As next, going on from 0 at the end.
    [[nodiscard]] std::size_t next_cyclic(std::size_t from) const {
        const std::size_t found = next(from);
        return found != none ? found : next(0);
    }

private:
    [[nodiscard]] std::uint64_t& word(std::size_t index) { return size_ <= 64 ? one_ : more_[index / 64]; }
    [[nodiscard]] const std::uint64_t& word(std::size_t index) const { return size_ <= 64 ? one_ : more_[index / 64]; }

    [[nodiscard]] std::size_t words() const { return (std::size_t{size_} + 63) / 64; }

    std::uint64_t one_ = 0;
    std::uint32_t size_;
    std::uint32_t count_ = 0;  // kept, because most sets are empty most of the time
    std::unique_ptr<std::uint64_t[]> more_;
};

}  // namespace incast::base
