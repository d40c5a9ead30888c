/* Filter plug-ins: a shared object that decides, when the first stage of a MEP is there, whether the rest of it is read
 * out (schemes push-pull and pull-pull; EB-C7). Plain C, so that any language can provide one.
 *
 * The engine opens the object with dlopen and looks up the three functions below. One filter is opened per builder
 * unit; all calls come from that unit's one thread, which does nothing else meanwhile: a filter that needs long returns
 * INCAST_FILTER_UNDECIDED and is asked again after about a millisecond, until protocol.decision_deadline has passed
 * (then the MEP is accepted). A MEP that is built again because its builder unit was lost is asked for again, with a
 * higher attempt; the answer should be the same.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): the names are C's */
enum incast_filter_verdict {
    INCAST_FILTER_UNDECIDED = 0,
    INCAST_FILTER_ACCEPT = 1, /* the rest is read out, and the MEP goes to the sink */
    INCAST_FILTER_REJECT = 2  /* it is forgotten, and counted */
};

/* One source of the MEP. What belongs to the second stage, is missing, or has no payload (simulation): data is NULL. */
struct incast_filter_mfp {
    const void* data;   /* the MFP (docs/formats.md); valid during the call */
    uint64_t bytes;     /* its length */
    uint16_t source_id; /* the detector's number for it */
    uint8_t flag;       /* wire/source_flag.h; `late` means: not read out yet */
};

struct incast_filter_mep {
    uint64_t mep;         /* its number, from 0 */
    uint64_t first_event; /* id of the first event in it */
    uint32_t n_events;
    uint32_t attempt; /* from 1 */
    uint32_t n_sources;
    const struct incast_filter_mfp* sources; /* in the order of the run's source table */
};

/* `argument`: filter.argument of the configuration. NULL: it cannot work; `error` then holds one line, why. */
void* incast_filter_open(const char* argument, char* error, size_t error_bytes);
/* Returns an incast_filter_verdict; anything else counts as ACCEPT and is logged once. */
int incast_filter_decide(void* filter, const struct incast_filter_mep* mep);
void incast_filter_close(void* filter);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif
