// SPDX-License-Identifier: GPL-2.0-only
/*
 * Multicast by the switch, as part 11 of the RapidIO specification has it (its
 * section 3: the registers).  A mask is a set of ports of the switch.  An id that
 * is associated with a mask stands for all endpoints at these ports but the
 * sender's own.  There is no simple, block or per-port association.
 */
#include <linux/vmalloc.h>

#include "rio_soft.h"

#define SUPPORT_CAR		0x30	/* reads as 0: no simple association */
#define INFORMATION_CAR		0x38
#define MASK_PORT_CSR		0x80
#define ASSOCIATE_SELECT_CSR	0x84
#define ASSOCIATE_OPERATION_CSR	0x88

#define PRESENT			BIT(0)
#define MASKS			32
#define NO_MASK			0xff
#define MAX_ASSOCIATIONS	0x3fff	/* what the register can say */

enum mask_command {
	MASK_VERIFY = 0,
	MASK_ADD = 1,
	MASK_DELETE = 2,
	MASK_DELETE_ALL = 4,
	MASK_ADD_ALL = 5,
};

enum associate_command {
	ASSOCIATE_VERIFY = 0,
	ASSOCIATE_DELETE = 2,
	ASSOCIATE_ADD = 3,
};

static struct {
	u32 mask_port;		/* what was written last, and what came of it */
	u32 select;
	u32 operation;
	u32 ids;
	u8 *mask_of;		/* for each id */
	unsigned long masks[MASKS];
} rs_multicast;

int rs_multicast_init(u32 ids)
{
	memset(&rs_multicast, 0, sizeof(rs_multicast));
	rs_multicast.ids = ids;
	rs_multicast.mask_of = vmalloc(ids);
	if (!rs_multicast.mask_of)
		return -ENOMEM;
	memset(rs_multicast.mask_of, NO_MASK, ids);
	return 0;
}

void rs_multicast_exit(void)
{
	vfree(rs_multicast.mask_of);
}

bool rs_multicast_read(u32 offset, u32 *value)
{
	switch (offset) {
	case SUPPORT_CAR:
		*value = 0;
		return true;
	case INFORMATION_CAR:
		*value = min_t(u32, rs_multicast.ids, MAX_ASSOCIATIONS) << 16 | MASKS;
		return true;
	case MASK_PORT_CSR:
		*value = rs_multicast.mask_port;
		return true;
	case ASSOCIATE_SELECT_CSR:
		*value = rs_multicast.select;
		return true;
	case ASSOCIATE_OPERATION_CSR:
		*value = rs_multicast.operation;
		return true;
	}
	return false;
}

/* Mask (16 bits), port (8), reserved (1), command (3), reserved (3), present (1). */
static void write_mask(u32 value)
{
	u32 mask = value >> 16;
	u32 port = value >> 8 & 0xff;

	rs_multicast.mask_port = value & ~PRESENT;
	if (mask >= MASKS)
		return;
	switch (value >> 4 & 7) {
	case MASK_DELETE_ALL:
		rs_multicast.masks[mask] = 0;
		return;
	case MASK_ADD_ALL:
		rs_multicast.masks[mask] = BIT(rs_port_count) - 1;
		return;
	}
	if (port >= rs_port_count)
		return;
	switch (value >> 4 & 7) {
	case MASK_VERIFY:
		if (rs_multicast.masks[mask] & BIT(port))
			rs_multicast.mask_port |= PRESENT;
		break;
	case MASK_ADD:
		rs_multicast.masks[mask] |= BIT(port);
		break;
	case MASK_DELETE:
		rs_multicast.masks[mask] &= ~BIT(port);
		break;
	}
}

/* Size of a block (16 bits), ingress port (8), large id, command (2), reserved (4), present. */
static void write_operation(u32 value)
{
	u32 id = rs_multicast.select >> 16;
	u32 mask = rs_multicast.select & 0xffff;

	rs_multicast.operation = value & ~PRESENT;
	if (id >= rs_multicast.ids || mask >= MASKS)
		return;
	switch (value >> 5 & 3) {
	case ASSOCIATE_VERIFY:
		if (rs_multicast.mask_of[id] == mask)
			rs_multicast.operation |= PRESENT;
		break;
	case ASSOCIATE_DELETE:
		if (rs_multicast.mask_of[id] == mask)
			rs_multicast.mask_of[id] = NO_MASK;
		break;
	case ASSOCIATE_ADD:
		rs_multicast.mask_of[id] = mask;
		break;
	}
}

bool rs_multicast_write(u32 offset, u32 value)
{
	switch (offset) {
	case MASK_PORT_CSR:
		write_mask(value);
		return true;
	case ASSOCIATE_SELECT_CSR:
		rs_multicast.select = value;
		return true;
	case ASSOCIATE_OPERATION_CSR:
		write_operation(value);
		return true;
	}
	return false;
}

unsigned long rs_multicast_ports(u16 destid)
{
	if (destid >= rs_multicast.ids || rs_multicast.mask_of[destid] == NO_MASK)
		return 0;
	return rs_multicast.masks[rs_multicast.mask_of[destid]];
}
