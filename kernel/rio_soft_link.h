/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What carries packets between ports of rio_soft and a fabric outside of the kernel:
 * the interface of /dev/rio_soft_linkN, the far end of port N's link.  One process
 * has it open at a time; meanwhile the link is up.
 *
 * The kernel's requests are fetched by RS_LINK_NEXT, and answered by RS_LINK_ANSWER
 * where they have an id.  What comes from outside is handed in by the other calls,
 * none of which waits.  A window is mapped by mmap, at the address that it has in the
 * fabric.
 */
#ifndef RIO_SOFT_LINK_H
#define RIO_SOFT_LINK_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define RS_LINK_MAX_BYTES	65536	/* of data of one request */

/* Kinds of requests, and what RS_LINK_NEXT waits for: any of these. */
#define RS_LINK_DOORBELL	0x01	/* info; nobody waits for an answer */
#define RS_LINK_MESSAGE		0x02	/* data; info: mailbox */
#define RS_LINK_READ_REGISTER	0x04	/* address: its offset; info: hop count */
#define RS_LINK_WRITE_REGISTER	0x08	/* as before; its value is the data */
#define RS_LINK_WRITE		0x10	/* data, for a window */
#define RS_LINK_READ		0x20

#define RS_LINK_ANSWERED	0x01	/* flag of RS_LINK_WRITE: with a response */

struct rs_link_request {
	__u32 id;		/* 0: no answer */
	__u16 kind;
	__u16 destid;
	__u64 address;
	__u32 bytes;		/* of its data, or of what is to be read */
	__u16 info;
	__u8 flags;
	__u8 lane;		/* DMA channel */
};

/* EINTR, as read(); ENODATA: none came in time. */
struct rs_link_next {
	__u64 data;		/* room for RS_LINK_MAX_BYTES */
	__u32 kinds;
	__u32 timeout_ms;
	struct rs_link_request request;
};

/* ENOENT: nobody waits for it any more.  Registers are in the byte order of the processor. */
struct rs_link_answer {
	__u32 id;
	__s32 error;		/* 0, or negative */
	__u64 data;		/* of reads */
	__u32 bytes;
	__u32 reserved;
};

/* EAGAIN: 1024 wait there. */
struct rs_link_doorbell {
	__u16 source;
	__u16 info;
};

/* EAGAIN: 1024 wait there, it is lost. */
struct rs_link_message {
	__u64 data;
	__u32 bytes;
	__u16 source;
	__u16 mailbox;
};

/* Of the port.  EPERM: that one is not for others to write. */
struct rs_link_register {
	__u32 offset;
	__u32 value;
	__u32 is_write;
};

/*
 * In: any address in it.  Out: where it begins, and a number that no other window ever
 * has.  ENXIO: none is there.
 */
struct rs_link_window {
	__u64 address;
	__u64 bytes;
	__u64 number;
};

#define RS_LINK_IOCTL_NEXT	_IOWR('R', 0x60, struct rs_link_next)
#define RS_LINK_IOCTL_ANSWER	_IOW('R', 0x61, struct rs_link_answer)
#define RS_LINK_IOCTL_DOORBELL	_IOW('R', 0x62, struct rs_link_doorbell)
#define RS_LINK_IOCTL_MESSAGE	_IOW('R', 0x63, struct rs_link_message)
#define RS_LINK_IOCTL_REGISTER	_IOWR('R', 0x64, struct rs_link_register)
#define RS_LINK_IOCTL_WINDOW	_IOWR('R', 0x65, struct rs_link_window)

#endif
