/* Remote DMA: memory, windows, reads and writes. docs/rapidio.md explains the whole; errors as in rapidio_mport_mgmt.h.
 *
 * Memory has two addresses besides that in a process: the local one, called handle here, which stands for a physical
 * address, and the one that peers use, rio_base, where an inbound window shows it to them. */
#pragma once

#include <rapidio_mport_mgmt.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define RIO_ANY_ADDR ((uint64_t)(~((uint64_t)0)))

enum riomp_dma_directio_type {
    RIO_DIRECTIO_TYPE_NWRITE,      /* no response: complete when the data has left */
    RIO_DIRECTIO_TYPE_SWRITE,      /* as NWRITE, with less overhead; multiples of 8 bytes. On a host past its caches */
    RIO_DIRECTIO_TYPE_NWRITE_R,    /* a response to the last packet: complete when the data is in the target's memory */
    RIO_DIRECTIO_TYPE_SWRITE_R,    /* SWRITE, and a response to the last packet */
    RIO_DIRECTIO_TYPE_NWRITE_R_ALL /* a response to every packet */
};

enum riomp_dma_directio_transfer_sync {
    RIO_DIRECTIO_TRANSFER_SYNC,  /* returns when complete */
    RIO_DIRECTIO_TRANSFER_ASYNC, /* returns a cookie (> 0) for riomp_dma_wait_async; the buffer is lent until then */
    RIO_DIRECTIO_TRANSFER_FAF    /* fire and forget: how it ends is never told */
};

/** Strides at source and target: `size` bytes are moved, `dist` bytes after them left out, and so on; 0: all in one.
 * The size of the transfer is what is moved. Each block is a transfer of its own. */
struct rapidio_mport_interleave {
    uint16_t ssdist;
    uint16_t sssize;
    uint16_t dsdist;
    uint16_t dssize;
};

/** Writes `size` bytes to [tgt_addr, tgt_addr + size) of that endpoint, all or nothing. Outside its windows nothing is
 * ever written: with a response -EIO, without one 0, as for hardware, which cannot know (RIO_DEBUG=1 prints a line).
 * A destination id that is a multicast group: NWRITE and SWRITE only, else -EINVAL. 0, a cookie, or an error. */
int riomp_dma_write(riomp_mport_t mport_handle, did_val_t did_val, uint64_t tgt_addr, void* buf, uint32_t size,
                    enum riomp_dma_directio_type wr_mode, enum riomp_dma_directio_transfer_sync sync,
                    struct rapidio_mport_interleave* interleave);
/** The same from local memory: `offset` bytes behind `handle`, which riomp_dma_dbuf_alloc or riomp_dma_ibwin_map gave,
 * or which is reserved memory. -EINVAL: not all of it is. */
int riomp_dma_write_d(riomp_mport_t mport_handle, did_val_t did_val, uint64_t tgt_addr, uint64_t handle,
                      uint32_t offset, uint32_t size, enum riomp_dma_directio_type wr_mode,
                      enum riomp_dma_directio_transfer_sync sync, struct rapidio_mport_interleave* interleave);
/** Reads [tgt_addr, tgt_addr + size) of that endpoint. -EIO: not all of it is in its windows. */
int riomp_dma_read(riomp_mport_t mport_handle, did_val_t did_val, uint64_t tgt_addr, void* buf, uint32_t size,
                   enum riomp_dma_directio_transfer_sync sync, struct rapidio_mport_interleave* interleave);
int riomp_dma_read_d(riomp_mport_t mport_handle, did_val_t did_val, uint64_t tgt_addr, uint64_t handle, uint32_t offset,
                     uint32_t size, enum riomp_dma_directio_transfer_sync sync,
                     struct rapidio_mport_interleave* interleave);
/** Waits for an ASYNC transfer of this handle, at most `tmo` ms (0: 3000). 0 or -EIO: how it ended (told once);
 * -ETIMEDOUT: not yet; -EAGAIN: no such cookie. */
int riomp_dma_wait_async(riomp_mport_t mport_handle, uint32_t cookie, uint32_t tmo);

/** Shows memory to peers at *rio_base, a multiple of 4096 (RIOMP_MAP_ANY_ADDR: anywhere; out: where). *handle: reserved
 * or allocated memory, or RIOMP_MAP_ANY_ADDR for fresh memory; out: its local address, for riomp_dma_map_memory.
 * -EBUSY: 8 windows are open, or one is at that address; -ENOMEM: no such memory, or a limit. */
int riomp_dma_ibwin_map(riomp_mport_t mport_handle, uint64_t* rio_base, uint32_t size, uint64_t* handle);
/** Closes the window at once; returns when no peer writes to it any more, so that the memory can be used for something
 * else. -EBUSY: a peer that does not run is in the middle of a write: call again. -EINVAL: no such window. */
int riomp_dma_ibwin_free(riomp_mport_t mport_handle, uint64_t* handle);
/** A part of a peer's window as memory: *handle goes to riomp_dma_map_memory. Stores there are posted writes. At
 * most 8. The peer is not asked: where it has no window yet, what is stored is lost. -EOPNOTSUPP: the fabric (udp) maps
 * no memory of others. A mapping outlives the window and the peer; what it is then stored to is lost. */
int riomp_dma_obwin_map(riomp_mport_t mport_handle, did_val_t did_val, uint64_t rio_base, uint32_t size,
                        uint64_t* handle);
int riomp_dma_obwin_free(riomp_mport_t mport_handle, uint64_t* handle);

/** Local memory to write from and read into. *handle: reserved memory, or RIOMP_MAP_ANY_ADDR; out: its local address.
 * -ENOMEM: no such memory, or a limit. */
int riomp_dma_dbuf_alloc(riomp_mport_t mport_handle, uint32_t size, uint64_t* handle);
int riomp_dma_dbuf_free(riomp_mport_t mport_handle, uint64_t* handle);
/** Maps local memory (or an outbound window) into this process; `paddr` is its handle, plus a multiple of 4096. */
int riomp_dma_map_memory(riomp_mport_t mport_handle, size_t size, off_t paddr, void** vaddr);
int riomp_dma_unmap_memory(size_t size, void* vaddr);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
