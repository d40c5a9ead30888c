/* Turns the tcp and ipc endpoints of a program to another transport, to run its tests over that one: a library for
 * LD_PRELOAD, in front of libzmq. The program stays as it is.
 *
 *     INCAST_ZMQ_TURN       shm, rio or verbs: where to
 *     INCAST_ZMQ_TURN_ID    stands for the host in names of shm
 *     INCAST_ZMQ_TURN_HOST  what stands for the host otherwise: rio, a destination id; verbs, an address
 *     INCAST_ZMQ_TURN_LOG   a file to which a line is added for each of these:
 *         turned ENDPOINT INTO    the library was given INTO
 *         left ENDPOINT           one of tcp or ipc that was not turned: of a form that has no counterpart, or a wrong
 * one back TEXT INTO          the program asked for ZMQ_LAST_ENDPOINT or Peer-Address, and was given INTO client
 * ENDPOINT         a TCP socket of the program's own was connected to that endpoint, through a channel
 *
 * So that the program can still tell a wrong answer from the right one, a text is only turned back if the library said
 * exactly what belongs to an endpoint that was turned: TURN://HOST:PORT of one that this program bound, or a name of
 * another hub as the library of channels forms it. Any other text comes as the library gave it.
 *
 * A TCP socket that the program itself, not libzmq, connects to the port of a turned endpoint becomes one end of a
 * socket pair. What it writes goes, byte by byte, through a channel to libzmq's listener, and what comes back from
 * there comes from it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <unistd.h>

#include <incast/channel.h>

typedef int endpoint_function(void* socket, const char* endpoint);
typedef int option_function(void* socket, int option, void* value, size_t* size);
typedef const char* property_function(const void* message, const char* property);
typedef int connect_function(int fd, const struct sockaddr* address, socklen_t size);

enum { last_endpoint = 32, longest = 256, most_pairs = 1024 }; /* 32: ZMQ_LAST_ENDPOINT, in libzmq's ABI */

/* Endpoints that were bound: as the program knows them, and as the library does. The newest is last. */
static struct {
    char original[longest];
    char turned[longest];
} pairs[most_pairs];
static int pair_count = 0;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char* setting(const char* name, const char* otherwise) {
    const char* text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : otherwise;
}

static void note(const char* what, const char* from, const char* into) {
    const char* log = getenv("INCAST_ZMQ_TURN_LOG");
    FILE* file = log == NULL ? NULL : fopen(log, "a");
    if (file == NULL) return;
    fprintf(file, "%s %s %s\n", what, from, into);
    fclose(file);
}

static void* next_of(const char* function) {
    void* next = dlsym(RTLD_NEXT, function);
    if (next == NULL) errno = ENOSYS;
    return next;
}

static void remember(const char* original, const char* turned) {
    pthread_mutex_lock(&lock);
    if (pair_count == most_pairs) pair_count = 0;
    snprintf(pairs[pair_count].original, longest, "%s", original);
    snprintf(pairs[pair_count++].turned, longest, "%s", turned);
    pthread_mutex_unlock(&lock);
}

/* The other half of the newest pair with that text; false: there is none. */
static int other_half(const char* text, int is_turned, char* into) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = pair_count; i-- > 0 && !found;) {
        found = strcmp(is_turned ? pairs[i].turned : pairs[i].original, text) == 0;
        if (found) snprintf(into, longest, "%s", is_turned ? pairs[i].original : pairs[i].turned);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int is_port(const char* text) {
    return *text != '\0' && strspn(text, "0123456789") == strlen(text) && strlen(text) < 6;
}

/* Of tcp://HOST:PORT, `*` for a port that the library is to choose; else null. */
static const char* port_of(const char* endpoint) {
    const char* colon = strrchr(endpoint, ':');
    if (strncmp(endpoint, "tcp://", 6) != 0 || strpbrk(endpoint, "; ") != NULL || colon < endpoint + 7) return NULL;
    const char* port = colon + 1;
    if (strcmp(port, "*") == 0 || strcmp(port, "0") == 0) return "*";
    return is_port(port) ? port : NULL;
}

/* What stands for the host, with the scheme: an address is that, a colon and a number. */
static void write_host(char* into) {
    const char* to = setting("INCAST_ZMQ_TURN", "shm");
    const int is_shm = strcmp(to, "shm") == 0;
    const char* name = is_shm ? "INCAST_ZMQ_TURN_ID" : "INCAST_ZMQ_TURN_HOST";
    snprintf(into, longest / 2, "%s://%s", to, setting(name, is_shm ? "turned" : "*"));
}

/* Writes the endpoint that stands for that one. 0: there is none. */
static int turn(const char* endpoint, int is_bind, char* into) {
    if (getenv("INCAST_ZMQ_TURN") == NULL || endpoint == NULL) return 0;
    const int is_path = strncmp(endpoint, "ipc://", 6) == 0;
    if (!is_path && strncmp(endpoint, "tcp://", 6) != 0) return 0;
    char host[longest / 2];
    write_host(host);
    const char* port = is_path ? "*" : port_of(endpoint);
    int is_turned = 0;
    if (is_path && strcmp(endpoint, "ipc://*") != 0) {
        is_turned = other_half(endpoint, 0, into);
        /* A path is a name of shm; there is none of numbers for it. ipc://@ and ipc:// are wrong, and stay. */
        if (!is_turned && strncmp(host, "shm:", 4) == 0 && endpoint[6 + (endpoint[6] == '@')] != '\0') {
            snprintf(into, longest, "%s/%s", host, endpoint + 6);
            is_turned = 1;
        }
    } else if (port != NULL && (is_bind || strcmp(port, "*") != 0)) {
        snprintf(into, longest, "%s:%s", host, port);
        is_turned = 1;
    }
    note(is_turned ? "turned" : "left", endpoint, is_turned ? into : "");
    return is_turned;
}

/* The program asked for `endpoint` and the library, which was asked for `turned`, chose the number of `real`: remembers
 * what tcp or ipc would have said. */
static void remember_bound(const char* endpoint, const char* turned, const char* real) {
    char original[longest];
    const size_t host_length = strlen(turned) - 1;
    snprintf(original, longest, "%s", endpoint);
    if (turned[host_length] == '*') {
        if (strncmp(real, turned, host_length) != 0 || !is_port(real + host_length)) return;
        const char* number = real + host_length;
        const size_t head = strncmp(endpoint, "ipc:", 4) == 0 ? 6 : (size_t)(strrchr(endpoint, ':') + 1 - endpoint);
        snprintf(original, longest, "%.*s%s", (int)head, endpoint, number);
    }
    if (strncmp(original, "tcp://*:", 8) == 0) {
        char rest[longest];
        snprintf(rest, longest, "%s", original + 8);
        snprintf(original, longest, "tcp://0.0.0.0:%.16s", rest);
    }
    remember(original, real);
}

static int call(const char* function, int is_bind, void* socket, const char* endpoint) {
    char turned[longest];
    endpoint_function* next = NULL;
    *(void**)&next = next_of(function);
    if (next == NULL) return -1;
    if (!turn(endpoint, is_bind, turned)) return next(socket, endpoint);
    const int result = next(socket, turned);
    option_function* get = NULL;
    *(void**)&get = next_of("zmq_getsockopt");
    char real[longest];
    size_t size = sizeof real;
    if (is_bind && result == 0 && get != NULL && get(socket, last_endpoint, real, &size) == 0)
        remember_bound(endpoint, turned, real);
    return result;
}

int zmq_bind(void* socket, const char* endpoint) {
    return call("zmq_bind", 1, socket, endpoint);
}
int zmq_connect(void* socket, const char* endpoint) {
    return call("zmq_connect", 0, socket, endpoint);
}
int zmq_unbind(void* socket, const char* endpoint) {
    return call("zmq_unbind", 0, socket, endpoint);
}
int zmq_disconnect(void* socket, const char* endpoint) {
    return call("zmq_disconnect", 0, socket, endpoint);
}
/* Of libzmq's draft functions: an int that is not negative says that it worked, or 0 that it did not. */
uint32_t zmq_connect_peer(void* socket, const char* endpoint) {
    return (uint32_t)call("zmq_connect_peer", 0, socket, endpoint);
}

int zmq_getsockopt(void* socket, int option, void* value, size_t* size) {
    option_function* next = NULL;
    *(void**)&next = next_of("zmq_getsockopt");
    if (next == NULL) return -1;
    if (option != last_endpoint || value == NULL || size == NULL) return next(socket, option, value, size);
    char text[longest];
    char original[longest];
    size_t text_size = sizeof text;
    if (next(socket, option, text, &text_size) != 0 || !other_half(text, 1, original))
        return next(socket, option, value, size);
    if (*size < strlen(original) + 1) {
        errno = EINVAL;
        return -1;
    }
    note("back", text, original);
    *size = strlen(original) + 1;
    memcpy(value, original, *size);
    return 0;
}

/* `shm hub 0123abcd`: how the library of channels names another hub. */
static int is_hub(const char* text) {
    const char* to = setting("INCAST_ZMQ_TURN", "");
    const size_t length = strlen(to);
    if (length == 0 || strncmp(text, to, length) != 0 || strncmp(text + length, " hub ", 5) != 0) return 0;
    return strlen(text + length + 5) == 8 && strspn(text + length + 5, "0123456789abcdef") == 8;
}

const char* zmq_msg_gets(const void* message, const char* property) {
    property_function* next = NULL;
    *(void**)&next = next_of("zmq_msg_gets");
    if (next == NULL) return NULL;
    const char* text = next(message, property);
    if (text == NULL || strcmp(property, "Peer-Address") != 0 || !is_hub(text)) return text;
    note("back", text, "127.0.0.1");
    return "127.0.0.1";
}

/* --- TCP sockets of the program's own */

struct client {
    int fd;
    char endpoint[longest];
};

/* All of it, or false. */
static int send_all(int fd, const char* data, size_t bytes) {
    while (bytes > 0) {
        const ssize_t count = send(fd, data, bytes, MSG_NOSIGNAL);
        if (count <= 0) return 0;
        data += count;
        bytes -= (size_t)count;
    }
    return 1;
}

static void carry(int fd, incast_channel* channel) {
    static __thread char data[65536];
    struct pollfd ends[] = {{fd, POLLIN, 0}, {incast_channel_data_fd(channel), POLLIN, 0}};
    while (poll(ends, 2, -1) > 0) {
        if ((ends[1].revents & POLLIN) != 0) {
            const int64_t count = incast_channel_read(channel, data, sizeof data, 0);
            if (count == 0 || (count < 0 && count != -EAGAIN)) return;
            if (count > 0 && !send_all(fd, data, (size_t)count)) return;
        }
        if ((ends[0].revents & (POLLIN | POLLHUP)) != 0) {
            const ssize_t count = recv(fd, data, sizeof data, 0);
            if (count <= 0 || incast_channel_write(channel, data, (size_t)count, -1) != count) return;
            incast_channel_flush(channel);
        }
    }
}

static void* run_client(void* argument) {
    struct client* client = argument;
    incast_channel_hub* hub = NULL;
    incast_channel* channel = NULL;
    if (incast_channel_hub_make(client->endpoint, NULL, &hub) == 0 &&
        incast_channel_connect(hub, client->endpoint, NULL, &channel) == 0 &&
        incast_channel_wait_open(channel, -1) == 1) {
        note("client", client->endpoint, "");
        carry(client->fd, channel);
    }
    incast_channel_close(channel);
    if (hub != NULL) incast_channel_hub_drain(hub, 1000);
    incast_channel_hub_free(hub);
    close(client->fd);
    free(client);
    return NULL;
}

/* Is that the port of a turned endpoint of tcp that the program bound? Then it is written to `into`. */
static int endpoint_at(const struct sockaddr* address, socklen_t size, char* into) {
    if (size < sizeof(struct sockaddr_in) || address->sa_family != AF_INET) return 0;
    struct sockaddr_in where;
    memcpy(&where, address, sizeof where);
    if (where.sin_addr.s_addr != htonl(INADDR_LOOPBACK)) return 0;
    char original[longest];
    snprintf(original, longest, "tcp://127.0.0.1:%d", ntohs(where.sin_port));
    return other_half(original, 0, into);
}

/* Does the code at that address belong to the program, and to no library? */
static int is_of_program(void* code) {
    Dl_info caller;
    Dl_info program;
    return dladdr(code, &caller) != 0 && dladdr((void*)getauxval(AT_PHDR), &program) != 0 &&
           caller.dli_fbase == program.dli_fbase;
}

int connect(int fd, const struct sockaddr* address, socklen_t size) {
    connect_function* next = NULL;
    *(void**)&next = next_of("connect");
    if (next == NULL) return -1;
    struct client* client = calloc(1, sizeof *client);
    if (client == NULL || !is_of_program(__builtin_return_address(0)) ||
        !endpoint_at(address, size, client->endpoint)) {
        free(client);
        return next(fd, address, size);
    }
    int ends[2];
    pthread_t thread;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        free(client);
        return -1;
    }
    client->fd = ends[1];
    dup2(ends[0], fd);
    close(ends[0]);
    if (pthread_create(&thread, NULL, run_client, client) == 0) pthread_detach(thread);
    return 0;
}
