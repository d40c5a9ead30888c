/* Master ports: handles, properties, registers, doorbells and port-writes. docs/rapidio.md explains the whole.
 *
 * Where nothing else is said, a function returns 0 or a negative errno value, among them: -EINVAL for an argument that
 * makes no sense, -ENODEV where no endpoint has that destination id (any more). errno then holds the same value.
 * Functions may be called from several threads at once; a handle is destroyed when no
 * other call uses it. */
#pragma once

#include <rio_route.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define RIOMP_MAP_ANY_ADDR ((uint64_t)(~((uint64_t)0)))

/** A destination id with its size in one word: the flag says which, the mask takes the id. */
#define RIOMP_MGMT_DEV16_FLAG 0x00010000
#define RIOMP_MGMT_DEV16_MASK 0x0000FFFF
#define RIOMP_MGMT_DEV08_FLAG 0x00000000
#define RIOMP_MGMT_DEV08_MASK 0x000000FF

#define RIO_EVENT_DOORBELL (1 << 0)
#define RIO_EVENT_PORTWRITE (1 << 1)

/** Made and freed by the functions below. The descriptor polls readable (POLLIN, EPOLLIN) while an event is queued for
 * this handle; it is not for reading, writing or closing. */
struct rapidio_mport_handle {
    int fd;
    uint8_t mport_id;
};
typedef struct rapidio_mport_handle* riomp_mport_t;

/** Number of a master port in the upper 16 bits, its destination id in the lower ones. */
typedef uint32_t mport_list_t;

enum riomp_mgmt_link_speed {
    RIO_LINK_DOWN = 0, /* no link */
    RIO_LINK_125 = 1,  /* 1.25 Gbaud for each lane */
    RIO_LINK_250 = 2,
    RIO_LINK_312 = 3,
    RIO_LINK_500 = 4,
    RIO_LINK_625 = 5
};

enum riomp_mgmt_link_width {
    RIO_LINK_1X = 0,
    RIO_LINK_1XR = 1,
    RIO_LINK_2X = 3,
    RIO_LINK_4X = 2,
    RIO_LINK_8X = 4,
    RIO_LINK_16X = 5
};

enum riomp_mgmt_mport_flags {
    RIO_MPORT_DMA = (1 << 0),    /* has DMA engines */
    RIO_MPORT_DMA_SG = (1 << 1), /* which gather and scatter */
    RIO_MPORT_IBSG = (1 << 2)    /* inbound windows need not be contiguous in memory */
};

struct riomp_mgmt_mport_properties {
    did_val_t did_val;          /* destination id */
    uint8_t id;                 /* number of the master port */
    uint8_t index;              /* of the port in use, in a device with several */
    uint32_t flags;             /* enum riomp_mgmt_mport_flags */
    uint32_t sys_size;          /* 0: destination ids of 8 bits, 1: of 16 */
    uint8_t port_ok;            /* 1: the link is up */
    uint8_t link_speed;         /* enum riomp_mgmt_link_speed */
    uint8_t link_width;         /* enum riomp_mgmt_link_width */
    uint32_t dma_max_sge;       /* pieces of one transfer; 0: no limit */
    uint32_t dma_max_size;      /* bytes of one piece */
    uint32_t dma_align;         /* bytes; 0: none is needed */
    uint32_t transfer_mode;     /* in use */
    uint32_t cap_sys_size;      /* bits: sizes of destination ids it can do */
    uint32_t cap_addr_size;     /* bits: 1 << 0: 34-bit, 1 << 1: 50-bit, 1 << 2: 66-bit addresses */
    uint32_t cap_transfer_mode; /* bits: transfer modes it can do */
    uint32_t cap_mport;         /* as flags */
};

/** Who sent it (or shall get it), and the 16 bits it carries. */
struct riomp_mgmt_doorbell {
    did_val_t did_val;
    uint16_t payload;
};

struct riomp_mgmt_portwrite {
    uint32_t payload[16];
};

struct riomp_mgmt_event {
    unsigned int header; /* RIO_EVENT_DOORBELL or RIO_EVENT_PORTWRITE */
    union {
        struct riomp_mgmt_doorbell doorbell;
        struct riomp_mgmt_portwrite portwrite;
    } u;
};

/** The master ports of this host. `number_of_mports`: in, the most that are wanted; out, how many there are in the
 * list. The list is the caller's, to be freed by riomp_mgmt_free_mport_list. Without a fabric to join: -ENODEV, and a
 * line on stderr that says why. */
int riomp_mgmt_get_mport_list(mport_list_t** dev_ids, uint8_t* number_of_mports);
int riomp_mgmt_free_mport_list(mport_list_t** dev_ids);

/** Destination ids of all other endpoints of the fabric, in ascending order. The list is the caller's, to be freed by
 * riomp_mgmt_free_ep_list. */
int riomp_mgmt_get_ep_list(uint8_t mport_id, did_val_t** did_values, uint32_t* number_of_eps);
int riomp_mgmt_free_ep_list(did_val_t** did_values);

/** Opens a master port. The first use of one makes this process an endpoint of the fabric, until it has closed all
 * handles and mailboxes, or ends. `flags`: O_NONBLOCK, or 0. -ENODEV: no such master port, or no fabric (a line on
 * stderr says why); -EBUSY: the destination id is taken, or all 128 handles of the port are in use. */
int riomp_mgmt_mport_create_handle(uint32_t mport_id, int flags, riomp_mport_t* mport_handle);
/** Frees the handle and what was made through it: windows, buffers, doorbell ranges. Its mappings of memory stay. */
int riomp_mgmt_mport_destroy_handle(riomp_mport_t* mport_handle);
/** `id`: the descriptor of the handle. */
int riomp_mgmt_get_handle_id(riomp_mport_t mport_handle, int* id);

int riomp_mgmt_query(riomp_mport_t mport_handle, struct riomp_mgmt_mport_properties* qresp);
/** Prints them to stdout. */
void riomp_mgmt_display_info(struct riomp_mgmt_mport_properties* prop);

/** Takes another destination id. -EBUSY: another endpoint has it. */
int riomp_mgmt_destid_set(riomp_mport_t mport_handle, did_val_t did_val);

/** Configuration registers of this port. `offset` and `size` are multiples of 4 within 16 MiB; a write is of 4 bytes.
 * Registers that do not exist read 0 and ignore what is written. */
int riomp_mgmt_lcfg_read(riomp_mport_t mport_handle, uint32_t offset, uint32_t size, uint32_t* data);
int riomp_mgmt_lcfg_write(riomp_mport_t mport_handle, uint32_t offset, uint32_t size, uint32_t data);
/** Registers of another endpoint (hc = HC_MP), or of the switch between (hc = 0). -EIO: nothing answers at that hop
 * count; -EPERM: the register is its owner's alone. */
int riomp_mgmt_rcfg_read(riomp_mport_t mport_handle, did_val_t did_val, hc_t hc, uint32_t offset, uint32_t size,
                         uint32_t* data);
int riomp_mgmt_rcfg_write(riomp_mport_t mport_handle, did_val_t did_val, hc_t hc, uint32_t offset, uint32_t size,
                          uint32_t data);

/** From now on doorbells with a payload of start..end from that source (0xffff: from any) are queued for this handle.
 * -EBUSY: the range overlaps one that is enabled, by this or another handle of the port; -ENOMEM: 32 ranges are. */
int riomp_mgmt_dbrange_enable(riomp_mport_t mport_handle, did_val_t did_val, uint16_t start, uint16_t end);
/** Takes back exactly what was enabled; what is queued stays. -EINVAL: it was not. */
int riomp_mgmt_dbrange_disable(riomp_mport_t mport_handle, did_val_t did_val, uint16_t start, uint16_t end);
/** Port-writes whose first word, masked, is in low..high. */
int riomp_mgmt_pwrange_enable(riomp_mport_t mport_handle, uint32_t mask, uint32_t low, uint32_t high);
int riomp_mgmt_pwrange_disable(riomp_mport_t mport_handle, uint32_t mask, uint32_t low, uint32_t high);

/** Which kinds of event are queued for this handle: none at first. */
int riomp_mgmt_set_event_mask(riomp_mport_t mport_handle, unsigned int mask);
int riomp_mgmt_get_event_mask(riomp_mport_t mport_handle, unsigned int* mask);

/** The oldest event. Waits for one; with O_NONBLOCK: -EAGAIN if there is none. -EINTR: a signal came first. What was
 * written by NWRITE_R before the doorbell was sent is in memory. */
int riomp_mgmt_get_event(riomp_mport_t mport_handle, struct riomp_mgmt_event* evt);
/** Sends a doorbell to u.doorbell.did_val. A doorbell that nobody has enabled is lost, and 0. A full queue (512) makes
 * it try again for as long as the fabric's `retry_ms` (with O_NONBLOCK: not at all); then -EAGAIN, and it was not sent.
 * -EOPNOTSUPP: another kind of event. */
int riomp_mgmt_send_event(riomp_mport_t mport_handle, struct riomp_mgmt_event* evt);

/** Makes a device known to this host by a name (NULL: of port and component tag), until some process deletes it.
 * -EEXIST: there is one of that name; -EIO: nothing answers there. */
int riomp_mgmt_device_add(riomp_mport_t mport_handle, did_val_t did_val, hc_t hc, ct_t ct, const char* name);
int riomp_mgmt_device_del(riomp_mport_t mport_handle, did_val_t did_val, hc_t hc, ct_t ct, const char* name);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
