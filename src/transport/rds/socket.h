// Sockets of RDS.
#pragma once

#include <cstdint>
#include <string>

#include <incast/result.h>

#include "os/descriptor.h"
#include "transport/calls/socket_address.h"

namespace incast::transport::rds {

enum class Carrier : std::uint8_t { any, tcp, rdma };

/// Which sockets these are: tests take datagrams of another family, as not every kernel has RDS.
struct Family {
    int domain = 0;  // 0: RDS
    int type = 0;
};

struct SocketOptions {
    Carrier carrier = Carrier::any;
    int buffer_bytes = 0;  // of sending and of receiving, as far as the system allows
    Family family;
};

/// One that does not block, at a port that is free, which `address` has then. Error: one line, which names the module
/// that the kernel lacks.
Result<os::Descriptor> open_at(SocketAddress& address, const SocketOptions& options);
/// The largest message that it sends.
std::uint32_t largest_message(const os::Descriptor& socket);
/// What carries messages between these addresses, as the kernel's list of connections says: tcp, rdma, or loopback,
/// within a host. Empty: it does not say.
std::string carrier_between(const os::Descriptor& socket, SocketAddress here, SocketAddress there);

}  // namespace incast::transport::rds
