// One master port of this process: an endpoint of a fabric on this host. Every call may come from any thread. Functions
// return 0 (or more, where said) or a negative errno value, as the C API does; rapidio_mport_*.h say which and when.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <incast/result.h>

#include "softrio/options.h"
#include "softrio/reserved.h"
#include "softrio/shm/peer.h"

namespace incast::softrio::shm {

enum class Direction : std::uint8_t { write, read };

/// Local memory, by its local ("physical") address.
struct Allocation {
    std::uint64_t start = 0;
    std::uint64_t bytes = 0;  // that were asked for
    SharedMemory memory;
    std::shared_ptr<Mapping> mapping;
    std::uint32_t owner = 0;
    enum class Kind : std::uint8_t { reserved, buffer, window } kind = Kind::buffer;
};

struct OwnWindow {
    bool used = false;
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    std::uint64_t local = 0;
    std::uint32_t owner = 0;
};

struct Outbound {
    bool used = false;
    std::uint32_t destid = 0;
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    std::uint32_t owner = 0;
};

struct Doorbell {
    std::uint32_t destid = 0;
    std::uint16_t payload = 0;
};

struct OwnSink {
    std::mutex mutex;  // one thread at a time takes from the queue
    Descriptor bell;
    Descriptor bell_end;
    std::uint64_t head = 0;
    bool used = false;
    bool on_demand = false;
    bool armed = false;  // on demand: a byte may be in the bell
};

class Port {
public:
    /// `wanted`: the destination id it had before, if that is free; 0: none.
    static Result<std::shared_ptr<Port>> open(const Options& options, std::uint32_t mport, std::uint32_t wanted);
    ~Port();
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    [[nodiscard]] const Options& options() const { return options_; }
    [[nodiscard]] std::uint32_t destid() const { return block_->destid.load(std::memory_order_relaxed); }
    [[nodiscard]] Block& block() const { return *block_; }
    /// In a child process after a fork: the endpoint stays the parent's.
    void abandon();
    [[nodiscard]] bool is_abandoned() const { return abandoned_; }

    int set_destid(std::uint32_t destid);
    [[nodiscard]] std::vector<std::uint32_t> others() const;
    /// nullptr: no such endpoint. `now`: see Peer::is_there_now.
    std::shared_ptr<Peer> peer(std::uint32_t destid, bool now = false);

    // registers.cpp
    static std::uint32_t read_register(const Block& of, std::uint32_t offset);
    int write_register(Block& of, bool own, std::uint32_t offset, std::uint32_t value);
    static std::uint32_t read_switch_register(std::uint32_t offset);

    // memory.cpp: local memory and windows. `owner`: the handle that frees what it made.
    int allocate(std::uint32_t owner, std::uint64_t bytes, std::uint64_t& local);
    int free_allocation(std::uint64_t local);
    int map_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local);
    int free_window(std::uint64_t local);
    int map_outbound(std::uint32_t owner, std::uint32_t destid, std::uint64_t base, std::uint64_t bytes,
                     std::uint64_t& handle);
    int free_outbound(std::uint64_t handle);
    int map_memory(std::uint64_t local, std::uint64_t bytes, void*& at);
    /// Empty: not all of it is local memory.
    std::span<std::byte> local(std::uint64_t address, std::uint64_t bytes, std::shared_ptr<Mapping>& keep);
    void free_all(std::uint32_t owner);

    // transfer.cpp. -ENODEV: no such endpoint; -EIO: outside its windows, nothing was moved.
    int transfer(Direction direction, std::uint32_t channel, std::uint32_t destid, std::uint64_t address,
                 std::span<std::byte> bytes);

    // events.cpp
    /// `on_demand`: its bell rings once after each arm().
    int open_sink(std::uint32_t& sink, bool on_demand);
    /// 1: something is queued; 0: the bell will ring.
    int arm(std::uint32_t sink);
    void close_sink(std::uint32_t sink);
    [[nodiscard]] int bell(std::uint32_t sink) const { return sinks_[sink].bell.fd(); }
    int enable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last);
    int disable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last);
    int get_doorbell(std::uint32_t sink, bool wait, Doorbell& doorbell);
    int send_doorbell(const Doorbell& doorbell, bool wait);

    /// Taken while a CM channel number is chosen.
    std::mutex& channels_mutex() { return channels_mutex_; }

private:
    Port() = default;
    /// 0 or an errno: EADDRINUSE if another endpoint has it.
    int take_destid(std::uint32_t destid);
    Allocation* find(std::uint64_t address, std::uint64_t bytes);
    Result<Ok> reserve();
    int drain(std::uint32_t window);
    bool take(std::uint32_t sink, Doorbell& doorbell);
    [[nodiscard]] bool is_empty(std::uint32_t sink) const;
    void settle_bell(std::uint32_t sink);
    void empty_bell(std::uint32_t sink);
    void ring_own(std::uint32_t sink);

    Options options_;
    bool abandoned_ = false;
    std::uint64_t self_ = 0;  // as a writer
    SharedMemory memory_;
    std::shared_ptr<Mapping> mapping_;
    Block* block_ = nullptr;
    Descriptor destid_name_;
    Descriptor place_name_;

    std::mutex peers_mutex_;
    std::map<std::uint32_t, std::shared_ptr<Peer>> peers_;

    std::mutex memory_mutex_;
    std::map<std::uint64_t, Allocation> allocations_;
    std::uint64_t next_local_ = allocated_base;
    std::array<OwnWindow, max_windows> windows_;
    std::array<Outbound, max_windows> outbound_;

    std::mutex sinks_mutex_;
    std::array<OwnSink, max_sinks> sinks_;

    std::mutex channels_mutex_;
    std::array<std::mutex, dma_channels> dma_mutex_;  // a channel does one transfer at a time
};

}  // namespace incast::softrio::shm
