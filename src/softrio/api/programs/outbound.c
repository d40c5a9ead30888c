/* A part of a peer's memory is mapped before that peer, or its window, is there. Authority: the driver sets its own
 * adapter and asks nobody. */
#include "check.h"

enum { page = 4096 };

int main(void) {
    did_val_t there = 0;
    riomp_mport_t port = open_port(0, NULL), peer = open_port(1, &there);
    uint64_t outbound = 0, nobody = 0, base = 0x20000000, window = RIOMP_MAP_ANY_ADDR;
    void *seen = NULL, *owned = NULL, *nothing = NULL;
    if (is_udp()) {
        CHECK(riomp_dma_obwin_map(port, there, base, page, &outbound) == -EOPNOTSUPP);
        return 0;
    }
    CHECK(riomp_dma_obwin_map(port, 999, base, page, &nobody) == 0);
    CHECK(riomp_dma_map_memory(port, page, (off_t)nobody, &nothing) == 0);
    *(volatile char*)nothing = 1;
    CHECK(riomp_dma_unmap_memory(page, nothing) == 0);
    CHECK(riomp_dma_obwin_map(port, there, base, page, &outbound) == 0);
    CHECK(riomp_dma_map_memory(port, page, (off_t)outbound, &seen) == 0);
    *(volatile char*)seen = 1; /* lost */
    CHECK(riomp_dma_ibwin_map(peer, &base, page, &window) == 0);
    CHECK(riomp_dma_map_memory(peer, page, (off_t)window, &owned) == 0);
    const long until = now_ms() + 20000;
    while (*(volatile char*)owned != 7 && now_ms() < until)
        *(volatile char*)seen = 7;
    CHECK(*(volatile char*)owned == 7);
    return 0;
}
