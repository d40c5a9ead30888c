#include "channel/api/endpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>

#include <netinet/in.h>

#include "channel/api/directory.h"
#include "transport/modules/modules.h"
#include "transport/rio/rio.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "transport/udp/udp.h"
#include "transport/verbs/descriptor/descriptor.h"

namespace incast::channel::api {

namespace {

constexpr std::uint64_t run_of_channels = 0x6C656E6E616863;  // "channel"
// The least that verbs takes.
constexpr std::uint32_t least_heartbeat_ms = 10;
constexpr std::uint32_t least_ack_deadline_ms = 100;

using Make = Result<std::unique_ptr<transport::Medium>> (*)(const transport::Settings&);

Make maker_of(Scheme scheme) {
    switch (scheme) {
        case Scheme::shm:
            return &transport::shm::make;
        case Scheme::tcp:
            return &transport::tcp::make;
        case Scheme::udp:
            return &transport::udp::make;
        case Scheme::rio:
            return &transport::rio::make;
        case Scheme::verbs:
            break;
    }
    const transport::Descriptor verbs = transport::verbs::describe();
    const auto module = transport::load_module(verbs.name, verbs.package);
    if (!module) throw Failure{EPROTONOSUPPORT, module.error().message};
    return (*module)->make;
}

bool is_everywhere(const HubChoices& choices, std::string_view host) {
    return choices.scheme != Scheme::verbs && (host == "0.0.0.0" || host == "::");
}

/// Where the data of a hub goes by; empty: the transport chooses.
std::string host_for(const HubChoices& choices, const Address& first, Use use) {
    if (!choices.bind.empty()) return choices.bind;
    const SocketName name = look_up(first, use == Use::listen).front();
    const bool is_v6 = name.get()->sa_family == AF_INET6;
    const bool takes_all = choices.scheme != Scheme::verbs;  // an RDMA device is one of these
    if (takes_all && (first.is_any_host || use == Use::connect)) return is_v6 ? "::" : "0.0.0.0";
    const os::Descriptor socket(::socket(name.get()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.fd() < 0) throw system_failure(errno, first.text());
    if (use == Use::connect)  // by the way that the kernel would take there
        return ::connect(socket.fd(), name.get(), name.size) == 0 ? own_host(socket.fd()) : std::string();
    SocketName any = name;
    reinterpret_cast<sockaddr_in&>(any.storage).sin_port = 0;
    if (::bind(socket.fd(), any.get(), any.size) != 0) throw system_failure(errno, first.text());
    return own_host(socket.fd());
}

}  // namespace

void check_has(Scheme scheme) {
    (void)maker_of(scheme);
}

std::string fabric_of(const HubChoices& choices) {
    const char* const given = std::getenv("RIO_FABRIC");  // NOLINT(concurrency-mt-unsafe): nothing sets it here
    std::string fabric = !choices.fabric.empty() ? choices.fabric : given != nullptr && *given != 0 ? given : "shm";
    if (choices.peer_timeout_ms > 0 && fabric.starts_with("udp")) {
        fabric += fabric.find('?') == std::string::npos ? '?' : '&';
        fabric += "deadline_ms=" + std::to_string(choices.peer_timeout_ms);
    }
    return fabric;
}

transport::Settings parse_settings(std::string_view text) {
    transport::Settings made;
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find(','));
        const std::size_t equals = one.find('=');
        if (equals == 0 || equals == std::string_view::npos)
            throw Failure{EINVAL, "settings: '" + std::string(one) + "'; allowed: NAME=VALUE,NAME=VALUE"};
        made.insert_or_assign(std::string(one.substr(0, equals)), std::string(one.substr(equals + 1)));
        text.remove_prefix(std::min(text.size(), one.size() + 1));
    }
    return made;
}

Endpoint make_endpoint(const HubChoices& choices, const Address& first, Use use, const transport::LogSink& log) {
    Endpoint made;
    transport::Settings settings = choices.settings;
    if (has_hosts(choices.scheme)) {
        made.host = host_for(choices, first, use);
        made.is_everywhere = is_everywhere(choices, made.host);
        settings["bind"] = made.host;
        // Callers are told the address that they came by.
        if (made.is_everywhere) settings["advertise"] = made.host == "::" ? "::1" : "127.0.0.1";
    }
    if (choices.scheme == Scheme::rio) settings["fabric"] = fabric_of(choices);
    if (choices.scheme == Scheme::udp && choices.peer_timeout_ms > 0)
        settings["deadline"] = std::to_string(choices.peer_timeout_ms) + "ms";
    if (choices.scheme == Scheme::verbs && choices.peer_timeout_ms > 0) {
        settings["heartbeat"] = std::to_string(std::max(choices.peer_timeout_ms / 4, least_heartbeat_ms)) + "ms";
        settings["ack_deadline"] = std::to_string(std::max(choices.peer_timeout_ms, least_ack_deadline_ms)) + "ms";
    }
    auto medium = maker_of(choices.scheme)(settings);
    if (!medium) throw Failure{EINVAL, medium.error().message};
    made.medium = std::move(*medium);
    errno = 0;
    auto endpoint = made.medium->endpoint({.run = run_of_channels,
                                           .token = choices.secret,
                                           .max_peers = has_answers(choices.scheme) ? choices.max_peers + 1 : 1,
                                           .max_dialled = has_answers(choices.scheme) ? 0 : choices.max_peers,
                                           .log = log});
    if (!endpoint) throw lack_failure(errno, endpoint.error().message);
    made.transport = std::move(*endpoint);
    return made;
}

Blob address_by(const Endpoint& endpoint, Scheme scheme, const os::Descriptor& socket) {
    Blob address = endpoint.transport->address();
    if (!endpoint.is_everywhere) return address;
    const std::string here = own_host(socket.fd());
    return scheme == Scheme::tcp ? transport::tcp::with_host(address, here) : transport::udp::with_host(address, here);
}

/// Within a host the ring stays in a cache; between hosts it covers what is on its way at 100 Gb/s for 80 us.
Shape choose_shape(Scheme scheme, std::uint32_t buffers, std::uint64_t buffer_bytes, std::uint32_t batch) {
    const bool is_one_host = scheme == Scheme::shm || scheme == Scheme::rio;
    const std::uint64_t ring_bytes = is_one_host ? 512U << 10U : 1U << 20U;
    constexpr std::uint32_t preset_buffers = 16;
    constexpr std::uint32_t least_buffers = 4;
    if (buffer_bytes == 0) buffer_bytes = ring_bytes / preset_buffers;
    buffer_bytes = (buffer_bytes + buffer_align - 1) / buffer_align * buffer_align;
    if (buffers == 0)
        buffers = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(ring_bytes / buffer_bytes, least_buffers, 256));
    if (batch == 0) batch = std::max(1U, buffers / 4);
    const std::uint64_t bytes = std::min<std::uint64_t>(buffer_bytes, ~std::uint32_t{0});
    const Shape shape{.buffers = buffers, .buffer_bytes = static_cast<std::uint32_t>(bytes), .batch = batch};
    if (!is_valid(shape))
        throw Failure{EINVAL, "a ring of " + std::to_string(buffers) + " buffers of " + std::to_string(buffer_bytes) +
                                  " bytes, with a credit for " + std::to_string(batch) +
                                  ", is none (docs/channel.md has the ranges)"};
    return shape;
}

}  // namespace incast::channel::api
