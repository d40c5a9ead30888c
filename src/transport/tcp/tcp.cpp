#include "transport/tcp/tcp.h"

#include <array>

#include "transport/settings.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/hello.h"

namespace incast::transport::tcp {

namespace {

using base::Kind;

constexpr double ms = ps_per_ms;
constexpr double gib = 0x1p30;

constexpr std::array<std::string_view, 2> wait_words{"epoll", "poll"};

constexpr std::array list{
    base::text("bind", "127.0.0.1", "address to listen at and to be dialled at", "an IPv4 or IPv6 address"),
    base::text("advertise", "", "address told to peers; needed if bind is 0.0.0.0 or ::, otherwise bind itself",
               "an IPv4 or IPv6 address, or empty"),
    ports_setting,
    base::number(Kind::count, "streams", "1", 1, max_streams,
                 "TCP connections per pair of nodes; must be the same on all nodes"),
    base::number(
        Kind::bytes, "socket_buffer", "0", 0, gib,
        "SO_SNDBUF and SO_RCVBUF of every connection, as far as the system allows; 0 leaves both to the kernel"),
    base::number(Kind::bytes, "staging", "64KiB", 8192, 1 << 24,
                 "receive buffer per connection for headers and small frames"),
    base::number(Kind::bytes, "send_buffer", "256KiB", 16384, gib,
                 "send buffer per connection for headers, messages and copied bodies"),
    base::number(Kind::bytes, "copy_below", "2KiB", 0, 65536,
                 "bodies smaller than this are copied when posted, and so done at once; 4 KiB less than send_buffer at "
                 "most"),
    base::number(Kind::rate, "max_rate", "0", 0, 1e12,
                 "pacing limit of each connection (SO_MAX_PACING_RATE); 0 for none"),
    base::number(Kind::count, "dscp", "0", 0, 63, "class of service in the header of each packet"),
    base::text("congestion_control", "auto",
               "TCP congestion control of each connection, if the system allows it; auto: reno on loopback, where "
               "pacing only costs; empty: the system's default",
               "auto, a name the kernel knows, or empty"),
    base::choice("wait", "epoll", wait_words,
                 "how it hears of its sockets: epoll; or poll, for libraries that stand in for sockets and know no "
                 "epoll (librspreload)"),
    base::number(Kind::duration, "connect_timeout", "10s", ms, 3'600'000 * ms,
                 "connecting takes longer than this: peer_down"),
    base::number(Kind::duration, "hello_timeout", "2s", ms, 3'600'000 * ms,
                 "an incoming connection that says no proper hello by then is refused"),
    base::number(Kind::count, "half_open_max", "256", 1, 65536,
                 "incoming connections without a hello at a time; beyond, the oldest is refused"),
};

/// They go with the next version.
constexpr std::array former_list{
    base::FormerName{"socket_buffer_bytes", "socket_buffer", ""},
    base::FormerName{"staging_bytes", "staging", ""},
    base::FormerName{"send_buffer_bytes", "send_buffer", ""},
    base::FormerName{"copy_below_bytes", "copy_below", ""},
    base::FormerName{"max_rate_bytes_per_s", "max_rate", ""},
    base::FormerName{"connect_timeout_ms", "connect_timeout", "ms"},
    base::FormerName{"hello_timeout_ms", "hello_timeout", "ms"},
};

class Tcp final : public Medium {
public:
    explicit Tcp(EndpointSettings settings) : settings_(std::move(settings)) {}
    Result<std::unique_ptr<Transport>> endpoint(const EndpointOptions& options) override {
        return make_endpoint(settings_, options);
    }

private:
    EndpointSettings settings_;
};

}  // namespace

std::span<const base::Setting> settings() {
    return list;
}

std::span<const base::FormerName> former_names() {
    return former_list;
}

Result<EndpointSettings> read_settings(const Settings& given) {
    const Result<Values> values = Values::read(transport_name, list, given);
    if (!values) return values.error();
    EndpointSettings made;

    const auto bind = SocketAddress::parse(values->text("bind"), 0);
    if (!bind) return values->refuse("bind", "no address");
    made.bind = *bind;
    made.advertise = *bind;
    if (const std::string& advertise = values->text("advertise"); !advertise.empty()) {
        const auto address = SocketAddress::parse(advertise, 0);
        if (!address) return values->refuse("advertise", "no address");
        made.advertise = *address;
    }
    if (made.advertise.is_wildcard()) {
        return values->refuse("advertise", "peers cannot reach a node at '" + values->text("bind") + "'");
    }

    const Result<PortRange> ports = values->ports("ports");
    if (!ports) return ports.error();
    made.ports = *ports;
    made.streams = static_cast<std::uint16_t>(values->whole("streams"));
    made.socket.buffer_bytes = static_cast<int>(values->whole("socket_buffer"));
    made.socket.max_rate_bytes_per_s = static_cast<std::uint64_t>(values->number("max_rate"));
    made.socket.dscp = static_cast<std::uint8_t>(values->whole("dscp"));
    made.socket.congestion_control = values->text("congestion_control");
    made.wait = values->choice<os::Poller::Kind>("wait");
    made.socket.plain = made.wait == os::Poller::Kind::poll;
    made.staging_bytes = values->whole("staging");
    made.send_buffer_bytes = values->whole("send_buffer");
    made.copy_below_bytes = values->whole("copy_below");
    if (made.copy_below_bytes + 4096 > made.send_buffer_bytes) {
        return values->refuse("copy_below",
                              "not 4 KiB below transport." + std::string(transport_name) +
                                  ".send_buffer = " + base::format_bytes(static_cast<double>(made.send_buffer_bytes)));
    }
    made.connect_timeout = values->time("connect_timeout");
    made.hello_timeout = values->time("hello_timeout");
    made.half_open_max = static_cast<std::uint32_t>(values->whole("half_open_max"));
    return made;
}

Result<std::unique_ptr<Medium>> make(const Settings& given) {
    Result<EndpointSettings> settings = read_settings(given);
    if (!settings) return settings.error();
    return std::unique_ptr<Medium>(std::make_unique<Tcp>(std::move(*settings)));
}

}  // namespace incast::transport::tcp
