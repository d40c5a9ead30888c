/* What SoftRIO adds to the API of the original libraries. Programs for both leave it out, or hide it behind #ifdef. */
#pragma once

#include <rapidio_mport_mgmt.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** A flag of riomp_mgmt_mport_create_handle (the original ignores it): the descriptor of the handle polls only after
 * softrio_arm. Doorbells then cost no system call, for programs that look at the queue without sleeping most of the
 * time. */
#define SOFTRIO_ON_DEMAND 0x10000

/** Before sleeping: the descriptor will poll readable when the next doorbell comes. 1: one is queued already, do not
 * sleep; 0: sleep. To be called anew each time. -EINVAL: the handle is not on demand. */
int softrio_arm(riomp_mport_t mport_handle);

/** As riomp_mgmt_mport_create_handle, in the fabric that is named here, as RIO_FABRIC would name it: opens the first
 * master port of this process that is not in use, whatever `mports` says. For programs that are several endpoints, or
 * of several fabrics. -EBUSY: all 8 are in use. */
int softrio_open_port(const char* fabric, int flags, riomp_mport_t* mport_handle);

/** riomp_dma_wait_async without waiting, which that cannot (a time of 0 is the driver's own there): 0 or a negative
 * errno of the transfer, once; -ETIMEDOUT: it is under way; -EAGAIN: there is no such transfer. */
int softrio_dma_ended(riomp_mport_t mport_handle, uint32_t cookie);

/** A descriptor, the caller's to close, with which another process may map local memory for reading: what
 * riomp_dma_dbuf_alloc or riomp_dma_ibwin_map gave, from its start. -EINVAL: `handle` is no such start. */
int softrio_share_memory(riomp_mport_t mport_handle, uint64_t handle);

/** What others may do in a guarded window. */
#define SOFTRIO_READ 0x1
#define SOFTRIO_WRITE 0x2

/** As riomp_dma_ibwin_map, but the window is guarded: nobody reaches it whom softrio_permit does not name. To anybody
 * else it is as if there were no window. No hardware has that: every endpoint of a RapidIO fabric that knows an address
 * of an open window reaches it. 1024 of them can be open besides the 8 others. riomp_dma_ibwin_free closes it, and
 * riomp_dma_obwin_map does not find it. */
int softrio_guarded_map(riomp_mport_t mport_handle, uint64_t* rio_base, uint32_t size, uint64_t* handle);

/** What the endpoint may do from now on in a guarded window: SOFTRIO_READ, SOFTRIO_WRITE, both, or 0. `handle` is what
 * softrio_guarded_map gave. -EINVAL: there is no such window; -EOPNOTSUPP: the fabric has no guarded windows; on a
 * fabric of shm also -ENODEV: there is no such endpoint, and -EAGAIN: it has been handed too much that it has not
 * looked at, again later. What an endpoint was handed there it keeps until the window is closed. */
int softrio_permit(riomp_mport_t mport_handle, uint64_t handle, did_val_t did_val, unsigned int access);

/** Takes what this endpoint was handed for being permitted to reach windows of others, which it does by itself when it
 * first reaches for one. Whoever is permitted much and reaches for little calls it now and then: the kernel lets not
 * many files lie unread, and others get -EAGAIN from softrio_permit. */
int softrio_take_permits(riomp_mport_t mport_handle);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
