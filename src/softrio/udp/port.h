// One master port of this process on a udp fabric. Its own half (memory, windows, doorbell queues) is that of shm, in
// no fabric; Engine is what peers see of it. One thread takes in what arrives; callers send, and wait for answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <incast/result.h>

#include "datagram/socket.h"
#include "softrio/port.h"
#include "softrio/registers.h"
#include "softrio/shm/channels.h"
#include "softrio/shm/port.h"
#include "softrio/udp/channels.h"
#include "softrio/udp/engine.h"
#include "softrio/udp/membership.h"

namespace incast::softrio::udp {

class Port final : public softrio::Port, private Target, public std::enable_shared_from_this<Port> {
public:
    /// `wanted`: the destination id it had before, if that is free; 0: none. `instead`: who takes what peers ask for,
    /// instead of the own half; under the lock, and it outlives the port.
    static Result<std::shared_ptr<Port>> open(const Options& options, std::uint32_t mport, std::uint32_t wanted,
                                              Target* instead = nullptr);
    ~Port() override;
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    [[nodiscard]] const Options& options() const override { return options_; }
    [[nodiscard]] std::uint32_t destid() const override { return own_->destid(); }
    void abandon() override;
    [[nodiscard]] bool is_abandoned() const override { return abandoned_; }

    /// What the options say goes before what the enumerating host does.
    [[nodiscard]] std::shared_ptr<const MulticastGroup> group(std::uint32_t destid) const override;
    int set_destid(std::uint32_t destid) override;
    [[nodiscard]] std::vector<std::uint32_t> others() override;
    /// Those with which there is a session; of all others one is being opened, if there are not too many to try. For a
    /// program that looks again and again, and is slower than others() waits.
    [[nodiscard]] std::vector<std::uint32_t> reached();

    int read_registers(std::uint32_t destid, std::uint32_t offset, std::span<std::uint32_t> values) override;
    int write_register(std::uint32_t destid, std::uint32_t offset, std::uint32_t value) override;

    int allocate(std::uint32_t owner, std::uint64_t bytes, std::uint64_t& local) override {
        return own_->allocate(owner, bytes, local);
    }
    int free_allocation(std::uint64_t local) override { return own_->free_allocation(local); }
    int map_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) override {
        return own_->map_window(owner, base, bytes, local);
    }
    int free_window(std::uint64_t local) override { return own_->free_window(local); }
    int map_guarded(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) override {
        return own_->map_guarded(owner, base, bytes, local);
    }
    int permit(std::uint64_t local, std::uint32_t destid, Access access) override {
        return own_->permit(local, destid, access);
    }
    /// -EOPNOTSUPP: memory of another host is not mapped.
    int map_outbound(std::uint32_t owner, std::uint32_t destid, std::uint64_t base, std::uint64_t bytes,
                     std::uint64_t& handle) override;
    int free_outbound(std::uint64_t handle) override { return own_->free_outbound(handle); }
    int share_memory(std::uint64_t local) override { return own_->share_memory(local); }
    int open_memory(std::uint64_t local, std::uint64_t bytes, std::uint64_t& offset) override {
        return own_->open_memory(local, bytes, offset);
    }
    std::span<std::byte> local(std::uint64_t address, std::uint64_t bytes, Keep& keep) override {
        return own_->local(address, bytes, keep);
    }
    void free_all(std::uint32_t owner) override { own_->free_all(owner); }

    /// Packets are judged one by one: of a transfer that is partly outside of all windows the rest lands.
    int transfer(const Transfer& transfer) override;

    int open_sink(std::uint32_t& sink, bool on_demand) override { return own_->open_sink(sink, on_demand); }
    void close_sink(std::uint32_t sink) override { own_->close_sink(sink); }
    int arm(std::uint32_t sink) override { return own_->arm(sink); }
    [[nodiscard]] int bell(std::uint32_t sink) const override { return own_->bell(sink); }
    void set_event_mask(std::uint32_t sink, std::uint32_t mask) override { own_->set_event_mask(sink, mask); }
    [[nodiscard]] std::uint32_t event_mask(std::uint32_t sink) const override { return own_->event_mask(sink); }
    int enable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) override {
        return own_->enable_range(sink, destid, first, last);
    }
    int disable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) override {
        return own_->disable_range(sink, destid, first, last);
    }
    int get_doorbell(std::uint32_t sink, bool wait, Doorbell& doorbell) override {
        return own_->get_doorbell(sink, wait, doorbell);
    }
    int send_doorbell(const Doorbell& doorbell, bool wait) override;

    std::unique_ptr<softrio::Socket> make_socket() override;
    /// A whole message, for that mailbox. -ENODEV.
    int send_letter(std::uint32_t destid, std::uint8_t mailbox, std::span<const std::byte> message);

    // For its sockets, and to be called with the lock, which waiting gives up meanwhile.
    using Lock = std::unique_lock<std::mutex>;
    [[nodiscard]] Lock lock();
    Channels& channels() { return channels_; }
    std::uint32_t next_serial() { return ++serial_; }
    /// 0: there is a session with that endpoint; -ENODEV.
    int connect(Lock& lock, std::uint32_t destid);
    /// Sends what can be sent.
    void pump();
    /// Until something may have changed, at most 50 ms; false: the caller's patience is over.
    bool wait(Lock& lock, shm::Patience& patience);
    /// Until all that was sent to that endpoint has arrived.
    void settle(Lock& lock, std::uint32_t destid, std::int64_t at_most_ms);

private:
    Port(const Options& options, Directory directory);
    int bind(std::uint32_t destid);
    Result<std::uint32_t> choose(std::uint32_t mport, std::uint32_t wanted);
    /// The same, of an enumerating host.
    Result<std::uint32_t> join(const Address& host, std::uint32_t mport, std::uint32_t wanted);
    Membership::Changed told();
    void take_groups();
    /// Until the enumerating host has answered, or does not.
    template <class Answered>
    void wait_for_host(Lock& lock, Answered&& answered);
    /// Who has just joined may be known to somebody else first.
    void hear_of_all(Lock& lock);
    /// False: there is no such endpoint, or not now.
    bool open(Lock& lock, std::uint32_t destid);
    int change_destid(Lock& lock, std::uint32_t destid);
    void run();
    void wait(Lock& lock);
    void notify();
    void wake_thread();
    /// Wakes the thread if it sleeps too long.
    void tell_deadline();
    /// Of what the thread waits for; as epoll_ctl.
    void watch(int operation, int fd, std::uint32_t events);
    void begin_driving();
    void end_driving();
    /// What has arrived, without waiting, and what the time says. `has_errors`: the socket polls so.
    void take_in(bool has_errors);
    int write(Lock& lock, const Transfer& transfer, std::uint32_t losses);
    int read(Lock& lock, const Transfer& transfer, std::uint32_t losses);
    int finish(Lock& lock, const Request& request);
    /// Of another endpoint, from `offset` on; `values` are big-endian.
    int access_registers(std::uint32_t destid, wire::Operation operation, std::uint32_t offset,
                         std::span<std::uint32_t> values);
    /// Makes `attempt` until it succeeds; false: the session has been lost.
    template <class Attempt>
    bool persist(Lock& lock, std::uint32_t destid, std::uint32_t losses, Attempt&& attempt);
    /// In the middle of a long transfer: takes in what has arrived, and lets others have their turn.
    void breathe(Lock& lock);
    /// Waits for packets instead of the thread, where the caller drives.
    void wait_for_packets(Lock& lock);
    [[nodiscard]] bool drives() const { return driver_ == std::this_thread::get_id(); }

    // Target
    std::span<std::byte> window(std::uint32_t source, Direction direction, std::uint64_t address,
                                std::size_t bytes) override;
    wire::Status ring(std::uint32_t source, std::uint16_t info) override;
    std::uint32_t read_register(std::uint32_t offset) override;
    wire::Status write_register(std::uint32_t offset, std::uint32_t value) override;
    void take_message(std::uint32_t source, std::span<const std::byte> message) override;
    void take_letter(std::uint32_t source, std::uint8_t mailbox, std::span<const std::byte> message) override;
    void lose_peer(std::uint32_t destid, reliable::Loss why) override;

    Options options_;
    bool abandoned_ = false;
    Target* instead_ = nullptr;
    std::shared_ptr<shm::Port> own_;
    std::mutex mutex_;
    std::mutex probing_;
    Directory directory_;
    Membership membership_;  // of the fabric of an enumerating host
    std::atomic<bool> has_groups_ = false;
    mutable std::mutex groups_mutex_;
    std::vector<std::shared_ptr<const MulticastGroup>> groups_;  // that it has told of
    datagram::Socket socket_;
    std::unique_ptr<Engine> engine_;
    Channels channels_;
    os::Descriptor wake_;
    os::Descriptor poll_;  // the socket, but while somebody drives; wake_; the enumerating host
    std::thread thread_;
    std::optional<shm::Inbound> inbound_;  // while something is taken in
    /// A caller with much to move takes in what arrives itself, meanwhile the thread does not look at the socket: it
    /// would only be in the way.
    std::thread::id driver_;
    std::int64_t sleeps_until_ns_ = 0;
    std::uint64_t outside_ = 0;  // of which something was said
    std::uint32_t serial_ = 0;
    std::atomic<bool> ending_ = false;
    std::atomic<std::uint32_t> waiting_ = 0;  // for the lock
    std::atomic<std::uint32_t> turns_ = 0;    // of those who waited for it
    std::atomic<std::uint32_t> waiters_ = 0;
    std::atomic<std::uint32_t> changes_ = 0;  // futex
};

}  // namespace incast::softrio::udp
