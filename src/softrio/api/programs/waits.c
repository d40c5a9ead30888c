/* How long calls wait. Authority: the library repeats a call that timed out unless *stop_req is not 0; the driver takes
 * 0 for the default time of DMA. */
#include "check.h"

static did_val_t server;
static riomp_sock_t client;
static riomp_sock_t accepted;

static void* connect_late(void* unused) {
    (void)unused;
    sleep_ms(300);
    CHECK(riomp_sock_connect(client, server, 70, NULL) == 0);
    return NULL;
}

static void* accept_late(void* listener) {
    sleep_ms(300);
    CHECK(riomp_sock_accept(listener, &accepted, 20000, NULL) == 0);
    return NULL;
}

static void* send_late(void* unused) {
    (void)unused;
    rapidio_mport_socket_msg* out = NULL;
    CHECK(riomp_sock_request_send_buffer(client, &out) == 0);
    sleep_ms(300);
    CHECK(riomp_sock_send(client, out, 100, NULL) == 0);
    CHECK(riomp_sock_release_send_buffer(client, out) == 0);
    return NULL;
}

int main(void) {
    volatile int once = 1;
    pthread_t other;
    riomp_mailbox_t here = open_mailbox(0), there = open_mailbox(1);
    riomp_mport_t port = open_port(0, NULL), target = open_port(1, &server);
    riomp_sock_t listener = listen_at(there, 70), second = make_socket(there);

    /* Without a way to stop it accepting begins again after its time-out. */
    client = make_socket(here);
    accepted = make_socket(there);
    CHECK(pthread_create(&other, NULL, connect_late, NULL) == 0);
    CHECK(riomp_sock_accept(listener, &accepted, 10, NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);

    /* Asked to stop from the start, each makes one whole attempt. */
    long before = now_ms();
    CHECK(riomp_sock_accept(listener, &second, 100, &once) == -ETIME);
    CHECK(now_ms() - before >= 99);
    rapidio_mport_socket_msg* in = malloc(sizeof *in);
    CHECK(pthread_create(&other, NULL, send_late, NULL) == 0);
    CHECK(riomp_sock_receive(accepted, &in, 20000, &once) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(pthread_create(&other, NULL, send_late, NULL) == 0);
    CHECK(riomp_sock_receive(accepted, &in, 10, NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(riomp_sock_close(&client) == 0 && riomp_sock_close(&accepted) == 0);
    client = make_socket(here);
    accepted = second;
    CHECK(pthread_create(&other, NULL, accept_late, listener) == 0);
    CHECK(riomp_sock_connect(client, server, 70, &once) == 0);
    CHECK(pthread_join(other, NULL) == 0);

    /* DMA that takes its time: 0 is 3 s. */
    uint64_t base = RIOMP_MAP_ANY_ADDR, handle = RIOMP_MAP_ANY_ADDR;
    const uint32_t size = 1 << 20;
    CHECK(riomp_dma_ibwin_map(target, &base, size, &handle) == 0);
    char* data = calloc(1, size);
    const int cookie =
        riomp_dma_write(port, server, base, data, size, RIO_DIRECTIO_TYPE_NWRITE_R, RIO_DIRECTIO_TRANSFER_ASYNC, NULL);
    CHECK(cookie > 0);
    CHECK(riomp_dma_wait_async(port, (uint32_t)cookie, 0) == 0);
    return 0;
}
