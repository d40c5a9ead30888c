/* Memory at an address that was set aside at boot and that the program knows: memmap=256M$0x50000000. Authority: the
 * library hands the address to the driver. RIO_RSVDMEM says the same of SoftRIO, and so it is without it. */
#include <librsvdmem.h>

#include "check.h"

int main(void) {
    riomp_mport_t port = open_port(0, NULL);
    uint64_t base = RIOMP_MAP_ANY_ADDR, memory = 0x50000000, start = 0, size = 0;
    CHECK(riomp_dma_ibwin_map(port, &base, 0x10000000, &memory) == 0 && memory == 0x50000000);
    CHECK(riomp_dma_ibwin_free(port, &memory) == 0);
    CHECK(get_rsvd_phys_mem(RSVD_PHYS_MEM, &start, &size) == 0 && start == 0x50000000 && size == 0x10000000);
    CHECK(riomp_mgmt_mport_destroy_handle(&port) == 0);

    setenv("RIO_RSVDMEM", "PHYS_MEM=1M@0x70000000,FXFR=64K$0x60000000", 1);
    port = open_port(0, NULL);
    CHECK(get_rsvd_phys_mem(RSVD_PHYS_MEM_FXFR, &start, &size) == 0 && start == 0x60000000 && size == 65536);
    memory = 0x70000000 + 4096;
    CHECK(riomp_dma_ibwin_map(port, &base, 4096, &memory) == 0 && memory == 0x70001000);
    memory = 0x50000000;
    CHECK(riomp_dma_dbuf_alloc(port, 4096, &memory) == -ENOMEM);
    return 0;
}
