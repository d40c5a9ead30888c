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

/** A descriptor, the caller's to close, with which another process may map local memory for reading: what
 * riomp_dma_dbuf_alloc or riomp_dma_ibwin_map gave, from its start. -EINVAL: `handle` is no such start. */
int softrio_share_memory(riomp_mport_t mport_handle, uint64_t handle);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
