/* Datagrams by chance for an endpoint of SoftRIO's fabric over UDP, for whoever looks whether it bears them: random
 * ones, and those of a real endpoint with bytes changed. It stands between the two, so that what it sends comes from an
 * address that the target knows, with the numbers of a session that is there.
 *
 * usage: rio_packets SECONDS SEED FRONT PEER OWN TARGET    (UDP ports of 127.0.0.1)
 *   FRONT    where the real endpoint, which is at PEER, believes the target to be
 *   OWN      where the target, which is at TARGET, believes the real endpoint to be
 * It prints how many it passed on, and how many of its own it sent. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    largest = 65507,
    mtu = 1472,
    header_bytes = 32, /* src/reliable/packet.h */
    kept_count = 64,
    lanes = 16,
    first_kind = 1,
    last_kind = 7,
    data_kind = 3,
    longest_burst = 64
};

struct datagram {
    size_t bytes;
    uint8_t data[mtu];
};

static uint64_t state;
static struct datagram kept[kept_count]; /* that the real endpoint sent */
static size_t kept_used;
static uint64_t token;          /* that the target chose */
static uint64_t sequence;       /* the last that the target may have taken */
static uint32_t in_lane[lanes]; /* the same within each lane */
static unsigned long passed_on, changed, made;

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

static uint16_t crc16(const uint8_t* bytes, size_t count) {
    uint16_t crc = 0xFFFF;
    for (size_t i = 0; i < count; ++i) {
        crc = (uint16_t)(crc ^ bytes[i] << 8);
        for (int bit = 0; bit < 8; ++bit)
            crc = (uint16_t)((crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

static void change_bytes(uint8_t* bytes, size_t count) {
    static const uint8_t edges[] = {0, 1, 0x7F, 0x80, 0xFE, 0xFF};
    if (count == 0) return;
    for (uint64_t left = 1 + below(4); left > 0; --left) {
        uint8_t* each = bytes + below(count);
        switch (below(3)) {
            case 0:
                *each = (uint8_t)next();
                break;
            case 1:
                *each = edges[below(sizeof edges)];
                break;
            default:
                *each ^= (uint8_t)(1U << below(8));
        }
    }
}

/* One of the packets in the body: mostly with a CRC that is right, and now and then with another length. */
static void change_packet(struct datagram* one) {
    size_t starts[largest / 64];
    size_t count = 0;
    for (size_t at = header_bytes; at + 2 < one->bytes && count < sizeof starts / sizeof starts[0];) {
        const size_t bytes = (size_t)one->data[at] << 8 | one->data[at + 1];
        if (bytes < 4 || at + 2 + bytes > one->bytes) break;
        starts[count++] = at;
        at += 2 + bytes;
    }
    if (count == 0) {
        change_bytes(one->data + header_bytes, one->bytes - header_bytes);
        return;
    }
    uint8_t* length = one->data + starts[below(count)];
    uint8_t* packet = length + 2;
    const size_t bytes = (size_t)length[0] << 8 | length[1];
    /* Heads are short, and what they say matters most. */
    change_bytes(packet, below(2) == 0 && bytes > 20 ? 18 : bytes - 2);
    if (below(4) != 0) packet[0] = 0;
    if (below(8) != 0) {
        const uint16_t crc = crc16(packet, bytes - 2);
        packet[bytes - 2] = (uint8_t)(crc >> 8);
        packet[bytes - 1] = (uint8_t)crc;
    }
    if (below(16) == 0) change_bytes(length, 2);
}

static void put_length(struct datagram* one) {
    const size_t bytes = one->bytes - header_bytes;
    one->data[30] = (uint8_t)bytes;
    one->data[31] = (uint8_t)(bytes >> 8);
}

static void change(struct datagram* one) {
    if (one->bytes < header_bytes) return;
    /* Most sessions would end at once if their ends, too, came as often as all else. */
    switch (below(32)) {
        case 0:
        case 1:
            change_bytes(one->data, header_bytes);
            break;
        case 2:
        case 3: /* shorter or longer */
            one->bytes = header_bytes + below(mtu - header_bytes + 1);
            put_length(one);
            break;
        case 4:
            one->data[3] = (uint8_t)(first_kind + below(last_kind - first_kind + 1));
            break;
        default:
            change_packet(one);
    }
}

/* As the next one of the session. */
static void continue_session(struct datagram* one) {
    const uint8_t lane = one->data[28] % lanes;
    ++sequence;
    ++in_lane[lane];
    memcpy(one->data + 8, &token, sizeof token);
    memcpy(one->data + 16, &sequence, sizeof sequence);
    memcpy(one->data + 24, &in_lane[lane], sizeof in_lane[lane]);
}

static struct datagram by_chance(void) {
    struct datagram one = {0};
    if (kept_used == 0 || below(8) == 0) {
        one.bytes = below(mtu + 1);
        for (size_t i = 0; i < one.bytes; ++i)
            one.data[i] = (uint8_t)next();
        if (one.bytes >= header_bytes && below(4) != 0) {
            const uint8_t kind = (uint8_t)(below(32) == 0 ? first_kind + below(last_kind) : data_kind + below(2));
            memcpy(one.data, (const uint8_t[]){0x44, 0x52, 2, kind}, 4);
            memcpy(one.data + 8, &token, sizeof token);
            one.data[28] %= lanes;
            one.data[29] = 0;
            put_length(&one);
        }
        return one;
    }
    one = kept[below(kept_used)];
    if (one.data[3] == data_kind && below(8) != 0) continue_session(&one);
    if (below(8) != 0) change(&one);
    return one;
}

static void remember(const struct datagram* one) {
    if (one->bytes < header_bytes || (one->data[3] != data_kind && below(64) != 0)) return;
    kept[kept_used < kept_count ? kept_used++ : below(kept_count)] = *one;
    if (one->data[3] != data_kind) return;
    const uint8_t lane = one->data[28] % lanes;
    uint64_t said = 0;
    memcpy(&said, one->data + 8, sizeof said);
    const bool is_new = said != token;
    token = said;
    memcpy(&said, one->data + 16, sizeof said);
    if (is_new) {
        sequence = said;
        for (size_t i = 0; i < lanes; ++i)
            in_lane[i] = 0U - 9;
    }
    if (said >= sequence) {
        sequence = said;
        memcpy(&in_lane[lane], one->data + 24, sizeof in_lane[lane]);
    }
}

static struct sockaddr_in address_of(const char* port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int socket_at(const char* port) {
    const struct sockaddr_in address = address_of(port);
    const int made_here = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made_here < 0 || bind(made_here, (const struct sockaddr*)&address, sizeof address) != 0) {
        fprintf(stderr, "rio_packets: UDP port %s: %s\n", port, strerror(errno));
        exit(1);
    }
    return made_here;
}

/* What cannot be sent is lost, as on any network. */
static void send_to(int from, const struct datagram* one, const struct sockaddr_in* to) {
    (void)!sendto(from, one->data, one->bytes, 0, (const struct sockaddr*)to, sizeof *to);
}

static bool receive(int at, struct datagram* one) {
    const ssize_t bytes = recv(at, one->data, sizeof one->data, 0);
    one->bytes = bytes < 0 ? 0 : (size_t)bytes;
    return bytes >= 0;
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char** arguments) {
    if (count != 7) {
        fprintf(stderr, "usage: rio_packets SECONDS SEED FRONT PEER OWN TARGET\n");
        return 2;
    }
    const double until = seconds() + atof(arguments[1]);
    state = strtoull(arguments[2], NULL, 0) * 2 + 1;
    const struct sockaddr_in peer = address_of(arguments[4]);
    const struct sockaddr_in target = address_of(arguments[6]);
    struct pollfd ends[2] = {{socket_at(arguments[3]), POLLIN, 0}, {socket_at(arguments[5]), POLLIN, 0}};
    do {
        struct datagram one;
        if (poll(ends, 2, 5) < 0) continue;
        while (receive(ends[0].fd, &one)) {
            remember(&one);
            ++passed_on;
            if (below(4) == 0) {
                change(&one);
                ++changed;
            }
            send_to(ends[1].fd, &one, &target);
        }
        while (receive(ends[1].fd, &one)) {
            if (below(64) == 0) change(&one);
            send_to(ends[0].fd, &one, &peer);
        }
        for (uint64_t left = below(4) == 0 ? below(longest_burst) : below(4); left > 0; --left) {
            one = by_chance();
            ++made;
            send_to(ends[1].fd, &one, &target);
        }
    } while (seconds() < until);
    printf("%lu of the endpoint passed on, %lu of them changed, and %lu made\n", passed_on, changed, made);
    return passed_on == 0; /* there was no session to go on with */
}
