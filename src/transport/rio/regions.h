// The regions of one endpoint. A region is memory of this process alone, on huge pages where the kernel has them, until
// peers may access it: then its bytes move into memory that an inbound window shows, at the same place in this process.
//
// An endpoint has 8 windows and hundreds of regions: with the layout `contiguous` regions share windows, as pieces of a
// pool. With `segments` a region is pieces of a fixed size, each allocated for itself and shown by a window of its own,
// as with the original library's old limits; their windows lie side by side in RapidIO addresses, so that a peer needs
// no more than the first address and the size of a segment: no transfer may cross from one into the next.
//
// What was granted to some is in no pool: its windows are guarded, and so not among the 8. On a fabric that guards no
// windows what was granted to anybody is open to all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include <incast/transport.h>

#include "softrio/cpp/memory.h"
#include "softrio/cpp/pool.h"

namespace incast::transport::rio {

namespace api = incast::rio;

inline constexpr std::uint32_t max_regions = 1024;
/// Windows begin at multiples of this: what runs past the end of one meets no other.
inline constexpr std::uint64_t window_gap = std::uint64_t{1} << 32;

struct Layout {
    /// Of a pool, and so of the window that shows it: a larger region gets a window for itself. 0: no pools.
    std::uint64_t pool_bytes = 0;
    std::uint64_t segment_bytes = 0;
};

/// Where peers find a region.
struct Place {
    std::uint64_t address = 0;        // RapidIO
    std::uint64_t segment_bytes = 0;  // a transfer ends at multiples of this, counted from the address
    std::uint64_t is_guarded = 0;     // its windows are for those alone who were granted something of it
};

class Regions {
public:
    /// `first_address`: of the windows. The port outlives it.
    Regions(const api::MasterPort& port, const Layout& layout, std::uint64_t first_address)
        : port_(port), layout_(layout), next_address_(first_address), has_guards_(port.has_guards()) {}
    Regions(const Regions&) = delete;
    Regions& operator=(const Regions&) = delete;
    ~Regions();

    Result<Local> allocate(std::size_t bytes);
    /// Empty: no such region.
    [[nodiscard]] std::span<std::byte> memory(Local region) const {
        const auto number = static_cast<std::size_t>(region);
        return number < regions_.size() ? regions_[number].bytes : std::span<std::byte>{};
    }
    [[nodiscard]] bool has_guards() const { return has_guards_; }
    /// Precondition: the grant fits into the region. What is first granted to anybody, for everything, is for all from
    /// then on; any other region gets windows that only those reach who are permitted to, where there are such.
    Result<Place> expose(Local region, const Grant& grant);
    /// The peer is that endpoint: it may do from now on what it was granted. resource_unavailable_try_again: not yet,
    /// and not all of it.
    std::error_code permit(Peer peer, api::Destid endpoint);
    std::error_code permit(Local region, Peer peer, api::Destid endpoint);
    /// The peer is no endpoint any more.
    void forbid(Peer peer);
    /// As Transport::release. Guarded windows are closed. What was shown to all stays theirs to write in, and nobody's
    /// to read, until the end of the endpoint: a window that all may reach cannot be taken back from those who know its
    /// address.
    Result<Ok> release(Local region);
    /// How many regions of that number were released. Precondition: there is one.
    [[nodiscard]] std::uint32_t use(Local region) const { return regions_[static_cast<std::size_t>(region)].use; }
    /// As Transport::share; the region must not be a piece of a pool.
    Result<int> share(Local region);

private:
    struct Segment {
        api::Memory memory;
        api::Window window;
    };
    struct Pooled {
        Segment segment;
        api::Pool pool;
    };
    struct Granted {
        Peer peer{};
        api::Access access{};
    };
    struct Permitted {
        Peer peer{};
        api::Destid endpoint{};
        api::Access access{};
    };
    struct Region {
        std::span<std::byte> bytes;
        std::vector<Segment> segments;  // unless it is in a pool
        std::optional<Place> place;     // exposed
        std::uint32_t use = 0;
        std::vector<Granted> granted;      // guarded: to each peer once
        std::vector<Permitted> permitted;  // of these, what the windows know

        [[nodiscard]] api::Access granted_to(Peer peer) const;
    };

    [[nodiscard]] bool has(Local region) const { return !memory(region).empty(); }
    Result<Segment> make_segment(std::uint64_t bytes, std::uint64_t address, bool is_guarded);
    Result<Place> show(Region& region, bool is_guarded);
    Result<Place> place_in_pool(Region& region);
    Result<Place> place_alone(Region& region, bool is_guarded);
    static std::error_code permit(Region& region, Peer peer, api::Destid endpoint);
    static void forbid(Region& region, Peer peer);
    Result<Ok> move_into(std::span<std::byte> bytes, const api::Memory& memory, std::uint64_t offset) const;

    const api::MasterPort& port_;
    Layout layout_;
    std::uint64_t next_address_;
    bool has_guards_;
    std::deque<Pooled> pools_;
    std::vector<Region> regions_;  // by number; without bytes: released
    std::deque<std::uint16_t> released_;
    std::vector<Segment> kept_;  // of released regions
};

}  // namespace incast::transport::rio
