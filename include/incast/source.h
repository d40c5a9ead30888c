/* Handing fragments to a readout unit of this host: a plain C interface (docs/source.md). The mirror of consumer.h.
 *
 * A readout unit that runs with `source.kind = program` lets processes of the same user attach, one to each of its
 * sources. A program asks for space, writes a fragment there, and commits it; the readout unit takes it from that
 * memory. There is as much memory as the readout unit says: once it is full, asking for space waits.
 *
 *     incast_source* source;
 *     int status = incast_source_attach("daq", 3, 10000, &source);
 *     for (uint64_t event = 0; status >= 0 && event < events; ++event) {
 *         void* space;
 *         while ((status = incast_source_space(source, most, -1, &space)) == 0) {} // 0: a signal came
 *         if (status < 0) break;
 *         uint64_t bytes = read_out(space, most);
 *         status = incast_source_commit(source, event, INCAST_SOURCE_OK_TYPE, INCAST_SOURCE_THERE, bytes);
 *     }
 *     incast_source_free(source);
 *
 * Functions return INCAST_SOURCE_OK (0) or more, or one of the negative INCAST_SOURCE_* below. Nothing is printed, no
 * signal handler or thread is installed, and no function waits longer than it is told.
 *
 * A handle is used by one thread at a time, and does not work across fork().
 *
 * The layout of the memory and its versions: src/source/layout.h. A library refuses a readout unit of another version,
 * so the two come from the same release. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define INCAST_SOURCE_API __attribute__((visibility("default")))
#else
#define INCAST_SOURCE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): the names are C's */
enum {
    INCAST_SOURCE_OK = 0,
    INCAST_SOURCE_ENDED = -1,    /* the run has ended, or the readout unit went in order */
    INCAST_SOURCE_LOST = -2,     /* its process died */
    INCAST_SOURCE_EJECTED = -3,  /* it dropped this program: what is in the memory made no sense */
    INCAST_SOURCE_NOBODY = -4,   /* no readout unit has that source under that name on this host, in time */
    INCAST_SOURCE_TAKEN = -5,    /* another program is that source, all the time */
    INCAST_SOURCE_REFUSED = -6,  /* it belongs to another user, or speaks another version */
    INCAST_SOURCE_SYSTEM = -7,   /* errno says what failed */
    INCAST_SOURCE_ARGUMENT = -8, /* a null pointer, a bad name, more than the space has, a number out of range */
    INCAST_SOURCE_TOO_LARGE = -9 /* more than the memory ever has at once: incast_source_info.most_bytes */
};

/* What there is of a fragment. For all but THERE it has no bytes, and the event says why (docs/formats.md). */
enum {
    INCAST_SOURCE_THERE = 0,
    INCAST_SOURCE_LATE = 4,
    INCAST_SOURCE_TRUNCATED = 5,
    INCAST_SOURCE_BAD_CHECKSUM = 6,
    INCAST_SOURCE_DESYNC = 7,
    INCAST_SOURCE_DROPPED = 8
};

/* A type for fragments of those who have none. Types from 0xF0 to 0xFF are not for programs. */
#define INCAST_SOURCE_OK_TYPE 1

typedef struct incast_source incast_source;

/* What one is attached to. Constant while the handle lives. */
typedef struct incast_source_info {
    uint64_t run;
    uint64_t total_events; /* of the run: ids from 0 to one less; 0: without end */
    uint64_t most_bytes;   /* that incast_source_space() gives at once */
    uint32_t node;         /* of the readout unit, in the run */
    uint32_t packing;      /* events in a MEP: MEP m has those from m times packing on */
    uint16_t source;
    uint16_t zero[3];
} incast_source_info;
/* NOLINTEND(readability-identifier-naming) */

/* Becomes that source of the run whose readout units take programs under that name. Waits up to timeout_ms (negative:
 * for ever) until there is a readout unit that has it, and no other program is it. On success `*source` is the caller's
 * to free; else it is null. */
INCAST_SOURCE_API int incast_source_attach(const char* name, uint16_t number, int timeout_ms, incast_source** source);

INCAST_SOURCE_API int incast_source_get_info(const incast_source* source, incast_source_info* info);

/* Space for a fragment of up to that many bytes, aligned to 64: 1, and `*space` is set. 0: there is none within
 * timeout_ms (0: does not wait; negative: waits for ever), or a signal came: the readout unit, or what it feeds, is
 * behind. What was asked for before and not committed is given up. ENDED, LOST and EJECTED are final; LOST may come
 * 100 ms late. */
INCAST_SOURCE_API int incast_source_space(incast_source* source, uint64_t bytes, int timeout_ms, void** space);

/* Hands over what was written to the space, as the fragment of that event, which is the readout unit's from then on.
 * `type`: the detector's, below 0xF0. `what`: INCAST_SOURCE_THERE, or why there is none, with 0 bytes. Events may be
 * committed in any order within `source.window` MEPs. OK says that it was handed over, not that it was built: what has
 * been given up is counted as late. ARGUMENT: also without space, or for more bytes than it has. */
INCAST_SOURCE_API int incast_source_commit(incast_source* source, uint64_t event, uint8_t type, uint8_t what,
                                           uint64_t bytes);

/* The same for several events at once: the space holds an MFP (docs/formats.md) of this source, of that many bytes. If
 * it holds exactly one MEP's events, or one fragment of more than 65535 bytes, it is copied once, as it is. What is no
 * such MFP is refused by the readout unit, and counted. */
INCAST_SOURCE_API int incast_source_commit_mfp(incast_source* source, uint64_t bytes);

/* The first event of the MEP that the readout unit makes next: what is below is built, or given up. Who comes late goes
 * on from there. */
INCAST_SOURCE_API uint64_t incast_source_next_event(const incast_source* source);

/* Waits until all that was committed has been taken: 1; 0: not within timeout_ms, or a signal came. */
INCAST_SOURCE_API int incast_source_flush(incast_source* source, int timeout_ms);

/* Detaches in order. What was committed is still taken; later events are flagged `late` for this source, without
 * waiting for it, until a program is it again. */
INCAST_SOURCE_API void incast_source_leave(incast_source* source);
/* Detaches if need be, and unmaps: nothing of this handle may be used any more. Null is allowed. */
INCAST_SOURCE_API void incast_source_free(incast_source* source);

/* One of the codes above in words; a static text. */
INCAST_SOURCE_API const char* incast_source_text(int status);

#ifdef __cplusplus
}
#endif
