/* Asks and answers over any address of ZeroMQ: nothing in it knows of Incast (docs/zeromq.md).
 *
 *     hello serve ADDRESS          binds, says the address it got, and answers
 *     hello ask ADDRESS [TIMES]    asks so often, compares each answer, and tells the server to end */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

static int fail(const char* what) {
    fprintf(stderr, "hello: %s: %s\n", what, zmq_strerror(zmq_errno()));
    return 1;
}

static int serve(void* socket, const char* address) {
    char bound[256];
    size_t size = sizeof bound;
    if (zmq_bind(socket, address) != 0) return fail(address);
    zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size);
    printf("%s\n", bound);
    fflush(stdout);
    for (;;) {
        zmq_msg_t message;
        zmq_msg_init(&message);
        const int length = zmq_msg_recv(&message, socket, 0);
        if (length < 0) return fail("receive");
        if (zmq_msg_send(&message, socket, 0) < 0) return fail("send");
        if (length == 0) return 0;
    }
}

static int ask(void* socket, const char* address, long times) {
    static char out[1 << 20], in[1 << 20];
    if (zmq_connect(socket, address) != 0) return fail(address);
    for (long i = 0; i < times; ++i) {
        const size_t length = 1 + (size_t)(i * 7919) % sizeof out;
        memset(out, (int)(i & 0xff), length);
        if (zmq_send(socket, out, length, 0) < 0) return fail("send");
        const int got = zmq_recv(socket, in, sizeof in, 0);
        if (got < 0) return fail("receive");
        if ((size_t)got != length || memcmp(in, out, length) != 0) {
            fprintf(stderr, "hello: answer %ld is not what was asked\n", i);
            return 1;
        }
    }
    if (zmq_send(socket, "", 0, 0) < 0 || zmq_recv(socket, in, sizeof in, 0) < 0) return fail("the end");
    printf("%ld answers, all equal\n", times);
    return 0;
}

int main(int argc, char** argv) {
    const int is_server = argc == 3 && strcmp(argv[1], "serve") == 0;
    if (!is_server && ((argc != 3 && argc != 4) || strcmp(argv[1], "ask") != 0)) {
        fprintf(stderr, "usage: hello serve ADDRESS | hello ask ADDRESS [TIMES]\n");
        return 2;
    }
    void* context = zmq_ctx_new();
    void* socket = zmq_socket(context, is_server ? ZMQ_REP : ZMQ_REQ);
    const int timeout_ms = 20000;
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    const int status = is_server ? serve(socket, argv[2]) : ask(socket, argv[2], argc == 4 ? atol(argv[3]) : 1000);
    zmq_close(socket);
    zmq_ctx_term(context);
    return status;
}
