#include "transport/rio/regions.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include <sys/mman.h>

#include "os/memory_file.h"

namespace incast::transport::rio {

namespace {

using api::page_bytes;

std::string name_of(std::size_t bytes) {
    return "region of " + std::to_string(bytes) + " bytes: ";
}

}  // namespace

Regions::~Regions() {
    for (const Region& region : regions_)
        if (!region.bytes.empty()) ::munmap(region.bytes.data(), api::whole_pages(region.bytes.size()));
}

Result<Local> Regions::allocate(std::size_t bytes) {
    if (bytes == 0) return Error{"region of 0 bytes: at least 1 is needed"};
    if (regions_.size() == max_regions && released_.empty())
        return Error{name_of(bytes) + "all " + std::to_string(max_regions) + " regions of this endpoint are in use"};
    const std::size_t size = api::whole_pages(bytes);
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Error{name_of(bytes) + "out of memory"};
    (void)::madvise(memory, size, MADV_HUGEPAGE);  // a wish
    if (!released_.empty()) {
        const std::uint16_t number = released_.front();
        released_.pop_front();
        regions_[number].bytes = {static_cast<std::byte*>(memory), bytes};
        return Local{number};
    }
    regions_.push_back({.bytes = {static_cast<std::byte*>(memory), bytes},
                        .segments = {},
                        .place = {},
                        .granted = {},
                        .permitted = {}});
    return Local{static_cast<std::uint16_t>(regions_.size() - 1)};
}

Result<Ok> Regions::release(Local number) {
    if (!has(number)) return Error{"release: there is no region " + std::to_string(static_cast<unsigned>(number))};
    Region& region = regions_[static_cast<std::size_t>(number)];
    const std::size_t size = api::whole_pages(region.bytes.size());
    if (region.place) (void)::madvise(region.bytes.data(), size, MADV_REMOVE);  // its pages go, its address stays
    ::munmap(region.bytes.data(), size);
    const bool is_guarded = region.place && region.place->is_guarded != 0;
    for (Segment& segment : region.segments) {
        // Of one in which a stopped peer is in the middle of a write the memory stays.
        if (!is_guarded || segment.window.close()) kept_.push_back(std::move(segment));
    }
    region = {.bytes = {}, .segments = {}, .place = {}, .use = region.use + 1, .granted = {}, .permitted = {}};
    released_.push_back(static_cast<std::uint16_t>(number));
    return Ok{};
}

/// The bytes stay where they are in this process, and become part of that memory.
Result<Ok> Regions::move_into(std::span<std::byte> bytes, const api::Memory& memory, std::uint64_t offset) const {
    const std::uint64_t size = api::whole_pages(bytes.size());
    auto mapping = api::Mapping::of(port_, memory, offset, size);
    if (!mapping) return mapping.error();
    // What was never written is not touched, so that it goes on taking no memory.
    static constexpr std::array<std::byte, page_bytes> zeros{};
    for (std::size_t at = 0; at < bytes.size(); at += page_bytes) {
        const auto page = bytes.subspan(at, std::min(page_bytes, bytes.size() - at));
        if (std::memcmp(page.data(), zeros.data(), page.size()) != 0)
            std::memcpy(mapping->bytes().data() + at, page.data(), page.size());
    }
    if (!os::move_mapping(mapping->bytes().data(), size, bytes.data()))
        return Error{"mremap: " + std::generic_category().message(errno)};
    mapping->release();
    return Ok{};
}

Result<Regions::Segment> Regions::make_segment(std::uint64_t bytes, std::uint64_t address, bool is_guarded) {
    auto memory = api::Memory::allocate(port_, bytes);
    if (!memory) return memory.error();
    auto window = is_guarded ? api::Window::guarded(port_, *memory, 0, bytes, address)
                             : api::Window::open(port_, *memory, 0, bytes, address);
    if (!window) return window.error();
    return Segment{std::move(*memory), std::move(*window)};
}

Result<Place> Regions::place_in_pool(Region& region) {
    const std::uint64_t size = api::whole_pages(region.bytes.size());
    std::optional<std::uint64_t> offset;
    if (!pools_.empty()) offset = pools_.back().pool.take(size);
    if (!offset) {
        auto segment = make_segment(layout_.pool_bytes, next_address_, false);
        if (!segment) return segment.error();
        next_address_ += window_gap;
        pools_.push_back({std::move(*segment), api::Pool(layout_.pool_bytes)});
        offset = pools_.back().pool.take(size);
        if (!offset) return Error{"it does not fit into a pool"};
    }
    const Segment& segment = pools_.back().segment;
    if (auto moved = move_into(region.bytes, segment.memory, *offset); !moved) return moved.error();
    return Place{.address = segment.window.address() + *offset, .segment_bytes = layout_.segment_bytes};
}

Result<Place> Regions::place_alone(Region& region, bool is_guarded) {
    const Place place{
        .address = next_address_, .segment_bytes = layout_.segment_bytes, .is_guarded = is_guarded ? 1U : 0U};
    std::vector<Segment> segments;
    for (std::uint64_t at = 0; at < region.bytes.size(); at += layout_.segment_bytes) {
        const auto part =
            region.bytes.subspan(at, std::min<std::uint64_t>(layout_.segment_bytes, region.bytes.size() - at));
        auto segment = make_segment(api::whole_pages(part.size()), place.address + at, is_guarded);
        if (!segment) return segment.error();
        segments.push_back(std::move(*segment));
    }
    for (std::size_t number = 0; number < segments.size(); ++number) {
        const std::uint64_t at = number * layout_.segment_bytes;
        const auto part =
            region.bytes.subspan(at, std::min<std::uint64_t>(layout_.segment_bytes, region.bytes.size() - at));
        if (auto moved = move_into(part, segments[number].memory, 0); !moved) return moved.error();
    }
    next_address_ = (place.address + region.bytes.size() + window_gap - 1) / window_gap * window_gap;
    region.segments = std::move(segments);
    return place;
}

Result<Place> Regions::show(Region& region, bool is_guarded) {
    const bool is_pooled = !is_guarded && api::whole_pages(region.bytes.size()) <= layout_.pool_bytes;
    auto place = is_pooled ? place_in_pool(region) : place_alone(region, is_guarded);
    if (!place) return Error{name_of(region.bytes.size()) + place.error().message};
    region.place = *place;
    return place;
}

Result<Place> Regions::expose(Local number, const Grant& grant) {
    if (!has(number)) return Error{"expose: there is no region " + std::to_string(static_cast<unsigned>(number))};
    Region& region = regions_[static_cast<std::size_t>(number)];
    const api::Access access =
        (grant.read ? api::Access::read : api::Access::none) | (grant.write ? api::Access::write : api::Access::none);
    const bool is_for_all = !has_guards_ || (grant.peer == any_peer && access == api::Access::all);
    auto place = region.place ? Result<Place>(*region.place) : show(region, !is_for_all);
    if (!place || place->is_guarded == 0) return place;
    const auto known = std::ranges::find(region.granted, grant.peer, &Granted::peer);
    if (known == region.granted.end()) {
        region.granted.push_back({grant.peer, access});
    } else {
        known->access = known->access | access;
    }
    return place;
}

api::Access Regions::Region::granted_to(Peer peer) const {
    api::Access access = api::Access::none;
    for (const Granted& each : granted) {
        if (each.peer == peer || each.peer == any_peer) access = access | each.access;
    }
    return access;
}

std::error_code Regions::permit(Region& region, Peer peer, api::Destid endpoint) {
    const api::Access access = region.granted_to(peer);
    const auto known = std::ranges::find(region.permitted, peer, &Permitted::peer);
    if (known != region.permitted.end() && known->endpoint == endpoint && known->access == access) return {};
    if (known != region.permitted.end() && known->endpoint != endpoint) forbid(region, peer);
    if (access == api::Access::none) return {};
    for (const Segment& segment : region.segments) {
        const std::error_code error = segment.window.permit(endpoint, access);
        if (error == std::errc::no_such_device) return {};  // it is gone, as transfers to it will say
        if (error) return error;
    }
    const auto again = std::ranges::find(region.permitted, peer, &Permitted::peer);
    if (again == region.permitted.end()) {
        region.permitted.push_back({peer, endpoint, access});
    } else {
        again->access = access;
    }
    return {};
}

std::error_code Regions::permit(Local region, Peer peer, api::Destid endpoint) {
    return permit(regions_[static_cast<std::size_t>(region)], peer, endpoint);
}

std::error_code Regions::permit(Peer peer, api::Destid endpoint) {
    for (Region& region : regions_) {
        if (const std::error_code error = permit(region, peer, endpoint)) return error;
    }
    return {};
}

void Regions::forbid(Region& region, Peer peer) {
    const auto known = std::ranges::find(region.permitted, peer, &Permitted::peer);
    if (known == region.permitted.end()) return;
    for (const Segment& segment : region.segments)
        segment.window.forbid(known->endpoint);
    region.permitted.erase(known);
}

void Regions::forbid(Peer peer) {
    for (Region& region : regions_)
        forbid(region, peer);
}

Result<int> Regions::share(Local number) {
    if (!has(number)) return Error{"share: there is no region " + std::to_string(static_cast<unsigned>(number))};
    Region& region = regions_[static_cast<std::size_t>(number)];
    if (!region.place) {
        // Who may reach it is to be said yet.
        if (auto shown = show(region, has_guards_); !shown) return shown.error();
    }
    if (region.segments.size() != 1) return Error{"share: the region is not one piece of memory of its own"};
    return region.segments.front().memory.share();
}

}  // namespace incast::transport::rio
