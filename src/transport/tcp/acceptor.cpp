#include "transport/tcp/acceptor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "transport/tcp/tcp.h"

namespace incast::transport::tcp {

Acceptor::Acceptor(os::Descriptor listener, const Options& options, os::Poller& poller, LogSink log,
                   std::uint64_t listener_id, std::uint64_t half_open_id)
    : listener_(std::move(listener)),
      options_(options),
      poller_(poller),
      log_(std::move(log)),
      half_open_id_(half_open_id),
      half_open_(options.half_open_max) {
    (void)poller_.add(listener_, EPOLLIN, listener_id);
}

void Acceptor::accept_all(Time now) {
    // Bounded per call: a flood of connections must not keep the endpoint from its peers.
    for (std::uint32_t n = 0; n < options_.half_open_max; ++n) {
        os::Descriptor socket = accept_from(listener_, options_.socket);
        if (!socket.is_open()) {
            if (!os::Spare::is_needed_for(errno)) return;
            spare_.turn_away(listener_, [this](const os::Descriptor& caller) {
                log(std::string(transport_name) + ": refused connection from " +
                    SocketAddress::of_peer(caller).to_string() + ": out of file descriptors");
            });
            return;
        }
        tune(socket, SocketAddress::of_peer(socket), options_.socket);
        HalfOpen& slot = free_slot();
        slot.socket = std::move(socket);
        slot.deadline = now + options_.hello_timeout;
        slot.received = 0;
        slot.greeting.clear();
        ++open_count_;
        const auto index = static_cast<std::uint64_t>(&slot - half_open_.data());
        if (!poller_.add(slot.socket, EPOLLIN | EPOLLRDHUP, half_open_id_ + index)) drop(slot, "it cannot be watched");
    }
}

std::optional<Admitted> Acceptor::advance(std::uint64_t index) {
    if (index >= half_open_.size() || !half_open_[index].socket.is_open()) return {};
    HalfOpen& half_open = half_open_[index];
    constexpr std::size_t hello_bytes = sizeof(Hello);
    const std::span<std::byte> place = half_open.received < hello_bytes
                                           ? std::span(half_open.hello).subspan(half_open.received)
                                           : std::span(half_open.greeting).subspan(half_open.received - hello_bytes);
    const ssize_t count = ::recv(half_open.socket.fd(), place.data(), place.size(), MSG_DONTWAIT);
    if (count <= 0) {
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
        drop(half_open, "closed before a hello");
        return {};
    }
    half_open.received += static_cast<std::size_t>(count);
    if (cannot_be_hello(Bytes(half_open.hello).first(std::min(half_open.received, hello_bytes)))) {
        drop(half_open, to_string(Verdict::not_incast));
        return {};
    }
    if (half_open.received < hello_bytes) return {};
    Hello hello;
    std::memcpy(&hello, half_open.hello.data(), sizeof hello);
    const Verdict verdict = judge(hello, options_.expected);
    if (verdict == Verdict::accepted) half_open.greeting.resize(hello.greeting_bytes);
    if (half_open.received < hello_bytes + half_open.greeting.size()) return {};
    poller_.remove(half_open.socket);
    --open_count_;
    if (verdict != Verdict::accepted) {
        const base::Versions ours = options_.expected.versions;
        refuse(std::move(half_open.socket), answer_of(hello, verdict, ours, 0), reason(hello, verdict, ours));
        return {};
    }
    return Admitted{std::move(half_open.socket), hello, std::move(half_open.greeting)};
}

void Acceptor::expire(Time now) {
    if (open_count_ == 0) return;
    for (HalfOpen& half_open : half_open_) {
        if (half_open.socket.is_open() && now >= half_open.deadline) drop(half_open, "no hello in time");
    }
}

Time Acceptor::next_deadline() const {
    Time earliest = time_never;
    if (open_count_ == 0) return earliest;
    for (const HalfOpen& half_open : half_open_) {
        if (half_open.socket.is_open()) earliest = std::min(earliest, half_open.deadline);
    }
    return earliest;
}

void Acceptor::refuse(os::Descriptor socket, Verdict verdict) const {
    refuse(std::move(socket), {.verdict = verdict}, to_string(verdict));
}

void Acceptor::refuse(os::Descriptor socket, const Answer& answer, const std::string& why) const {
    log(std::string(transport_name) + ": refused connection from " + SocketAddress::of_peer(socket).to_string() + ": " +
        why);
    (void)send_small(socket, std::as_bytes(std::span(&answer, 1)));
}

void Acceptor::log(const std::string& line) const {
    if (log_) log_(line);
}

void Acceptor::drop(HalfOpen& half_open, const char* why) {
    log(std::string(transport_name) + ": refused connection from " +
        SocketAddress::of_peer(half_open.socket).to_string() + ": " + why);
    half_open.socket.close();
    --open_count_;
}

Acceptor::HalfOpen& Acceptor::free_slot() {
    HalfOpen* oldest = &half_open_.front();
    for (HalfOpen& half_open : half_open_) {
        if (!half_open.socket.is_open()) return half_open;
        if (half_open.deadline < oldest->deadline) oldest = &half_open;
    }
    // A node of the run says hello at once, so the one that has been silent longest is the least likely to be one.
    drop(*oldest, "too many connections without a hello");
    return *oldest;
}

}  // namespace incast::transport::tcp
