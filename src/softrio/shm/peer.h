// What an endpoint knows of another one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "softrio/shm/system.h"

namespace incast::softrio::shm {

/// A part of a peer's window, mapped.
struct Reached {
    std::uint32_t window = 0;
    std::uint64_t generation = 0;
    std::shared_ptr<Mapping> mapping;
    std::byte* at = nullptr;
    std::uint64_t file_offset = 0;  // of it
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
    /// [address, address + bytes) in one of its windows, mapped on first use. Nothing: it is in none.
    std::optional<Reached> reach(std::uint64_t address, std::uint64_t bytes);
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
    std::atomic<std::int64_t> checked_us_ = 0;
    std::atomic<Writer*> writer_ = nullptr;
    std::mutex mutex_;
    std::array<Mapped, max_windows> windows_;
    std::array<Bell, max_sinks> bells_;
};

}  // namespace incast::softrio::shm
