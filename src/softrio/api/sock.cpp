#include <cerrno>
#include <cstdlib>
#include <new>

#include <rapidio_mport_sock.h>

#include "softrio/api/endpoints.h"

using namespace incast::softrio;
using api::tell;

// Programs free() both, as the original's.
struct rapidio_mport_mailbox {
    std::shared_ptr<api::Endpoint>* endpoint;
};

struct rapidio_mport_socket {
    std::uint64_t id;
};

namespace {

using Opened = std::shared_ptr<api::OpenedSocket>;

/// 0: it can be used.
int find(riomp_sock_t socket, Opened& opened) {
    if (socket == nullptr) return -EINVAL;
    opened = api::find_socket(socket->id);
    return opened != nullptr && opened->socket->is_usable() ? 0 : -EBADF;
}

rapidio_mport_socket_msg* make_buffer() {
    return static_cast<rapidio_mport_socket_msg*>(std::calloc(1, sizeof(rapidio_mport_socket_msg)));
}

/// Whoever cannot ask to stop waits until it is there.
std::uint32_t time_of(std::uint32_t timeout_ms, const volatile int* stop) {
    return stop == nullptr ? 0 : timeout_ms;
}

int make_socket(const std::shared_ptr<api::Endpoint>& endpoint, riomp_sock_t* socket) {
    auto* made = static_cast<rapidio_mport_socket*>(std::calloc(1, sizeof(rapidio_mport_socket)));
    if (made == nullptr) return -ENOMEM;
    made->id = api::add_socket(endpoint);
    *socket = made;
    return 0;
}

void free_socket(riomp_sock_t socket) {
    api::close_socket(socket->id);
    std::free(socket);
}

}  // namespace

int riomp_sock_mbox_init() {
    return tell(api::count_mports() > 0 ? 0 : -ENODEV);
}

int riomp_sock_mbox_exit() {
    return 0;
}

int riomp_sock_mbox_create_handle(uint8_t mport_id, uint8_t mbox_id, riomp_mailbox_t* mailbox) {
    (void)mbox_id;  // channels are numbered across all mailboxes
    if (mailbox == nullptr) return tell(-EINVAL);
    const auto endpoint = api::open_endpoint(mport_id);
    if (!endpoint) return tell(-ENODEV);
    auto* made = static_cast<rapidio_mport_mailbox*>(std::calloc(1, sizeof(rapidio_mport_mailbox)));
    if (made == nullptr) return tell(-ENOMEM);
    made->endpoint = new std::shared_ptr<api::Endpoint>(*endpoint);
    *mailbox = made;
    return 0;
}

int riomp_sock_mbox_destroy_handle(riomp_mailbox_t* mailbox) {
    if (mailbox == nullptr || *mailbox == nullptr) return tell(-EINVAL);
    delete (*mailbox)->endpoint;
    std::free(*mailbox);
    *mailbox = nullptr;
    return 0;
}

int riomp_sock_socket(riomp_mailbox_t mailbox, riomp_sock_t* socket_handle) {
    if (mailbox == nullptr || socket_handle == nullptr) return tell(-EINVAL);
    return tell(make_socket(*mailbox->endpoint, socket_handle));
}

int riomp_sock_send(riomp_sock_t socket_handle, rapidio_mport_socket_msg* skt_msg, uint32_t size,
                    volatile int* stop_req) {
    if (skt_msg == nullptr) return tell(-EINVAL);
    Opened opened;
    if (const int error = find(socket_handle, opened)) return tell(error);
    Socket& socket = *opened->socket;
    const int error = socket.send({reinterpret_cast<const std::byte*>(skt_msg), size}, stop_req);
    if (error == 0) api::wait_until(socket.arrival_ns(size));
    return tell(error);
}

int riomp_sock_receive(riomp_sock_t socket_handle, rapidio_mport_socket_msg** skt_msg, uint32_t timeout,
                       volatile int* stop_req) {
    if (skt_msg == nullptr) return tell(-EINVAL);
    Opened opened;
    if (const int error = find(socket_handle, opened)) return tell(error);
    rapidio_mport_socket_msg* into = *skt_msg != nullptr ? *skt_msg : make_buffer();
    if (into == nullptr) return tell(-ENOMEM);
    const int error = opened->socket->receive({reinterpret_cast<std::byte*>(into), sizeof *into},
                                              time_of(timeout, stop_req), stop_req);
    if (error != 0 && *skt_msg == nullptr) {
        std::free(into);
    } else {
        *skt_msg = into;
    }
    return tell(error);
}

int riomp_sock_release_receive_buffer(riomp_sock_t socket_handle, rapidio_mport_socket_msg* skt_msg) {
    (void)socket_handle;
    std::free(skt_msg);
    return 0;
}

int riomp_sock_close(riomp_sock_t* socket_handle) {
    if (socket_handle == nullptr || *socket_handle == nullptr) return tell(-EINVAL);
    free_socket(*socket_handle);
    *socket_handle = nullptr;
    return 0;
}

int riomp_sock_bind(riomp_sock_t socket_handle, uint16_t local_channel) {
    Opened opened;
    if (const int error = find(socket_handle, opened)) return tell(error);
    return tell(opened->socket->bind(local_channel));
}

int riomp_sock_listen(riomp_sock_t socket_handle) {
    Opened opened;
    if (const int error = find(socket_handle, opened)) return tell(error);
    return tell(opened->socket->listen());
}

int riomp_sock_accept(riomp_sock_t socket_handle, riomp_sock_t* conn, uint32_t timeout, volatile int* stop_req) {
    if (conn == nullptr) return tell(-EINVAL);
    Opened opened;
    if (const int error = find(socket_handle, opened)) return tell(error);
    riomp_sock_t into = *conn;
    if (into == nullptr) {
        if (const int error = make_socket(opened->endpoint, &into)) return tell(error);
    }
    Opened connection;
    int error = find(into, connection);
    if (error == 0) error = opened->socket->accept(*connection->socket, time_of(timeout, stop_req), stop_req);
    if (error != 0 && *conn == nullptr) {
        free_socket(into);
    } else {
        *conn = into;
    }
    return tell(error);
}

int riomp_sock_connect(riomp_sock_t socket_handle, did_val_t did_val, uint16_t channel, volatile int* stop_req) {
    Opened opened;
    if (const int error = find(socket_handle, opened)) return tell(error);
    return tell(opened->socket->connect(did_val, channel, stop_req));
}

int riomp_sock_request_send_buffer(riomp_sock_t socket_handle, rapidio_mport_socket_msg** skt_msg) {
    (void)socket_handle;
    if (skt_msg == nullptr) return tell(-EINVAL);
    *skt_msg = make_buffer();
    return tell(*skt_msg != nullptr ? 0 : -ENOMEM);
}

int riomp_sock_release_send_buffer(riomp_sock_t socket_handle, rapidio_mport_socket_msg* skt_msg) {
    (void)socket_handle;
    std::free(skt_msg);
    return 0;
}
