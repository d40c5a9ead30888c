/* Channelised messages (CM): connections that carry messages of up to 4096 bytes. docs/rapidio.md explains the whole;
 * errors as in rapidio_mport_mgmt.h.
 *
 * A call that has waited for its time-out begins again, unless *stop_req is not 0 by then: then it returns -ETIME. So
 * with *stop_req set from the start there is one attempt of the whole time-out, and without (NULL) the call returns
 * when it has succeeded or cannot any more. Only riomp_sock_connect without it makes one attempt. */
#pragma once

#include <rio_route.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#ifndef RIO_MAX_MSG_SIZE
#define RIO_MAX_MSG_SIZE (0x1000)
#endif
#define CM_HEADER_BYTES (0x18)

#define RIO_SOCKET_MSG_SIZE 0x1000
#define RIO_SOCKET_RSVD_SIZE 20
#define RIO_SOCKET_PAYLOAD_SIZE (RIO_SOCKET_MSG_SIZE - RIO_SOCKET_RSVD_SIZE)

typedef struct rapidio_mport_mailbox* riomp_mailbox_t;
typedef struct rapidio_mport_socket* riomp_sock_t;

/** The first 20 bytes are the message's header, which sending writes. */
struct rapidio_mport_socket_msg_t {
    uint8_t do_not_modify[RIO_SOCKET_RSVD_SIZE];
    uint8_t payload[RIO_SOCKET_PAYLOAD_SIZE];
};
typedef union {
    uint8_t as_bytes[RIO_SOCKET_MSG_SIZE];
    struct rapidio_mport_socket_msg_t msg;
} rapidio_mport_socket_msg;

/** There for programs that call them: a fabric that can be used is 0. */
int riomp_sock_mbox_init(void);
int riomp_sock_mbox_exit(void);

/** Opens a master port for messages, whatever the mailbox; see riomp_mgmt_mport_create_handle. */
int riomp_sock_mbox_create_handle(uint8_t mport_id, uint8_t mbox_id, riomp_mailbox_t* mailbox);
/** Its sockets stay until they are closed. */
int riomp_sock_mbox_destroy_handle(riomp_mailbox_t* mailbox);

/** A socket, to be closed by riomp_sock_close. */
int riomp_sock_socket(riomp_mailbox_t mailbox, riomp_sock_t* socket_handle);

/** Sends the first `size` bytes (20..4096: header and payload) as one message; they may be changed after the return.
 * Waits while 128 messages lie unread: -ETIME after 3 s. -ECONNRESET: the other side is closed or gone. */
int riomp_sock_send(riomp_sock_t socket_handle, rapidio_mport_socket_msg* skt_msg, uint32_t size,
                    volatile int* stop_req);
/** The next message, into *skt_msg (4096 bytes of the caller's; NULL: a fresh buffer, to be freed by
 * riomp_sock_release_receive_buffer). `timeout` in ms, 0: none; then -ETIME. -ECONNRESET: the other side is closed or
 * gone, and all that it sent has been received. */
int riomp_sock_receive(riomp_sock_t socket_handle, rapidio_mport_socket_msg** skt_msg, uint32_t timeout,
                       volatile int* stop_req);
int riomp_sock_release_receive_buffer(riomp_sock_t socket_handle, rapidio_mport_socket_msg* skt_msg);

/** Closes and frees the socket. The other side receives what was sent, then -ECONNRESET. */
int riomp_sock_close(riomp_sock_t* socket_handle);

/** Takes a channel number of this endpoint; 0: a free one from 256 on. -EBUSY: it is taken. */
int riomp_sock_bind(riomp_sock_t socket_handle, uint16_t local_channel);
int riomp_sock_listen(riomp_sock_t socket_handle);
/** The next connection to a listening socket, as *conn (NULL: a fresh socket; else an unused one, which becomes it).
 * `timeout` in ms, 0: none; then -ETIME. */
int riomp_sock_accept(riomp_sock_t socket_handle, riomp_sock_t* conn, uint32_t timeout, volatile int* stop_req);
/** Connects, and returns when the other side has accepted; -ETIME after 3 s. While nobody listens there it goes on
 * asking. -ENODEV: no such endpoint; -EISCONN: it is connected. */
int riomp_sock_connect(riomp_sock_t socket_handle, did_val_t did_val, uint16_t channel, volatile int* stop_req);

/** A zeroed buffer of 4096 bytes, and the end of it. */
int riomp_sock_request_send_buffer(riomp_sock_t socket_handle, rapidio_mport_socket_msg** skt_msg);
int riomp_sock_release_send_buffer(riomp_sock_t socket_handle, rapidio_mport_socket_msg* skt_msg);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
