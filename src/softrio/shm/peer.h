// What an endpoint knows of another one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "softrio/port.h"
#include "softrio/shm/system.h"

namespace incast::softrio::shm {

/// A window of a peer, mapped, as it was when it was looked for.
struct Reached {
    std::uint32_t window = 0;
    std::uint64_t generation = 0;
    std::uint64_t base = 0;
    std::uint64_t size = 0;
    std::uint64_t offset = 0;  // of its beginning in the file
    std::shared_ptr<Mapping> mapping;
    Access access = may_all;

    [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t bytes) const {
        return address >= base && address - base <= size && bytes <= size - (address - base);
    }
    [[nodiscard]] std::uint64_t file_offset(std::uint64_t address) const { return offset + (address - base); }
    [[nodiscard]] std::byte* at(std::uint64_t address) const { return mapping->bytes().data() + file_offset(address); }
};

class Peer {
public:
    /// Nothing: it is gone, or cannot be reached (then a line on stderr says why, with RIO_DEBUG=1).
    static std::shared_ptr<Peer> open(const Place& place);
    /// Gives up this process's place among those that write to it.
    void leave();

    [[nodiscard]] Block& block() const { return *reinterpret_cast<Block*>(mapping_->bytes().data()); }
    [[nodiscard]] std::uint32_t destid() const { return place_.destid; }
    [[nodiscard]] std::uint32_t process() const { return place_.process; }
    /// Asks the kernel at most every ms, which is less than it takes to start another process with the same id.
    [[nodiscard]] bool is_there();
    [[nodiscard]] bool is_there_now();

    /// Where to announce writes; nullptr: too many processes write there.
    Writer* writer(std::uint64_t self);
    /// The window that holds [address, address + bytes), mapped on first use. Nothing: none does. Guarded windows are
    /// not among these.
    std::optional<Reached> reach(std::uint64_t address, std::uint64_t bytes);
    /// The guarded window that does, and that this endpoint was handed for that.
    std::optional<Reached> reach_handed(Direction direction, std::uint64_t address, std::uint64_t bytes);
    void take(const HandedFile& handed);
    /// Rings the bell of a handle: makes its descriptor poll.
    void ring(std::uint32_t sink);

private:
    struct Mapped {
        std::uint64_t generation = 0;
        std::shared_ptr<Mapping> mapping;
    };
    struct Bell {
        std::uint64_t generation = 0;
        Descriptor pipe;
    };

    std::shared_ptr<Mapping> map_window(std::uint32_t window, std::uint64_t generation);

    Place place_;
    Descriptor watch_;
    std::shared_ptr<Mapping> mapping_;
    std::atomic<std::uint64_t> checked_ = 0;  // ticks()
    std::atomic<bool> ended_ = false;
    std::atomic<Writer*> writer_ = nullptr;
    std::mutex mutex_;
    std::array<Mapped, max_windows> windows_;
    std::map<std::uint64_t, Reached> handed_;  // guarded windows, by their base
    std::array<Bell, max_sinks> bells_;
};

}  // namespace incast::softrio::shm
