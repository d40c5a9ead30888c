/* What a child of a fork, and another process, may do with a port. Authority: the driver. Handles are files, which a
 * fork shares; sockets and memory are known by their numbers to every process of the host; the last one that has a file
 * open closes what was made through it. */
#include "check.h"

enum { page = 4096, channel = 70, bell = 9 };

static did_val_t server;
static riomp_sock_t client;

static void* connecting(void* unused) {
    (void)unused;
    CHECK(riomp_sock_connect(client, server, channel, NULL) == 0);
    return NULL;
}

/* A server that forks for each connection: the child answers, the parent forgets its copy. */
static void serve_in_child(void) {
    pthread_t other;
    riomp_mailbox_t here = open_mailbox(0), there = open_mailbox(1);
    riomp_sock_t listener = listen_at(there, channel), accepted = make_socket(there);
    client = make_socket(here);
    CHECK(pthread_create(&other, NULL, connecting, NULL) == 0);
    CHECK(riomp_sock_accept(listener, &accepted, 20000, NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    const pid_t child = fork();
    if (child == 0) {
        rapidio_mport_socket_msg* message = NULL;
        for (int number = 0; number < 10; ++number) {
            CHECK(riomp_sock_receive(accepted, &message, 20000, NULL) == 0);
            message->msg.payload[0] += 1;
            CHECK(riomp_sock_send(accepted, message, 100, NULL) == 0);
        }
        CHECK(riomp_sock_release_receive_buffer(accepted, message) == 0);
        CHECK(riomp_sock_close(&accepted) == 0);
        exit(0);
    }
    free(accepted);
    rapidio_mport_socket_msg message = {{0}}, *in = &message;
    for (int number = 0; number < 10; ++number) {
        CHECK(riomp_sock_send(client, &message, 100, NULL) == 0);
        CHECK(riomp_sock_receive(client, &in, 20000, NULL) == 0);
        CHECK(message.msg.payload[0] == number + 1);
    }
    CHECK(riomp_sock_receive(client, &in, 20000, NULL) == -ECONNRESET);
    CHECK(end_of(child) == 0);
}

/* Memory by its address, doorbells and transfers of a handle that both have. */
static void use_in_child(void) {
    did_val_t here = 0, there = 0;
    riomp_mport_t port = open_port(0, &here), peer = open_port(1, &there);
    uint64_t buffer = RIOMP_MAP_ANY_ADDR, window = RIOMP_MAP_ANY_ADDR, base = RIOMP_MAP_ANY_ADDR;
    void* mapped = NULL;
    CHECK(riomp_dma_dbuf_alloc(port, 2 * page, &buffer) == 0);
    CHECK(riomp_dma_map_memory(port, 2 * page, (off_t)buffer, &mapped) == 0);
    CHECK(riomp_dma_ibwin_map(peer, &base, page, &window) == 0);
    CHECK(riomp_mgmt_dbrange_enable(port, 0xffff, bell, bell) == 0);
    CHECK(riomp_mgmt_set_event_mask(port, RIO_EVENT_DOORBELL) == 0);
    const pid_t child = fork();
    if (child == 0) {
        riomp_mport_t own = open_port(0, NULL);
        void* same = NULL;
        struct riomp_mgmt_event event;
        char back[8] = {0};
        CHECK(riomp_dma_map_memory(own, page, (off_t)buffer + page, &same) == 0);
        strcpy(same, "child");
        CHECK(riomp_mgmt_get_event(port, &event) == 0);
        CHECK(event.u.doorbell.payload == bell && event.u.doorbell.did_val == there);
        CHECK(riomp_dma_write_d(port, there, base, buffer, page, 8, RIO_DIRECTIO_TYPE_NWRITE_R,
                                RIO_DIRECTIO_TRANSFER_SYNC, NULL) == 0);
        CHECK(riomp_dma_read(own, there, base, back, 8, RIO_DIRECTIO_TRANSFER_SYNC, NULL) == 0);
        CHECK(strcmp(back, "child") == 0);
        uint64_t mine = RIOMP_MAP_ANY_ADDR;
        CHECK(riomp_dma_dbuf_alloc(own, page, &mine) == 0);
        const pid_t grandchild = fork();
        if (grandchild == 0) {
            CHECK(riomp_dma_map_memory(own, page, (off_t)mine, &same) == 0);
            CHECK(riomp_mgmt_mport_destroy_handle(&port) == 0);
            exit(0);
        }
        CHECK(end_of(grandchild) == 0);
        exit(0);
    }
    struct riomp_mgmt_event event = {.header = RIO_EVENT_DOORBELL, .u.doorbell = {here, bell}};
    CHECK(riomp_mgmt_send_event(peer, &event) == 0);
    CHECK(end_of(child) == 0);
    CHECK(strcmp((char*)mapped + page, "child") == 0);
    /* The child's end closed nothing of this process's. */
    CHECK(riomp_mgmt_send_event(peer, &event) == 0);
    CHECK(riomp_mgmt_get_event(port, &event) == 0);
}

/* A parent that closes its handle: the child's goes on. */
static void close_in_parent(void) {
    int ready[2];
    char byte = 0;
    CHECK(pipe(ready) == 0);
    riomp_mport_t port = open_port(0, NULL);
    uint64_t buffer = RIOMP_MAP_ANY_ADDR;
    void* mapped = NULL;
    CHECK(riomp_dma_dbuf_alloc(port, page, &buffer) == 0);
    const pid_t child = fork();
    if (child == 0) {
        CHECK(read(ready[0], &byte, 1) == 1);
        CHECK(riomp_dma_map_memory(port, page, (off_t)buffer, &mapped) == 0);
        exit(0);
    }
    CHECK(riomp_mgmt_mport_destroy_handle(&port) == 0);
    CHECK(write(ready[1], &byte, 1) == 1);
    CHECK(end_of(child) == 0);
}

/* Processes that were started for themselves, with the same destination id: one port. */
static void share_by_id(void) {
    int ready[2];
    char byte = 0;
    CHECK(pipe(ready) == 0);
    setenv("RIO_DESTID", "40", 1);
    const pid_t second = fork();
    if (second == 0) {
        did_val_t same = 0;
        CHECK(read(ready[0], &byte, 1) == 1);
        riomp_mport_t port = open_port(0, &same);
        CHECK(same == 40);
        CHECK(riomp_mgmt_dbrange_enable(port, 0xffff, 5, 9) == -EBUSY);
        CHECK(riomp_mgmt_dbrange_enable(port, 0xffff, 10, 19) == 0);
        exit(0);
    }
    did_val_t own = 0;
    riomp_mport_t port = open_port(0, &own);
    CHECK(own == 40);
    CHECK(riomp_mgmt_dbrange_enable(port, 0xffff, 0, 9) == 0);
    CHECK(write(ready[1], &byte, 1) == 1);
    CHECK(end_of(second) == 0);
    /* With its last handle its range is free again. */
    const long until = now_ms() + 20000;
    while (riomp_mgmt_dbrange_enable(port, 0xffff, 10, 19) == -EBUSY && now_ms() < until)
        sleep_ms(1);
    CHECK(riomp_mgmt_dbrange_disable(port, 0xffff, 10, 19) == 0);
}

int main(void) {
    const pid_t sharing = fork();
    if (sharing == 0) {
        share_by_id();
        exit(0);
    }
    CHECK(end_of(sharing) == 0);
    riomp_mport_t port = open_port(1, &server);
    serve_in_child();
    use_in_child();
    close_in_parent();
    CHECK(riomp_mgmt_mport_destroy_handle(&port) == 0);
    return 0;
}
