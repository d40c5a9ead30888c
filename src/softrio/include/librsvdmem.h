/* Memory that is set aside at the start, by the name of its user. docs/rapidio.md explains the whole. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define RSVD_PHYS_MEM (char*)"PHYS_MEM"
#define RSVD_PHYS_MEM_RSKTD (char*)"RSKTD"
#define RSVD_PHYS_MEM_RDMAD (char*)"RDMAD"
#define RSVD_PHYS_MEM_FXFR (char*)"FXFR"
#define RSVD_PHYS_MEM_DMA_TUN (char*)"DMATUN"

/** Where that memory begins, as riomp_dma_ibwin_map and riomp_dma_dbuf_alloc take it, and how many bytes it has.
 * 0, or -1 if nothing is set aside by that name: then *start_addr is all ones and *size is 0. */
int get_rsvd_phys_mem(char* parm_name, uint64_t* start_addr, uint64_t* size);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
