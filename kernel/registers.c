// SPDX-License-Identifier: GPL-2.0-only
/*
 * Configuration registers, and with them the ways of the fabric.  Registers are
 * those of the RapidIO specification, part 1 (capabilities and logical layer),
 * part 3 (ids, host lock, component tag, routing table), part 6 (the LP-Serial
 * block, at 0x100) and part 11 (multicast.c).  A register that is not there reads as
 * 0 and takes no write.
 */
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "rio_soft.h"

#define ENDPOINT_ID		0x5f01ffffu	/* device, vendor: the reserved one */
#define SWITCH_ID		0x5f02ffffu
#define SWITCH_MULTICAST	0x400u	/* of its processing element features, part 11 */
#define PHYSICAL_BLOCK		0x100u
#define TABLE_LIMIT_8		0xffu
#define TABLE_LIMIT_16		0xffffu

#define OPERATIONS (RIO_OPS_READ | RIO_OPS_WRITE | RIO_OPS_STREAM_WRITE | \
		    RIO_OPS_WRITE_RESPONSE | RIO_OPS_DATA_MSG | RIO_OPS_DOORBELL | \
		    RIO_OPS_PORT_WRITE)

static DEFINE_SPINLOCK(rs_register_lock);

/* Between the ports: port i of the switch is the link of master port i. */
static struct {
	u32 host_lock;
	u32 component_tag;
	u32 selected;		/* id whose entry of the table is shown */
	u32 table_limit;
	u8 *table;		/* port for each id; RIO_INVALID_ROUTE: none */
} rs_switch;

int rs_registers_init(void)
{
	rs_switch.host_lock = 0xffff;
	rs_switch.component_tag = 0;
	rs_switch.selected = 0;
	rs_switch.table_limit = rs_has_large_ids ? TABLE_LIMIT_16 : TABLE_LIMIT_8;
	rs_switch.table = vmalloc(rs_switch.table_limit + 1);
	if (!rs_switch.table)
		return -ENOMEM;
	memset(rs_switch.table, RIO_INVALID_ROUTE, rs_switch.table_limit + 1);
	if (!rs_multicast_init(rs_switch.table_limit + 1))
		return 0;
	vfree(rs_switch.table);
	return -ENOMEM;
}

void rs_registers_exit(void)
{
	rs_multicast_exit();
	vfree(rs_switch.table);
}

/* Ids of 8 and of 16 bits have fields of their own. */
static u32 destid_register(u16 destid)
{
	return rs_has_large_ids ? destid : (u32)destid << 16;
}

void rs_registers_reset(struct rs_port *port)
{
	port->registers = (struct rs_registers) {
		.destid = destid_register(RIO_ANY_DESTID(rs_has_large_ids)),
		.host_lock = 0xffff,
		.layer_control = RIO_PELL_ADDR_34,
	};
}

static u16 destid_of(const struct rs_port *port)
{
	u32 value = port->registers.destid;

	return rs_has_large_ids ? value & 0xffff : value >> 16 & 0xff;
}

void rs_set_destid(struct rs_port *port, u16 destid)
{
	rs_local_write(port, RIO_DID_CSR, destid_register(destid));
}

u16 rs_port_destid(struct rs_port *port)
{
	unsigned long flags;
	u16 destid;

	spin_lock_irqsave(&rs_register_lock, flags);
	destid = destid_of(port);
	spin_unlock_irqrestore(&rs_register_lock, flags);
	return destid;
}

/* One host at a time: who writes its id has the lock, and gives it back by writing it again. */
static void write_lock_register(u32 *lock, u32 value)
{
	value &= 0xffff;
	if (*lock == 0xffff)
		*lock = value;
	else if (*lock == value)
		*lock = 0xffff;
}

static u32 read_endpoint(const struct rs_port *port, u32 offset)
{
	switch (offset) {
	case RIO_DEV_ID_CAR:
	case RIO_ASM_ID_CAR:
		return ENDPOINT_ID;
	case RIO_ASM_INFO_CAR:
		return PHYSICAL_BLOCK;
	case RIO_PEF_CAR:
		return RIO_PEF_MEMORY | RIO_PEF_PROCESSOR | RIO_PEF_INB_MBOX |
		       RIO_PEF_INB_DOORBELL | (rs_has_large_ids ? RIO_PEF_CTLS : 0) |
		       RIO_PEF_EXT_FEATURES | RIO_PEF_ADDR_66 | RIO_PEF_ADDR_50 | RIO_PEF_ADDR_34;
	case RIO_SRC_OPS_CAR:
	case RIO_DST_OPS_CAR:
		return OPERATIONS;
	case RIO_MBOX_CSR:
		return RIO_MBOX0_AVAIL | RIO_MBOX1_AVAIL | RIO_MBOX2_AVAIL | RIO_MBOX3_AVAIL;
	case RIO_DOORBELL_CSR:
		return RIO_DOORBELL_AVAIL | RIO_WRITE_PORT_AVAILABLE;
	case RIO_PELL_CTRL_CSR:
		return port->registers.layer_control;
	case RIO_DID_CSR:
		return port->registers.destid;
	case RIO_HOST_DID_LOCK_CSR:
		return port->registers.host_lock;
	case RIO_COMPONENT_TAG_CSR:
		return port->registers.component_tag;
	case PHYSICAL_BLOCK:
		return RIO_EFB_SER_EP_ID;	/* and there is no further block */
	case PHYSICAL_BLOCK + RIO_PORT_GEN_CTL_CSR:
		return port->registers.general_control;
	case PHYSICAL_BLOCK + RIO_PORT_N_ERR_STS_CSR(0, 1):
		return port->link && !rs_link_is_up(port) ? RIO_PORT_N_ERR_STS_PORT_UNINIT :
							    RIO_PORT_N_ERR_STS_PORT_OK;
	case PHYSICAL_BLOCK + RIO_PORT_N_CTL_CSR(0, 1):
		return RIO_PORT_N_CTL_PWIDTH_4 | RIO_PORT_N_CTL_P_TYP_SER;
	}
	return 0;
}

static void write_endpoint(struct rs_port *port, u32 offset, u32 value)
{
	switch (offset) {
	case RIO_PELL_CTRL_CSR:
		port->registers.layer_control =
			value & (RIO_PELL_ADDR_66 | RIO_PELL_ADDR_50 | RIO_PELL_ADDR_34);
		break;
	case RIO_DID_CSR:
		port->registers.destid = value & 0x00ffffff;
		break;
	case RIO_HOST_DID_LOCK_CSR:
		write_lock_register(&port->registers.host_lock, value);
		break;
	case RIO_COMPONENT_TAG_CSR:
		port->registers.component_tag = value;
		break;
	case PHYSICAL_BLOCK + RIO_PORT_GEN_CTL_CSR:
		port->registers.general_control = value & (RIO_PORT_GEN_HOST | RIO_PORT_GEN_MASTER |
							   RIO_PORT_GEN_DISCOVERED);
		break;
	}
}

static u32 read_switch(const struct rs_port *from, u32 offset)
{
	u32 port, value;

	if (rs_multicast_read(offset, &value))
		return value;
	switch (offset) {
	case RIO_DEV_ID_CAR:
	case RIO_ASM_ID_CAR:
		return SWITCH_ID;
	case RIO_ASM_INFO_CAR:
		return PHYSICAL_BLOCK;
	case RIO_PEF_CAR:
		return RIO_PEF_SWITCH | RIO_PEF_STD_RT | (rs_has_large_ids ? RIO_PEF_CTLS : 0) |
		       RIO_PEF_EXT_FEATURES | SWITCH_MULTICAST;
	case RIO_SWP_INFO_CAR:
		return rs_port_count << 8 | from->index;
	case RIO_SWITCH_RT_LIMIT:
		return rs_switch.table_limit;
	case RIO_HOST_DID_LOCK_CSR:
		return rs_switch.host_lock;
	case RIO_COMPONENT_TAG_CSR:
		return rs_switch.component_tag;
	case RIO_STD_RTE_CONF_DESTID_SEL_CSR:
		return rs_switch.selected;
	case RIO_STD_RTE_CONF_PORT_SEL_CSR:
		return rs_switch.table[rs_switch.selected];
	case PHYSICAL_BLOCK:
		return RIO_EFB_SER_EP_FREE_ID;
	}
	for (port = 0; port < rs_port_count; port++) {
		if (offset == PHYSICAL_BLOCK + RIO_PORT_N_ERR_STS_CSR(port, 1))
			return RIO_PORT_N_ERR_STS_PORT_OK;
		if (offset == PHYSICAL_BLOCK + RIO_PORT_N_CTL_CSR(port, 1))
			return RIO_PORT_N_CTL_PWIDTH_4 | RIO_PORT_N_CTL_P_TYP_SER;
	}
	return 0;
}

static void write_switch(u32 offset, u32 value)
{
	if (rs_multicast_write(offset, value))
		return;
	switch (offset) {
	case RIO_HOST_DID_LOCK_CSR:
		write_lock_register(&rs_switch.host_lock, value);
		break;
	case RIO_COMPONENT_TAG_CSR:
		rs_switch.component_tag = value;
		break;
	case RIO_STD_RTE_CONF_DESTID_SEL_CSR:
		rs_switch.selected = value & rs_switch.table_limit;
		break;
	case RIO_STD_RTE_CONF_PORT_SEL_CSR:
		value &= 0xff;
		rs_switch.table[rs_switch.selected] =
			value < rs_port_count ? value : RIO_INVALID_ROUTE;
		break;
	}
}

/* Where a packet of the port for the id comes out; the caller has the lock. */
static struct rs_port *way(const struct rs_port *from, u16 destid)
{
	u8 port;

	if (from->link)
		return NULL;
	if (!rs_has_switch)
		return rs_ports[from->index ^ 1];
	if (destid > rs_switch.table_limit)
		return NULL;
	port = rs_switch.table[destid];
	return port < rs_port_count ? rs_ports[port] : NULL;
}

struct rs_port *rs_route(struct rs_port *from, u16 destid)
{
	struct rs_port *port;
	unsigned long flags;

	spin_lock_irqsave(&rs_register_lock, flags);
	port = way(from, destid);
	if (port && (destid_of(port) != destid || !READ_ONCE(port->is_running)))
		port = NULL;	/* misrouted: whoever gets it drops it */
	spin_unlock_irqrestore(&rs_register_lock, flags);
	return port;
}

unsigned int rs_members(struct rs_port *from, u16 destid, struct rs_port **members)
{
	unsigned long flags, ports;
	unsigned int count = 0, i;

	if (!rs_has_switch)
		return 0;
	spin_lock_irqsave(&rs_register_lock, flags);
	ports = rs_multicast_ports(destid);
	for_each_set_bit(i, &ports, rs_port_count) {
		if (i != from->index && READ_ONCE(rs_ports[i]->is_running))
			members[count++] = rs_ports[i];
	}
	spin_unlock_irqrestore(&rs_register_lock, flags);
	return count;
}

int rs_local_read(struct rs_port *port, u32 offset, u32 *value)
{
	unsigned long flags;

	spin_lock_irqsave(&rs_register_lock, flags);
	*value = read_endpoint(port, offset);
	spin_unlock_irqrestore(&rs_register_lock, flags);
	return 0;
}

int rs_local_write(struct rs_port *port, u32 offset, u32 value)
{
	unsigned long flags;

	spin_lock_irqsave(&rs_register_lock, flags);
	write_endpoint(port, offset, value);
	spin_unlock_irqrestore(&rs_register_lock, flags);
	return 0;
}

/* A request with a hop count of 0 is the switch's; the others go the way of their id. */
int rs_remote_read(struct rs_port *port, u16 destid, u8 hops, u32 offset, u32 *value)
{
	struct rs_port *target;
	unsigned long flags;
	int error = 0;

	if (port->link) {
		*value = 0xffffffff;
		return rs_link_read_register(port, destid, hops, offset, value);
	}
	spin_lock_irqsave(&rs_register_lock, flags);
	if (rs_has_switch && hops == 0) {
		*value = read_switch(port, offset);
	} else {
		target = way(port, destid);
		*value = target ? read_endpoint(target, offset) : 0xffffffff;
		error = target ? 0 : -EIO;
	}
	spin_unlock_irqrestore(&rs_register_lock, flags);
	return error;
}

int rs_remote_write(struct rs_port *port, u16 destid, u8 hops, u32 offset, u32 value)
{
	struct rs_port *target;
	unsigned long flags;
	int error = 0;

	if (port->link)
		return rs_link_write_register(port, destid, hops, offset, value);
	spin_lock_irqsave(&rs_register_lock, flags);
	if (rs_has_switch && hops == 0) {
		write_switch(offset, value);
	} else {
		target = way(port, destid);
		if (target)
			write_endpoint(target, offset, value);
		else
			error = -EIO;
	}
	spin_unlock_irqrestore(&rs_register_lock, flags);
	return error;
}
