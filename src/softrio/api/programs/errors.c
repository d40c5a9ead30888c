/* A call that fails leaves its error in errno. Authority: each is a system call in the library, whose -errno it gives.
 */
#include "check.h"

#define FAILS(call, error)         \
    do {                           \
        errno = 0;                 \
        CHECK((call) == -(error)); \
        CHECK(errno == (error));   \
    } while (0)

int main(void) {
    did_val_t own = 0;
    riomp_mport_t port = open_port(0, &own), none = NULL;
    riomp_mailbox_t mailbox = open_mailbox(0);
    riomp_sock_t sock = make_socket(mailbox);
    rapidio_mport_socket_msg message, *in = &message;
    struct riomp_mgmt_event event = {.header = RIO_EVENT_PORTWRITE};
    char bytes[64] = {0};
    uint64_t base = 1, handle = RIOMP_MAP_ANY_ADDR;
    uint32_t value = 0;
    volatile int once = 1;
    FAILS(riomp_sock_send(sock, &message, 100, &once), ENOTCONN);
    FAILS(riomp_sock_receive(sock, &in, 1, &once), ENOTCONN);
    FAILS(riomp_sock_listen(sock), EINVAL);
    FAILS(riomp_sock_connect(sock, 999, 70, &once), ENODEV);
    FAILS(riomp_dma_write(port, 999, 0, bytes, 64, RIO_DIRECTIO_TYPE_NWRITE_R, RIO_DIRECTIO_TRANSFER_SYNC, NULL),
          ENODEV);
    FAILS(riomp_dma_read(port, own, 0, bytes, 64, RIO_DIRECTIO_TRANSFER_SYNC, NULL), EIO);
    FAILS(riomp_dma_ibwin_map(port, &base, 4096, &handle), EINVAL);
    FAILS(riomp_dma_ibwin_free(port, &handle), EINVAL);
    FAILS(riomp_dma_wait_async(port, 12345, 1), EAGAIN);
    FAILS(riomp_mgmt_mport_create_handle(7, 0, &none), ENODEV);
    FAILS(riomp_mgmt_send_event(port, &event), EOPNOTSUPP);
    FAILS(riomp_mgmt_rcfg_read(port, 999, HC_MP, 0, 4, &value), ENODEV);
    FAILS(riomp_mgmt_lcfg_read(port, 2, 4, &value), EINVAL);
    FAILS(riomp_mgmt_dbrange_disable(port, 0xffff, 1, 2), EINVAL);
    FAILS(riomp_mgmt_destid_set(port, 0xffff), EINVAL);
    FAILS(riomp_mgmt_device_del(port, 999, HC_MP, 1, NULL), ENODEV);
    return 0;
}
