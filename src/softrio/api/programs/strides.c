/* Strides at both ends. Authority: the library hands them to the driver; its test of DMA says what comes where: `size`
 * bytes, then `dist` bytes that are left alone. */
#include "check.h"

enum { page = 4096 };

int main(void) {
    did_val_t there = 0;
    riomp_mport_t port = open_port(0, NULL), peer = open_port(1, &there);
    uint64_t base = RIOMP_MAP_ANY_ADDR, window = RIOMP_MAP_ANY_ADDR, buffer = RIOMP_MAP_ANY_ADDR;
    void *mapped = NULL, *local = NULL;
    unsigned char source[page], target[page], back[page];
    struct rapidio_mport_interleave strides = {.ssdist = 16, .sssize = 8, .dsdist = 4, .dssize = 12};
    for (int index = 0; index < page; ++index)
        source[index] = (unsigned char)(index * 7 + index / 256);
    CHECK(riomp_dma_ibwin_map(peer, &base, page, &window) == 0);
    CHECK(riomp_dma_map_memory(peer, page, (off_t)window, &mapped) == 0);
    unsigned char* seen = mapped;

    CHECK(riomp_dma_write(port, there, base, source, 480, RIO_DIRECTIO_TYPE_NWRITE_R, RIO_DIRECTIO_TRANSFER_SYNC,
                          &strides) == 0);
    memset(target, 0, page);
    for (int index = 0; index < 480; ++index)
        target[index / 12 * 16 + index % 12] = source[index / 8 * 24 + index % 8];
    CHECK(memcmp(seen, target, page) == 0);

    /* Back into one piece, from local memory and asynchronously. */
    const struct rapidio_mport_interleave gather = {.ssdist = 4, .sssize = 12};
    strides = gather;
    CHECK(riomp_dma_dbuf_alloc(port, page, &buffer) == 0);
    CHECK(riomp_dma_map_memory(port, page, (off_t)buffer, &local) == 0);
    const int cookie = riomp_dma_read_d(port, there, base, buffer, 64, 480, RIO_DIRECTIO_TRANSFER_ASYNC, &strides);
    CHECK(cookie > 0 && riomp_dma_wait_async(port, (uint32_t)cookie, 0) == 0);
    for (int index = 0; index < 480; ++index)
        back[index] = source[index / 8 * 24 + index % 8];
    CHECK(memcmp((unsigned char*)local + 64, back, 480) == 0);
    CHECK(riomp_dma_write(port, there, base + page - 16, source, 480, RIO_DIRECTIO_TYPE_NWRITE_R,
                          RIO_DIRECTIO_TRANSFER_SYNC, &strides) == -EIO);
    return 0;
}
