// A master port that another process has open, used through it: after a fork, and by every further process that asks
// for the same destination id. docs/decisions/0022-shared-ports.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "softrio/api/calls.h"
#include "softrio/port.h"

namespace incast::softrio::api {

class SharedPort final : public Port, public std::enable_shared_from_this<SharedPort> {
public:
    /// nullptr: nobody has that port open, or does not share it.
    static std::shared_ptr<SharedPort> attach(const Options& options, const std::string& name);
    /// In a child, of the process that has it open; `process` and `life`: see PortServer::prepare_fork.
    SharedPort(const Options& options, std::string name, std::uint32_t process, os::Descriptor life)
        : options_(options), name_(std::move(name)), process_(process), life_(std::move(life)) {}
    ~SharedPort() override = default;
    SharedPort(const SharedPort&) = delete;
    SharedPort& operator=(const SharedPort&) = delete;

    // Before a fork, and then in the child: a user of its own.
    void prepare_fork();
    void forget_child() { child_life_.close(); }
    void become_child();

    /// The answer's status; -ENODEV: whoever had the port open is gone. `given`: a file that goes with the call.
    int call(Operation operation, std::array<std::uint64_t, 6> values, Answer& answer,
             std::span<const std::byte> bytes = {}, std::span<std::byte> into = {}, os::Descriptor* file = nullptr,
             std::vector<std::byte>* more = nullptr, int given = -1);
    int call(Operation operation, std::array<std::uint64_t, 6> values = {}) {
        Answer answer;
        return call(operation, values, answer);
    }

    [[nodiscard]] const Options& options() const override { return options_; }
    [[nodiscard]] std::uint32_t destid() const override;
    void abandon() override {}
    [[nodiscard]] bool is_abandoned() const override { return false; }
    int set_destid(std::uint32_t destid) override { return call(Operation::set_destid, {destid}); }
    [[nodiscard]] std::vector<std::uint32_t> others() override;
    int read_registers(std::uint32_t destid, std::uint32_t offset, std::span<std::uint32_t> values) override {
        return read(destid, 0, offset, values);
    }
    int read_on_the_way(std::uint32_t destid, std::uint32_t switches, std::uint32_t offset,
                        std::span<std::uint32_t> values) override {
        return read(destid, std::uint64_t{switches} + 1, offset, values);
    }
    int write_on_the_way(std::uint32_t destid, std::uint32_t switches, std::uint32_t offset,
                         std::uint32_t value) override {
        return call(Operation::write_register, {destid, offset, value, std::uint64_t{switches} + 1});
    }
    int write_register(std::uint32_t destid, std::uint32_t offset, std::uint32_t value) override {
        return call(Operation::write_register, {destid, offset, value});
    }
    int allocate(std::uint32_t owner, std::uint64_t bytes, std::uint64_t& local) override;
    int free_allocation(std::uint64_t local) override { return call(Operation::free_allocation, {local}); }
    int map_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) override;
    int free_window(std::uint64_t local) override { return call(Operation::free_window, {local}); }
    /// -EOPNOTSUPP: not through another process.
    int map_guarded(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) override;
    int permit(std::uint64_t local, std::uint32_t destid, Access access) override;
    int map_outbound(std::uint32_t owner, std::uint32_t destid, std::uint64_t base, std::uint64_t bytes,
                     std::uint64_t& handle) override;
    int free_outbound(std::uint64_t handle) override { return call(Operation::free_outbound, {handle}); }
    int share_memory(std::uint64_t local) override;
    int open_memory(std::uint64_t local, std::uint64_t bytes, std::uint64_t& offset) override;
    std::span<std::byte> local(std::uint64_t address, std::uint64_t bytes, Keep& keep) override;
    void free_all(std::uint32_t /*owner*/) override {}
    std::int64_t arrival_ns(Direction direction, std::uint32_t destid, std::uint64_t bytes) override;
    int transfer(const Transfer& transfer) override;
    int open_sink(std::uint32_t& sink, bool on_demand) override;
    void close_sink(std::uint32_t sink) override { (void)call(Operation::close_sink, {sink}); }
    int arm(std::uint32_t sink) override { return call(Operation::arm, {sink}); }
    [[nodiscard]] int bell(std::uint32_t sink) const override;
    /// That the parent had.
    void keep_bell(std::uint32_t sink, int fd);
    void set_event_mask(std::uint32_t sink, std::uint32_t mask) override {
        (void)call(Operation::set_events, {sink, mask});
    }
    [[nodiscard]] std::uint32_t event_mask(std::uint32_t sink) const override;
    int enable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) override {
        return call(Operation::enable_range, {sink, destid, first, last});
    }
    int disable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) override {
        return call(Operation::disable_range, {sink, destid, first, last});
    }
    int get_doorbell(std::uint32_t sink, bool wait, Doorbell& doorbell) override;
    int send_doorbell(const Doorbell& doorbell, bool wait) override {
        return call(Operation::send_doorbell, {doorbell.destid, doorbell.payload, wait ? 1U : 0U});
    }
    std::unique_ptr<Socket> make_socket() override;
    /// One that is there already.
    std::unique_ptr<Socket> socket_of(std::uint64_t id);

private:
    os::Descriptor connection();
    /// `way`: 0: of the endpoint; else of what is behind so many switches less one.
    int read(std::uint32_t destid, std::uint64_t way, std::uint32_t offset, std::span<std::uint32_t> values);
    int transfer_in_file(const Transfer& transfer, const std::array<std::uint64_t, 6>& values);

    Options options_;
    std::string name_;
    std::uint32_t process_ = 0;
    os::Descriptor life_;  // what it made is undone when nobody has that open any more
    mutable std::mutex mutex_;
    std::vector<os::Descriptor> idle_;  // connections
    std::map<std::uint32_t, os::Descriptor> bells_;
    std::uint32_t child_process_ = 0;  // of the fork that is being made
    os::Descriptor child_life_;
};

}  // namespace incast::softrio::api
