/* Turns the tcp and ipc endpoints of a program to another transport, to run its tests over that one: a library for
 * LD_PRELOAD, in front of libzmq. The program stays as it is.
 *
 *     INCAST_ZMQ_TURN       shm, rio or verbs: where to
 *     INCAST_ZMQ_TURN_ID    fixed ports and paths become names of shm that begin with this
 *     INCAST_ZMQ_TURN_HOST  what stands for the host: rio, a destination id; verbs, an address
 *     INCAST_ZMQ_TURN_LOG   a file to which a line is added for each endpoint that was turned
 *
 * An endpoint that is not of the form tcp://HOST:PORT or ipc://PATH is left alone: tests hand in wrong ones, too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int endpoint_function(void* socket, const char* endpoint);

static const char* setting(const char* name, const char* otherwise) {
    const char* text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : otherwise;
}

/* Of tcp://HOST:PORT, `*` for a port that the library is to choose; else null. */
static const char* port_of(const char* endpoint) {
    const char* colon = strrchr(endpoint, ':');
    if (strncmp(endpoint, "tcp://", 6) != 0 || strpbrk(endpoint, "; ") != NULL || colon < endpoint + 7) return NULL;
    const char* port = colon + 1;
    if (strcmp(port, "*") == 0 || strcmp(port, "0") == 0) return "*";
    return *port != '\0' && strspn(port, "0123456789") == strlen(port) && strlen(port) < 6 ? port : NULL;
}

/* Writes the endpoint that stands for that one. 0: there is none. */
static int turn(const char* endpoint, int is_bind, char* into, size_t size) {
    const char* to = getenv("INCAST_ZMQ_TURN");
    if (to == NULL || endpoint == NULL) return 0;
    const int is_ipc = strncmp(endpoint, "ipc://", 6) == 0 && endpoint[6] != '\0';
    const char* name = is_ipc ? endpoint + 6 : port_of(endpoint);
    if (name == NULL || (!is_bind && strcmp(name, "*") == 0)) return 0;
    if (strcmp(to, "shm") == 0) {
        if (strcmp(name, "*") == 0)
            snprintf(into, size, "shm://*");
        else
            snprintf(into, size, "shm://%s-%s", setting("INCAST_ZMQ_TURN_ID", "turned"), name);
    } else {
        if (is_ipc && strcmp(name, "*") != 0) return 0; /* a path has no number */
        snprintf(into, size, "%s://%s:%s", to, setting("INCAST_ZMQ_TURN_HOST", "*"), name);
    }
    const char* log = getenv("INCAST_ZMQ_TURN_LOG");
    FILE* file = log == NULL ? NULL : fopen(log, "a");
    if (file != NULL) {
        fprintf(file, "%s %s\n", endpoint, into);
        fclose(file);
    }
    return 1;
}

static int call(const char* function, int is_bind, void* socket, const char* endpoint) {
    char turned[256];
    endpoint_function* next = NULL;
    *(void**)&next = dlsym(RTLD_NEXT, function);
    if (next == NULL) {
        errno = ENOSYS;
        return -1;
    }
    return next(socket, turn(endpoint, is_bind, turned, sizeof turned) ? turned : endpoint);
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
