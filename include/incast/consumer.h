/* Taking built events from a builder unit of this host, in place: a plain C interface (docs/consumer.md).
 *
 * A builder unit that runs with `sink.kind = consumer` lets processes of the same user attach. What a consumer gets is
 * a MEP: the MFPs of all sources for the same consecutive events, each in the memory where it was built, mapped for
 * reading only; nothing is copied. A consumer has at most `window` MEPs at a time and gives each one back with
 * incast_consumer_release(), in any order; until then the builder unit leaves that memory alone.
 *
 *     incast_consumer* consumer;
 *     incast_consumer_event event;
 *     int status = incast_consumer_attach("farm", INCAST_CONSUMER_ANY_NODE, 10000, &consumer);
 *     while (status >= 0 && (status = incast_consumer_next(consumer, -1, &event)) >= 0) {
 *         if (status == 0) continue; // a signal came
 *         for (uint32_t index = 0; index < event.n_sources; ++index) {
 *             incast_consumer_mfp mfp;
 *             if (incast_consumer_get_mfp(consumer, &event, index, &mfp) == INCAST_CONSUMER_OK) ...
 *         }
 *         incast_consumer_release(consumer, &event);
 *     }
 *     incast_consumer_free(consumer);
 *
 * Functions return INCAST_CONSUMER_OK (0) or more, or one of the negative INCAST_CONSUMER_* below. Nothing is printed,
 * no signal handler or thread is installed, and no function waits longer than it is told.
 *
 * Threads: a handle is used by one thread at a time, but release, intact, get_mfp and sources may be called by any
 * thread while another waits in next. Processes: a handle does not work across fork().
 *
 * The layout of the memory and its versions: src/consumer/layout.h. A library refuses a builder unit of another
 * version, so the two come from the same release. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define INCAST_CONSUMER_API __attribute__((visibility("default")))
#else
#define INCAST_CONSUMER_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): the names are C's */
enum {
    INCAST_CONSUMER_OK = 0,
    INCAST_CONSUMER_ENDED = -1,     /* the builder unit ended in order, and all of its events were taken */
    INCAST_CONSUMER_LOST = -2,      /* its process died; what was delivered before was taken */
    INCAST_CONSUMER_EJECTED = -3,   /* it dropped this consumer: silent for longer than sink.patience, or nonsense */
    INCAST_CONSUMER_OVERTAKEN = -4, /* it took the event back before this consumer gave it back */
    INCAST_CONSUMER_NOBODY = -5,    /* no builder unit of that name and node on this host, in time */
    INCAST_CONSUMER_FULL = -6,      /* it has, all the time, as many consumers as it may have (sink.consumers) */
    INCAST_CONSUMER_REFUSED = -7,   /* it belongs to another user, or speaks another version */
    INCAST_CONSUMER_SYSTEM = -8,    /* errno says what failed */
    INCAST_CONSUMER_ARGUMENT = -9   /* a null pointer, a bad name, or no event of this handle */
};

/* Of an event. */
enum {
    INCAST_CONSUMER_REDELIVERED = 1, /* another builder unit may have handed it out before it died (EB-F2) */
    INCAST_CONSUMER_REPEATED = 2     /* another consumer had it, and died or was ejected before it gave it back */
};

/* Why a source has no fragments, or not all: `flag` of a source, as in MFPs (docs/formats.md). From 2 to 3 there is no
 * MFP at all. */
enum {
    INCAST_CONSUMER_SOURCE_OK = 0,
    INCAST_CONSUMER_SOURCE_EMPTY = 1,
    INCAST_CONSUMER_SOURCE_MISSING_DEAD = 2,
    INCAST_CONSUMER_SOURCE_MISSING_UNREACHABLE = 3,
    INCAST_CONSUMER_SOURCE_LATE = 4,
    INCAST_CONSUMER_SOURCE_TRUNCATED = 5,
    INCAST_CONSUMER_SOURCE_BAD_CHECKSUM = 6,
    INCAST_CONSUMER_SOURCE_DESYNC = 7
};

#define INCAST_CONSUMER_ANY_NODE (-1)

typedef struct incast_consumer incast_consumer;
typedef struct incast_consumer_group incast_consumer_group;

/* What one is attached to. Constant while the handle lives. */
typedef struct incast_consumer_info {
    uint64_t run;
    uint64_t payload_bytes; /* of the memory that events lie in */
    uint32_t node;          /* of the builder unit, in the run */
    uint32_t incarnation;
    uint32_t n_sources; /* of every event */
    uint32_t window;    /* events this consumer may have at a time */
} incast_consumer_info;

/* One MEP. A plain copy: keep it as long as you like; what it leads to is good until it is released. */
typedef struct incast_consumer_event {
    uint64_t serial; /* of this event at its builder unit */
    uint64_t mep;
    uint64_t first_event;   /* events [first_event, first_event + n_events); 0 if every source is missing */
    uint64_t goodput_bytes; /* of fragments */
    uint64_t missed;        /* MEPs that this consumer did not get since it attached, for want of room (policy drop) */
    uint32_t n_events;      /* 0 if every source is missing */
    uint32_t n_sources;
    uint32_t missing_sources;
    uint32_t attempt;
    uint32_t flags;       /* INCAST_CONSUMER_REDELIVERED, INCAST_CONSUMER_REPEATED */
    uint32_t internal[3]; /* leave alone */
} incast_consumer_event;

/* One source of an event, by its index in the run's list of sources. */
typedef struct incast_consumer_source {
    uint64_t offset; /* of its MFP, within the payload memory */
    uint32_t bytes;  /* of its MFP; 0: missing, or nothing is left of it */
    uint16_t source; /* the detector's number */
    uint8_t flag;    /* INCAST_CONSUMER_SOURCE_* */
    uint8_t zero;
} incast_consumer_source;

typedef struct incast_consumer_mfp {
    const uint8_t* data; /* the MFP (docs/formats.md), 64-byte aligned; null if there is none */
    uint32_t bytes;
    uint16_t source;
    uint8_t flag;
    uint8_t zero;
} incast_consumer_mfp;
/* NOLINTEND(readability-identifier-naming) */

/* The nodes of this host whose builder units take consumers under that name, ascending: fills up to `most` of `nodes`
 * and returns how many there are. The kernel's list is read while it changes: a builder unit may be missing from it at
 * a moment when other sockets come and go. */
INCAST_CONSUMER_API int incast_consumer_builders(const char* name, uint32_t* nodes, int most);

/* Attaches to the builder unit of that node, or to the lowest one there is. Waits up to timeout_ms (negative: for ever)
 * until there is one, it has room, and it has answered, which takes it about a millisecond. On success `*consumer` is
 * the caller's to free; else it is null. */
INCAST_CONSUMER_API int incast_consumer_attach(const char* name, int node, int timeout_ms, incast_consumer** consumer);

INCAST_CONSUMER_API int incast_consumer_get_info(const incast_consumer* consumer, incast_consumer_info* info);

/* The next event: 1, and `*event` is filled. 0: none within timeout_ms (0: does not wait; negative: waits for ever), or
 * a signal came. ENDED and LOST are final, and come once all events that were delivered have been taken; EJECTED comes
 * at once. LOST may come 100 ms late. */
INCAST_CONSUMER_API int incast_consumer_next(incast_consumer* consumer, int timeout_ms, incast_consumer_event* event);

/* Whether an MFP is there, and where. Its bytes are the builder unit's memory: read them before the release. */
INCAST_CONSUMER_API int incast_consumer_get_mfp(const incast_consumer* consumer, const incast_consumer_event* event,
                                                uint32_t index, incast_consumer_mfp* mfp);

/* The same as a table of n_sources entries, unchecked, in memory of the builder unit; null if the event is not of this
 * handle. And the payload memory that its offsets are for. */
INCAST_CONSUMER_API const incast_consumer_source* incast_consumer_sources(const incast_consumer* consumer,
                                                                          const incast_consumer_event* event);
INCAST_CONSUMER_API const uint8_t* incast_consumer_payload(const incast_consumer* consumer);

/* OK: everything that was read of the event up to now was the event. OVERTAKEN: it may have been something else, which
 * can only be once it was given back, or the consumer was ejected. */
INCAST_CONSUMER_API int incast_consumer_intact(const incast_consumer* consumer, const incast_consumer_event* event);

/* Gives the event back; once per event. OVERTAKEN: too late, see above; a consumer that processed the event must not
 * rely on being the only one. */
INCAST_CONSUMER_API int incast_consumer_release(incast_consumer* consumer, const incast_consumer_event* event);

/* The same with a verdict: so many of the MEP's events are accepted, the rest of its n_events is rejected. The builder
 * unit counts them (docs/consumer.md); the MEP is committed either way. ARGUMENT also for more than there are. */
INCAST_CONSUMER_API int incast_consumer_judge(incast_consumer* consumer, const incast_consumer_event* event,
                                              uint32_t accepted);

/* A descriptor for poll, epoll or an event loop, the handle's own. To sleep on it: 1. incast_consumer_arm(); if it
 * returns 1, there is something for incast_consumer_next() already; if 0, 2. wait until the descriptor is readable,
 * 3. call incast_consumer_next(consumer, 0, ...). Wake-ups without cause are possible, lost ones are not. */
INCAST_CONSUMER_API int incast_consumer_fd(const incast_consumer* consumer);
INCAST_CONSUMER_API int incast_consumer_arm(incast_consumer* consumer);

/* Detaches: the builder unit takes back what was not released. Memory stays mapped until the free. */
INCAST_CONSUMER_API void incast_consumer_leave(incast_consumer* consumer);
/* Detaches if need be, and unmaps: nothing of this handle may be used any more. Null is allowed. */
INCAST_CONSUMER_API void incast_consumer_free(incast_consumer* consumer);

/* Several handles as one, for a process that takes the events of several builder units: of one thread, as they are. The
 * handles stay the caller's, who may use them for everything but next, fd, arm and leave while they are in it; a group
 * does not work across fork() either. */
INCAST_CONSUMER_API int incast_consumer_group_make(incast_consumer_group** group);
INCAST_CONSUMER_API int incast_consumer_group_add(incast_consumer_group* group, incast_consumer* consumer);
/* Before the handle is freed, unless the group is freed first. */
INCAST_CONSUMER_API int incast_consumer_group_remove(incast_consumer_group* group, incast_consumer* consumer);

/* The next event of any of them, in turn, and whose it is: as incast_consumer_next(), which see. ENDED, LOST and
 * EJECTED are of `*consumer`, which is then in the group no longer; go on with the others. ENDED with a null
 * `*consumer`: nobody is left. A signal whose handler was installed with SA_RESTART, as signal() does, need not end the
 * wait: who has one of those to look for sets a limit. */
INCAST_CONSUMER_API int incast_consumer_group_next(incast_consumer_group* group, int timeout_ms,
                                                   incast_consumer_event* event, incast_consumer** consumer);
INCAST_CONSUMER_API void incast_consumer_group_free(incast_consumer_group* group); /* null is allowed */

/* One of the codes above in words; a static text. */
INCAST_CONSUMER_API const char* incast_consumer_text(int status);

#ifdef __cplusplus
}
#endif
