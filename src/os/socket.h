// TCP sockets of the rendezvous, and addresses as people write them.
#pragma once

#include <cstdint>
#include <string>

#include <incast/result.h>

#include "os/descriptor.h"

namespace incast::os {

/// "host:port", "[::1]:port" or "host" (port 0).
struct HostPort {
    std::string host;
    std::string port;
};
Result<HostPort> parse_host_port(const std::string& text);

/// Listens; accepted sockets are to be taken with accept_one.
Result<Descriptor> listen_on(const std::string& host_port);
/// Not blocking, close-on-exec. Not open if nobody waits.
Descriptor accept_one(int listener, std::string& peer);
/// Waits up to `timeout_ms` for the connection.
Result<Descriptor> connect_to(const std::string& host_port, int timeout_ms);
/// Whether this host knows a way to that address. Nothing is sent.
Result<Ok> find_way_to(const std::string& host_port);

/// "127.0.0.1:4711"
std::string local_address(int fd);
/// The host alone, as a transport's bind address.
std::string local_host(int fd);
/// The host of the other end.
std::string peer_host(int fd);
/// Whether the other end's host has not answered for some 6 s, however often it was sent to. The host of a process that
/// is stopped answers.
bool is_unanswered(int fd);
/// Numbers ("10.0.0.1", "::1"), and an address of this host.
bool is_of_this_host(const std::string& address);
/// "10.0.0.1", "::1"
bool is_numeric(const std::string& host);
bool is_loopback(const std::string& address);

}  // namespace incast::os
