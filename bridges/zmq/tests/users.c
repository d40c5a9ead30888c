/* What users of ZeroMQ do, with what arrives compared: nothing in it knows of Incast. Each is one line of output, and
 * exit status 1 if something is lost, twice, out of order or changed. ADDRESS is one to bind.
 *
 *     users sizes ADDRESS COUNT        PUSH to PULL in two processes: COUNT messages of 0 to 2000 random bytes
 *     users fan ADDRESS COUNT          PUB to 100 SUB in 10 processes: COUNT messages to each of them
 *     users route ADDRESS COUNT        ROUTER with 64 DEALER in 32 processes: each asks COUNT times
 *     users proxy ADDRESS COUNT        4 REQ, zmq_proxy, 4 REP, in three processes: each asks COUNT times
 *     users curve ADDRESS COUNT        REQ to REP with CURVE; and one with a wrong key, which is not let in
 *     users garbage ADDRESS COUNT      COUNT connections that speak no ZMTP, or stop in the midst of it; then one that
 * asks
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

enum { patience_ms = 60000, most = 2000 };

static void die(const char* what) {
    fprintf(stderr, "users: %s: %s\n", what, zmq_strerror(zmq_errno()));
    exit(1);
}

static void check(int is_good, const char* what) {
    if (!is_good) die(what);
}

/* xorshift64: the same numbers on both sides. */
static uint64_t next_number(uint64_t* state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t fill(uint64_t* state, unsigned char* into) {
    const size_t bytes = next_number(state) % (most + 1);
    for (size_t at = 0; at < bytes; at += 8) {
        const uint64_t number = next_number(state);
        memcpy(into + at, &number, 8);
    }
    return bytes;
}

static void* make(void* context, int type) {
    void* socket = zmq_socket(context, type);
    check(socket != NULL, "zmq_socket");
    const int time_out = patience_ms, no_limit = 0;
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &time_out, sizeof time_out);
    zmq_setsockopt(socket, ZMQ_SNDTIMEO, &time_out, sizeof time_out);
    if (type == ZMQ_PUB || type == ZMQ_SUB) {
        zmq_setsockopt(socket, ZMQ_SNDHWM, &no_limit, sizeof no_limit);
        zmq_setsockopt(socket, ZMQ_RCVHWM, &no_limit, sizeof no_limit);
    }
    return socket;
}

/* Binds, and tells the children where. */
static void bind_and_tell(void* socket, const char* address, int pipe_end, int children) {
    char bound[256] = "";
    size_t size = sizeof bound;
    check(zmq_bind(socket, address) == 0, address);
    zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size);
    for (int each = 0; each < children; ++each)
        check(write(pipe_end, bound, sizeof bound) == (ssize_t)sizeof bound, "pipe");
}

static void connect_to(void* socket, const char* address) {
    check(zmq_connect(socket, address) == 0, address);
}

typedef void child_function(void* context, const char* address, long count, int number);

/* Starts processes before this one has a context; each gets the address that is told. On RapidIO each has
 * any free id. */
static int start(int children, child_function* run, long count) {
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    for (int number = 0; number < children; ++number) {
        const pid_t child = fork();
        check(child >= 0, "fork");
        if (child > 0) continue;
        char address[256];
        close(ends[1]);
        if (read(ends[0], address, sizeof address) != (ssize_t)sizeof address) _exit(1);
        void* context = zmq_ctx_new();
        run(context, address, count, number);
        zmq_ctx_term(context);
        _exit(0);
    }
    close(ends[0]);
    return ends[1];
}

static int all_are_well(int children) {
    int well = 1;
    for (int each = 0; each < children; ++each) {
        int status = 0;
        if (wait(&status) < 0 || status != 0) well = 0;
    }
    return well;
}

/* --- sizes */

static void push_sizes(void* context, const char* address, long count, int number) {
    static unsigned char data[most + 8];
    uint64_t state = 88172645463325252ULL + (uint64_t)number;
    void* socket = make(context, ZMQ_PUSH);
    connect_to(socket, address);
    for (long each = 0; each < count; ++each)
        check(zmq_send(socket, data, fill(&state, data), 0) >= 0, "send");
    zmq_close(socket);
}

static int sizes(void* context, const char* address, long count, int told) {
    static unsigned char data[most + 8], got[most + 8];
    uint64_t state = 88172645463325252ULL, bytes = 0;
    void* socket = make(context, ZMQ_PULL);
    bind_and_tell(socket, address, told, 1);
    for (long each = 0; each < count; ++each) {
        const size_t length = fill(&state, data);
        const int came = zmq_recv(socket, got, sizeof got, 0);
        check(came >= 0, "receive");
        if ((size_t)came != length || memcmp(got, data, length) != 0) {
            fprintf(stderr, "users: message %ld of %zu bytes came as one of %d, or changed\n", each, length, came);
            return 1;
        }
        bytes += length;
    }
    printf("%ld messages, %llu bytes, all equal\n", count, (unsigned long long)bytes);
    zmq_close(socket);
    return 0;
}

/* --- fan: 10 subscribers in each process. Each says first that it hears, on a second connection. */

enum { subscribers = 10 };

static void subscribe(void* context, const char* address, long count, int number) {
    void* sockets[subscribers];
    (void)number;
    for (int each = 0; each < subscribers; ++each) {
        sockets[each] = make(context, ZMQ_SUB);
        zmq_setsockopt(sockets[each], ZMQ_SUBSCRIBE, "", 0);
        connect_to(sockets[each], address);
    }
    for (int each = 0; each < subscribers; ++each) {
        for (long expected = 0; expected < count; ++expected) {
            long came = -1;
            check(zmq_recv(sockets[each], &came, sizeof came, 0) == (int)sizeof came, "receive");
            if (came != expected) {
                fprintf(stderr, "users: message %ld came as number %ld\n", came, expected);
                _exit(1);
            }
        }
        zmq_close(sockets[each]);
    }
}

static int fan(void* context, const char* address, long count, int told) {
    const int processes = 10;
    char subscription[8];
    void* socket = make(context, ZMQ_XPUB);
    const int verbose = 1, no_limit = 0;
    zmq_setsockopt(socket, ZMQ_XPUB_VERBOSE, &verbose, sizeof verbose);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &no_limit, sizeof no_limit);
    bind_and_tell(socket, address, told, processes);
    for (int each = 0; each < processes * subscribers; ++each)
        check(zmq_recv(socket, subscription, sizeof subscription, 0) == 1, "subscription");
    for (long each = 0; each < count; ++each)
        check(zmq_send(socket, &each, sizeof each, 0) == (int)sizeof each, "send");
    const int well = all_are_well(processes);
    if (well) printf("%d subscribers, %ld messages each, all in order\n", processes * subscribers, count);
    zmq_close(socket);
    return well ? 0 : 1;
}

/* --- route and proxy */

static void ask(void* const* sockets, int type, int of, long count, int number) {
    for (long each = 0; each < count; ++each) {
        for (int which = 0; which < of; ++which) {
            const long question[2] = {number * of + which, each};
            check(zmq_send(sockets[which], question, sizeof question, 0) >= 0, "send");
        }
        for (int which = 0; which < of; ++which) {
            long answer[2] = {-1, -1};
            check(zmq_recv(sockets[which], answer, sizeof answer, 0) == (int)sizeof answer, "receive");
            if (answer[0] != number * of + which || answer[1] != each) {
                fprintf(stderr, "users: type %d: an answer to another question\n", type);
                _exit(1);
            }
        }
    }
}

static void ask_many(void* context, const char* address, int type, int of, long count, int number) {
    void* sockets[4];
    for (int each = 0; each < of; ++each) {
        sockets[each] = make(context, type);
        connect_to(sockets[each], address);
    }
    ask(sockets, type, of, count, number);
    for (int each = 0; each < of; ++each)
        zmq_close(sockets[each]);
}

static void deal(void* context, const char* address, long count, int number) {
    ask_many(context, address, ZMQ_DEALER, 2, count, number);
}

static int route(void* context, const char* address, long count, int told) {
    const int processes = 32;
    void* socket = make(context, ZMQ_ROUTER);
    bind_and_tell(socket, address, told, processes);
    for (long each = 0; each < count * processes * 2; ++each) {
        char id[256], question[64];
        const int id_length = zmq_recv(socket, id, sizeof id, 0);
        const int length = zmq_recv(socket, question, sizeof question, 0);
        check(id_length > 0 && length > 0, "receive");
        check(zmq_send(socket, id, (size_t)id_length, ZMQ_SNDMORE) >= 0, "send");
        check(zmq_send(socket, question, (size_t)length, 0) >= 0, "send");
    }
    const int well = all_are_well(processes);
    if (well) printf("%d peers in %d processes, %ld answers each\n", processes * 2, processes, count);
    zmq_close(socket);
    return well ? 0 : 1;
}

static void request(void* context, const char* address, long count, int number) {
    ask_many(context, address, ZMQ_REQ, 4, count, number);
}

static void serve(void* context, const char* address, long count, int number) {
    void* sockets[4];
    zmq_pollitem_t items[4];
    (void)number;
    for (int each = 0; each < 4; ++each) {
        sockets[each] = make(context, ZMQ_REP);
        connect_to(sockets[each], address);
        items[each] = (zmq_pollitem_t){sockets[each], 0, ZMQ_POLLIN, 0};
    }
    for (long done = 0; done < 4 * count;) {
        check(zmq_poll(items, 4, patience_ms) > 0, "poll");
        for (int each = 0; each < 4; ++each) {
            char question[64];
            if ((items[each].revents & ZMQ_POLLIN) == 0) continue;
            const int length = zmq_recv(sockets[each], question, sizeof question, 0);
            check(length > 0 && zmq_send(sockets[each], question, (size_t)length, 0) == length, "answer");
            ++done;
        }
    }
    for (int each = 0; each < 4; ++each)
        zmq_close(sockets[each]);
}

static void* pass(void* sockets) {
    void** both = sockets;
    zmq_proxy(both[0], both[1], NULL); /* until the context ends */
    zmq_close(both[0]);
    zmq_close(both[1]);
    return NULL;
}

static int proxy(void* context, const char* address, long count, const int* told) {
    void* sockets[2] = {make(context, ZMQ_ROUTER), make(context, ZMQ_DEALER)};
    for (int each = 0; each < 2; ++each)
        bind_and_tell(sockets[each], address, told[each], 1);
    pthread_t thread;
    check(pthread_create(&thread, NULL, pass, sockets) == 0, "thread");
    const int well = all_are_well(2);
    zmq_ctx_shutdown(context);
    pthread_join(thread, NULL);
    if (well) printf("4 that ask, a proxy, 4 that answer, %ld answers each\n", count);
    return well ? 0 : 1;
}

/* --- curve and garbage: a server that answers until an empty question comes */

static char server_key[41], server_secret[41];

static int answer(void* socket, const char* address, int told, const char* what) {
    bind_and_tell(socket, address, told, 1);
    for (;;) {
        char question[most];
        const int length = zmq_recv(socket, question, sizeof question, 0);
        check(length >= 0 && zmq_send(socket, question, (size_t)length, 0) == length, "answer");
        if (length == 0) break;
    }
    const int well = all_are_well(1);
    if (well) printf("%s\n", what);
    zmq_close(socket);
    return well ? 0 : 1;
}

static void ask_and_end(void* context, const char* address, long count, const char* key) {
    void* socket = make(context, ZMQ_REQ);
    char own_key[41], own_secret[41], into[8];
    if (key != NULL) {
        check(zmq_curve_keypair(own_key, own_secret) == 0, "CURVE");
        zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, key, 40);
        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, own_key, 40);
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, own_secret, 40);
    }
    connect_to(socket, address);
    ask(&socket, ZMQ_REQ, 1, count, 0);
    check(zmq_send(socket, "", 0, 0) == 0 && zmq_recv(socket, into, sizeof into, 0) == 0, "the end");
    zmq_close(socket);
}

static void ask_in_secret(void* context, const char* address, long count, int number) {
    char wrong_key[41], no_secret[41], into[8];
    const int moment_ms = 300, none = 0;
    void* socket = make(context, ZMQ_REQ);
    (void)number;
    check(zmq_curve_keypair(wrong_key, no_secret) == 0, "CURVE");
    zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, wrong_key, 40);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, wrong_key, 40);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, no_secret, 40);
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_SNDTIMEO, &moment_ms, sizeof moment_ms);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &moment_ms, sizeof moment_ms);
    connect_to(socket, address);
    if (zmq_send(socket, "let me in", 9, 0) >= 0 && zmq_recv(socket, into, sizeof into, 0) >= 0) {
        fprintf(stderr, "users: the wrong key was let in\n");
        _exit(1);
    }
    zmq_close(socket);
    ask_and_end(context, address, count, server_key);
}

static int curve(void* context, const char* address, long count, int told) {
    void* socket = make(context, ZMQ_REP);
    const int yes = 1;
    (void)count;
    zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, server_secret, 40);
    return answer(socket, address, told, "the right key is answered, the wrong one is not");
}

/* The beginning of ZMTP 3.1 with NULL, more or less of it, and then random bytes. */
static void speak_garbage(void* context, const char* address, long count, int number) {
    uint64_t state = 1 + (uint64_t)number;
    for (long each = 0; each < count; ++each) {
        unsigned char id[256], data[64 + most + 8] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1, 'N', 'U', 'L', 'L'};
        const int none = 0;
        void* socket = make(context, ZMQ_STREAM);
        zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
        connect_to(socket, address);
        const int length = zmq_recv(socket, id, sizeof id, 0);
        check(length > 0 && zmq_recv(socket, data + 64, most, 0) == 0, "connection");
        const size_t good = next_number(&state) % 65;
        const size_t bytes = good + fill(&state, data + good);
        check(zmq_send(socket, id, (size_t)length, ZMQ_SNDMORE) >= 0, "send");
        check(zmq_send(socket, data, bytes > 0 ? bytes : 1, 0) >= 0, "send");
        if (each % 2 == 0) zmq_recv(socket, id, sizeof id, 0); /* what the other side says to it, or that it hung up */
        zmq_close(socket);
    }
    ask_and_end(context, address, 10, NULL);
}

static int garbage(void* context, const char* address, long count, int told) {
    void* socket = make(context, ZMQ_REP);
    (void)count;
    return answer(socket, address, told, "who speaks no ZMTP harms nobody");
}

int main(int argc, char** argv) {
    static const struct {
        const char* name;
        int children;
        child_function* child;
        int (*run)(void*, const char*, long, int);
    } all[] = {{"sizes", 1, push_sizes, sizes},    {"fan", 10, subscribe, fan},
               {"route", 32, deal, route},         {"proxy", 1, request, NULL},
               {"curve", 1, ask_in_secret, curve}, {"garbage", 1, speak_garbage, garbage}};
    const long count = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    for (size_t each = 0; count > 0 && each < sizeof all / sizeof *all; ++each) {
        if (strcmp(argv[1], all[each].name) != 0) continue;
        if (all[each].child == ask_in_secret) check(zmq_curve_keypair(server_key, server_secret) == 0, "CURVE");
        int told[2] = {start(all[each].children, all[each].child, count), -1};
        if (all[each].run == NULL) told[1] = start(1, serve, count);
        setenv("RIO_DESTID", "1", 1);
        void* context = zmq_ctx_new();
        const int status = all[each].run == NULL ? proxy(context, argv[2], count, told)
                                                 : all[each].run(context, argv[2], count, told[0]);
        zmq_ctx_term(context);
        return status;
    }
    fprintf(stderr, "usage: users sizes|fan|route|proxy|curve|garbage ADDRESS COUNT\n");
    return 2;
}
