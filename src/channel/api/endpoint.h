// The endpoint of a hub: which transport, with which settings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <incast/transport.h>

#include "channel/api/address.h"
#include "channel/hub/hub.h"
#include "os/descriptor.h"
#include "transport/medium.h"

namespace incast::channel::api {

struct HubChoices {
    Scheme scheme{};
    bool is_own_loop = false;
    std::uint32_t max_channels = 256;
    std::uint32_t max_peers = 64;
    std::uint64_t longest_ring_bytes = std::uint64_t{64} << 20U;
    Time longest_spin = 50 * ps_per_us;
    std::uint32_t peer_timeout_ms = 0;
    std::uint64_t secret = 0;
    std::string fabric = {};
    std::string bind = {};
    transport::Settings settings = {};
};

/// Loads its module if it is one. Throws EPROTONOSUPPORT where that cannot be.
void check_has(Scheme scheme);
/// rio: as RIO_FABRIC has it.
std::string fabric_of(const HubChoices& choices);
/// Both sides have to connect, where a transport has no dial().
constexpr bool has_answers(Scheme scheme) {
    return scheme == Scheme::rio || scheme == Scheme::verbs;
}
/// Its endpoints are bound to an address of a network interface.
constexpr bool has_hosts(Scheme scheme) {
    return scheme == Scheme::tcp || scheme == Scheme::udp || scheme == Scheme::verbs;
}

/// What incast_channel_hub_options has as a text. Throws EINVAL.
transport::Settings parse_settings(std::string_view text);

struct Endpoint {
    std::unique_ptr<transport::Medium> medium;
    std::unique_ptr<Transport> transport;
    std::string host;  // tcp, udp, verbs: where it is bound
    bool is_everywhere = false;
};
/// `first`: what is listened at or connected to. Throws Failure.
Endpoint make_endpoint(const HubChoices& choices, const Address& first, Use use, const transport::LogSink& log);
/// Its address, for a caller that came by that socket.
Blob address_by(const Endpoint& endpoint, Scheme scheme, const os::Descriptor& socket);

/// What is automatic in a shape where 0 stands.
Shape choose_shape(Scheme scheme, std::uint32_t buffers, std::uint64_t buffer_bytes, std::uint32_t batch);

}  // namespace incast::channel::api
