#include "softrio/cpp/channel.h"

#include <cerrno>

namespace incast::rio {

namespace {

/// Without one, the time-out ends a call: one attempt. It is only read.
volatile int* stop_of(const volatile int* stop) {
    static volatile int once = 1;
    return stop == nullptr ? &once : const_cast<volatile int*>(stop);
}

// Of CM, the end of a time is ETIME.
std::error_code told(int result) {
    return error_of(result == -ETIME ? -ETIMEDOUT : result);
}

}  // namespace

std::error_code Socket::listen(std::uint16_t channel) {
    const int error = riomp_sock_bind(socket_.get(), channel);
    return error_of(error != 0 ? error : riomp_sock_listen(socket_.get()));
}

std::error_code Socket::accept(Socket& connection, std::uint32_t timeout_ms, const volatile int* stop) const {
    riomp_sock_t made = nullptr;
    const int error = riomp_sock_accept(socket_.get(), &made, timeout_ms, stop_of(stop));
    if (error == 0) connection.socket_.reset(made);
    return told(error);
}

std::error_code Socket::connect(Destid target, std::uint16_t channel, const volatile int* stop) {
    return told(riomp_sock_connect(socket_.get(), target, channel, stop_of(stop)));
}

std::error_code Socket::send(const Letter& letter, std::size_t bytes, const volatile int* stop) {
    return told(riomp_sock_send(socket_.get(), letter.get(), static_cast<std::uint32_t>(RIO_SOCKET_RSVD_SIZE + bytes),
                                stop_of(stop)));
}

std::error_code Socket::receive(Letter& letter, std::uint32_t timeout_ms, const volatile int* stop) {
    rapidio_mport_socket_msg* into = letter.get();
    return told(riomp_sock_receive(socket_.get(), &into, timeout_ms, stop_of(stop)));
}

Result<Mailbox> Mailbox::open(const MasterPort& port) {
    riomp_mailbox_t mailbox = nullptr;
    const int error = riomp_sock_mbox_create_handle(port.number(), 0, &mailbox);
    if (error != 0) return error_line("RapidIO mailbox of master port " + std::to_string(port.number()), error);
    return Mailbox(mailbox);
}

Socket Mailbox::socket() const {
    Socket made;
    riomp_sock_t socket = nullptr;
    if (riomp_sock_socket(mailbox_.get(), &socket) == 0) made.socket_.reset(socket);
    return made;
}

}  // namespace incast::rio
