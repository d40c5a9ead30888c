// The regions of one endpoint: zeroed, page-aligned memory, owned here, with every access checked; and who may do what
// where in them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include <incast/transport.h>

#include "os/memory_file.h"

namespace incast::transport {

class Regions {
public:
    /// Where memory comes from that is not shareable, in place of the kernel: zeroed, and whole pages.
    class Source {
    public:
        Source() = default;
        Source(const Source&) = delete;
        Source& operator=(const Source&) = delete;
        virtual ~Source() = default;
        virtual Result<std::span<std::byte>> take(std::size_t bytes) = 0;
        virtual void give_back(std::span<std::byte> memory) = 0;
    };

    explicit Regions(std::uint32_t max_regions, bool shareable = false, std::unique_ptr<Source> source = {})
        : max_regions_(max_regions), shareable_(shareable), source_(std::move(source)) {
        regions_.reserve(max_regions);
    }
    Regions(const Regions&) = delete;
    Regions& operator=(const Regions&) = delete;
    /// Leaves nothing behind: for memory that is still in use when its endpoint ends.
    Regions(Regions&&) noexcept = default;
    ~Regions() {
        for (const auto& region : regions_)
            if (!region.empty()) give_back(region);
        sweep([](std::span<std::byte>) { return false; });
    }

    Result<Local> allocate(std::size_t bytes) {
        if (bytes == 0) return Error{"region of 0 bytes: at least 1 is needed"};
        if (regions_.size() == max_regions_ && free_.empty()) {
            return Error{"region of " + std::to_string(bytes) + " bytes: all " + std::to_string(max_regions_) +
                         " regions of this endpoint are in use"};
        }
        os::Descriptor file;
        const auto taken = source_ != nullptr && !shareable_ ? source_->take(bytes) : map(bytes, file);
        if (!taken) return Error{"region of " + std::to_string(bytes) + " bytes: " + taken.error().message};
        const std::span made = *taken;
        if (!free_.empty()) {
            const std::uint16_t number = free_.front();
            free_.pop_front();
            regions_[number] = made;
            files_[number] = std::move(file);
            return Local{number};
        }
        regions_.push_back(made);
        files_.push_back(std::move(file));
        exposed_.push_back(false);
        open_.push_back(false);
        uses_.push_back(0);
        return Local{static_cast<std::uint16_t>(regions_.size() - 1)};
    }

    /// As Transport::release; false: there is no such region. Its memory stays until sweep().
    bool release(Local region) {
        if (!has(region)) return false;
        const auto number = static_cast<std::uint16_t>(region);
        retired_.push_back(std::exchange(regions_[number], {}));
        files_[number] = {};
        exposed_[number] = open_[number] = false;
        for (std::vector<OwnGrant>& each : grants_)
            std::erase_if(each, [&](const OwnGrant& own) { return own.region == region; });
        // A number that was used up names nothing any more: a late key of it never means another region.
        if (++uses_[number] < max_uses) free_.push_back(number);
        return true;
    }
    /// Memory of released regions that is still in use is kept.
    template <class InUse>
    void sweep(InUse in_use) {
        std::erase_if(retired_, [&](std::span<std::byte> memory) {
            if (in_use(memory)) return false;
            give_back(memory);
            return true;
        });
    }
    [[nodiscard]] bool has_retired() const { return !retired_.empty(); }
    /// How many regions of that number were released. Precondition: there is, or was, one.
    [[nodiscard]] std::uint16_t use(Local region) const { return uses_[static_cast<std::size_t>(region)]; }
    /// That number has that use now.
    [[nodiscard]] bool is_use(std::size_t region, std::uint16_t use) const {
        return region < uses_.size() && use == uses_[region];
    }
    /// A region of that number was released since it had that use.
    [[nodiscard]] bool is_past(std::size_t region, std::uint16_t use) const {
        return region < uses_.size() && use < uses_[region];
    }

    /// As Transport::share.
    [[nodiscard]] Result<int> share(Local region) const {
        if (!has(region) || !shareable_) {
            return Error{has(region) ? "share: the regions of this endpoint are not shareable"
                                     : "share: there is no such region"};
        }
        auto file = os::open_for_reading(files_[static_cast<std::size_t>(region)]);
        return file ? Result<int>(file->release()) : Result<int>(file.error());
    }

    [[nodiscard]] bool has(Local region) const {
        return static_cast<std::size_t>(region) < regions_.size() &&
               !regions_[static_cast<std::size_t>(region)].empty();
    }

    /// The whole region; empty if there is none of that number.
    [[nodiscard]] std::span<std::byte> memory(Local region) const {
        return has(region) ? regions_[static_cast<std::size_t>(region)] : std::span<std::byte>{};
    }

    /// As Transport::expose; false: no such region, or places that do not fit into it.
    bool expose(Local region, Grant grant) {
        if (!has(region)) return false;
        const auto number = static_cast<std::size_t>(region);
        const std::uint64_t bytes = regions_[number].size();
        if (grant.length == to_the_end && grant.count == 1) grant.length = bytes - std::min(bytes, grant.offset);
        const std::uint64_t last = grant.count > 0 ? grant.count - 1 : 0;
        if (!inside(bytes, grant.offset, grant.length) ||
            (last > 0 && grant.stride > (bytes - grant.length - grant.offset) / last)) {
            return false;
        }
        exposed_[number] = true;
        if (grant == Grant{.length = bytes}) {
            open_[number] = true;
            return true;
        }
        const std::size_t node = grants_of(grant.peer);
        if (grants_.size() <= node) grants_.resize(node + 1);
        std::vector<OwnGrant>& own = grants_[node];
        const auto [first, behind] = std::ranges::equal_range(own, region, {}, &OwnGrant::region);
        if (std::ranges::find(first, behind, grant, &OwnGrant::grant) == behind) own.insert(behind, {region, grant});
        return true;
    }

    /// What was granted to that peer is granted to nobody.
    void forget(Peer peer) {
        if (grants_of(peer) < grants_.size()) grants_[grants_of(peer)].clear();
    }

    /// What peers may access of the region of that number: all of it, or nothing.
    [[nodiscard]] std::span<std::byte> exposed(std::size_t region) const {
        return region < regions_.size() && exposed_[region] ? regions_[region] : std::span<std::byte>{};
    }

    /// Those bytes lie in one of the places that the peer may write in, or read. They are inside the region.
    [[nodiscard]] bool may_write(Peer peer, std::size_t region, std::uint64_t offset, std::uint64_t length) const {
        return may<&Grant::write>(peer, region, offset, length);
    }
    [[nodiscard]] bool may_read(Peer peer, std::size_t region, std::uint64_t offset, std::uint64_t length) const {
        return may<&Grant::read>(peer, region, offset, length);
    }

    /// True if `length` bytes at `offset` lie inside. Zero bytes at the very end do.
    [[nodiscard]] static bool inside(std::size_t region_bytes, std::uint64_t offset, std::uint64_t length) {
        return offset <= region_bytes && length <= region_bytes - offset;
    }

private:
    /// Of the kernel; of a file if they are shareable.
    [[nodiscard]] Result<std::span<std::byte>> map(std::size_t bytes, os::Descriptor& file) const {
        if (shareable_) {
            auto made = os::make_memory_file(bytes);
            if (!made) return made.error();
            file = std::move(*made);
        }
        // Both kinds of mappings are zero without being touched, so that large rings cost memory only as they fill.
        void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              shareable_ ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file.fd(), 0);
        if (memory == MAP_FAILED) return Error{"out of memory"};
        if (!shareable_) (void)::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
        return std::span(static_cast<std::byte*>(memory), bytes);
    }
    void give_back(std::span<std::byte> memory) const {
        if (source_ != nullptr && !shareable_) {
            source_->give_back(memory);
        } else {
            ::munmap(memory.data(), memory.size());
        }
    }
    struct OwnGrant {
        Local region{};
        Grant grant;
    };
    /// Those to any peer come first.
    [[nodiscard]] static std::size_t grants_of(Peer peer) {
        return peer == any_peer ? 0 : static_cast<std::size_t>(peer) + 1;
    }
    template <bool Grant::* access>
    [[nodiscard]] bool may(Peer peer, std::size_t region, std::uint64_t offset, std::uint64_t length) const {
        return open_[region] || granted<access>(grants_of(peer), region, offset, length) ||
               granted<access>(0, region, offset, length);
    }
    template <bool Grant::* access>
    [[nodiscard]] bool granted(std::size_t node, std::size_t region, std::uint64_t offset, std::uint64_t length) const {
        if (node >= grants_.size()) return false;
        const std::vector<OwnGrant>& own = grants_[node];
        const Local wanted{static_cast<std::uint16_t>(region)};
        for (auto at = std::ranges::lower_bound(own, wanted, {}, &OwnGrant::region);
             at != own.end() && at->region == wanted; ++at) {
            const Grant& grant = at->grant;
            if (!(grant.*access) || offset < grant.offset) continue;
            const std::uint64_t behind = offset - grant.offset;
            const std::uint64_t number = grant.stride > 0 ? behind / grant.stride : 0;
            if (number < grant.count && inside(grant.length, behind - number * grant.stride, length)) return true;
        }
        return false;
    }

    static constexpr std::uint16_t max_uses = std::numeric_limits<std::uint16_t>::max();

    std::vector<std::span<std::byte>> regions_;  // by number; empty: released
    std::vector<os::Descriptor> files_;          // shareable: of each region
    std::vector<bool> exposed_;
    std::vector<bool> open_;  // to everybody, for everything
    std::vector<std::uint16_t> uses_;
    std::deque<std::uint16_t> free_;  // numbers of released regions, the oldest first
    std::vector<std::span<std::byte>> retired_;
    std::vector<std::vector<OwnGrant>> grants_;  // by peer, as grants_of() says; in the order of their regions
    std::uint32_t max_regions_;
    bool shareable_;
    std::unique_ptr<Source> source_;
};

}  // namespace incast::transport
