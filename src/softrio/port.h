// What the C API needs of a fabric: one master port of this process, an endpoint. Each fabric implements it (shm/,
// udp/). Every call may come from any thread. Functions return 0 (or more, where said) or a negative errno value, as
// the C API does; rapidio_mport_*.h say which and when. Without the destination there is -ENODEV.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "softrio/limits.h"
#include "softrio/options.h"
#include "softrio/registers.h"

namespace incast::softrio {

enum class Direction : std::uint8_t { write, read };

/// What an endpoint may do in a guarded window: bits, as SOFTRIO_READ and SOFTRIO_WRITE.
using Access = std::uint32_t;
inline constexpr Access may_read = 1;
inline constexpr Access may_write = 2;
inline constexpr Access may_all = may_read | may_write;
constexpr bool allows(Access access, Direction direction) {
    return (access & (direction == Direction::write ? may_write : may_read)) != 0;
}

/// One DMA request. `bytes` is the caller's until the call returns.
struct Transfer {
    Direction direction = Direction::write;
    bool has_response = true;  // reads, and writes that are answered
    std::uint32_t channel = 0;
    std::uint32_t destid = 0;
    std::uint64_t address = 0;
    std::span<std::byte> bytes;
    bool is_streaming = false;  // SWRITE packets, where nothing is answered
    bool answers_each = false;  // every packet is answered, not only the last
};

struct Doorbell {
    std::uint32_t destid = 0;
    std::uint16_t payload = 0;
};

/// A doorbell, or what a device sends by itself when something is wrong with it.
struct Event {
    Doorbell doorbell;
    bool is_portwrite = false;
    std::array<std::uint32_t, 16> portwrite{};
};

/// Owns local memory while it is used.
using Keep = std::shared_ptr<void>;

/// Channelised messages (CM): one socket, and the connection it may have. One thread may send while another receives;
/// closing (its end) waits for neither: nobody may be in a call then.
class Socket {
public:
    virtual ~Socket() = default;
    [[nodiscard]] virtual bool is_usable() const = 0;
    /// Of a socket of another process.
    [[nodiscard]] virtual std::uint64_t id() const { return 0; }
    virtual int bind(std::uint16_t channel) = 0;
    virtual int listen() = 0;
    /// `into`: an unused socket of the same port, which becomes the connection.
    virtual int accept(Socket& into, std::uint32_t timeout_ms, const volatile int* stop) = 0;
    virtual int connect(std::uint32_t destid, std::uint16_t channel, const volatile int* stop) = 0;
    /// The message begins with 20 bytes of header, written here into what is sent, not into the caller's bytes.
    /// Without `stop` it waits as long as the other side lives.
    virtual int send(std::span<const std::byte> message, const volatile int* stop) = 0;
    /// When a message that is sent now has arrived on an emulated link, on the monotonic clock; 0: at once.
    virtual std::int64_t arrival_ns(std::uint64_t /*bytes*/) { return 0; }
    /// `into`: 4096 bytes.
    virtual int receive(std::span<std::byte> into, std::uint32_t timeout_ms, const volatile int* stop) = 0;
};

class Port {
public:
    virtual ~Port() = default;

    [[nodiscard]] virtual const Options& options() const = 0;
    [[nodiscard]] virtual std::uint32_t destid() const = 0;
    /// In a child process after a fork: the endpoint stays the parent's.
    virtual void abandon() = 0;
    [[nodiscard]] virtual bool is_abandoned() const = 0;

    /// Null: that id is no multicast group. Every write asks, so nothing is copied; good as long as the port is.
    [[nodiscard]] virtual std::shared_ptr<const MulticastGroup> group(std::uint32_t destid) const {
        return {std::shared_ptr<const void>(), options().group(destid)};  // owns nothing
    }

    virtual int set_destid(std::uint32_t destid) = 0;
    /// The other endpoints there are now, by ascending destination id.
    [[nodiscard]] virtual std::vector<std::uint32_t> others() = 0;

    /// Consecutive registers of an endpoint, which may be this one.
    virtual int read_registers(std::uint32_t destid, std::uint32_t offset, std::span<std::uint32_t> values) = 0;
    virtual int write_register(std::uint32_t destid, std::uint32_t offset, std::uint32_t value) = 0;
    /// The same of what a request to that endpoint reaches after so many switches. Fabrics of software have one between
    /// any two endpoints, of which nothing can be written; what is behind it is -EIO.
    virtual int read_on_the_way(std::uint32_t /*destid*/, std::uint32_t switches, std::uint32_t offset,
                                std::span<std::uint32_t> values) {
        if (switches != 0) return -EIO;
        for (std::uint32_t& each : values) {
            each = read_switch_register(offset);
            offset += sizeof each;
        }
        return 0;
    }
    virtual int write_on_the_way(std::uint32_t /*destid*/, std::uint32_t switches, std::uint32_t /*offset*/,
                                 std::uint32_t /*value*/) {
        return switches == 0 ? 0 : -EIO;
    }

    // Local memory and windows. `owner`: the handle that frees what it made.
    virtual int allocate(std::uint32_t owner, std::uint64_t bytes, std::uint64_t& local) = 0;
    virtual int free_allocation(std::uint64_t local) = 0;
    virtual int map_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) = 0;
    virtual int free_window(std::uint64_t local) = 0;
    /// A window that nobody reaches but those who are permitted to. It is freed as any other.
    virtual int map_guarded(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) = 0;
    /// What that endpoint may do in the guarded window there from now on. -EAGAIN: it cannot be told of it now.
    virtual int permit(std::uint64_t local, std::uint32_t destid, Access access) = 0;
    /// Takes what this endpoint was handed of guarded windows of others; else it does when it reaches for one.
    virtual void take_files() {}
    virtual int map_outbound(std::uint32_t owner, std::uint32_t destid, std::uint64_t base, std::uint64_t bytes,
                             std::uint64_t& handle) = 0;
    virtual int free_outbound(std::uint64_t handle) = 0;
    /// A descriptor for reading, of the allocation that starts there; the caller closes it.
    virtual int share_memory(std::uint64_t local) = 0;
    /// A descriptor of local memory or of what an outbound window shows, and where in that file it begins; the caller
    /// closes it.
    virtual int open_memory(std::uint64_t local, std::uint64_t bytes, std::uint64_t& offset) = 0;
    /// Empty: not all of it is local memory.
    virtual std::span<std::byte> local(std::uint64_t address, std::uint64_t bytes, Keep& keep) = 0;
    virtual void free_all(std::uint32_t owner) = 0;

    /// When a transfer that begins now has arrived on an emulated link, on the monotonic clock; 0: at once.
    virtual std::int64_t arrival_ns(Direction /*direction*/, std::uint32_t /*destid*/, std::uint64_t /*bytes*/) {
        return 0;
    }
    /// To one endpoint. -EIO: outside its windows. It is complete when this returns, as far as it is ever answered.
    virtual int transfer(const Transfer& transfer) = 0;

    /// `on_demand`: its bell rings once after each arm().
    virtual int open_sink(std::uint32_t& sink, bool on_demand) = 0;
    virtual void close_sink(std::uint32_t sink) = 0;
    /// 1: something is queued; 0: the bell will ring.
    virtual int arm(std::uint32_t sink) = 0;
    /// The descriptor that polls.
    [[nodiscard]] virtual int bell(std::uint32_t sink) const = 0;
    virtual void set_event_mask(std::uint32_t sink, std::uint32_t mask) = 0;
    [[nodiscard]] virtual std::uint32_t event_mask(std::uint32_t sink) const = 0;
    virtual int enable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) = 0;
    virtual int disable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) = 0;
    virtual int get_doorbell(std::uint32_t sink, bool wait, Doorbell& doorbell) = 0;
    /// Port-writes are among them, where anybody sends some.
    virtual int get_event(std::uint32_t sink, bool wait, Event& event) {
        event.is_portwrite = false;
        return get_doorbell(sink, wait, event.doorbell);
    }
    /// Of component tags of which `mask` leaves what lies in that range.
    virtual int enable_portwrites(std::uint32_t /*sink*/, std::uint32_t /*mask*/, std::uint32_t /*low*/,
                                  std::uint32_t /*high*/) {
        return 0;
    }
    virtual int disable_portwrites(std::uint32_t /*sink*/, std::uint32_t /*mask*/, std::uint32_t /*low*/,
                                   std::uint32_t /*high*/) {
        return 0;
    }
    virtual int send_doorbell(const Doorbell& doorbell, bool wait) = 0;

    virtual std::unique_ptr<Socket> make_socket() = 0;
};

}  // namespace incast::softrio
