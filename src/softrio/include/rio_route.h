/* Numbers that route a RapidIO packet. Part of SoftRIO's C API; docs/rapidio.md explains the whole. */
#pragma once

#include <stdint.h>

/** Number of a local master port (a RapidIO port of this host), 0 and up. */
typedef uint8_t mport_id_t;

/** Destination id: the address of an endpoint, 8 or 16 bits. 0xff and 0xffff address nobody; where a source is asked
 * for, they stand for any. */
typedef uint32_t did_val_t;

/** Component tag: a number that whoever enumerates a network gives to a device. */
typedef uint32_t ct_t;

/** Hop count: how many switches a maintenance packet passes before it is for the device it has reached. */
typedef uint8_t hc_t;

/** The hop count that passes all switches: the packet is for the endpoint. */
#define HC_MP ((hc_t)0x0ff)
/** The largest hop count that is for a switch. */
#define HC_MAX ((hc_t)0x0fe)
/** dest = the hop count behind src: HC_MP is followed by 0, and HC_MAX by itself. */
#define HC_INCR(dest, src)                                                          \
    {                                                                               \
        (dest) = (hc_t)((src) == HC_MP ? 0 : (src) == HC_MAX ? HC_MAX : (src) + 1); \
    }
