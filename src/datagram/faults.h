// What a bad network does to datagrams, by chance from a seed, for tests.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace incast::datagram {

/// Of a million datagrams, so many.
struct FaultRates {
    std::uint32_t drop = 0;
    std::uint32_t twice = 0;
    std::uint32_t late = 0;  // behind the next few
};

/// `Letter` is a datagram with all that is needed to send it.
template <class Letter>
class Faults {
public:
    Faults(const FaultRates& rates, std::uint64_t seed) : rates_(rates), random_(seed) {}
    [[nodiscard]] bool any() const { return rates_.drop != 0 || rates_.twice != 0 || rates_.late != 0; }

    /// What becomes of a datagram, and of those that it overtakes: send(letter) for each that goes out now.
    template <class Send>
    void pass(const Letter& letter, Send&& send) {
        if (random_.chance(rates_.drop)) return;
        if (random_.chance(rates_.late)) {
            held_.emplace_back(letter, 1 + random_.below(most_behind));
            return;
        }
        send(letter);
        if (random_.chance(rates_.twice)) send(letter);
        for (auto& [late, behind] : held_)
            if (--behind == 0) send(late);
        std::erase_if(held_, [](const auto& each) { return each.second == 0; });
    }
    /// Those that nothing came behind of.
    template <class Send>
    void flush(Send&& send) {
        for (const auto& [late, behind] : held_)
            send(late);
        held_.clear();
    }

private:
    static constexpr std::uint64_t most_behind = 8;
    FaultRates rates_;
    base::Prng random_;
    std::vector<std::pair<Letter, std::uint64_t>> held_;
};

}  // namespace incast::datagram
