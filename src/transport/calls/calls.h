// TCP connections beside a fabric, over which endpoints say who they are: listening, dialling, and those that come in
// until each has said its whole call. Whatever else comes in is dropped with one line: it costs one place of a fixed
// table for a while, and nothing of the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

#include "os/descriptor.h"
#include "os/poller.h"
#include "os/spare.h"
#include "transport/calls/hello.h"
#include "transport/calls/socket_address.h"
#include "transport/medium.h"
#include "transport/settings.h"

namespace incast::transport {

/// At the first port of the range that is free, which `address` has then.
Result<os::Descriptor> listen_at(SocketAddress& address, PortRange ports);
/// Starts connecting; writable, or in error, once decided.
Result<os::Descriptor> dial(SocketAddress address);
/// The outcome of connecting: 0 or an errno.
int connect_error(const os::Descriptor& socket);
/// On a fresh connection, whose buffer has room for it. False: it is gone, or not connected yet.
bool say(const os::Descriptor& socket, Bytes bytes);

/// On a connection that is kept without a word: it has ended, or said what nobody says there.
bool has_ended(const os::Descriptor& socket);
/// A host that is gone ends the connection after `deadline`, too.
void keep_alive(const os::Descriptor& socket, Time deadline);
enum class Answered : std::uint8_t { not_yet, whole, ended };
/// Of `answer` so many bytes are there.
Answered hear_answer(const os::Descriptor& socket, std::span<std::byte> answer, std::size_t& bytes);

/// What calls of a transport look like.
struct CallFormat {
    std::string_view transport;  // its name
    std::uint32_t magic = 0;     // the first word of each
    std::size_t bytes = 0;       // of each
};
/// True as soon as the first bytes cannot be those of a call with that first word. `bytes` may be any prefix.
bool cannot_be_call(Bytes bytes, std::uint32_t magic);

class Calls {
public:
    struct Whole {
        os::Descriptor socket;
        std::vector<std::byte> bytes;
        std::string from;
    };
    Calls(const CallFormat& format, os::Descriptor listener, Time timeout, LogSink log);
    /// Events of the listener carry `listener_id`, those of calls `call_id` + their place.
    bool watch(os::Poller& poller, std::uint64_t listener_id, std::uint64_t call_id);

    /// The listener is readable.
    void accept_all(os::Poller& poller, Time now);
    /// The call at that place is readable. Once it is complete, it belongs to nobody's events any more.
    std::optional<Whole> advance(os::Poller& poller, std::uint64_t place);
    /// Drops those that are silent for too long.
    void expire(Time now);
    [[nodiscard]] Time next_deadline() const { return next_deadline_; }

private:
    struct Begun {
        os::Descriptor socket;
        Time deadline = 0;
        std::size_t received = 0;
        std::vector<std::byte> bytes;
        std::string from;
    };
    void drop(Begun& begun, const char* why);
    Begun& free_place();

    CallFormat format_;
    os::Descriptor listener_;
    Time timeout_;
    LogSink log_;
    std::uint64_t call_id_ = 0;
    os::Spare spare_;
    std::vector<Begun> begun_;
    Time next_deadline_ = time_never;
};

}  // namespace incast::transport
