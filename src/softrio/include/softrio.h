/* What SoftRIO adds to the API of the original libraries. Programs for both leave it out, or hide it behind #ifdef. */
#pragma once

#include <rapidio_mport_mgmt.h>

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

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
