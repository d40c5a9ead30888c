// One master port of this process: an endpoint of a fabric on this host.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <incast/result.h>

#include "softrio/port.h"
#include "softrio/registers.h"
#include "softrio/reserved.h"
#include "softrio/shm/peer.h"

namespace incast::softrio::shm {

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
    bool is_guarded = false;
    std::map<std::uint32_t, Access> permits;  // guarded: by destination id

    [[nodiscard]] bool allows(std::uint32_t source, Direction direction) const {
        if (!is_guarded) [[likely]]
            return true;
        const auto found = permits.find(source);
        return found != permits.end() && softrio::allows(found->second, direction);
    }
};

struct Outbound {
    bool used = false;
    std::uint32_t destid = 0;
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    std::uint32_t owner = 0;
};

/// One transfer at a time. The peer and the window of the last one are at hand for the next, which most often goes
/// there; where they have ended since, their memory stays mapped until that next one.
struct DmaChannel {
    std::mutex mutex;
    std::shared_ptr<Peer> peer;
    std::optional<Reached> reached;
};

struct OwnSink {
    std::mutex mutex;  // one thread at a time takes from the queue
    Descriptor bell;
    Descriptor bell_end;
    std::atomic<std::uint64_t> head = 0;
    bool used = false;
    bool on_demand = false;
    std::atomic<bool> armed = false;  // on demand: a byte may be in the bell
};

class Port final : public softrio::Port, public std::enable_shared_from_this<Port> {
public:
    /// `wanted`: the destination id it had before, if that is free; 0: none.
    static Result<std::shared_ptr<Port>> open(const Options& options, std::uint32_t mport, std::uint32_t wanted);
    /// In no fabric: the own half of an endpoint, for fabrics that bring it what peers send (Inbound, queue_doorbell).
    static Result<std::shared_ptr<Port>> open_alone(const Options& options, std::uint32_t destid);
    ~Port() override;
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    [[nodiscard]] const Options& options() const override { return options_; }
    [[nodiscard]] std::uint32_t destid() const override { return block_->destid.load(std::memory_order_relaxed); }
    [[nodiscard]] Block& block() const { return *block_; }
    void abandon() override;
    [[nodiscard]] bool is_abandoned() const override { return abandoned_; }

    int set_destid(std::uint32_t destid) override;
    [[nodiscard]] std::vector<std::uint32_t> others() override;
    /// nullptr: no such endpoint. `now`: see Peer::is_there_now.
    std::shared_ptr<Peer> peer(std::uint32_t destid, bool now = false);

    int read_registers(std::uint32_t destid, std::uint32_t offset, std::span<std::uint32_t> values) override;
    int write_register(std::uint32_t destid, std::uint32_t offset, std::uint32_t value) override;

    // memory.cpp
    int allocate(std::uint32_t owner, std::uint64_t bytes, std::uint64_t& local) override;
    int free_allocation(std::uint64_t local) override;
    int map_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) override;
    int free_window(std::uint64_t local) override;
    int map_guarded(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) override;
    int permit(std::uint64_t local, std::uint32_t destid, Access access) override;
    void take_files() override;
    int map_outbound(std::uint32_t owner, std::uint32_t destid, std::uint64_t base, std::uint64_t bytes,
                     std::uint64_t& handle) override;
    int free_outbound(std::uint64_t handle) override;
    int share_memory(std::uint64_t local) override;
    int open_memory(std::uint64_t local, std::uint64_t bytes, std::uint64_t& offset) override;
    std::span<std::byte> local(std::uint64_t address, std::uint64_t bytes, Keep& keep) override;
    void free_all(std::uint32_t owner) override;

    // transfer.cpp. -EIO: nothing was moved.
    int transfer(const Transfer& transfer) override;

    std::int64_t arrival_ns(Direction direction, std::uint32_t destid, std::uint64_t bytes) override;

    // events.cpp
    int open_sink(std::uint32_t& sink, bool on_demand) override;
    void close_sink(std::uint32_t sink) override;
    int arm(std::uint32_t sink) override;
    [[nodiscard]] int bell(std::uint32_t sink) const override { return sinks_[sink].bell.fd(); }
    void set_event_mask(std::uint32_t sink, std::uint32_t mask) override { block_->sinks[sink].events.store(mask); }
    [[nodiscard]] std::uint32_t event_mask(std::uint32_t sink) const override {
        return block_->sinks[sink].events.load();
    }
    int enable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) override;
    int disable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) override;
    int get_doorbell(std::uint32_t sink, bool wait, Doorbell& doorbell) override;
    int send_doorbell(const Doorbell& doorbell, bool wait) override;
    /// Rings here. `doorbell.destid`: of the sender. -EAGAIN: the queue is full; -ENOENT: nobody has enabled it.
    int queue_doorbell(const Doorbell& doorbell);

    std::unique_ptr<softrio::Socket> make_socket() override;

    /// Taken while a CM channel number is chosen.
    std::mutex& channels_mutex() { return channels_mutex_; }

private:
    friend class Inbound;
    Port() = default;
    Result<Ok> prepare(const Options& options);
    /// 0 or an errno: EADDRINUSE if another endpoint has it.
    int take_destid(std::uint32_t destid);
    Allocation* find(std::uint64_t address, std::uint64_t bytes);
    Result<Ok> reserve();
    int drain(std::uint32_t window);
    int open_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local,
                    bool is_guarded);
    int hand_over(std::uint32_t window, std::uint32_t destid, Access access);
    void hand_over_all();
    std::optional<Reached> reach(Peer& target, Direction direction, std::uint64_t address, std::uint64_t bytes);
    bool take(std::uint32_t sink, Doorbell& doorbell);
    [[nodiscard]] bool is_empty(std::uint32_t sink) const;
    [[nodiscard]] bool is_settled(std::uint32_t sink) const;
    void settle_bell(std::uint32_t sink);
    void empty_bell(std::uint32_t sink);
    void start_doorbells();
    void ring_own(std::uint32_t sink);

    Options options_;
    bool abandoned_ = false;
    std::uint64_t self_ = 0;  // as a writer
    SharedMemory memory_;
    std::shared_ptr<Mapping> mapping_;
    Block* block_ = nullptr;
    Descriptor destid_name_;
    Descriptor place_name_;
    bool is_alone_ = false;
    std::mutex files_mutex_;
    FileBox files_;  // that this endpoint is handed

    std::mutex peers_mutex_;
    std::map<std::uint32_t, std::shared_ptr<Peer>> peers_;

    std::mutex memory_mutex_;
    std::map<std::uint64_t, Allocation> allocations_;
    std::uint64_t next_local_ = allocated_base;
    std::vector<OwnWindow> windows_ = std::vector<OwnWindow>(max_windows);  // by number; the guarded ones behind
    std::map<std::uint64_t, std::uint32_t> shown_;                          // their numbers, by their base
    std::array<Outbound, max_windows> outbound_;

    std::mutex sinks_mutex_;
    std::array<OwnSink, max_sinks> sinks_;

    std::mutex channels_mutex_;
    std::array<DmaChannel, dma_channels> dma_channels_;
};

/// The inbound windows of a port, none of which changes while this is there.
class Inbound {
public:
    explicit Inbound(Port& port) : port_(&port), lock_(port.memory_mutex_) {}
    /// For that endpoint. Empty: not all of it is in one window, or that is not for it.
    std::span<std::byte> at(std::uint32_t source, Direction direction, std::uint64_t address, std::uint64_t bytes);

private:
    bool find(std::uint64_t address, std::uint64_t bytes);

    Port* port_;
    std::lock_guard<std::mutex> lock_;
    // What was found last.
    const OwnWindow* window_ = nullptr;
    std::uint64_t base_ = 0;
    std::span<std::byte> memory_;
};

}  // namespace incast::softrio::shm
