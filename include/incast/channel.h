/* Ring channels between programs: a plain C interface (docs/channel.md).
 *
 * A channel carries bytes or messages both ways between two programs: in order, each once, unchanged. It is a ring of
 * buffers in the memory of either side, which the other side writes to. A hub has the channels of one endpoint: all of
 * one transport, of one process. Channels between the same two hubs share one connection.
 *
 *     incast_channel_hub* hub;
 *     incast_channel* channel;
 *     int error = incast_channel_hub_make("shm", NULL, &hub);
 *     if (error == 0) error = incast_channel_connect(hub, "shm://daq", NULL, &channel);
 *     if (error == 0 && incast_channel_write(channel, "hello", 5, 1000) == 5) incast_channel_flush(channel);
 *     if (error != 0) fprintf(stderr, "%s\n", incast_channel_message());
 *
 * Addresses, all of the hub's own transport:
 *     shm://NAME             a name of this host, in the network namespace of the process: 1 to 90 bytes, any but NUL.
 *                            One that begins with `/` is the path of a socket, whose rights say who may connect, from
 *                            other network namespaces too. To listen, also `*`: a name is chosen.
 *     tcp://HOST:PORT, udp://HOST:PORT, verbs://HOST:PORT
 *                            HOST: an IPv4 address, or an IPv6 one in brackets, or a name, which is looked up and may
 *                            so take a while; to listen, also `*` (every interface; not verbs, where it is an address
 *                            of an RDMA device). PORT: 1 to 65535; to listen, also 0 or `*`: the kernel chooses. All
 *                            of them use a TCP port to meet.
 *     rio://DESTID:CHANNEL   a CM channel, 1 to 65535, of the RapidIO endpoint with that destination id, in the fabric
 *                            of the hub's options; to listen, DESTID is that of the hub, or `*`; CHANNEL may be 0 or
 *                            `*`.
 *
 * Errors: functions return 0 or more, or the negative of a value of <errno.h>. incast_channel_message() has one line on
 * the last error of the calling thread. The ones with a meaning of their own:
 *     EINVAL            a null pointer, a bad option, an address of a wrong form
 *     EPROTONOSUPPORT   no such transport, or its module is missing, or an address of another one than the hub's
 *     ENODEV            no RDMA device, or no RapidIO fabric, as asked for
 *     EADDRINUSE        somebody listens there
 *     EADDRNOTAVAIL     not an address of this host, or not of this hub's destination id
 *     ECONNREFUSED      nobody listens there
 *     EHOSTUNREACH, ENETUNREACH   there is no way to that host or destination id
 *     ETIMEDOUT         no answer in time
 *     EPROTO            the other side wants channels of another kind, or smaller ones; or it broke the rules
 *     EACCES            a path that this user may not use
 *     ENOBUFS           it has no room for another channel
 *     ECONNRESET        its process or its connection is gone, or it gave the channel up before it was finished
 *     EAGAIN            not now, or not in time
 *     EPIPE             this side has finished writing, or the other side has closed the channel
 *     EMFILE, ENFILE, ENOMEM   this process, or this host, has no more descriptors or memory. A listener without a
 *                       descriptor asks callers to come again, and they do so until their time is over
 *     ECHILD            this process was forked from the one that made the hub: only free works, and leaves the
 *                       parent's hub alone
 * Nothing is printed and no signal handler is installed. Functions wait only where they have a `timeout_ms`: 0 does not
 * wait, a negative one waits for ever. A signal does not end a wait.
 *
 * Who drives a hub. Nothing moves, comes or is found lost but while the hub is driven:
 *   (a) INCAST_CHANNEL_OWN_LOOP: an event loop does, which has few microseconds to lose and no thread to wait for. It
 *       watches incast_channel_hub_fd(), and says:
 *           on start, and whenever the descriptor is readable:
 *               do incast_channel_hub_poll(hub); while (incast_channel_hub_prepare_wait(hub) == 0);
 *       It may look at channels between the two, and call both at any other time as well. What a call on a channel
 *       leaves to do makes the descriptor readable; to call flush and then this loop is quicker. The descriptor
 *       includes all timers.
 *   (b) otherwise a thread of the library does, which sleeps while there is nothing to do. Programs may compute for
 *       minutes. All signals are blocked in it.
 * Threads: any thread may call anything at any time, in either case, but of one channel at most one thread reads, and
 * at most one writes. Nobody may use what was closed or freed. Where a function with a timeout waits in case (a), it
 * drives the hub meanwhile: only the thread of the loop may let it wait.
 *
 * The layout of rings and messages: docs/channel.md; a library refuses peers of another version. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define INCAST_CHANNEL_API __attribute__((visibility("default")))
#else
#define INCAST_CHANNEL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): the names are C's */
typedef struct incast_channel_hub incast_channel_hub;
typedef struct incast_channel_listener incast_channel_listener;
typedef struct incast_channel incast_channel;

/* What a channel carries; both sides must mean the same. */
enum { INCAST_CHANNEL_BYTES = 0, INCAST_CHANNEL_MESSAGES = 1 };

/* How one side hears that the other one wrote. */
enum {
    INCAST_CHANNEL_DOORBELL = 0, /* the write carries a notice */
    INCAST_CHANNEL_MEMORY = 1,   /* it looks at the memory, every 100 us while it sleeps */
    INCAST_CHANNEL_MESSAGE = 2   /* a message follows the write */
};

/* Flags of a hub. */
enum { INCAST_CHANNEL_OWN_LOOP = 1 };

/* Of a hub. Begin with `incast_channel_hub_options options = INCAST_CHANNEL_HUB_OPTIONS;`. 0 and NULL: the default.
 * Texts are copied. */
typedef struct incast_channel_hub_options {
    uint32_t size; /* of this struct: later versions have more fields */
    uint32_t flags;
    uint32_t max_channels;       /* 256, at most 32768; channels that still close count */
    uint32_t max_peers;          /* 64, at most 4095, and 255 of rio: hubs this one has channels with */
    uint32_t longest_ring_bytes; /* 64 MiB: that a peer may ask for */
    int32_t longest_spin_us;     /* how long it looks at most before it sleeps, in case (b) and in functions that wait:
                                    50; negative: sleeps at once */
    uint32_t peer_timeout_ms;    /* udp, verbs, rio between hosts: a peer that is silent for so long is lost; 0: the
                                    transport's own. On one host, and on tcp, the kernel says when */
    uint32_t reserved;
    uint64_t secret;      /* both sides must have the same number, else ECONNREFUSED */
    const char* fabric;   /* rio: as RIO_FABRIC, which is the default; without either: `shm`, of this user and host */
    const char* bind;     /* tcp, udp, verbs: the address of this host that data goes by, a number. Default: that of the
                             first listen(), or what the kernel chooses */
    const char* settings; /* more of the transport (docs/transports): `NAME=VALUE,NAME=VALUE` */
} incast_channel_hub_options;
#define INCAST_CHANNEL_HUB_OPTIONS {sizeof(incast_channel_hub_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL}

/* Of a channel: who connects chooses, and whoever listens says the kind alone. 0: the default. */
typedef struct incast_channel_options {
    uint32_t size; /* of this struct */
    uint32_t kind;
    uint32_t buffers;            /* of each ring, 1 to 65536. Automatic if 0: docs/channel.md has the rule */
    uint32_t buffer_bytes;       /* 64 to 1 GiB, rounded up to a multiple of 64; 16 of each are the header. Automatic */
    uint32_t batch;              /* emptied buffers that are told at once, 1 to `buffers`. Default: a quarter of them */
    uint32_t announce;           /* INCAST_CHANNEL_DOORBELL, _MEMORY or _MESSAGE */
    uint32_t acknowledge;        /* the same, for buffers that were emptied */
    uint32_t connect_timeout_ms; /* 10000. While nobody drives the hub nothing can be heard: such pauses put it off,
                                    by as much again at most */
    uint32_t longest_message;    /* of kind messages, that may come; 1 GiB, which is the most */
    uint32_t backlog;            /* of a listener: channels that may wait for accept; 128 */
} incast_channel_options;
#define INCAST_CHANNEL_OPTIONS {sizeof(incast_channel_options), 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* What incast_channel_hub_next_ready() says of a channel. */
enum {
    INCAST_CHANNEL_HAS_DATA = 1, /* what makes its data descriptor readable */
    INCAST_CHANNEL_HAS_ROOM = 2  /* what makes its room descriptor readable */
};

/* What a transport does for channels. */
typedef struct incast_channel_hub_info {
    const char* transport; /* shm, tcp, rio, udp, verbs: a static text */
    uint32_t max_channels;
    uint32_t max_peers;
    uint32_t sends_in_place; /* 1: incast_channel_write_in_place() copies nothing on this side */
    uint32_t destid;         /* rio: the hub's; else 0 */
} incast_channel_hub_info;
/* NOLINTEND(readability-identifier-naming) */

/* --- Hubs */

/* A hub of that transport: `shm`, `tcp`, `rio`, `udp` or `verbs`. The address of anything there works, too: what comes
 * behind `://` is left aside. `options` may be null. On success `*hub` is the caller's to free; else it is null. */
INCAST_CHANNEL_API int incast_channel_hub_make(const char* transport, const incast_channel_hub_options* options,
                                               incast_channel_hub** hub);
/* Waits until all that was written to channels that were closed has left, and these channels are gone: 0; EAGAIN. */
INCAST_CHANNEL_API int incast_channel_hub_drain(incast_channel_hub* hub, int timeout_ms);
/* All its channels and listeners are freed, too, and what has not left is lost: peers see ECONNRESET. Null is allowed.
 * No other thread may be within a function of the hub. */
INCAST_CHANNEL_API void incast_channel_hub_free(incast_channel_hub* hub);
INCAST_CHANNEL_API int incast_channel_hub_get_info(incast_channel_hub* hub, incast_channel_hub_info* info);

/* Case (a), see above. The descriptor is the hub's own, to be watched for reading (level-triggered), and the same as
 * long as the hub lives. */
INCAST_CHANNEL_API int incast_channel_hub_fd(incast_channel_hub* hub);
/* Takes what came and sends what can leave; never waits. 1: something happened; 0: nothing did. */
INCAST_CHANNEL_API int incast_channel_hub_poll(incast_channel_hub* hub);
/* The same, for a loop that something else woke while the descriptor was not readable, or that did not sleep: the
 * kernel is not asked again. */
INCAST_CHANNEL_API int incast_channel_hub_poll_unwoken(incast_channel_hub* hub);
/* 1: whatever happens from here on makes the descriptor readable. 0: there is something to do already: poll. */
INCAST_CHANNEL_API int incast_channel_hub_prepare_wait(incast_channel_hub* hub);
/* Instead of the descriptors of channels, which cost system calls. After a poll: 1, and a channel for which one of
 * these has become so since a call last said EAGAIN, or took less than it was given, or since the channel was made.
 * Each is said once. 0: none is left. */
INCAST_CHANNEL_API int incast_channel_hub_next_ready(incast_channel_hub* hub, incast_channel** channel, uint32_t* what);

/* --- Listening */

/* Channels may be opened to that address from now on. It binds before it returns, in the calling thread. */
INCAST_CHANNEL_API int incast_channel_listen(incast_channel_hub* hub, const char* address,
                                             const incast_channel_options* options, incast_channel_listener** listener);
/* Where it really listens, in the form that connect takes; with the host `*` (tcp, udp) if it listens on every
 * interface. The text lives as long as the listener. */
INCAST_CHANNEL_API const char* incast_channel_listener_address(const incast_channel_listener* listener);
/* Readable while there is something to accept; the listener's own. */
INCAST_CHANNEL_API int incast_channel_listener_fd(incast_channel_listener* listener);
/* The next channel that was opened there: it is open, and the caller's to close. EAGAIN: none in time. */
INCAST_CHANNEL_API int incast_channel_accept(incast_channel_listener* listener, int timeout_ms,
                                             incast_channel** channel);
/* The address is free again on return, and the name of a path is removed. Channels that were not accepted are given up;
 * others stay. Null is allowed. */
INCAST_CHANNEL_API void incast_channel_listener_close(incast_channel_listener* listener);

/* --- Channels */

/* A channel to that address, which is opened while the hub is driven. An error here is one of the call: a wrong form,
 * no memory, no descriptor. What the network says is an error of the channel: see incast_channel_state(). Bytes may be
 * written once the channel is open. `*channel` is the caller's to close. */
INCAST_CHANNEL_API int incast_channel_connect(incast_channel_hub* hub, const char* address,
                                              const incast_channel_options* options, incast_channel** channel);
/* 0: it is being opened. 1: it is open. Negative: the error that ended it, for good. What came before that can still be
 * read, unless the peer broke the rules. A channel that both sides have finished stays open until it is closed. */
INCAST_CHANNEL_API int incast_channel_state(incast_channel* channel);
/* Waits while it is being opened: 1 or an error, as incast_channel_state(), or EAGAIN. */
INCAST_CHANNEL_API int incast_channel_wait_open(incast_channel* channel, int timeout_ms);
/* The line that belongs to that error; `open` or `opening` if there is none. It stays until this thread asks again. */
INCAST_CHANNEL_API const char* incast_channel_state_message(incast_channel* channel);
/* For logs: the address that was connected to, or the transport and a number of the other hub. It lives as long as the
 * channel. */
INCAST_CHANNEL_API const char* incast_channel_peer_name(incast_channel* channel);
/* The kind of the channel, INCAST_CHANNEL_BYTES or _MESSAGES, and the shape of its rings as it was chosen. */
INCAST_CHANNEL_API int incast_channel_get_options(incast_channel* channel, incast_channel_options* options);

/* A pointer of the caller's, which nothing here looks at; null at first. */
INCAST_CHANNEL_API void incast_channel_set_user(incast_channel* channel, void* user);
INCAST_CHANNEL_API void* incast_channel_user(const incast_channel* channel);

/* Gives the channel back: what was written still goes while the hub is driven; what the peer still writes is dropped.
 * The pointer names nothing any more, and its descriptors are closed. Null is allowed. */
INCAST_CHANNEL_API void incast_channel_close(incast_channel* channel);
/* The same, but what has not left is dropped, too: the peer sees ECONNRESET, unless it had all of it. */
INCAST_CHANNEL_API void incast_channel_abort(incast_channel* channel);
/* For a peer that is there and does nothing: gives up the connection with its hub, and so every channel between the two
 * hubs, which end with ECONNRESET on both sides. This one stays the caller's to close. What was written in place is the
 * caller's again once incast_channel_released() has come to incast_channel_written(): soon, without the peer. */
INCAST_CHANNEL_API int incast_channel_disconnect(incast_channel* channel);

/* Two descriptors for poll, epoll or an event loop, the channel's own. They are made when first asked for, and are
 * readable exactly while it is so, after whatever the hub did:
 *   data: there is something to read, the end of it, or an error; while a call waits to read, as before the call;
 *   room: the channel is open and has room for a byte, or never will have again. */
INCAST_CHANNEL_API int incast_channel_data_fd(incast_channel* channel);
INCAST_CHANNEL_API int incast_channel_room_fd(incast_channel* channel);

/* --- Bytes: kind INCAST_CHANNEL_BYTES */

/* Copies bytes into the channel, and returns how many, as soon as all were taken or the time is over; they leave with a
 * full buffer, when the hub is driven next, or on flush. EAGAIN: none was. If the channel ends meanwhile: how many were
 * taken before, or the error, if none was. While the channel is being opened there is no room. */
INCAST_CHANNEL_API int64_t incast_channel_write(incast_channel* channel, const void* data, size_t bytes,
                                                int timeout_ms);
/* The same without a copy, where the transport can (incast_channel_hub_info), and without waiting: the bytes must stay
 * as they are until incast_channel_released() has come to incast_channel_written(), as it was behind them. */
INCAST_CHANNEL_API int64_t incast_channel_write_in_place(incast_channel* channel, const void* data, size_t bytes);
/* Bytes of the stream: that were written, and whose memory is the caller's again. Of messages with their lengths. */
INCAST_CHANNEL_API uint64_t incast_channel_written(incast_channel* channel);
INCAST_CHANNEL_API uint64_t incast_channel_released(incast_channel* channel);
/* What was written leaves now, though its buffer is not full. */
INCAST_CHANNEL_API int incast_channel_flush(incast_channel* channel);
/* Nothing more is written: the peer reads what was, then the end. The other direction goes on. */
INCAST_CHANNEL_API int incast_channel_finish(incast_channel* channel);

/* Copies what there is, at most `bytes`, and returns how many; waits for the first one. 0: the peer has finished, and
 * all was read (or `bytes` is 0). EAGAIN: nothing came in time. An error comes behind the last byte that was read. */
INCAST_CHANNEL_API int64_t incast_channel_read(incast_channel* channel, void* into, size_t bytes, int timeout_ms);
/* The same without a copy: `*data` is where so many bytes lie in the ring, up to the end of a buffer. They stay there
 * until consume, which frees the buffer for the peer; what the peer may do to them: docs/channel.md. */
INCAST_CHANNEL_API int64_t incast_channel_peek(incast_channel* channel, const void** data, int timeout_ms);
/* So many of them were used; EINVAL: not so many are there. */
INCAST_CHANNEL_API int incast_channel_consume(incast_channel* channel, size_t bytes);

/* --- Messages: kind INCAST_CHANNEL_MESSAGES */

/* Takes one message of 0 bytes to 1 GiB, all of it or nothing: 0, or EAGAIN if there was no room in time. Of one that
 * is longer than the room the rest is copied aside, and leaves before any other message is taken. */
INCAST_CHANNEL_API int incast_channel_send(incast_channel* channel, const void* data, size_t bytes, int timeout_ms);
/* Copies the next message, and returns its length, once all of it is there. EAGAIN: not in time. EMSGSIZE: it is longer
 * than `bytes`, and still the next one. ENODATA: the peer has finished, and all was received. */
INCAST_CHANNEL_API int64_t incast_channel_receive(incast_channel* channel, void* into, size_t bytes, int timeout_ms);
/* Its length, as soon as that is known; errors as above. */
INCAST_CHANNEL_API int64_t incast_channel_next_length(incast_channel* channel, int timeout_ms);

/* --- Errors */

/* One line on the last error that a function here returned to this thread; it stays until the next one. */
INCAST_CHANNEL_API const char* incast_channel_message(void);

#ifdef __cplusplus
}
#endif
