// A master port of the kernel: /dev/rio_mportN (linux/rio_mport_cdev.h), enumerated, with /dev/rio_cm for messages.
// Memory is the kernel's, in a row, mapped here; a transfer is one request to the port's DMA engine.
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

#include "os/mapping.h"
#include "softrio/device/events.h"
#include "softrio/limits.h"
#include "softrio/port.h"

namespace incast::softrio::device {

class Port final : public softrio::Port {
public:
    /// Takes the port for this process: `options.fabric` is its number, to which `mport` is added, or "any".
    static Result<std::shared_ptr<Port>> open(const Options& options, std::uint32_t mport);
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;
    ~Port() override = default;

    [[nodiscard]] const Options& options() const override { return options_; }
    [[nodiscard]] std::uint32_t destid() const override;
    void abandon() override;
    [[nodiscard]] bool is_abandoned() const override { return is_abandoned_; }

    int set_destid(std::uint32_t destid) override;
    [[nodiscard]] std::vector<std::uint32_t> others() override;
    int read_registers(std::uint32_t destid, std::uint32_t offset, std::span<std::uint32_t> values) override;
    int write_register(std::uint32_t destid, std::uint32_t offset, std::uint32_t value) override;
    int read_on_the_way(std::uint32_t destid, std::uint32_t switches, std::uint32_t offset,
                        std::span<std::uint32_t> values) override;
    int write_on_the_way(std::uint32_t destid, std::uint32_t switches, std::uint32_t offset,
                         std::uint32_t value) override;

    int allocate(std::uint32_t owner, std::uint64_t bytes, std::uint64_t& local) override;
    int free_allocation(std::uint64_t local) override;
    int map_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) override;
    int free_window(std::uint64_t local) override;
    /// -EOPNOTSUPP: no driver looks at who writes.
    int map_guarded(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) override;
    int permit(std::uint64_t local, std::uint32_t destid, Access access) override;
    int map_outbound(std::uint32_t owner, std::uint32_t destid, std::uint64_t base, std::uint64_t bytes,
                     std::uint64_t& handle) override;
    int free_outbound(std::uint64_t handle) override;
    /// -EOPNOTSUPP: it is no file.
    int share_memory(std::uint64_t local) override;
    int open_memory(std::uint64_t local, std::uint64_t bytes, std::uint64_t& offset) override;
    std::span<std::byte> local(std::uint64_t address, std::uint64_t bytes, Keep& keep) override;
    void free_all(std::uint32_t owner) override;

    int transfer(const Transfer& transfer) override;

    int open_sink(std::uint32_t& sink, bool on_demand) override { return events_.open_sink(sink, on_demand); }
    void close_sink(std::uint32_t sink) override { events_.close_sink(sink); }
    int arm(std::uint32_t sink) override { return events_.arm(sink); }
    [[nodiscard]] int bell(std::uint32_t sink) const override { return events_.bell(sink); }
    void set_event_mask(std::uint32_t sink, std::uint32_t mask) override { events_.set_event_mask(sink, mask); }
    [[nodiscard]] std::uint32_t event_mask(std::uint32_t sink) const override { return events_.event_mask(sink); }
    int enable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) override {
        return events_.enable_range(sink, destid, first, last);
    }
    int disable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) override {
        return events_.disable_range(sink, destid, first, last);
    }
    int get_doorbell(std::uint32_t sink, bool wait, Doorbell& doorbell) override;
    int get_event(std::uint32_t sink, bool wait, Event& event) override { return events_.get_event(sink, wait, event); }
    int enable_portwrites(std::uint32_t sink, std::uint32_t mask, std::uint32_t low, std::uint32_t high) override {
        return events_.change_portwrites(true, sink, mask, low, high);
    }
    int disable_portwrites(std::uint32_t sink, std::uint32_t mask, std::uint32_t low, std::uint32_t high) override {
        return events_.change_portwrites(false, sink, mask, low, high);
    }
    int send_doorbell(const Doorbell& doorbell, bool wait) override;

    std::unique_ptr<softrio::Socket> make_socket() override;

private:
    static constexpr std::uint64_t first_local = std::uint64_t{1} << 40;
    /// Under the address that programs know. The driver opens windows over memory of its own only, so a buffer is made
    /// when it is first used: as a window, if one is opened over it before that.
    struct Memory {
        enum class Made : std::uint8_t { no, buffer, window, outbound, spent } made = Made::no;
        bool is_allocated = false;  // by allocate(): it outlives the window
        std::uint64_t bytes = 0;
        std::uint32_t owner = 0;
        std::uint64_t handle = 0;              // the kernel's
        std::shared_ptr<os::Mapping> mapping;  // not of outbound windows
    };
    using Made = Memory::Made;

    Port(const Options& options, std::uint32_t number, std::string path, os::Descriptor file)
        : options_(options), number_(number), path_(std::move(path)), file_(std::move(file)), events_(path_) {}
    // With the lock:
    std::uint64_t add(std::uint64_t bytes, std::uint32_t owner);
    Memory* find(std::uint64_t local, std::uint64_t bytes, std::uint64_t& offset);
    int make_buffer(Memory& memory);
    int map(Memory& memory);
    int unmake(Memory& memory);

    int access(unsigned long request, std::uint32_t destid, std::uint32_t hops, std::uint32_t offset,
               std::span<std::uint32_t> values);
    [[nodiscard]] bool is_there(std::uint32_t destid);
    /// The file whose DMA channel that is; -1: it cannot be opened.
    int channel(std::uint32_t number);
    /// -EFAULT: the driver cannot reach the bytes.
    int move(const Transfer& transfer, int file);
    int move_pinnable(const Transfer& transfer, int file);

    Options options_;
    std::uint32_t number_;
    std::string path_;
    os::Descriptor file_;
    mutable Events events_;
    bool is_abandoned_ = false;
    std::mutex mutex_;
    std::map<std::uint64_t, Memory> memory_;
    std::uint64_t next_local_ = first_local;
    std::array<os::Descriptor, dma_channels> channels_;
};

}  // namespace incast::softrio::device
