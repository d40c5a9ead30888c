/* Measures round trips, or a stream of messages one way, over any address of ZeroMQ: nothing in it knows of Incast.
 *
 *     zmq_measure serve KIND ADDRESS SIZE                              binds, says where, answers or receives
 *     zmq_measure ask   KIND ADDRESS SIZE SECONDS [WARM_UP [PAUSE_US]] connects, asks or sends for so long
 *
 * KIND is `latency` (REQ and REP, one message under way, as libzmq's own local_lat and remote_lat) or `stream` (PUSH
 * and PULL, as local_thr and remote_thr). SIZE: bytes, 1 or more. WARM_UP: seconds before SECONDS. PAUSE_US: between
 * two messages of a stream, so that each goes alone. `ask` says `measuring` when the warm-up is over. Each side ends
 * with a line of JSON: what it counted after the warm-up, in which time, and its CPU time meanwhile, of all its
 * threads. Of a stream the receiver's count is the rate. Messages are not filled: their first byte says their phase. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

enum { warm_up_phase = 1, counted_phase = 2, end_phase = 3 };

/* High-water marks of a stream: so many bytes may wait on each side, and 1000 messages at most, libzmq's default. */
static const size_t waiting_bytes = (size_t)64 << 20;
static const size_t longest_record = (size_t)1 << 22; /* round trips that are kept for percentiles */

static int fail(const char* what) {
    fprintf(stderr, "zmq_measure: %s: %s\n", what, zmq_strerror(zmq_errno()));
    return 1;
}

static double seconds_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double now_s(void) {
    return seconds_of(CLOCK_MONOTONIC);
}

static double cpu_s(void) {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

/* What was counted, from the first message after the warm-up on. */
typedef struct {
    uint64_t all; /* the warm-up and the end, too */
    uint64_t counted;
    double begin_s, end_s, begin_cpu_s, end_cpu_s;
} Window;

static void begin(Window* window) {
    window->begin_s = now_s();
    window->begin_cpu_s = cpu_s();
}

static void end(Window* window) {
    window->end_s = now_s();
    window->end_cpu_s = cpu_s();
}

static void say(const Window* window, const char* more) {
    printf("{\"messages\": %llu, \"all_messages\": %llu, \"seconds\": %.9f, \"cpu_s\": %.9f%s}\n",
           (unsigned long long)window->counted, (unsigned long long)window->all, window->end_s - window->begin_s,
           window->end_cpu_s - window->begin_cpu_s, more);
}

/* --- the side that binds */

static int serve(void* socket, int is_latency, const char* address, size_t size) {
    char bound[256];
    size_t length = sizeof bound;
    Window window = {0};
    if (zmq_bind(socket, address) != 0) return fail(address);
    zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &length);
    printf("%s\n", bound);
    fflush(stdout);
    for (;;) {
        zmq_msg_t message;
        zmq_msg_init(&message);
        if (zmq_msg_recv(&message, socket, 0) < 0) return fail("receive");
        if (zmq_msg_size(&message) != size) {
            fprintf(stderr, "zmq_measure: a message of %zu bytes came, not of %zu\n", zmq_msg_size(&message), size);
            return 1;
        }
        const char phase = *(const char*)zmq_msg_data(&message);
        ++window.all;
        if (phase == end_phase) end(&window);
        if (phase == counted_phase && window.begin_s == 0) {
            begin(&window); /* a stream is counted from the first message's arrival on */
            window.counted = is_latency ? 1 : 0;
        } else if (phase == counted_phase) {
            ++window.counted;
        }
        if (!is_latency)
            zmq_msg_close(&message);
        else if (zmq_msg_send(&message, socket, 0) < 0)
            return fail("send");
        if (phase == end_phase) break;
    }
    say(&window, "");
    return 0;
}

/* --- the side that connects */

static int ask_once(void* socket, zmq_msg_t* message, char phase) {
    *(char*)zmq_msg_data(message) = phase;
    return zmq_msg_send(message, socket, 0) < 0 || zmq_msg_recv(message, socket, 0) < 0 ? fail("round trip") : 0;
}

static int by_size(const void* left, const void* right) {
    const double a = *(const double*)left, b = *(const double*)right;
    return (a > b) - (a < b);
}

static int ask(void* socket, size_t size, double measured_s, double warm_up_s) {
    double* times = malloc(longest_record * sizeof *times);
    Window window = {0};
    zmq_msg_t message;
    if (times == NULL || zmq_msg_init_size(&message, size) != 0) return fail("memory");
    const double start_s = now_s();
    double sum_s = 0;
    do {
        if (ask_once(socket, &message, warm_up_phase) != 0) return 1;
        ++window.all;
    } while (now_s() - start_s < warm_up_s);
    printf("measuring\n");
    fflush(stdout);
    begin(&window);
    double last_s = window.begin_s;
    do {
        if (ask_once(socket, &message, counted_phase) != 0) return 1;
        const double at_s = now_s();
        if (window.counted < longest_record) times[window.counted] = at_s - last_s;
        sum_s += at_s - last_s;
        last_s = at_s;
        ++window.counted;
    } while (last_s - window.begin_s < measured_s);
    end(&window);
    window.all += window.counted + 1;
    if (ask_once(socket, &message, end_phase) != 0) return 1;
    zmq_msg_close(&message);
    const size_t kept = window.counted < longest_record ? window.counted : longest_record;
    qsort(times, kept, sizeof *times, by_size);
    char more[256];
    snprintf(more, sizeof more,
             ", \"round_trip_ns\": {\"min\": %.0f, \"p50\": %.0f, \"p90\": %.0f, \"p99\": %.0f, \"max\": %.0f, "
             "\"mean\": %.0f}",
             1e9 * times[0], 1e9 * times[kept / 2], 1e9 * times[kept * 9 / 10], 1e9 * times[kept * 99 / 100],
             1e9 * times[kept - 1], 1e9 * sum_s / (double)window.counted);
    say(&window, more);
    free(times);
    return 0;
}

static int send_one(void* socket, size_t size, char phase, Window* window) {
    zmq_msg_t message;
    if (zmq_msg_init_size(&message, size) != 0) return fail("memory");
    *(char*)zmq_msg_data(&message) = phase;
    if (zmq_msg_send(&message, socket, 0) < 0) return fail("send");
    ++window->all;
    return 0;
}

/* Sends messages of that phase for so long, and two at least: the time between arrivals is what counts. */
static int send_for(void* socket, size_t size, double length_s, long pause_us, char phase, Window* window) {
    const struct timespec pause = {pause_us / 1000000, pause_us % 1000000 * 1000};
    const double start_s = now_s();
    const uint64_t before = window->all;
    do {
        if (send_one(socket, size, phase, window) != 0) return 1;
        if (pause_us > 0) nanosleep(&pause, NULL);
    } while (window->all < before + 2 || now_s() - start_s < length_s);
    return 0;
}

/* Says when the connection has ended. */
static void* monitor_of(void* context, void* socket) {
    void* monitor = zmq_socket(context, ZMQ_PAIR);
    const int timeout_ms = 20000;
    zmq_setsockopt(monitor, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    if (zmq_socket_monitor(socket, "inproc://ends", ZMQ_EVENT_DISCONNECTED) == 0 &&
        zmq_connect(monitor, "inproc://ends") == 0)
        return monitor;
    zmq_close(monitor);
    return NULL;
}

/* Until the receiver, which has all of it, has gone. Over ipc libzmq 4.3.4 may lose what is under way when a socket is
 * closed, whatever its linger is. */
static int wait_for_end(void* monitor) {
    char event[6];
    return zmq_recv(monitor, event, sizeof event, 0) < 0 ? fail("the receiver's end") : 0;
}

static int stream(void* context, void* socket, size_t size, double measured_s, double warm_up_s, long pause_us) {
    Window window = {0};
    void* monitor = monitor_of(context, socket);
    if (monitor == NULL) return fail("monitor");
    if (send_for(socket, size, warm_up_s, pause_us, warm_up_phase, &window) != 0) return 1;
    printf("measuring\n");
    fflush(stdout);
    begin(&window);
    const uint64_t before = window.all;
    if (send_for(socket, size, measured_s, pause_us, counted_phase, &window) != 0) return 1;
    window.counted = window.all - before;
    end(&window);
    if (send_one(socket, size, end_phase, &window) != 0) return 1;
    say(&window, "");
    fflush(stdout);
    const int status = wait_for_end(monitor);
    zmq_close(monitor);
    return status;
}

int main(int argc, char** argv) {
    const int serves = argc == 5 && strcmp(argv[1], "serve") == 0;
    const int asks = argc >= 6 && argc <= 8 && strcmp(argv[1], "ask") == 0;
    const int is_latency = (serves || asks) && strcmp(argv[2], "latency") == 0;
    const size_t size = serves || asks ? strtoull(argv[4], NULL, 10) : 0;
    if (size == 0 || size > INT32_MAX || (!is_latency && strcmp(argv[2], "stream") != 0)) {
        fprintf(stderr,
                "usage: zmq_measure serve latency|stream ADDRESS SIZE\n"
                "       zmq_measure ask latency|stream ADDRESS SIZE SECONDS [WARM_UP [PAUSE_US]]\n");
        return 2;
    }
    void* context = zmq_ctx_new();
    void* socket = zmq_socket(context, is_latency ? (serves ? ZMQ_REP : ZMQ_REQ) : (serves ? ZMQ_PULL : ZMQ_PUSH));
    const int timeout_ms = 20000;
    const int mark = (int)(waiting_bytes / size < 4 ? 4 : waiting_bytes / size > 1000 ? 1000 : waiting_bytes / size);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    zmq_setsockopt(socket, ZMQ_SNDTIMEO, &timeout_ms, sizeof timeout_ms);
    zmq_setsockopt(socket, ZMQ_LINGER, &timeout_ms, sizeof timeout_ms);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &mark, sizeof mark);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &mark, sizeof mark);
    int status = 0;
    if (serves) {
        status = serve(socket, is_latency, argv[3], size);
    } else if (zmq_connect(socket, argv[3]) != 0) {
        status = fail(argv[3]);
    } else {
        const double measured_s = atof(argv[5]), warm_up_s = argc > 6 ? atof(argv[6]) : 0;
        status = is_latency ? ask(socket, size, measured_s, warm_up_s)
                            : stream(context, socket, size, measured_s, warm_up_s, argc > 7 ? atol(argv[7]) : 0);
    }
    zmq_close(socket);
    zmq_ctx_term(context);
    return status;
}
