// Channelised messages (CM): mailboxes and sockets that close themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <system_error>

#include <rapidio_mport_sock.h>

#include "softrio/cpp/port.h"

namespace incast::rio {

inline constexpr std::size_t max_payload_bytes = RIO_SOCKET_PAYLOAD_SIZE;

/// A message and its header: what is sent, or was received.
class Letter {
public:
    Letter() : message_(std::make_unique<rapidio_mport_socket_msg>()) {}
    [[nodiscard]] std::span<std::byte> payload() { return std::as_writable_bytes(std::span(message_->msg.payload)); }
    [[nodiscard]] std::span<const std::byte> payload() const { return std::as_bytes(std::span(message_->msg.payload)); }
    [[nodiscard]] rapidio_mport_socket_msg* get() const { return message_.get(); }

private:
    std::unique_ptr<rapidio_mport_socket_msg> message_;
};

/// One socket: listening, or a connection. `stop` may be nullptr; see rapidio_mport_sock.h.
class Socket {
public:
    Socket() = default;
    [[nodiscard]] bool is_open() const { return socket_ != nullptr; }
    void close() { socket_.reset(); }

    [[nodiscard]] std::error_code listen(std::uint16_t channel);
    /// timed_out after that time; 0 waits for ever.
    [[nodiscard]] std::error_code accept(Socket& connection, std::uint32_t timeout_ms,
                                         const volatile int* stop = nullptr) const;
    /// timed_out after 3 s.
    [[nodiscard]] std::error_code connect(Destid target, std::uint16_t channel, const volatile int* stop = nullptr);
    /// Sends the first `bytes` of the payload. Waits while 128 messages lie unread; timed_out after 3 s.
    [[nodiscard]] std::error_code send(const Letter& letter, std::size_t bytes, const volatile int* stop = nullptr);
    [[nodiscard]] std::error_code receive(Letter& letter, std::uint32_t timeout_ms, const volatile int* stop = nullptr);

private:
    friend class Mailbox;
    struct Close {
        void operator()(rapidio_mport_socket* socket) const { (void)riomp_sock_close(&socket); }
    };
    std::unique_ptr<rapidio_mport_socket, Close> socket_;
};

class Mailbox {
public:
    /// Of a master port that is open in this process.
    static Result<Mailbox> open(const MasterPort& port);
    /// Not open: out of memory.
    [[nodiscard]] Socket socket() const;

private:
    struct Close {
        void operator()(rapidio_mport_mailbox* mailbox) const { (void)riomp_sock_mbox_destroy_handle(&mailbox); }
    };
    explicit Mailbox(riomp_mailbox_t mailbox) : mailbox_(mailbox) {}
    std::unique_ptr<rapidio_mport_mailbox, Close> mailbox_;
};

}  // namespace incast::rio
