/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * rio_soft: a RapidIO master port made of software.
 *
 * Ports of one kernel are joined back to back, or by a switch that the kernel's
 * enumeration programs; or the link of each leads out of the kernel (link.c).  See
 * README.md.
 *
 * Locks, each a spinlock that is taken with interrupts off, none inside another:
 *
 *   rs_register_lock    registers of all ports, and the switch's registers, table and
 *                       multicast masks
 *   rs_block_lock       the list of blocks of memory
 *   port->window_lock   inbound and outbound windows of a port
 *   port->event_lock    queues of doorbells and port-writes of a port
 *   outbox->lock        one outbound mailbox
 *   inbox->lock         one inbound mailbox
 *   lane->lock          one DMA channel
 *   link->lock          requests of a port for what is outside of the kernel
 *
 * The RapidIO core calls map_inb, map_outb and their opposites, dsend and
 * add_outb_message with spinlocks of its own or of its users: these never sleep.
 * What is delivered is delivered by a work item of the receiving port, with none
 * of the locks above; mport->lock, the core's mutex, is held around handlers of
 * doorbells, as it protects their list.
 */
#ifndef RIO_SOFT_H
#define RIO_SOFT_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/dmaengine.h>
#include <linux/kfifo.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/platform_device.h>
#include <linux/rio.h>
#include <linux/rio_drv.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#define RS_MAX_PORTS		8	/* as many as the core has numbers for */
#define RS_LANES		8	/* DMA channels of a port */
#define RS_IN_WINDOWS		8
#define RS_OUT_WINDOWS		16
#define RS_DOORBELLS		1024	/* that wait at a port */
#define RS_PORTWRITES		32
#define RS_MAX_ENTRIES		4096	/* of a mailbox */
#define RS_MESSAGE_WAIT_MS	1000	/* for a buffer at the receiver */
#define RS_LETTERS		1024	/* from outside, that wait for a buffer */
#define RS_PACKET_BYTES		256

enum rs_counter {
	RS_UNHEARD_DOORBELLS,	/* nobody had enabled their number */
	RS_REFUSED_DOORBELLS,	/* the queue was full: the sender was told */
	RS_LOST_PORTWRITES,
	RS_LOST_MESSAGES,	/* no such mailbox, or no buffer in time */
	RS_LOST_PACKETS,	/* reads and writes outside of all windows */
	RS_COUNTERS
};

struct rs_port;
struct rs_link;

/* Memory that windows show: freed when the last of its users has put it. */
struct rs_block {
	struct list_head node;
	struct kref ref;
	struct rs_port *port;	/* whose it is */
	void *memory;
	phys_addr_t start;
	size_t bytes;
};

struct rs_window {
	struct rs_block *block;	/* NULL: free */
	u64 start;		/* address in the fabric */
	u64 bytes;
	size_t offset;		/* in the block */
	u64 number;		/* of inbound windows: that no other ever has */
	u16 destid;		/* of outbound windows: whose memory it is */
};

struct rs_outbox {
	spinlock_t lock;	/* all below but the work item */
	struct rs_port *port;
	struct work_struct work;
	void *dev_id;
	int mbox;
	bool is_open;
	unsigned int entries;
	unsigned int head;	/* next to be filled */
	unsigned int tail;	/* next to be sent */
	unsigned int count;
	struct rs_letter {
		u16 destid;
		u16 bytes;
		void *data;
	} *letters;
};

struct rs_inbox {
	spinlock_t lock;	/* all below but the work item and the queue */
	wait_queue_head_t room;
	struct rs_port *port;
	struct work_struct work;
	void *dev_id;
	int mbox;
	bool is_open;
	unsigned int entries;
	unsigned int added;	/* where the next buffer is put */
	unsigned int filled;	/* the buffer that the next message fills */
	unsigned int taken;	/* the next message to be fetched */
	unsigned int buffers;	/* without a message */
	unsigned int messages;
	void **ring;
	struct list_head letters;	/* from outside, without a buffer yet */
	unsigned int letter_count;
	struct work_struct letter_work;
};

struct rs_lane {
	struct dma_chan chan;
	struct rs_port *port;
	struct work_struct work;
	spinlock_t lock;	/* all below, and the channel's cookies */
	struct list_head submitted;
	struct list_head issued;
	dma_cookie_t failed;	/* whose callback runs, if it failed; else 0 */
};

struct rs_doorbell {
	u16 source;
	u16 destination;
	u16 info;
};

/* Registers that can be written. */
struct rs_registers {
	u32 destid;
	u32 host_lock;
	u32 component_tag;
	u32 layer_control;
	u32 general_control;
};

struct rs_port {
	struct rio_mport mport;
	struct platform_device *device;
	struct completion released;
	unsigned int index;	/* in the fabric */
	bool is_running;
	bool hears_portwrites;
	bool is_pinned;		/* by the character device */
	struct workqueue_struct *work;

	struct rs_registers registers;

	atomic_t blocks;	/* of its memory */
	spinlock_t window_lock;
	struct rs_window in[RS_IN_WINDOWS];
	struct rs_window out[RS_OUT_WINDOWS];

	spinlock_t event_lock;	/* both queues */
	struct work_struct events;
	DECLARE_KFIFO(doorbells, struct rs_doorbell, RS_DOORBELLS);
	DECLARE_KFIFO(portwrites, union rio_pw_msg, RS_PORTWRITES);

	struct rs_outbox outboxes[RIO_MAX_MBOX];
	struct rs_inbox inboxes[RIO_MAX_MBOX];
	struct rs_lane lanes[RS_LANES];
	struct rs_link *link;		/* NULL: it leads to ports of this kernel */

	atomic64_t counters[RS_COUNTERS];
};

static inline struct rs_port *to_rs_port(struct rio_mport *mport)
{
	return container_of(mport, struct rs_port, mport);
}

static inline void rs_count(struct rs_port *port, enum rs_counter counter)
{
	atomic64_inc(&port->counters[counter]);
}

/* main.c */
extern struct rs_port *rs_ports[RS_MAX_PORTS];
extern unsigned int rs_port_count;
extern bool rs_has_switch;
extern bool rs_has_large_ids;
extern bool rs_is_linked;
void rs_pin(struct rs_port *port);

/* port.c */
int rs_port_create(struct rs_port *port);
void rs_port_destroy(struct rs_port *port);

/* registers.c */
int rs_registers_init(void);
void rs_registers_exit(void);
void rs_registers_reset(struct rs_port *port);
int rs_local_read(struct rs_port *port, u32 offset, u32 *value);
int rs_local_write(struct rs_port *port, u32 offset, u32 value);
int rs_remote_read(struct rs_port *port, u16 destid, u8 hops, u32 offset, u32 *value);
int rs_remote_write(struct rs_port *port, u16 destid, u8 hops, u32 offset, u32 value);
u16 rs_port_destid(struct rs_port *port);
void rs_set_destid(struct rs_port *port, u16 destid);
/* The port that has the id and is reached; NULL: none. */
struct rs_port *rs_route(struct rs_port *from, u16 destid);
/* Who gets what is written to that id without a response; 0: it stands for no group. */
unsigned int rs_members(struct rs_port *from, u16 destid, struct rs_port **members);

/* multicast.c: with rs_register_lock, but for the first two.  False: no register of its own. */
int rs_multicast_init(u32 ids);
void rs_multicast_exit(void);
bool rs_multicast_read(u32 offset, u32 *value);
bool rs_multicast_write(u32 offset, u32 value);
unsigned long rs_multicast_ports(u16 destid);

/* events.c */
void rs_events_init(struct rs_port *port);
/* -EAGAIN: as many wait as may. */
int rs_queue_doorbell(struct rs_port *to, u16 source, u16 destination, u16 info);
int rs_send_doorbell(struct rs_port *from, u16 destid, u16 info);
int rs_send_portwrite(struct rs_port *from, u16 destid, const union rio_pw_msg *message);

/* messages.c */
void rs_messages_init(struct rs_port *port);
/* From outside: the data, which kfree() frees, is taken over; -EAGAIN: it is not, and is lost. */
int rs_queue_letter(struct rs_port *port, int mbox, void *data, size_t bytes);
int rs_open_outbox(struct rio_mport *mport, void *dev_id, int mbox, int entries);
void rs_close_outbox(struct rio_mport *mport, int mbox);
int rs_add_outbound(struct rio_mport *mport, struct rio_dev *rdev, int mbox, void *data,
		    size_t bytes);
int rs_open_inbox(struct rio_mport *mport, void *dev_id, int mbox, int entries);
void rs_close_inbox(struct rio_mport *mport, int mbox);
int rs_add_inbound(struct rio_mport *mport, int mbox, void *buffer);
void *rs_take_inbound(struct rio_mport *mport, int mbox);

/* memory.c */
extern const struct dma_map_ops rs_memory_ops;
int rs_map_in(struct rio_mport *mport, dma_addr_t local, u64 start, u64 bytes, u32 flags);
void rs_unmap_in(struct rio_mport *mport, dma_addr_t local);
int rs_map_out(struct rio_mport *mport, u16 destid, u64 start, u32 bytes, u32 flags,
	       dma_addr_t *local);
void rs_unmap_out(struct rio_mport *mport, u16 destid, u64 start);
/* Copies between local memory and windows of the port; -EIO if any byte is in none. */
int rs_window_write(struct rs_port *port, u64 address, const void *from, size_t bytes);
int rs_window_read(struct rs_port *port, u64 address, void *to, size_t bytes);

/* The inbound window that has the address, which becomes its start. */
bool rs_find_window(struct rs_port *port, u64 *address, u64 *bytes, u64 *number);
int rs_map_window(struct rs_port *port, struct vm_area_struct *vma);

/*
 * link.c: what a port asks of a fabric outside of the kernel.  All but doorbells, which
 * are sent when the link has room for them, wait for the answer.  -ENODEV: the link is
 * down, or nobody has the id.
 */
int rs_link_create(struct rs_port *port);
void rs_link_destroy(struct rs_port *port);
bool rs_link_is_up(const struct rs_port *port);
int rs_link_doorbell(struct rs_port *port, u16 destid, u16 info);
int rs_link_message(struct rs_port *port, u16 destid, int mbox, const void *data, size_t bytes);
int rs_link_read_register(struct rs_port *port, u16 destid, u8 hops, u32 offset, u32 *value);
int rs_link_write_register(struct rs_port *port, u16 destid, u8 hops, u32 offset, u32 value);
int rs_link_write(struct rs_port *port, u16 destid, u64 address, const void *from, size_t bytes,
		  bool has_response, u8 lane);
int rs_link_read(struct rs_port *port, u16 destid, u64 address, void *to, size_t bytes, u8 lane);

/* dma.c */
int rs_dma_create(struct rs_port *port);
void rs_dma_destroy(struct rs_port *port);

/* Exported by the core, which declares them in its own folder (drivers/rapidio/rio.h). */
struct rio_net *rio_alloc_net(struct rio_mport *mport);
int rio_add_net(struct rio_net *net);

#endif
