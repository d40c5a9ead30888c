/* Sends so many messages that the last of them find no room, closes the socket, and receives: none may be missing.
 *
 *     zmq_last_batch ADDRESS      two contexts in one process; ADDRESS may be bound and connected to anew each time
 *
 * libzmq ends a session when its last message is encoded, though what is encoded may not have left yet. */
#include <stdio.h>
#include <string.h>
#include <zmq.h>

int main(int argc, char** argv) {
    enum { size = 1000, fewest = 10, most = 60 };
    char bytes[size];
    int missing = 0;
    if (argc != 2) return 2;
    for (int count = fewest; count <= most; ++count) {
        char address[256];
        size_t length = sizeof address;
        const int one = 1, timeout_ms = 5000, linger_ms = 20000;
        void* receiving = zmq_ctx_new();
        void* sending = zmq_ctx_new();
        void* pull = zmq_socket(receiving, ZMQ_PULL);
        void* push = zmq_socket(sending, ZMQ_PUSH);
        zmq_setsockopt(pull, ZMQ_RCVHWM, &one, sizeof one);
        zmq_setsockopt(pull, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
        zmq_setsockopt(push, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
        if (zmq_bind(pull, argv[1]) != 0 || zmq_getsockopt(pull, ZMQ_LAST_ENDPOINT, address, &length) != 0 ||
            zmq_connect(push, address) != 0) {
            fprintf(stderr, "%s: %s\n", argv[1], zmq_strerror(zmq_errno()));
            return 1;
        }
        for (int i = 0; i < count; ++i) {
            memset(bytes, i, sizeof bytes);
            if (zmq_send(push, bytes, sizeof bytes, 0) != size) return 1;
        }
        zmq_close(push);
        zmq_poll(NULL, 0, 20); /* the ring fills meanwhile; without that the test is weaker, but not wrong */
        for (int i = 0; i < count; ++i) {
            if (zmq_recv(pull, bytes, sizeof bytes, 0) == size && bytes[0] == (char)i) continue;
            printf("of %d messages number %d is missing\n", count, i);
            ++missing;
            break;
        }
        zmq_close(pull);
        zmq_ctx_term(sending);
        zmq_ctx_term(receiving);
    }
    return missing == 0 ? 0 : 1;
}
