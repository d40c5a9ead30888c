#include <cerrno>
#include <cstdlib>
#include <new>

#include <rapidio_mport_sock.h>

#include "softrio/api/endpoints.h"

using namespace incast::softrio;

struct rapidio_mport_mailbox {
    std::shared_ptr<api::Endpoint> endpoint;
};

struct rapidio_mport_socket {
    explicit rapidio_mport_socket(std::shared_ptr<api::Endpoint> of)
        : endpoint(std::move(of)), socket(endpoint->port->make_socket()) {}
    std::shared_ptr<api::Endpoint> endpoint;
    std::unique_ptr<Socket> socket;
};

namespace {

int check(riomp_sock_t socket) {
    if (socket == nullptr) return -EINVAL;
    return socket->socket->is_usable() ? 0 : -EBADF;
}

rapidio_mport_socket_msg* make_buffer() {
    return static_cast<rapidio_mport_socket_msg*>(std::calloc(1, sizeof(rapidio_mport_socket_msg)));
}

int make_socket(const std::shared_ptr<api::Endpoint>& endpoint, riomp_sock_t* socket) {
    auto* made = new (std::nothrow) rapidio_mport_socket(endpoint);
    if (made == nullptr) return -ENOMEM;
    *socket = made;
    return 0;
}

}  // namespace

int riomp_sock_mbox_init() {
    return api::count_mports() > 0 ? 0 : -ENODEV;
}

int riomp_sock_mbox_exit() {
    return 0;
}

int riomp_sock_mbox_create_handle(uint8_t mport_id, uint8_t mbox_id, riomp_mailbox_t* mailbox) {
    (void)mbox_id;  // channels are numbered across all mailboxes
    if (mailbox == nullptr) return -EINVAL;
    const auto endpoint = api::open_endpoint(mport_id);
    if (!endpoint) return -ENODEV;
    auto* made = new (std::nothrow) rapidio_mport_mailbox{*endpoint};
    if (made == nullptr) return -ENOMEM;
    *mailbox = made;
    return 0;
}

int riomp_sock_mbox_destroy_handle(riomp_mailbox_t* mailbox) {
    if (mailbox == nullptr || *mailbox == nullptr) return -EINVAL;
    delete *mailbox;
    *mailbox = nullptr;
    return 0;
}

int riomp_sock_socket(riomp_mailbox_t mailbox, riomp_sock_t* socket_handle) {
    if (mailbox == nullptr || socket_handle == nullptr) return -EINVAL;
    return make_socket(mailbox->endpoint, socket_handle);
}

int riomp_sock_send(riomp_sock_t socket_handle, rapidio_mport_socket_msg* skt_msg, uint32_t size,
                    volatile int* stop_req) {
    if (skt_msg == nullptr) return -EINVAL;
    if (const int error = check(socket_handle)) return error;
    Socket& socket = *socket_handle->socket;
    const int error = socket.send({reinterpret_cast<const std::byte*>(skt_msg), size}, stop_req);
    if (error == 0) api::wait_until(socket.arrival_ns(size));
    return error;
}

int riomp_sock_receive(riomp_sock_t socket_handle, rapidio_mport_socket_msg** skt_msg, uint32_t timeout,
                       volatile int* stop_req) {
    if (skt_msg == nullptr) return -EINVAL;
    if (const int error = check(socket_handle)) return error;
    rapidio_mport_socket_msg* into = *skt_msg != nullptr ? *skt_msg : make_buffer();
    if (into == nullptr) return -ENOMEM;
    const int error =
        socket_handle->socket->receive({reinterpret_cast<std::byte*>(into), sizeof *into}, timeout, stop_req);
    if (error != 0 && *skt_msg == nullptr) {
        std::free(into);
    } else {
        *skt_msg = into;
    }
    return error;
}

int riomp_sock_release_receive_buffer(riomp_sock_t socket_handle, rapidio_mport_socket_msg* skt_msg) {
    (void)socket_handle;
    std::free(skt_msg);
    return 0;
}

int riomp_sock_close(riomp_sock_t* socket_handle) {
    if (socket_handle == nullptr || *socket_handle == nullptr) return -EINVAL;
    delete *socket_handle;
    *socket_handle = nullptr;
    return 0;
}

int riomp_sock_bind(riomp_sock_t socket_handle, uint16_t local_channel) {
    if (const int error = check(socket_handle)) return error;
    return socket_handle->socket->bind(local_channel);
}

int riomp_sock_listen(riomp_sock_t socket_handle) {
    if (const int error = check(socket_handle)) return error;
    return socket_handle->socket->listen();
}

int riomp_sock_accept(riomp_sock_t socket_handle, riomp_sock_t* conn, uint32_t timeout, volatile int* stop_req) {
    if (conn == nullptr) return -EINVAL;
    if (const int error = check(socket_handle)) return error;
    riomp_sock_t into = *conn;
    if (into == nullptr) {
        if (const int error = make_socket(socket_handle->endpoint, &into)) return error;
    }
    const int error = socket_handle->socket->accept(*into->socket, timeout, stop_req);
    if (error != 0 && *conn == nullptr) {
        delete into;
    } else {
        *conn = into;
    }
    return error;
}

int riomp_sock_connect(riomp_sock_t socket_handle, did_val_t did_val, uint16_t channel, volatile int* stop_req) {
    if (const int error = check(socket_handle)) return error;
    return socket_handle->socket->connect(did_val, channel, stop_req);
}

int riomp_sock_request_send_buffer(riomp_sock_t socket_handle, rapidio_mport_socket_msg** skt_msg) {
    (void)socket_handle;
    if (skt_msg == nullptr) return -EINVAL;
    *skt_msg = make_buffer();
    return *skt_msg != nullptr ? 0 : -ENOMEM;
}

int riomp_sock_release_send_buffer(riomp_sock_t socket_handle, rapidio_mport_socket_msg* skt_msg) {
    (void)socket_handle;
    std::free(skt_msg);
    return 0;
}
