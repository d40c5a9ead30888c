/* Ioctls of /dev/rio_mportN and /dev/rio_cm with arguments by chance, for whoever looks whether the kernel bears them.
 *
 * usage: rio_fuzz SECONDS SEED    (on all ports that are there)
 * The same seed makes the same calls. It prints how many of each were made, and how many the kernel took.
 *
 * Left out is what breaks Linux 6.1 itself (kernel/README.md): a message of fewer than 20 bytes, lists of another
 * length than it wants, reading more than one event, and transfers for which it would ask for too much memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/rio_cm_cdev.h>
#include <linux/rio_mport_cdev.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    max_ports = 8,
    page = 4096,
    buffer_bytes = 1 << 20,
    kept = 64,
    longest_ms = 20,
    cm_header = 20,
    reopened_one_in = 256,
    base_device_id = 0x60,
    component_tag = 0x6C
};

static uint64_t state;
static struct file {
    char name[32];
    int flags;
    int fd;
} files[max_ports * 2 + 1]; /* the first is that of channels */
static size_t file_count;
static uint8_t* buffer;        /* and as much again three times, of which nobody may touch anything */
static uint64_t handles[kept]; /* that the kernel gave, and numbers of channels */

/* xorshift64* */
static uint64_t next(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717ULL;
}

static uint64_t below(uint64_t limit) {
    return next() % limit;
}

/* Mostly near something that means something. */
static uint64_t number(void) {
    static const uint64_t edges[] = {0,        1,    2,        3,     7,       8,       255,        256,
                                     page - 1, page, page + 1, 65535, 1 << 20, 1 << 22, 0x10000000, 0x7fffffff};
    uint64_t value = 0;
    switch (below(6)) {
        case 0:
            return next();
        case 1:
            return handles[below(kept)];
        case 2:
            return UINT64_MAX - below(2 * page);
        case 3:
            return below(16);
        default:
            value = edges[below(sizeof edges / sizeof edges[0])];
            return value + (below(4) == 0 ? below(16) : 0);
    }
}

static uint64_t pointer(void) {
    if (below(8) == 0) return number();
    return (uintptr_t)buffer + below(buffer_bytes);
}

/* Of a transfer: the driver allocates for its pages before it looks at them. */
static uint64_t length(void) {
    return number() % (2 * buffer_bytes);
}

static void keep(uint64_t handle) {
    handles[below(kept)] = handle;
}

struct call {
    const char* name;
    unsigned long request;
    bool of_channels;
    unsigned long made;
    unsigned long taken;
};

#define MPORT(name) {#name, name, false, 0, 0}
#define CHANNEL(name) {#name, name, true, 0, 0}
static struct call calls[] = {MPORT(RIO_MPORT_MAINT_HDID_SET),
                              MPORT(RIO_MPORT_MAINT_COMPTAG_SET),
                              MPORT(RIO_MPORT_MAINT_PORT_IDX_GET),
                              MPORT(RIO_MPORT_GET_PROPERTIES),
                              MPORT(RIO_MPORT_MAINT_READ_LOCAL),
                              MPORT(RIO_MPORT_MAINT_WRITE_LOCAL),
                              MPORT(RIO_MPORT_MAINT_READ_REMOTE),
                              MPORT(RIO_MPORT_MAINT_WRITE_REMOTE),
                              MPORT(RIO_ENABLE_DOORBELL_RANGE),
                              MPORT(RIO_DISABLE_DOORBELL_RANGE),
                              MPORT(RIO_ENABLE_PORTWRITE_RANGE),
                              MPORT(RIO_DISABLE_PORTWRITE_RANGE),
                              MPORT(RIO_SET_EVENT_MASK),
                              MPORT(RIO_GET_EVENT_MASK),
                              MPORT(RIO_MAP_OUTBOUND),
                              MPORT(RIO_UNMAP_OUTBOUND),
                              MPORT(RIO_MAP_INBOUND),
                              MPORT(RIO_UNMAP_INBOUND),
                              MPORT(RIO_ALLOC_DMA),
                              MPORT(RIO_FREE_DMA),
                              MPORT(RIO_TRANSFER),
                              MPORT(RIO_WAIT_FOR_ASYNC),
                              MPORT(RIO_DEV_ADD),
                              MPORT(RIO_DEV_DEL),
                              CHANNEL(RIO_CM_EP_GET_LIST_SIZE),
                              CHANNEL(RIO_CM_EP_GET_LIST),
                              CHANNEL(RIO_CM_CHAN_CREATE),
                              CHANNEL(RIO_CM_CHAN_CLOSE),
                              CHANNEL(RIO_CM_CHAN_BIND),
                              CHANNEL(RIO_CM_CHAN_LISTEN),
                              CHANNEL(RIO_CM_CHAN_ACCEPT),
                              CHANNEL(RIO_CM_CHAN_CONNECT),
                              CHANNEL(RIO_CM_CHAN_SEND),
                              CHANNEL(RIO_CM_CHAN_RECEIVE),
                              CHANNEL(RIO_CM_MPORT_GET_LIST)};
enum { call_count = sizeof calls / sizeof calls[0] };

/* What the call is given, and what is kept of what it gives back. */
static int make(int file, unsigned long request) {
    uint64_t words[128];
    void* argument = words;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i)
        words[i] = below(3) == 0 ? number() | number() << 32 : number();
    switch (request) {
        case RIO_MPORT_MAINT_HDID_SET: {
            /* With other ids than it has enumerated there is hardly any traffic. */
            struct rio_mport_properties properties;
            if (below(256) != 0 && ioctl(file, RIO_MPORT_GET_PROPERTIES, &properties) == 0)
                *(uint16_t*)argument = properties.hdid;
            break;
        }
        case RIO_MPORT_MAINT_READ_LOCAL:
        case RIO_MPORT_MAINT_WRITE_LOCAL:
        case RIO_MPORT_MAINT_READ_REMOTE:
        case RIO_MPORT_MAINT_WRITE_REMOTE: {
            const bool writes = request == RIO_MPORT_MAINT_WRITE_LOCAL || request == RIO_MPORT_MAINT_WRITE_REMOTE;
            struct rio_mport_maint_io* io = argument;
            io->buffer = pointer();
            if (below(4) != 0) {
                io->offset = (uint32_t)(below(0x200) & ~3ULL);
                io->length = 4;
                io->hopcount = (uint8_t)(below(2) == 0 ? 0xff : below(3));
            }
            /* The same of ids and routes. */
            if (writes && io->offset / 0x20 == base_device_id / 0x20 && below(64) != 0) io->offset = component_tag;
            break;
        }
        case RIO_SET_EVENT_MASK:
            return ioctl(file, request, number());
        case RIO_MAP_OUTBOUND:
        case RIO_MAP_INBOUND: {
            struct rio_mmap* window = argument;
            if (below(3) != 0) window->rio_addr = below(16) * page;
            if (below(3) != 0) window->length = (1 + below(8)) * page;
            if (below(3) != 0) window->rioid = (uint16_t)below(4);
            const int result = ioctl(file, request, window);
            if (result == 0) keep(window->handle);
            return result;
        }
        case RIO_ALLOC_DMA: {
            struct rio_dma_mem* memory = argument;
            const int result = ioctl(file, request, memory);
            if (result == 0) keep(memory->dma_handle);
            return result;
        }
        case RIO_TRANSFER: {
            struct rio_transfer_io io[2];
            for (size_t i = 0; i < 2; ++i) {
                io[i] = (struct rio_transfer_io){.rio_addr = number(),
                                                 .loc_addr = below(2) == 0 ? 0 : pointer(),
                                                 .handle = number(),
                                                 .offset = number(),
                                                 .length = length(),
                                                 .rioid = (uint16_t)(below(4) == 0 ? number() : below(4)),
                                                 .method = (uint16_t)number()};
                if (below(2) == 0) io[i].rio_addr = below(16) * page;
            }
            struct rio_transaction* transaction = argument;
            transaction->block = below(8) == 0 ? pointer() : (uintptr_t)io;
            if (transaction->block != (uintptr_t)io) transaction->count = 0; /* nobody chose that length */
            if (below(4) != 0) transaction->count = transaction->block == (uintptr_t)io;
            if (below(4) != 0) transaction->transfer_mode = RIO_TRANSFER_MODE_TRANSFER;
            if (below(4) != 0) transaction->sync = (uint16_t)below(3);
            const int result = ioctl(file, request, transaction);
            if (result > 0) keep((uint64_t)result);
            return result;
        }
        case RIO_WAIT_FOR_ASYNC:
            ((struct rio_async_tx_wait*)argument)->timeout = (uint32_t)(1 + below(longest_ms));
            break;
        case RIO_CM_EP_GET_LIST: {
            static uint32_t list[1 << 10];
            const uint32_t port = (uint32_t)below(max_ports + 2);
            uint32_t size = port;
            if (ioctl(file, RIO_CM_EP_GET_LIST_SIZE, &size) != 0) size = 1; /* it refuses that port here, too */
            if (size == 0 || size > sizeof list / sizeof list[0] - 2) return -1;
            list[0] = 1 + (uint32_t)below(size);
            list[1] = port;
            return ioctl(file, request, list);
        }
        case RIO_CM_MPORT_GET_LIST: {
            uint32_t list[max_ports + 1] = {below(4) == 0 ? max_ports + 1 + (uint32_t)below(1U << 31) : max_ports};
            return ioctl(file, request, list);
        }
        case RIO_CM_CHAN_CREATE: {
            uint16_t id = (uint16_t)(below(2) == 0 ? 0 : number());
            const int result = ioctl(file, request, &id);
            if (result == 0) keep(id);
            return result;
        }
        case RIO_CM_CHAN_BIND:
        case RIO_CM_CHAN_CONNECT: {
            struct rio_cm_channel* channel = argument;
            if (below(2) == 0) channel->remote_destid = (uint16_t)below(4);
            if (below(2) == 0) channel->mport_id = (uint8_t)below(4);
            break;
        }
        case RIO_CM_CHAN_ACCEPT:
            ((struct rio_cm_accept*)argument)->wait_to = (uint32_t)(1 + below(longest_ms));
            break;
        case RIO_CM_CHAN_SEND: {
            struct rio_cm_msg* message = argument;
            message->msg = pointer();
            message->size = (uint16_t)(cm_header + below(page));
            break;
        }
        case RIO_CM_CHAN_RECEIVE: {
            struct rio_cm_msg* message = argument;
            message->msg = pointer();
            message->rxto = (uint32_t)(1 + below(longest_ms));
            break;
        }
        default:
            break;
    }
    return ioctl(file, request, below(16) == 0 ? (void*)(uintptr_t)pointer() : argument);
}

/* Doorbells and port-writes by read() and write(), mappings by mmap(). */
static void use_otherwise(int file) {
    struct rio_event event;
    uint8_t* bytes = (uint8_t*)&event;
    for (size_t i = 0; i < sizeof event; ++i)
        bytes[i] = (uint8_t)next();
    if (below(2) == 0) event.header = RIO_DOORBELL;
    if (below(2) == 0) event.u.doorbell.rioid = (uint16_t)below(4);
    switch (below(3)) {
        case 0:
            (void)!write(file, &event, below(2) == 0 ? sizeof event : below(3 * sizeof event));
            break;
        case 1:
            (void)!read(file, &event, sizeof event);
            break;
        default: {
            const size_t bytes_wanted = (1 + below(8)) * page;
            void* mapped =
                mmap(NULL, bytes_wanted, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)(number() & ~4095ULL));
            if (mapped == MAP_FAILED) return;
            *(volatile uint8_t*)mapped = 1;
            (void)munmap(mapped, bytes_wanted);
        }
    }
}

static void nothing(int signal) {
    (void)signal;
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* All that was made by a file goes with it. */
static bool reopen(struct file* file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = open(file->name, file->flags | O_RDWR | O_CLOEXEC);
    return file->fd >= 0;
}

static void open_all(void) {
    files[file_count] = (struct file){.name = "/dev/rio_cm", .fd = -1};
    if (!reopen(&files[file_count++])) {
        fprintf(stderr, "rio_fuzz: /dev/rio_cm: %s\n", strerror(errno));
        exit(1);
    }
    for (int port = 0; port < max_ports; ++port) {
        for (int waits = 0; waits < 2; ++waits) {
            struct file* file = &files[file_count];
            *file = (struct file){.flags = waits ? 0 : O_NONBLOCK, .fd = -1};
            snprintf(file->name, sizeof file->name, "/dev/rio_mport%d", port);
            if (reopen(file)) ++file_count;
        }
    }
    if (file_count == 1) {
        fprintf(stderr, "rio_fuzz: there is no /dev/rio_mportN\n");
        exit(1);
    }
}

int main(int count, char** arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: rio_fuzz SECONDS SEED\n");
        return 2;
    }
    const double until = seconds() + atof(arguments[1]);
    state = strtoull(arguments[2], NULL, 0) * 2 + 1;
    buffer = mmap(NULL, 4 * (size_t)buffer_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED || mprotect(buffer, buffer_bytes, PROT_READ | PROT_WRITE) != 0) return 1;
    open_all();
    /* Nothing waits for long: a signal comes every 50 ms. */
    const struct sigaction action = {.sa_handler = nothing};
    const struct itimerval often = {.it_interval = {.tv_usec = 50000}, .it_value = {.tv_usec = 50000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    do {
        struct file* port = &files[1 + below(file_count - 1)];
        if (below(reopened_one_in) == 0) {
            struct file* file = &files[below(file_count)];
            if (!reopen(file)) {
                fprintf(stderr, "rio_fuzz: %s: %s\n", file->name, strerror(errno));
                return 1;
            }
        }
        if (below(6) == 0) {
            use_otherwise(port->fd);
            continue;
        }
        struct call* call = &calls[below(call_count)];
        /* Now and then the request of the other device. */
        const bool of_channels = below(32) == 0 ? !call->of_channels : call->of_channels;
        ++call->made;
        if (make(of_channels ? files[0].fd : port->fd, call->request) >= 0) ++call->taken;
    } while (seconds() < until);
    for (size_t i = 0; i < call_count; ++i)
        printf("%s: %lu made, %lu taken\n", calls[i].name, calls[i].made, calls[i].taken);
    return 0;
}
