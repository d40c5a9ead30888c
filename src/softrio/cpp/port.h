// The RapidIO API with owners: a master port handle, its doorbells and its rDMA. It uses the C functions and nothing
// else, so it works on every fabric that they work on.
//
// Makers answer a Result with a line for a person. Operations answer a std::error_code of the generic category (the
// errno value that the C function returned), and say where they may block. An object belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <rapidio_mport_dma.h>
#include <rapidio_mport_mgmt.h>

#include <incast/result.h>

namespace incast::rio {

using Destid = did_val_t;
inline constexpr Destid any_destid = 0xFFFF;

/// What a C function returned: no error for 0 and more.
inline std::error_code error_of(int result) {
    return result < 0 ? std::error_code(-result, std::generic_category()) : std::error_code();
}
/// WHAT: why, for a maker's Error.
Error error_line(const std::string& what, int result);

struct Doorbell {
    Destid source = 0;
    std::uint16_t payload = 0;
};

/// Whether a write is complete when it has left (NWRITE) or when it is in the target's memory (NWRITE_R).
enum class Completion : std::uint8_t { left, placed };

/// `streaming`: SWRITE, for data that does not fit into the target's caches. Address and size are multiples of 8.
enum class Stores : std::uint8_t { plain, streaming };

/// An asynchronous transfer: its buffer is lent until it has ended.
using Cookie = std::uint32_t;

class MasterPort {
public:
    /// `flags`: O_NONBLOCK, SOFTRIO_ON_DEMAND. Of the fabric that RIO_FABRIC names.
    static Result<MasterPort> open(std::uint32_t mport, int flags);
    /// Another handle of the same master port: its transfers may use another DMA channel.
    [[nodiscard]] Result<MasterPort> again(int flags) const { return open(number(), flags); }
    /// A master port of its own in the fabric that is named here (softrio_open_port).
    static Result<MasterPort> join(const std::string& fabric, int flags);

    [[nodiscard]] riomp_mport_t get() const { return handle_.get(); }
    [[nodiscard]] std::uint8_t number() const { return handle_->mport_id; }
    [[nodiscard]] Destid destid() const { return destid_; }
    /// Polls readable while doorbells are queued (on demand: after arm). Not for closing.
    [[nodiscard]] int fd() const { return handle_->fd; }
    /// All other endpoints of the fabric, ascending.
    [[nodiscard]] Result<std::vector<Destid>> endpoints() const;

    /// Whether the fabric keeps windows for those who are permitted to reach them (softrio_guarded_map).
    [[nodiscard]] bool has_guards() const;
    /// Of guarded windows of others (softrio_take_permits).
    void take_permits() const;

    // --- doorbells

    /// From now on doorbells first..last are queued for this handle.
    [[nodiscard]] std::error_code listen(std::uint16_t first, std::uint16_t last, Destid source = any_destid);
    /// Waits at a full queue, unless the handle is O_NONBLOCK: then resource_unavailable_try_again.
    [[nodiscard]] std::error_code ring(Destid target, std::uint16_t payload) const;
    /// The oldest one; nothing: there is none, and the handle is O_NONBLOCK.
    [[nodiscard]] std::optional<Doorbell> hear() const;
    /// On demand: true if it is safe to sleep on fd(), which the next doorbell ends.
    [[nodiscard]] bool arm() const;

    // --- rDMA

    /// Returns when it is complete.
    [[nodiscard]] std::error_code write(Destid target, std::uint64_t address, std::span<const std::byte> bytes,
                                        Completion completion) const;
    [[nodiscard]] std::error_code read(Destid target, std::uint64_t address, std::span<std::byte> bytes) const;
    /// Fire and forget: does not wait, and says no more than that it began. `bytes` stay as they are until a transfer
    /// that was started later by this handle has ended.
    [[nodiscard]] std::error_code post(Destid target, std::uint64_t address, std::span<const std::byte> bytes) const;
    /// Does not wait: `bytes` are lent until ended() says so. `cookie` is set unless there is an error.
    [[nodiscard]] std::error_code start_write(Destid target, std::uint64_t address, std::span<const std::byte> bytes,
                                              Cookie& cookie, Stores stores = Stores::plain) const;
    [[nodiscard]] std::error_code start_read(Destid target, std::uint64_t address, std::span<std::byte> bytes,
                                             Cookie& cookie) const;
    /// How it ended, told once; nothing: it has not, within that time.
    [[nodiscard]] std::optional<std::error_code> ended(Cookie cookie, std::uint32_t timeout_ms = 0) const;

private:
    struct Close {
        void operator()(rapidio_mport_handle* handle) const { (void)riomp_mgmt_mport_destroy_handle(&handle); }
    };
    explicit MasterPort(riomp_mport_t handle);

    std::unique_ptr<rapidio_mport_handle, Close> handle_;
    Destid destid_ = 0;
};

}  // namespace incast::rio
