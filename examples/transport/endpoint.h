// One endpoint: who connects with whom, and what the contract asks beyond moving bytes.
#pragma once

#include <memory>
#include <string_view>

#include "transport/medium.h"

namespace unix_sockets {

inline constexpr std::string_view transport_name = "unix";
// The receiver's side copies, so a peer reaches only what it was granted; what is sent lands while both sides poll.
inline constexpr incast::Nature nature{
    .bounds = incast::Bounds::strided, .copies = incast::Copies::kernel, .one_host = true};

struct EndpointSettings {
    std::size_t send_buffer_bytes = 0;
    incast::Time connect_timeout = 0;
};

incast::Result<std::unique_ptr<incast::Transport>> make_endpoint(const EndpointSettings& settings,
                                                                 const incast::transport::EndpointOptions& options);

}  // namespace unix_sockets
