// The listening side until a connection has said a proper hello. Whatever else comes in is refused with one log line:
// it costs one slot of a fixed table for at most the hello deadline, and nothing of the run.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "os/spare.h"
#include "transport/medium.h"
#include "transport/tcp/hello.h"
#include "transport/tcp/socket.h"

namespace incast::transport::tcp {

/// A connection that said a proper hello and waits for the answer.
struct Admitted {
    os::Descriptor socket;
    Hello hello;
    std::vector<std::byte> greeting;
};

class Acceptor {
public:
    struct Options {
        std::uint32_t half_open_max = 256;
        Time hello_timeout = 2 * ps_per_s;
        SocketOptions socket;
        Expected expected;
    };
    /// Epoll events of `listener` and of half-open connections carry `listener_id` and `half_open_id` + slot number.
    Acceptor(os::Descriptor listener, const Options& options, os::Poller& poller, LogSink log,
             std::uint64_t listener_id, std::uint64_t half_open_id);

    /// The listener is readable.
    void accept_all(Time now);
    /// A half-open connection is readable. The hello and its greeting, once they are complete and proper.
    std::optional<Admitted> advance(std::uint64_t slot);
    /// Refuses those that are silent for too long.
    void expire(Time now);
    [[nodiscard]] Time next_deadline() const;

    /// Answers with the verdict, closes, and leaves one log line.
    void refuse(os::Descriptor socket, Verdict verdict) const;
    void log(const std::string& line) const;

private:
    void refuse(os::Descriptor socket, const Answer& answer, const std::string& why) const;
    struct HalfOpen {
        os::Descriptor socket;
        Time deadline = 0;
        std::size_t received = 0;
        std::array<std::byte, sizeof(Hello)> hello{};
        std::vector<std::byte> greeting;
    };
    void drop(HalfOpen& half_open, const char* why);
    HalfOpen& free_slot();

    os::Descriptor listener_;
    Options options_;
    os::Poller& poller_;
    LogSink log_;
    std::uint64_t half_open_id_;
    os::Spare spare_;
    std::vector<HalfOpen> half_open_;
    std::size_t open_count_ = 0;
};

}  // namespace incast::transport::tcp
