/* Every ioctl of /dev/rio_mportN and /dev/rio_cm, on two master ports that are joined and enumerated: what it does, and
 * what it refuses. Of RapidIO it includes the kernel's interface for programs and nothing else.
 *
 * usage: rio_devices PORTWRITE    (the file by which a port of rio_soft sends port-writes)
 * Prints "IOCTL: what was seen" for each; ends with status 1 at the first that is not as it should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/rio_cm_cdev.h>
#include <linux/rio_mport_cdev.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    host_id = 1, /* of port 0 */
    peer_id = 0, /* of port 1 */
    page = 4096,
    window_bytes = 1 << 20,
    wait_ms = 10000,
    device_id = 0x5f01ffff,
    destid_register = 0x60,
    component_tag_register = 0x6C,
    channel = 1000,
    cm_header = 20,
    largest_message = 4096
};
static const uint64_t window_address = 0x10000000;
static const uint64_t nowhere = 0x70000000;

static int host = -1; /* port 0 */
static int peer = -1; /* port 1 */

#define CHECK(condition)                                                                                 \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "%s:%d: %s (errno: %s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)
#define SEEN(name, what) (printf("%s: %s\n", #name, what), fflush(stdout))
/* A call that has to fail, and how. */
#define REFUSES(call, reason) (errno = 0, (call) == -1 && errno == (reason))

/* ---- registers ---- */

static int access_register(int port, unsigned long request, uint16_t destid, uint8_t hops, uint32_t offset,
                           uint32_t* value) {
    struct rio_mport_maint_io access = {
        .rioid = destid, .hopcount = hops, .offset = offset, .length = sizeof(*value), .buffer = (uintptr_t)value};
    return ioctl(port, request, &access);
}

static uint32_t local_register(int port, uint32_t offset) {
    uint32_t value = 0;
    CHECK(access_register(port, RIO_MPORT_MAINT_READ_LOCAL, 0, 0, offset, &value) == 0);
    return value;
}

static void test_registers(void) {
    uint32_t value = 0;
    uint32_t before = local_register(peer, component_tag_register);
    CHECK(local_register(host, 0) == device_id);
    CHECK(REFUSES(access_register(host, RIO_MPORT_MAINT_READ_LOCAL, 0, 0, 2, &value), EINVAL));
    CHECK(REFUSES(access_register(host, RIO_MPORT_MAINT_READ_LOCAL, 0, 0, 1 << 24, &value), EINVAL));
    SEEN(RIO_MPORT_MAINT_READ_LOCAL, "the device's identity; no odd offset, none beyond 16 MiB");

    value = 0x1234;
    CHECK(access_register(peer, RIO_MPORT_MAINT_WRITE_LOCAL, 0, 0, component_tag_register, &value) == 0);
    CHECK(local_register(peer, component_tag_register) == 0x1234);
    SEEN(RIO_MPORT_MAINT_WRITE_LOCAL, "a component tag");

    value = 0;
    CHECK(access_register(host, RIO_MPORT_MAINT_READ_REMOTE, peer_id, 0xff, component_tag_register, &value) == 0);
    CHECK(value == 0x1234);
    SEEN(RIO_MPORT_MAINT_READ_REMOTE, "the other port's component tag");

    value = 0x4321;
    CHECK(access_register(host, RIO_MPORT_MAINT_WRITE_REMOTE, peer_id, 0xff, component_tag_register, &value) == 0);
    CHECK(local_register(peer, component_tag_register) == 0x4321);
    SEEN(RIO_MPORT_MAINT_WRITE_REMOTE, "the other port has it");

    CHECK(ioctl(peer, RIO_MPORT_MAINT_COMPTAG_SET, &before) == 0);
    CHECK(local_register(peer, component_tag_register) == before);
    SEEN(RIO_MPORT_MAINT_COMPTAG_SET, "as it was before");

    value = 99;
    CHECK(ioctl(host, RIO_MPORT_MAINT_PORT_IDX_GET, &value) == 0 && value == 0);
    SEEN(RIO_MPORT_MAINT_PORT_IDX_GET, "0");
}

static void test_properties(void) {
    struct rio_mport_properties properties;
    uint16_t id = 77;
    memset(&properties, 0xff, sizeof(properties));
    CHECK(ioctl(host, RIO_MPORT_GET_PROPERTIES, &properties) == 0);
    CHECK(properties.hdid == host_id && properties.id == 0 && properties.sys_size == 0);
    CHECK(properties.flags != 0 && properties.link_speed != 0);
    CHECK(properties.transfer_mode == RIO_TRANSFER_MODE_TRANSFER);
    SEEN(RIO_MPORT_GET_PROPERTIES, "destination id, link, transfers by DMA");

    CHECK(ioctl(peer, RIO_MPORT_MAINT_HDID_SET, &id) == 0);
    CHECK(local_register(peer, destid_register) == 77U << 16);
    CHECK(ioctl(peer, RIO_MPORT_GET_PROPERTIES, &properties) == 0 && properties.hdid == 77);
    id = peer_id;
    CHECK(ioctl(peer, RIO_MPORT_MAINT_HDID_SET, &id) == 0);
    SEEN(RIO_MPORT_MAINT_HDID_SET, "another id and back");
}

/* ---- events ---- */

static int send_doorbell(int port, uint16_t to, uint16_t info) {
    struct rio_event event = {.header = RIO_DOORBELL, .u.doorbell = {to, info}};
    return (int)write(port, &event, sizeof(event));
}

static struct rio_event next_event(int port) {
    struct rio_event event;
    struct pollfd readable = {.fd = port, .events = POLLIN};
    CHECK(poll(&readable, 1, wait_ms) == 1);
    CHECK(read(port, &event, sizeof(event)) == sizeof(event));
    return event;
}

static void test_doorbells(void) {
    struct rio_doorbell_filter range = {.rioid = 0xffff, .low = 16, .high = 31};
    struct rio_doorbell_filter second = {.rioid = 0xffff, .low = 40, .high = 40};
    struct rio_event event;
    uint32_t mask = 0;
    CHECK(ioctl(peer, RIO_SET_EVENT_MASK, RIO_DOORBELL) == 0);
    SEEN(RIO_SET_EVENT_MASK, "doorbells");
    CHECK(ioctl(peer, RIO_GET_EVENT_MASK, &mask) == 0 && mask == RIO_DOORBELL);
    SEEN(RIO_GET_EVENT_MASK, "the same");

    CHECK(ioctl(peer, RIO_ENABLE_DOORBELL_RANGE, &range) == 0);
    CHECK(REFUSES(ioctl(peer, RIO_ENABLE_DOORBELL_RANGE, &range), EBUSY));
    CHECK(REFUSES(read(peer, &event, sizeof(event)), EAGAIN));
    CHECK(send_doorbell(host, peer_id, 17) == sizeof(event));
    event = next_event(peer);
    CHECK(event.header == RIO_DOORBELL && event.u.doorbell.rioid == host_id && event.u.doorbell.payload == 17);
    CHECK(REFUSES(send_doorbell(host, 200, 17), ENODEV));
    SEEN(RIO_ENABLE_DOORBELL_RANGE, "a doorbell of it arrives; a range is one's own; an id that nobody has is refused");

    CHECK(ioctl(peer, RIO_ENABLE_DOORBELL_RANGE, &second) == 0);
    CHECK(ioctl(peer, RIO_DISABLE_DOORBELL_RANGE, &range) == 0);
    CHECK(REFUSES(ioctl(peer, RIO_DISABLE_DOORBELL_RANGE, &range), EINVAL));
    CHECK(send_doorbell(host, peer_id, 17) == sizeof(event));
    CHECK(send_doorbell(host, peer_id, 40) == sizeof(event));
    CHECK(next_event(peer).u.doorbell.payload == 40);
    CHECK(ioctl(peer, RIO_DISABLE_DOORBELL_RANGE, &second) == 0);
    SEEN(RIO_DISABLE_DOORBELL_RANGE, "a doorbell of it does not, the one behind does");
}

static void test_portwrites(const char* sender) {
    struct rio_pw_filter range = {.mask = 0xffff0000, .low = 0x50000, .high = 0x5ffff};
    struct rio_event event;
    FILE* file = NULL;
    CHECK(ioctl(peer, RIO_SET_EVENT_MASK, RIO_PORTWRITE) == 0);
    CHECK(ioctl(peer, RIO_ENABLE_PORTWRITE_RANGE, &range) == 0);
    for (unsigned tag = 0x4fffe; tag <= 0x50001; ++tag) {
        CHECK((file = fopen(sender, "w")) != NULL);
        CHECK(fprintf(file, "%d %u 0xabc 7", peer_id, tag) > 0 && fclose(file) == 0);
    }
    event = next_event(peer); /* those below the range went past */
    CHECK(event.header == RIO_PORTWRITE && event.u.portwrite.payload[0] == 0x50000);
    CHECK(event.u.portwrite.payload[1] == 0xabc && event.u.portwrite.payload[2] == 7);
    CHECK(next_event(peer).u.portwrite.payload[0] == 0x50001);
    SEEN(RIO_ENABLE_PORTWRITE_RANGE, "those whose component tag is in it arrive");
    CHECK(ioctl(peer, RIO_DISABLE_PORTWRITE_RANGE, &range) == 0);
    CHECK(REFUSES(ioctl(peer, RIO_DISABLE_PORTWRITE_RANGE, &range), EINVAL));
    CHECK(ioctl(peer, RIO_SET_EVENT_MASK, 0) == 0);
    SEEN(RIO_DISABLE_PORTWRITE_RANGE, "once");
}

/* ---- memory ---- */

static uint8_t* map(int port, uint64_t handle, size_t bytes) {
    void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, port, (off_t)handle);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static int transfer(int port, struct rio_transfer_io* io, enum rio_transfer_dir direction,
                    enum rio_transfer_sync sync) {
    struct rio_transaction transaction = {.block = (uintptr_t)io,
                                          .count = 1,
                                          .transfer_mode = RIO_TRANSFER_MODE_TRANSFER,
                                          .sync = (uint16_t)sync,
                                          .dir = (uint16_t)direction};
    return ioctl(port, RIO_TRANSFER, &transaction);
}

static int move(enum rio_transfer_dir direction, uint64_t address, void* local, size_t bytes, enum rio_exchange method,
                enum rio_transfer_sync sync) {
    struct rio_transfer_io io = {.rioid = peer_id,
                                 .rio_addr = address,
                                 .loc_addr = (uintptr_t)local,
                                 .length = bytes,
                                 .method = (uint16_t)method};
    return transfer(host, &io, direction, sync);
}

static void fill(uint8_t* memory, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; ++i)
        memory[i] = (uint8_t)((i * 2654435761U + seed) >> 7);
}

/* Writes, then reads back: only the bytes that were meant have changed. */
static void test_transfer(uint8_t* window, size_t at, size_t bytes) {
    uint8_t* out = malloc(bytes + 1);
    uint8_t* back = malloc(bytes + 1);
    CHECK(out != NULL && back != NULL);
    memset(window, 0xee, window_bytes);
    fill(out, bytes + 1, (unsigned)bytes);
    CHECK(move(RIO_TRANSFER_DIR_WRITE, window_address + at, out + 1, bytes, RIO_EXCHANGE_NWRITE_R, RIO_TRANSFER_SYNC) ==
          0);
    CHECK(memcmp(window + at, out + 1, bytes) == 0);
    for (size_t i = 0; i < window_bytes; ++i)
        CHECK((i >= at && i < at + bytes) || window[i] == 0xee);
    CHECK(move(RIO_TRANSFER_DIR_READ, window_address + at, back, bytes, RIO_EXCHANGE_DEFAULT, RIO_TRANSFER_SYNC) == 0);
    CHECK(memcmp(back, out + 1, bytes) == 0);
    free(out);
    free(back);
}

static void test_transfers(uint8_t* window) {
    static const size_t sizes[] = {1, 7, 8, 255, 256, 257, page, page + 5, 100001};
    uint8_t* source = malloc(window_bytes);
    struct rio_async_tx_wait wait = {.timeout = wait_ms};
    struct rio_dma_mem memory = {.length = window_bytes};
    struct rio_transfer_io io = {
        .rioid = peer_id, .rio_addr = window_address, .length = window_bytes - page, .offset = page};
    CHECK(source != NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i)
        test_transfer(window, 3 * i + 4, sizes[i]);
    test_transfer(window, 0, window_bytes);
    fill(source, window_bytes, 1);
    CHECK(REFUSES(move(RIO_TRANSFER_DIR_WRITE, nowhere, source, 64, RIO_EXCHANGE_NWRITE_R, RIO_TRANSFER_SYNC), EIO));
    CHECK(move(RIO_TRANSFER_DIR_WRITE, nowhere, source, 64, RIO_EXCHANGE_NWRITE, RIO_TRANSFER_SYNC) == 0);
    CHECK(REFUSES(move(RIO_TRANSFER_DIR_READ, nowhere, source, 64, RIO_EXCHANGE_DEFAULT, RIO_TRANSFER_SYNC), EIO));
    CHECK(REFUSES(move(RIO_TRANSFER_DIR_WRITE, window_address, source, 0, RIO_EXCHANGE_NWRITE, RIO_TRANSFER_SYNC),
                  EINVAL));
    CHECK(REFUSES(move(RIO_TRANSFER_DIR_WRITE, UINT64_MAX - 7, source, 64, RIO_EXCHANGE_NWRITE, RIO_TRANSFER_SYNC),
                  EINVAL));
    CHECK(move(RIO_TRANSFER_DIR_WRITE, window_address, source, window_bytes, RIO_EXCHANGE_NWRITE, RIO_TRANSFER_FAF) ==
          0);
    /* The same file has the same DMA channel: what is complete behind it is so in order. */
    CHECK(move(RIO_TRANSFER_DIR_WRITE, window_address, source, 8, RIO_EXCHANGE_NWRITE_R, RIO_TRANSFER_SYNC) == 0);
    CHECK(memcmp(window, source, window_bytes) == 0);
    SEEN(RIO_TRANSFER,
         "1 byte to 1 MiB at odd places, both ways, told and untold; to no window: refused if it has a response");

    fill(source, window_bytes, 2);
    for (int i = 0; i < 4; ++i) {
        int cookie = move(RIO_TRANSFER_DIR_WRITE, window_address, source, window_bytes, RIO_EXCHANGE_NWRITE_R_ALL,
                          RIO_TRANSFER_ASYNC);
        CHECK(cookie > 0);
        wait.token = (uint32_t)cookie;
        CHECK(ioctl(host, RIO_WAIT_FOR_ASYNC, &wait) == 0);
        CHECK(REFUSES(ioctl(host, RIO_WAIT_FOR_ASYNC, &wait), EAGAIN));
    }
    CHECK(memcmp(window, source, window_bytes) == 0);
    wait.token = (uint32_t)move(RIO_TRANSFER_DIR_WRITE, nowhere, source, 64, RIO_EXCHANGE_NWRITE_R, RIO_TRANSFER_ASYNC);
    CHECK(REFUSES(ioctl(host, RIO_WAIT_FOR_ASYNC, &wait), EIO));
    SEEN(RIO_WAIT_FOR_ASYNC, "the outcome, once; a failure as well");

    CHECK(ioctl(host, RIO_ALLOC_DMA, &memory) == 0);
    uint8_t* local = map(host, memory.dma_handle, window_bytes);
    for (size_t i = 0; i < window_bytes; ++i)
        CHECK(local[i] == 0);
    fill(local, window_bytes, 3);
    io.handle = memory.dma_handle;
    CHECK(transfer(host, &io, RIO_TRANSFER_DIR_WRITE, RIO_TRANSFER_SYNC) == 0);
    CHECK(memcmp(window, local + page, window_bytes - page) == 0);
    io.offset = 2 * page;
    CHECK(REFUSES(transfer(host, &io, RIO_TRANSFER_DIR_WRITE, RIO_TRANSFER_SYNC), EINVAL));
    SEEN(RIO_ALLOC_DMA, "memory without anything in it, which transfers name by its handle");
    CHECK(munmap(local, window_bytes) == 0);
    CHECK(ioctl(host, RIO_FREE_DMA, &memory.dma_handle) == 0);
    CHECK(REFUSES(ioctl(host, RIO_FREE_DMA, &memory.dma_handle), EFAULT));
    memory.length = 1ULL << 40;
    CHECK(REFUSES(ioctl(host, RIO_ALLOC_DMA, &memory), ENOMEM));
    SEEN(RIO_FREE_DMA, "once");
    free(source);
}

static void test_windows(void) {
    struct rio_mmap in = {.rio_addr = window_address, .length = window_bytes};
    struct rio_mmap inside = {.rio_addr = window_address + page, .length = page};
    struct rio_mmap out = {.rioid = peer_id, .rio_addr = window_address + page, .length = 2 * page};
    CHECK(ioctl(peer, RIO_MAP_INBOUND, &in) == 0);
    CHECK(REFUSES(ioctl(peer, RIO_MAP_INBOUND, &inside), EBUSY));
    uint8_t* window = map(peer, in.handle, window_bytes);
    for (size_t i = 0; i < window_bytes; ++i)
        CHECK(window[i] == 0);
    SEEN(RIO_MAP_INBOUND, "memory without anything in it; no window inside another");

    test_transfers(window);

    CHECK(ioctl(host, RIO_MAP_OUTBOUND, &out) == 0);
    uint8_t* remote = map(host, out.handle, 2 * page);
    memset(window, 0, window_bytes);
    memset(remote, 0x5a, 2 * page);
    for (size_t i = 0; i < 4 * page; ++i)
        CHECK(window[i] == (i >= page && i < 3 * page ? 0x5a : 0));
    window[page + 1] = 7;
    CHECK(remote[1] == 7);
    out.rio_addr = nowhere;
    CHECK(REFUSES(ioctl(host, RIO_MAP_OUTBOUND, &out), ENXIO));
    out.rio_addr = window_address + window_bytes - page;
    CHECK(REFUSES(ioctl(host, RIO_MAP_OUTBOUND, &out), ENXIO));
    SEEN(RIO_MAP_OUTBOUND, "the other port's memory, both ways; none that is not all there");

    CHECK(munmap(window, window_bytes) == 0);
    CHECK(ioctl(peer, RIO_UNMAP_INBOUND, &in.handle) == 0);
    uint8_t byte = 1;
    CHECK(
        REFUSES(move(RIO_TRANSFER_DIR_WRITE, window_address, &byte, 1, RIO_EXCHANGE_NWRITE_R, RIO_TRANSFER_SYNC), EIO));
    SEEN(RIO_UNMAP_INBOUND, "what is written there afterwards finds nothing");
    memset(remote, 1, 2 * page); /* still memory, and nobody else's */
    CHECK(munmap(remote, 2 * page) == 0);
    CHECK(ioctl(host, RIO_UNMAP_OUTBOUND, &out.handle) == 0);
    SEEN(RIO_UNMAP_OUTBOUND, "it outlives the window behind it");
}

static void test_many_windows(void) {
    struct rio_mmap in[9];
    for (size_t i = 0; i < 9; ++i) {
        in[i] = (struct rio_mmap){.rio_addr = i == 0 ? RIO_MAP_ANY_ADDR : window_address + i * page, .length = page};
        if (i == 8) {
            CHECK(REFUSES(ioctl(peer, RIO_MAP_INBOUND, &in[i]), EBUSY));
        } else {
            CHECK(ioctl(peer, RIO_MAP_INBOUND, &in[i]) == 0);
        }
    }
    CHECK(in[0].rio_addr == in[0].handle);
    for (size_t i = 0; i < 8; ++i)
        CHECK(ioctl(peer, RIO_UNMAP_INBOUND, &in[i].handle) == 0);
    SEEN(RIO_MAP_INBOUND, "8 of them");
}

/* ---- devices ---- */

static void test_devices(void) {
    struct rio_rdev_info device = {.destid = peer_id, .hopcount = 0xff, .comptag = 0x77, .name = "by-hand"};
    CHECK(ioctl(host, RIO_DEV_ADD, &device) == 0);
    CHECK(access("/sys/bus/rapidio/devices/by-hand", F_OK) == 0);
    CHECK(REFUSES(ioctl(host, RIO_DEV_ADD, &device), EEXIST));
    SEEN(RIO_DEV_ADD, "a device of the bus, once");
    CHECK(ioctl(host, RIO_DEV_DEL, &device) == 0);
    CHECK(access("/sys/bus/rapidio/devices/by-hand", F_OK) == -1);
    CHECK(REFUSES(ioctl(host, RIO_DEV_DEL, &device), ENODEV));
    SEEN(RIO_DEV_DEL, "it is gone");
}

/* ---- channelised messages ---- */

static void test_lists(int cm) {
    uint32_t ports[9] = {8};
    uint32_t count = 0; /* of port 0 */
    CHECK(ioctl(cm, RIO_CM_MPORT_GET_LIST, ports) == 0);
    CHECK(ports[0] == 2);
    SEEN(RIO_CM_MPORT_GET_LIST, "two");
    CHECK(ioctl(cm, RIO_CM_EP_GET_LIST_SIZE, &count) == 0 && count == 1);
    SEEN(RIO_CM_EP_GET_LIST_SIZE, "one");
    uint32_t list[3] = {count, 0, 99};
    CHECK(ioctl(cm, RIO_CM_EP_GET_LIST, list) == 0);
    CHECK(list[0] == 1 && list[2] == peer_id);
    SEEN(RIO_CM_EP_GET_LIST, "the other port");
}

static int send_message(int cm, uint16_t id, const uint8_t* body, size_t bytes) {
    static uint8_t message[largest_message];
    struct rio_cm_msg request = {.ch_num = id, .size = (uint16_t)(bytes + cm_header), .msg = (uintptr_t)message};
    memcpy(message + cm_header, body, bytes);
    return ioctl(cm, RIO_CM_CHAN_SEND, &request);
}

static int receive_message(int cm, uint16_t id, uint8_t* message, uint32_t timeout_ms) {
    struct rio_cm_msg request = {.ch_num = id, .size = largest_message, .rxto = timeout_ms, .msg = (uintptr_t)message};
    return ioctl(cm, RIO_CM_CHAN_RECEIVE, &request);
}

enum { body_bytes = largest_message - cm_header, rounds = 300 };

/* The other end of the channel: sends back what comes, and ends. */
static _Noreturn void echo(uint16_t listening, int ready) {
    static uint8_t message[largest_message];
    int cm = open("/dev/rio_cm", O_RDWR);
    uint16_t id = listening;
    struct rio_cm_channel bound = {.id = listening, .mport_id = 1};
    struct rio_cm_accept accepted = {.ch_num = listening, .wait_to = 50};
    CHECK(cm >= 0);
    CHECK(ioctl(cm, RIO_CM_CHAN_CREATE, &id) == 0 && id == listening);
    CHECK(REFUSES(ioctl(cm, RIO_CM_CHAN_CREATE, &id), EBUSY));
    SEEN(RIO_CM_CHAN_CREATE, "the number that was asked for, which then is taken");
    CHECK(REFUSES(ioctl(cm, RIO_CM_CHAN_LISTEN, &id), EINVAL));
    CHECK(ioctl(cm, RIO_CM_CHAN_BIND, &bound) == 0);
    CHECK(REFUSES(ioctl(cm, RIO_CM_CHAN_BIND, &bound), EINVAL));
    SEEN(RIO_CM_CHAN_BIND, "once");
    CHECK(ioctl(cm, RIO_CM_CHAN_LISTEN, &id) == 0);
    SEEN(RIO_CM_CHAN_LISTEN, "when it is bound");
    CHECK(REFUSES(ioctl(cm, RIO_CM_CHAN_ACCEPT, &accepted), ETIME));
    CHECK(write(ready, "", 1) == 1);
    accepted = (struct rio_cm_accept){.ch_num = listening, .wait_to = wait_ms};
    CHECK(ioctl(cm, RIO_CM_CHAN_ACCEPT, &accepted) == 0 && accepted.ch_num != listening);
    SEEN(RIO_CM_CHAN_ACCEPT, "a channel of its own; nobody in time: ETIME");
    for (int i = 0; i < rounds; ++i) {
        CHECK(receive_message(cm, accepted.ch_num, message, wait_ms) == 0);
        CHECK(send_message(cm, accepted.ch_num, message + cm_header, body_bytes) == 0);
    }
    /* Closing takes from the other end what it has not read yet: it says when it has. */
    CHECK(receive_message(cm, accepted.ch_num, message, wait_ms) == 0);
    CHECK(ioctl(cm, RIO_CM_CHAN_CLOSE, &accepted.ch_num) == 0);
    CHECK(ioctl(cm, RIO_CM_CHAN_CLOSE, &id) == 0);
    exit(0);
}

static void test_messages(void) {
    static uint8_t out[body_bytes];
    static uint8_t message[largest_message];
    int ready[2];
    char byte = 0;
    int status = 0;
    uint16_t id = 0;
    struct rio_cm_channel remote = {.remote_channel = channel, .remote_destid = peer_id};
    int cm = open("/dev/rio_cm", O_RDWR);
    CHECK(cm >= 0);
    test_lists(cm);
    CHECK(pipe(ready) == 0);
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) echo(channel, ready[1]);
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(ioctl(cm, RIO_CM_CHAN_CREATE, &id) == 0 && id != 0);
    CHECK(REFUSES(send_message(cm, id, out, 8), EAGAIN));
    remote.id = id;
    CHECK(ioctl(cm, RIO_CM_CHAN_CONNECT, &remote) == 0);
    CHECK(REFUSES(ioctl(cm, RIO_CM_CHAN_CONNECT, &remote), EINVAL));
    SEEN(RIO_CM_CHAN_CONNECT, "with who listens, once");
    CHECK(REFUSES(receive_message(cm, id, message, 20), ETIME));
    for (int i = 0; i < rounds; ++i) {
        fill(out, body_bytes, (unsigned)i);
        CHECK(send_message(cm, id, out, body_bytes) == 0);
        CHECK(receive_message(cm, id, message, wait_ms) == 0);
        CHECK(memcmp(out, message + cm_header, body_bytes) == 0);
    }
    SEEN(RIO_CM_CHAN_SEND, "300 messages of 4096 bytes");
    CHECK(send_message(cm, id, out, 8) == 0);
    CHECK(receive_message(cm, id, message, wait_ms) == -1 &&
          (errno == ECONNRESET || errno == ENODEV || errno == EINVAL));
    SEEN(RIO_CM_CHAN_RECEIVE, "as they were sent; when the other end is closed: an error");
    CHECK(waitpid(other, &status, 0) == other && status == 0);
    CHECK(ioctl(cm, RIO_CM_CHAN_CLOSE, &id) == 0);
    CHECK(REFUSES(send_message(cm, id, out, 8), ENODEV));
    SEEN(RIO_CM_CHAN_CLOSE, "nothing can be sent there any more");
    close(cm);
}

int main(int count, char** arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: rio_devices PORTWRITE\n");
        return 2;
    }
    host = open("/dev/rio_mport0", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    peer = open("/dev/rio_mport1", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    CHECK(host >= 0 && peer >= 0);
    test_registers();
    test_properties();
    test_doorbells();
    test_portwrites(arguments[1]);
    test_windows();
    test_many_windows();
    test_devices();
    test_messages();
    return 0;
}
