#include "runtime/sources/content.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/prng.h"

namespace incast::sources {

static_assert(std::endian::native == std::endian::little, "fragments hold little-endian words");

namespace {

constexpr std::uint64_t step =
    0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio: odd, and multiples of it are far from each other
constexpr std::size_t line_bytes = 64;
constexpr std::size_t word_bytes = 8;

std::uint64_t start_of(const ContentKey& key) {
    return base::mix64(key.stream + key.event);
}

constexpr std::uint64_t line_step = 8 * step;  // from one line to the next

// Two words: what every target has registers for. A line is four of them, kept as locals so that they stay in
// registers.
using Pair [[gnu::vector_size(16)]] = std::uint64_t;

struct Line {
    explicit Line(std::uint64_t start)
        : a{start, start + step},
          b{start + 2 * step, start + 3 * step},
          c{start + 4 * step, start + 5 * step},
          d{start + 6 * step, start + 7 * step} {}
    void advance() {
        a += line_step;
        b += line_step;
        c += line_step;
        d += line_step;
    }
    void store(std::byte* out) const {
        std::memcpy(out, &a, sizeof a);
        std::memcpy(out + 16, &b, sizeof b);
        std::memcpy(out + 32, &c, sizeof c);
        std::memcpy(out + 48, &d, sizeof d);
    }
    // Collects in what some memory differs from lines.
    struct Difference {
        void add(const Line& line, const std::byte* in) {
            Pair w;
            Pair x;
            Pair y;
            Pair z;
            std::memcpy(&w, in, sizeof w);
            std::memcpy(&x, in + 16, sizeof x);
            std::memcpy(&y, in + 32, sizeof y);
            std::memcpy(&z, in + 48, sizeof z);
            a |= w ^ line.a;
            b |= x ^ line.b;
            c |= y ^ line.c;
            d |= z ^ line.d;
        }
        [[nodiscard]] bool any() const {
            const Pair all = (a | b) | (c | d);
            return (all[0] | all[1]) != 0;
        }
        Pair a{}, b{}, c{}, d{};
    };
    Pair a, b, c, d;
};

}  // namespace

std::uint64_t content_stream(std::uint64_t run, std::uint16_t source) {
    return base::mix64(base::mix64(run) + source);
}

void fill_content(const ContentKey& key, std::span<std::byte> fragment) {
    const std::uint64_t start = start_of(key);
    std::byte* out = fragment.data();
    std::size_t left = fragment.size();
    if (left >= line_bytes) {
        Line line(start);
        for (; left >= line_bytes; left -= line_bytes, out += line_bytes, line.advance()) {
            line.store(out);
        }
    }
    std::uint64_t word = start + (fragment.size() - left) / word_bytes * step;
    for (; left >= word_bytes; left -= word_bytes, out += word_bytes, word += step) {
        std::memcpy(out, &word, word_bytes);
    }
    if (left > 0) {
        std::memcpy(out, &word, left);
    }
}

std::optional<std::size_t> find_difference(const ContentKey& key, Bytes fragment) {
    const std::uint64_t start = start_of(key);
    const std::byte* const in = fragment.data();
    const std::size_t size = fragment.size();
    std::size_t offset = 0;
    if (size >= line_bytes) {
        Line line(start);
        Line::Difference difference;
        for (; size - offset >= line_bytes; offset += line_bytes, line.advance()) {
            difference.add(line, in + offset);
        }
        // Differences are the rare case: only then are they located.
        offset = difference.any() ? 0 : offset;
    }
    // What differs, or the end, word by word.
    std::uint64_t word = start + offset / word_bytes * step;
    const auto first_in = [&](std::uint64_t difference) {
        return offset + static_cast<std::size_t>(std::countr_zero(difference)) / 8;
    };
    for (; size - offset >= word_bytes; offset += word_bytes, word += step) {
        std::uint64_t found = 0;
        std::memcpy(&found, in + offset, word_bytes);
        if (found != word) {
            return first_in(found ^ word);
        }
    }
    if (const std::size_t left = size - offset; left > 0) {
        std::uint64_t found = 0;
        if (size >= word_bytes) {  // a copy of known length, that ends with the fragment, is much faster
            std::memcpy(&found, in + size - word_bytes, word_bytes);
            found >>= 8 * (word_bytes - left);
        } else {
            std::memcpy(&found, in + offset, left);
        }
        const std::uint64_t difference = (found ^ word) & ((std::uint64_t{1} << (8 * left)) - 1);
        if (difference != 0) {
            return first_in(difference);
        }
    }
    return std::nullopt;
}

std::byte content_byte(const ContentKey& key, std::size_t offset) {
    const std::uint64_t word = start_of(key) + (offset / word_bytes) * step;
    return static_cast<std::byte>(word >> (8 * (offset % word_bytes)));
}

}  // namespace incast::sources
