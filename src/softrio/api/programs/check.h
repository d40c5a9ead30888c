/* What the programs of this folder share. They are compiled from the headers of the API and libc alone, as a user's. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <rapidio_mport_dma.h>
#include <rapidio_mport_mgmt.h>
#include <rapidio_mport_sock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The first that does not hold ends the program. */
#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

static inline riomp_mport_t open_port(uint32_t number, did_val_t* destid) {
    riomp_mport_t port = NULL;
    struct riomp_mgmt_mport_properties properties;
    CHECK(riomp_mgmt_mport_create_handle(number, 0, &port) == 0);
    CHECK(riomp_mgmt_query(port, &properties) == 0);
    if (destid != NULL) *destid = properties.did_val;
    return port;
}

static inline riomp_mailbox_t open_mailbox(uint8_t number) {
    riomp_mailbox_t mailbox = NULL;
    CHECK(riomp_sock_mbox_create_handle(number, 0, &mailbox) == 0);
    return mailbox;
}

static inline riomp_sock_t make_socket(riomp_mailbox_t mailbox) {
    riomp_sock_t made = NULL;
    CHECK(riomp_sock_socket(mailbox, &made) == 0);
    return made;
}

static inline riomp_sock_t listen_at(riomp_mailbox_t mailbox, uint16_t channel) {
    riomp_sock_t made = make_socket(mailbox);
    CHECK(riomp_sock_bind(made, channel) == 0);
    CHECK(riomp_sock_listen(made) == 0);
    return made;
}

static inline int is_udp(void) {
    return strncmp(getenv("RIO_FABRIC"), "udp:", 4) == 0;
}

static inline long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static inline void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* The exit status of a child: 0 if all that it checked held. */
static inline int end_of(pid_t process) {
    int status = -1;
    CHECK(waitpid(process, &status, 0) == process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
