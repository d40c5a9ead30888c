// What an endpoint imported, by number: a number that was given back is used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <incast/transport.h>

namespace incast::transport {

/// `Import` has a field `peer`.
template <class Import>
class Imports {
public:
    Remote add(Import import) {
        if (free_.empty()) {
            all_.push_back(std::move(import));
            return Remote{static_cast<std::uint32_t>(all_.size() - 1)};
        }
        const std::uint32_t number = free_.back();
        free_.pop_back();
        all_[number] = std::move(import);
        return Remote{number};
    }
    /// As Transport::release. The import must not be looked at again.
    Result<Ok> release(Remote remote) {
        const auto number = static_cast<std::uint32_t>(remote);
        if (number >= all_.size() || all_[number].peer == nobody)
            return Error{"release: there is no import " + std::to_string(number)};
        all_[number] = {};
        all_[number].peer = nobody;
        free_.push_back(number);
        return Ok{};
    }
    /// All of that peer are released.
    void forget(Peer peer) {
        for (std::uint32_t number = 0; number < all_.size(); ++number)
            if (all_[number].peer == peer) (void)release(Remote{number});
    }
    /// nullptr: none, or one of another peer.
    [[nodiscard]] Import* find(Remote remote, Peer peer) {
        const auto number = static_cast<std::size_t>(remote);
        return number < all_.size() && all_[number].peer == peer ? &all_[number] : nullptr;
    }
    /// nullptr: none.
    [[nodiscard]] Import* find(Remote remote) {
        const auto number = static_cast<std::size_t>(remote);
        return number < all_.size() && all_[number].peer != nobody ? &all_[number] : nullptr;
    }
    [[nodiscard]] bool has(Remote remote, Peer peer) const {
        const auto number = static_cast<std::size_t>(remote);
        return number < all_.size() && all_[number].peer == peer;
    }
    /// Precondition: has() it, of some peer.
    [[nodiscard]] Import& operator[](Remote remote) { return all_[static_cast<std::size_t>(remote)]; }
    [[nodiscard]] const Import& operator[](Remote remote) const { return all_[static_cast<std::size_t>(remote)]; }

    [[nodiscard]] auto begin() { return all_.begin(); }
    [[nodiscard]] auto end() { return all_.end(); }

private:
    static constexpr Peer nobody{~std::uint32_t{0}};
    std::vector<Import> all_;
    std::vector<std::uint32_t> free_;
};

}  // namespace incast::transport
