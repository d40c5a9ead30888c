// One tcp endpoint: epoll, connections, and the framed engine on top of them.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/medium.h"
#include "transport/tcp/socket.h"

namespace incast::transport::tcp {

/// The parameters of tcp (see tcp.cpp), checked and in machine form.
struct EndpointSettings {
    SocketAddress bind;
    SocketAddress advertise;  // the port is the listener's
    std::uint16_t streams = 1;
    SocketOptions socket;
    std::size_t staging_bytes = 0;
    std::size_t send_buffer_bytes = 0;
    std::size_t copy_below_bytes = 0;
    Time connect_timeout = 0;
    Time hello_timeout = 0;
    std::uint32_t half_open_max = 0;
};

Result<std::unique_ptr<Transport>> make_endpoint(const EndpointSettings& settings, const EndpointOptions& options);

}  // namespace incast::transport::tcp
