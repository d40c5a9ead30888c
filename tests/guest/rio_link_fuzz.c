/* Ioctls of /dev/rio_soft_linkN with arguments by chance, mappings, reads and writes, for whoever looks whether the
 * kernel bears them. Beside it rio_fuzz makes the requests that are fetched and answered here.
 *
 * usage: rio_link_fuzz SECONDS SEED    (on all links that are there)
 * It prints how many of each were made, and how many the kernel took. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <rio_soft_link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    max_links = 8,
    page = 4096,
    buffer_bytes = 1 << 20,
    kept = 16,
    longest_ms = 5,
    reopened_one_in = 2048,
    largest_message = 4096,
    header_bytes = 20,
    base_device_id = 0x60
};

static uint64_t state;
static int links[max_links];
static size_t link_count;
static uint8_t* buffer; /* and as much again, which nobody may touch */
static struct {
    uint32_t id;
    uint32_t bytes;
} fetched[kept]; /* requests that wait for their answer */

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

static uint64_t number(void) {
    static const uint64_t edges[] = {0, 1, 2, 7, 8, 255, 256, page - 1, page, page + 1, 65535, 65536, 0x7fffffff};
    switch (below(4)) {
        case 0:
            return next();
        case 1:
            return below(16);
        case 2:
            return UINT64_MAX - below(2 * page);
        default:
            return edges[below(sizeof edges / sizeof edges[0])];
    }
}

static uint64_t pointer(void) {
    return below(16) == 0 ? number() : (uintptr_t)buffer + below(buffer_bytes);
}

enum { next_call, answer_call, doorbell_call, message_call, register_call, window_call, other_call, call_count };
static struct {
    const char* name;
    unsigned long made;
    unsigned long taken;
} calls[call_count] = {{"RS_LINK_IOCTL_NEXT", 0, 0},
                       {"RS_LINK_IOCTL_ANSWER", 0, 0},
                       {"RS_LINK_IOCTL_DOORBELL", 0, 0},
                       {"RS_LINK_IOCTL_MESSAGE", 0, 0},
                       {"RS_LINK_IOCTL_REGISTER", 0, 0},
                       {"RS_LINK_IOCTL_WINDOW", 0, 0},
                       {"others", 0, 0}};

static int fetch(int link) {
    struct rs_link_next one = {.data = below(64) == 0 ? pointer() : (uintptr_t)buffer,
                               .kinds = below(4) == 0 ? (uint32_t)number() : UINT32_MAX,
                               .timeout_ms = below(64) == 0 ? (uint32_t)number() % 64 : (uint32_t)below(longest_ms)};
    const int result = ioctl(link, RS_LINK_IOCTL_NEXT, &one);
    if (result == 0 && one.request.id != 0) {
        const size_t slot = below(kept);
        fetched[slot].id = one.request.id;
        fetched[slot].bytes = one.request.bytes;
    }
    return result;
}

static int answer(int link) {
    const size_t slot = below(kept);
    struct rs_link_answer one = {.id = below(16) == 0 ? (uint32_t)number() : fetched[slot].id,
                                 .error = below(4) == 0 ? (int32_t)number() : -(int32_t)below(3) * 5,
                                 .data = below(16) == 0 ? pointer() : (uintptr_t)buffer,
                                 .bytes = below(8) == 0 ? (uint32_t)number() : fetched[slot].bytes};
    return ioctl(link, RS_LINK_IOCTL_ANSWER, &one);
}

/* Of rio_cm, as often as not: of channel 1 to 4 with an operation that there is. */
static int message(int link) {
    uint8_t* bytes = buffer;
    struct rs_link_message one = {.data = below(16) == 0 ? pointer() : (uintptr_t)bytes,
                                  .bytes = (uint32_t)(below(8) == 0 ? number() : 1 + below(largest_message)),
                                  .source = (uint16_t)below(8),
                                  .mailbox = (uint16_t)(below(8) == 0 ? number() : below(2))};
    for (size_t i = 0; i < 64; ++i)
        bytes[i] = (uint8_t)next();
    if (below(2) == 0) {
        memset(bytes, 0, header_bytes);
        bytes[3] = (uint8_t)one.source; /* most significant byte first: source, target, mailbox, kind, ... */
        bytes[7] = 1;
        bytes[9] = 1;
        bytes[10] = (uint8_t)(below(4) == 0 ? below(4) : 2);
        bytes[11] = (uint8_t)below(6);
        bytes[12] = (uint8_t)below(2);
        bytes[14] = (uint8_t)below(2);
        bytes[13] = (uint8_t)(1 + below(4));
        bytes[15] = (uint8_t)(1 + below(4));
        bytes[16] = (uint8_t)(below(4) == 0 ? next() : 0);
        bytes[17] = (uint8_t)next();
    }
    return ioctl(link, RS_LINK_IOCTL_MESSAGE, &one);
}

static int change_register(int link) {
    struct rs_link_register one = {.offset = (uint32_t)(below(4) == 0 ? number() : below(0x200) & ~3ULL),
                                   .value = (uint32_t)number(),
                                   .is_write = (uint32_t)below(2)};
    if (one.offset / 4 == base_device_id / 4 && below(64) != 0) one.is_write = 0;
    return ioctl(link, RS_LINK_IOCTL_REGISTER, &one);
}

static int window(int link) {
    struct rs_link_window one = {.address = below(4) == 0 ? number() : below(16) * page};
    return ioctl(link, RS_LINK_IOCTL_WINDOW, &one);
}

/* Mappings of windows that are there, that are not, and of other lengths; what a link does not have. */
static int use_otherwise(int link) {
    switch (below(4)) {
        case 0:
            return (int)read(link, (void*)(uintptr_t)pointer(), below(page));
        case 1:
            return (int)write(link, (void*)(uintptr_t)pointer(), below(page));
        case 2:
            return ioctl(link, below(2) == 0 ? next() : _IOC(below(4), 'R', 0x60 + below(16), below(64)),
                         below(4) == 0 ? (void*)(uintptr_t)number() : (void*)(uintptr_t)pointer());
        default: {
            const size_t bytes = (1 + below(8)) * page;
            const int how = below(4) == 0 ? MAP_PRIVATE : MAP_SHARED;
            const off_t at = (off_t)(below(2) == 0 ? below(16) * page : number() & ~4095ULL);
            uint8_t* mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, link, at);
            if (mapped == MAP_FAILED) return -1;
            ((volatile uint8_t*)mapped)[below(bytes)] = (uint8_t)next();
            (void)munmap(mapped, bytes);
            return 0;
        }
    }
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static bool open_link(size_t number_of_link) {
    char name[32];
    snprintf(name, sizeof name, "/dev/rio_soft_link%zu", number_of_link);
    links[number_of_link] = open(name, O_RDWR | O_CLOEXEC);
    return links[number_of_link] >= 0;
}

int main(int count, char** arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: rio_link_fuzz SECONDS SEED\n");
        return 2;
    }
    const double until = seconds() + atof(arguments[1]);
    state = strtoull(arguments[2], NULL, 0) * 2 + 1;
    buffer = mmap(NULL, 2 * (size_t)buffer_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED || mprotect(buffer, buffer_bytes, PROT_READ | PROT_WRITE) != 0) return 1;
    while (link_count < max_links && open_link(link_count))
        ++link_count;
    if (link_count == 0) {
        fprintf(stderr, "rio_link_fuzz: /dev/rio_soft_link0: %s\n", strerror(errno));
        return 1;
    }
    static int (*const make[call_count])(int) = {
        [answer_call] = answer, [message_call] = message,    [next_call] = fetch, [register_call] = change_register,
        [window_call] = window, [other_call] = use_otherwise};
    do {
        const size_t chosen = below(link_count);
        if (below(reopened_one_in) == 0) {
            /* Somebody else may not have it, and all that waited for its answer goes on without. */
            close(links[chosen]);
            if (!open_link(chosen)) {
                fprintf(stderr, "rio_link_fuzz: /dev/rio_soft_link%zu: %s\n", chosen, strerror(errno));
                return 1;
            }
        }
        /* As often as all others: what has been asked is to be answered. */
        const size_t call = below(2) == 0 ? below(2) : below(call_count);
        struct rs_link_doorbell bell = {(uint16_t)below(8), (uint16_t)number()};
        const int result =
            call == doorbell_call ? ioctl(links[chosen], RS_LINK_IOCTL_DOORBELL, &bell) : make[call](links[chosen]);
        ++calls[call].made;
        if (result >= 0) ++calls[call].taken;
    } while (seconds() < until);
    for (size_t i = 0; i < call_count; ++i)
        printf("%s: %lu made, %lu taken\n", calls[i].name, calls[i].made, calls[i].taken);
    return 0;
}
