// What one process asks of another that has the master port open: calls of softrio::Port over a Unix socket. Both are
// of one build and one user, so the structures go as they are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "os/descriptor.h"

namespace incast::softrio::api {

enum class Operation : std::uint32_t {
    attach,
    fork,
    destid,
    set_destid,
    others,
    read_registers,
    write_register,
    allocate,
    free_allocation,
    map_window,
    free_window,
    map_outbound,
    free_outbound,
    open_memory,
    arrival,
    transfer,
    open_sink,
    close_sink,
    arm,
    set_events,
    events,
    enable_range,
    disable_range,
    get_doorbell,
    send_doorbell,
    make_socket,
    close_socket,
    bind,
    listen,
    accept,
    connect,
    send,
    receive,
};

/// That follow a call or an answer. A larger transfer comes with a file of the caller's that holds it.
inline constexpr std::uint64_t most_call_bytes = std::uint64_t{1} << 20;

struct Call {
    Operation operation = Operation::attach;
    std::uint32_t process = 0;  // as attach and fork number them
    std::array<std::uint64_t, 6> values{};
    std::uint64_t bytes = 0;  // that follow
};

struct Answer {
    std::int32_t status = 0;
    std::uint32_t has_file = 0;
    std::array<std::uint64_t, 3> values{};
    std::uint64_t bytes = 0;  // that follow
};

/// False: the other side is gone.
bool send_all(int socket, std::span<const std::byte> bytes, int file = -1);
/// `file`: one that came with it. Others that did are closed.
bool receive_all(int socket, std::span<std::byte> bytes, os::Descriptor* file = nullptr);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}
template <class T>
std::span<std::byte> bytes_of(T& value) {
    return std::as_writable_bytes(std::span(&value, 1));
}

/// Where the process is asked that has that port open.
std::string share_name(const std::string& fabric, std::uint32_t destid);
os::Descriptor listen_at(const std::string& name);
/// Not open: nobody of this user listens there.
os::Descriptor connect_to(const std::string& name);
bool is_same_user(int socket);

}  // namespace incast::softrio::api
