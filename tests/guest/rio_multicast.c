/* A multicast write over four master ports behind a switch, whose masks this programs (part 11 of the RapidIO
 * specification, section 3).
 *
 * usage: rio_multicast FIRST    (the number of the first port; the others follow)
 * Ends with status 1 at the first that is not as it should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/rio_mport_cdev.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ports = 4,
    page = 4096,
    group = 0x80,
    mask = 3,
    mask_port = 0x80,
    associate_select = 0x84,
    associate_operation = 0x88,
    add_port = 1 << 4,
    verify_port = 0 << 4,
    add_association = 3 << 5,
    delete_association = 2 << 5,
    verify_association = 0 << 5,
    present = 1
};
static const uint64_t window_address = 0x10000000;

#define CHECK(condition)                                                                                 \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "%s:%d: %s (errno: %s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

static int files[ports];

/* Of the switch: no hop to go. */
static uint32_t of_switch(unsigned long request, uint32_t offset, uint32_t value) {
    struct rio_mport_maint_io access = {
        .rioid = group, .hopcount = 0, .offset = offset, .length = sizeof value, .buffer = (uintptr_t)&value};
    CHECK(ioctl(files[0], request, &access) == 0);
    return value;
}

static void set(uint32_t offset, uint32_t value) {
    (void)of_switch(RIO_MPORT_MAINT_WRITE_REMOTE, offset, value);
}

static uint32_t get(uint32_t offset) {
    return of_switch(RIO_MPORT_MAINT_READ_REMOTE, offset, 0);
}

static int write_to_group(uint8_t* bytes, size_t size, enum rio_exchange method) {
    struct rio_transfer_io io = {.rioid = group,
                                 .rio_addr = window_address + 8,
                                 .loc_addr = (uintptr_t)bytes,
                                 .length = size,
                                 .method = (uint16_t)method};
    struct rio_transaction transaction = {.block = (uintptr_t)&io,
                                          .count = 1,
                                          .transfer_mode = RIO_TRANSFER_MODE_TRANSFER,
                                          .sync = RIO_TRANSFER_SYNC,
                                          .dir = RIO_TRANSFER_DIR_WRITE};
    return ioctl(files[0], RIO_TRANSFER, &transaction);
}

int main(int count, char** arguments) {
    uint8_t* windows[ports];
    uint8_t bytes[1000];
    CHECK(count == 2);
    for (int port = 0; port < ports; ++port) {
        char name[32];
        struct rio_mmap window = {.rio_addr = window_address, .length = page};
        snprintf(name, sizeof name, "/dev/rio_mport%d", atoi(arguments[1]) + port);
        CHECK((files[port] = open(name, O_RDWR | O_CLOEXEC)) >= 0);
        CHECK(ioctl(files[port], RIO_MAP_INBOUND, &window) == 0);
        windows[port] = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, files[port], (off_t)window.handle);
        CHECK(windows[port] != MAP_FAILED);
    }
    CHECK((of_switch(RIO_MPORT_MAINT_READ_REMOTE, 0x10, 0) & 0x400) != 0);

    /* Ports 0, 1 and 3 of the switch; port 0 is the sender's own. */
    for (uint32_t port = 0; port < ports; ++port)
        if (port != 2) set(mask_port, mask << 16 | port << 8 | add_port);
    set(associate_select, (uint32_t)group << 16 | mask);
    set(associate_operation, verify_association);
    CHECK((get(associate_operation) & present) == 0);
    memset(bytes, 0x5a, sizeof bytes);
    CHECK(write_to_group(bytes, sizeof bytes, RIO_EXCHANGE_NWRITE) == 0); /* to nobody yet */
    set(associate_operation, 1 << 7 | add_association);
    set(associate_operation, verify_association);
    CHECK((get(associate_operation) & present) != 0);
    for (uint32_t port = 0; port < ports; ++port) {
        set(mask_port, mask << 16 | port << 8 | verify_port);
        CHECK((get(mask_port) & present) == (port == 2 ? 0 : present));
        CHECK(windows[port][8] == 0);
    }

    CHECK(write_to_group(bytes, sizeof bytes, RIO_EXCHANGE_NWRITE) == 0);
    for (int port = 0; port < ports; ++port) {
        uint8_t expected[page] = {0};
        if (port == 1 || port == 3) memcpy(expected + 8, bytes, sizeof bytes);
        CHECK(memcmp(windows[port], expected, page) == 0);
    }
    CHECK(write_to_group(bytes, sizeof bytes, RIO_EXCHANGE_NWRITE_R) == -1 && errno == EIO);

    set(associate_operation, delete_association);
    memset(bytes, 1, sizeof bytes);
    CHECK(write_to_group(bytes, sizeof bytes, RIO_EXCHANGE_NWRITE) == 0);
    CHECK(windows[1][8] == 0x5a && windows[3][8] == 0x5a);
    printf("multicast: at ports 1 and 3\n");
    return 0;
}
