#include <algorithm>
#include <cerrno>

#include <rapidio_mport_dma.h>
#include <softrio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "softrio/api/awaited.h"
#include "softrio/api/handle.h"

using namespace incast::softrio;
using api::check;
using api::Handle;
using api::handle_of;
using api::tell;

namespace {

constexpr std::uint64_t page_bytes = 4096;

bool is_plain(const rapidio_mport_interleave* interleave) {
    return interleave == nullptr ||
           (interleave->ssdist == 0 && interleave->sssize == 0 && interleave->dsdist == 0 && interleave->dssize == 0);
}

bool has_response(riomp_dma_directio_type type) {
    return type == RIO_DIRECTIO_TYPE_NWRITE_R || type == RIO_DIRECTIO_TYPE_SWRITE_R ||
           type == RIO_DIRECTIO_TYPE_NWRITE_R_ALL;
}

bool is_streaming(riomp_dma_directio_type type) {
    return type == RIO_DIRECTIO_TYPE_SWRITE || type == RIO_DIRECTIO_TYPE_SWRITE_R;
}

int asynchronous(Handle& handle, const Transfer& transfer) {
    auto outcome = std::make_shared<api::Outcome>(
        handle.port().arrival_ns(transfer.direction, transfer.destid, transfer.bytes.size()));
    api::WeakOrder* weak = handle.endpoint->weak.get();
    if (weak == nullptr) {
        outcome->set(api::deliver(handle.port(), transfer));
    } else if (transfer.has_response) {
        weak->hold(transfer, false, outcome);
    } else {
        // Complete when it has left.
        weak->hold(transfer, true, nullptr);
        outcome->set(0);
    }
    return handle.cookies.add(std::move(outcome));
}

int issue(Handle& handle, const Transfer& transfer, riomp_dma_directio_transfer_sync sync) {
    if (sync == RIO_DIRECTIO_TRANSFER_ASYNC) return asynchronous(handle, transfer);
    const bool forgets = sync == RIO_DIRECTIO_TRANSFER_FAF;
    api::WeakOrder* weak = handle.endpoint->weak.get();
    int status = 0;
    const std::int64_t arrival_ns =
        handle.port().arrival_ns(transfer.direction, transfer.destid, transfer.bytes.size());
    if (weak == nullptr) {
        status = api::deliver(handle.port(), transfer);
    } else if (transfer.has_response && (!forgets || transfer.direction == Direction::read)) {
        status = weak->deliver_behind(transfer);
    } else {
        weak->hold(transfer, true, nullptr);
    }
    if (!forgets) api::wait_until(arrival_ns);
    return forgets ? 0 : status;
}

/// `bytes` of each block, then `gap` bytes that are left out; 0 bytes: all in one.
struct Stride {
    std::uint64_t bytes = 0;
    std::uint64_t gap = 0;

    [[nodiscard]] std::uint64_t place(std::uint64_t offset) const {
        return bytes == 0 ? offset : offset + offset / bytes * gap;
    }
    [[nodiscard]] std::uint64_t left(std::uint64_t offset) const {
        return bytes == 0 ? UINT64_MAX : bytes - offset % bytes;
    }
};

struct Strides {
    Stride local;
    Stride remote;
};

Strides strides_of(Direction direction, const rapidio_mport_interleave* interleave) {
    if (is_plain(interleave)) return {};
    const Stride source{interleave->sssize, interleave->ssdist};
    const Stride destination{interleave->dssize, interleave->dsdist};
    return direction == Direction::write ? Strides{source, destination} : Strides{destination, source};
}

/// How much of the caller's memory `size` bytes lie in.
std::uint64_t extent(Direction direction, std::uint64_t size, const rapidio_mport_interleave* interleave) {
    return size == 0 ? 0 : strides_of(direction, interleave).local.place(size - 1) + 1;
}

/// Block by block, each a transfer of its own; complete when it returns. `bytes`: all of the extent.
int issue_strided(Handle& handle, Transfer transfer, std::uint64_t size, const Strides& strides,
                  riomp_dma_directio_transfer_sync sync) {
    const std::span<std::byte> memory = transfer.bytes;
    const std::uint64_t address = transfer.address;
    int status = 0;
    for (std::uint64_t done = 0; done < size && status == 0;) {
        const std::uint64_t bytes = std::min({size - done, strides.local.left(done), strides.remote.left(done)});
        transfer.bytes = memory.subspan(strides.local.place(done), bytes);
        transfer.address = address + strides.remote.place(done);
        status = issue(handle, transfer, RIO_DIRECTIO_TRANSFER_SYNC);
        done += bytes;
    }
    if (sync == RIO_DIRECTIO_TRANSFER_FAF) return 0;
    if (sync == RIO_DIRECTIO_TRANSFER_SYNC) return status;
    auto outcome = std::make_shared<api::Outcome>(0);
    outcome->set(status);
    return handle.cookies.add(std::move(outcome));
}

int write(riomp_mport_t mport_handle, did_val_t destid, std::uint64_t address, std::span<std::byte> bytes,
          std::uint32_t size, riomp_dma_directio_type type, riomp_dma_directio_transfer_sync sync,
          const rapidio_mport_interleave* interleave) {
    if (bytes.empty()) return -EINVAL;
    if (is_streaming(type) && (size % 8 != 0 || address % 8 != 0)) return -EINVAL;
    Handle& handle = *handle_of(mport_handle);
    const bool answered = has_response(type);
    // Of several targets none can answer for all.
    if (answered && handle.port().group(destid)) return -EINVAL;
    const Transfer transfer{Direction::write, answered, handle.channel(),   destid,
                            address,          bytes,    is_streaming(type), type == RIO_DIRECTIO_TYPE_NWRITE_R_ALL};
    if (is_plain(interleave)) return issue(handle, transfer, sync);
    return issue_strided(handle, transfer, size, strides_of(Direction::write, interleave), sync);
}

int read(riomp_mport_t mport_handle, did_val_t destid, std::uint64_t address, std::span<std::byte> bytes,
         std::uint32_t size, riomp_dma_directio_transfer_sync sync, const rapidio_mport_interleave* interleave) {
    if (bytes.empty()) return -EINVAL;
    Handle& handle = *handle_of(mport_handle);
    if (handle.port().group(destid)) return -EINVAL;
    const Transfer transfer{Direction::read, true, handle.channel(), destid, address, bytes};
    if (is_plain(interleave)) return issue(handle, transfer, sync);
    return issue_strided(handle, transfer, size, strides_of(Direction::read, interleave), sync);
}

std::span<std::byte> bytes_at(void* buffer, std::uint64_t size) {
    return {static_cast<std::byte*>(buffer), buffer == nullptr ? 0 : size};
}

}  // namespace

int riomp_dma_write(riomp_mport_t mport_handle, did_val_t did_val, uint64_t tgt_addr, void* buf, uint32_t size,
                    enum riomp_dma_directio_type wr_mode, enum riomp_dma_directio_transfer_sync sync,
                    struct rapidio_mport_interleave* interleave) {
    if (const int error = check(mport_handle)) return tell(error);
    return tell(write(mport_handle, did_val, tgt_addr, bytes_at(buf, extent(Direction::write, size, interleave)), size,
                      wr_mode, sync, interleave));
}

int riomp_dma_write_d(riomp_mport_t mport_handle, did_val_t did_val, uint64_t tgt_addr, uint64_t handle,
                      uint32_t offset, uint32_t size, enum riomp_dma_directio_type wr_mode,
                      enum riomp_dma_directio_transfer_sync sync, struct rapidio_mport_interleave* interleave) {
    if (const int error = check(mport_handle)) return tell(error);
    Keep keep;
    const auto bytes =
        handle_of(mport_handle)->port().local(handle + offset, extent(Direction::write, size, interleave), keep);
    return tell(write(mport_handle, did_val, tgt_addr, bytes, size, wr_mode, sync, interleave));
}

int riomp_dma_read(riomp_mport_t mport_handle, did_val_t did_val, uint64_t tgt_addr, void* buf, uint32_t size,
                   enum riomp_dma_directio_transfer_sync sync, struct rapidio_mport_interleave* interleave) {
    if (const int error = check(mport_handle)) return tell(error);
    return tell(read(mport_handle, did_val, tgt_addr, bytes_at(buf, extent(Direction::read, size, interleave)), size,
                     sync, interleave));
}

int riomp_dma_read_d(riomp_mport_t mport_handle, did_val_t did_val, uint64_t tgt_addr, uint64_t handle, uint32_t offset,
                     uint32_t size, enum riomp_dma_directio_transfer_sync sync,
                     struct rapidio_mport_interleave* interleave) {
    if (const int error = check(mport_handle)) return tell(error);
    Keep keep;
    const auto bytes =
        handle_of(mport_handle)->port().local(handle + offset, extent(Direction::read, size, interleave), keep);
    return tell(read(mport_handle, did_val, tgt_addr, bytes, size, sync, interleave));
}

int riomp_dma_wait_async(riomp_mport_t mport_handle, uint32_t cookie, uint32_t tmo) {
    if (const int error = check(mport_handle)) return tell(error);
    return tell(handle_of(mport_handle)->cookies.wait(cookie, tmo != 0 ? tmo : dma_ms));
}

int softrio_dma_ended(riomp_mport_t mport_handle, uint32_t cookie) {
    if (const int error = check(mport_handle)) return tell(error);
    return tell(handle_of(mport_handle)->cookies.wait(cookie, 0));
}

int riomp_dma_ibwin_map(riomp_mport_t mport_handle, uint64_t* rio_base, uint32_t size, uint64_t* handle) {
    if (rio_base == nullptr || handle == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    const Handle* port = handle_of(mport_handle);
    return tell(port->port().map_window(port->sink, *rio_base, size, *handle));
}

int softrio_guarded_map(riomp_mport_t mport_handle, uint64_t* rio_base, uint32_t size, uint64_t* handle) {
    if (rio_base == nullptr || handle == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    const Handle* port = handle_of(mport_handle);
    return tell(port->port().map_guarded(port->sink, *rio_base, size, *handle));
}

int softrio_permit(riomp_mport_t mport_handle, uint64_t handle, did_val_t did_val, unsigned int access) {
    static_assert(SOFTRIO_READ == may_read && SOFTRIO_WRITE == may_write);
    if (const int error = check(mport_handle)) return tell(error);
    return tell(handle_of(mport_handle)->port().permit(handle, did_val, access));
}

int softrio_take_permits(riomp_mport_t mport_handle) {
    if (const int error = check(mport_handle)) return tell(error);
    handle_of(mport_handle)->port().take_files();
    return 0;
}

int riomp_dma_ibwin_free(riomp_mport_t mport_handle, uint64_t* handle) {
    if (handle == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    return tell(handle_of(mport_handle)->port().free_window(*handle));
}

int riomp_dma_obwin_map(riomp_mport_t mport_handle, did_val_t did_val, uint64_t rio_base, uint32_t size,
                        uint64_t* handle) {
    if (handle == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    const Handle* port = handle_of(mport_handle);
    return tell(port->port().map_outbound(port->sink, did_val, rio_base, size, *handle));
}

int riomp_dma_obwin_free(riomp_mport_t mport_handle, uint64_t* handle) {
    if (handle == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    return tell(handle_of(mport_handle)->port().free_outbound(*handle));
}

int riomp_dma_dbuf_alloc(riomp_mport_t mport_handle, uint32_t size, uint64_t* handle) {
    if (handle == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    const Handle* port = handle_of(mport_handle);
    return tell(port->port().allocate(port->sink, size, *handle));
}

int riomp_dma_dbuf_free(riomp_mport_t mport_handle, uint64_t* handle) {
    if (handle == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    return tell(handle_of(mport_handle)->port().free_allocation(*handle));
}

int riomp_dma_map_memory(riomp_mport_t mport_handle, size_t size, off_t paddr, void** vaddr) {
    if (vaddr == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    const auto local = static_cast<std::uint64_t>(paddr);
    if (local % page_bytes != 0) return tell(-EINVAL);
    std::uint64_t offset = 0;
    const int file = handle_of(mport_handle)->port().open_memory(local, size, offset);
    if (file == -ENODEV || file == -EIO)
        return tell(api::map_awaited(handle_of(mport_handle)->endpoint->port, local, size, *vaddr));
    if (file < 0) return tell(file);
    *vaddr = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
    const int error = errno;
    ::close(file);
    return *vaddr == MAP_FAILED ? tell(-error) : 0;
}

int riomp_dma_unmap_memory(size_t size, void* vaddr) {
    if (size == 0 || vaddr == nullptr) return tell(-EINVAL);
    api::forget_awaited(vaddr, size);
    return tell(::munmap(vaddr, size) == 0 ? 0 : -errno);
}
