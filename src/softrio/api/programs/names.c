/* What programs take from the headers besides the functions. Authority: the headers of the original library. */
#include "check.h"

int main(void) {
    /* A message as bytes, or as header and payload. */
    static rapidio_mport_socket_msg message;
    struct rapidio_mport_socket_msg_t* parts = &message.msg;
    CHECK(sizeof message == RIO_SOCKET_MSG_SIZE && sizeof message.as_bytes == RIO_SOCKET_MSG_SIZE);
    parts->payload[0] = 9;
    CHECK(message.as_bytes[RIO_SOCKET_RSVD_SIZE] == 9);

    /* Hop counts: through the master port, switch by switch, and no further than the last. */
    hc_t hop = HC_MP;
    HC_INCR(hop, hop);
    CHECK(hop == 0);
    HC_INCR(hop, hop);
    CHECK(hop == 1);
    hop = HC_MAX;
    HC_INCR(hop, hop);
    CHECK(hop == HC_MAX);

    const uint32_t large = RIOMP_MGMT_DEV16_FLAG | (0x12345 & RIOMP_MGMT_DEV16_MASK);
    const uint32_t small = RIOMP_MGMT_DEV08_FLAG | (0x12345 & RIOMP_MGMT_DEV08_MASK);
    CHECK(large == 0x12345 && small == 0x45);

    /* Limits as Linux reports those of a Tsi721: 0 pieces and 0 bytes of alignment are no limit. */
    struct riomp_mgmt_mport_properties properties;
    CHECK(riomp_mgmt_query(open_port(0, NULL), &properties) == 0);
    CHECK(properties.dma_max_sge == 0 && properties.dma_align == 0 && (int)properties.dma_max_size > 0);
    CHECK(properties.flags == (RIO_MPORT_DMA | RIO_MPORT_DMA_SG));

    /* Each handle is a file that is opened: more of them than a port has engines. */
    riomp_mport_t more[100];
    for (int number = 0; number < 100; ++number)
        CHECK(riomp_mgmt_mport_create_handle(0, 0, &more[number]) == 0);
    return 0;
}
