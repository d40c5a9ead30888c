#include "transport/tcp/tcp.h"

#include <array>

#include "transport/settings.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/hello.h"

namespace incast::transport::tcp {

namespace {

constexpr std::array list{
    Parameter{"bind", "127.0.0.1", "", "an IPv4 or IPv6 address",
              "address to listen at and to be dialled at; the kernel chooses the port"},
    Parameter{"advertise", "", "", "an IPv4 or IPv6 address, or empty",
              "address told to peers; needed if bind is 0.0.0.0 or ::, otherwise bind itself"},
    Parameter{"streams", "1", "", "1..64", "TCP connections per pair of nodes; must be the same on all nodes"},
    Parameter{"socket_buffer_bytes", "0", "bytes", "0..1073741824",
              "SO_SNDBUF and SO_RCVBUF of every connection, as far as the system allows; 0 leaves both to the kernel"},
    Parameter{"staging_bytes", "65536", "bytes", "8192..16777216",
              "receive buffer per connection for headers and small frames"},
    Parameter{"send_buffer_bytes", "262144", "bytes", "16384..1073741824",
              "send buffer per connection for headers, messages and copied bodies"},
    Parameter{"copy_below_bytes", "2048", "bytes", "0..65536",
              "bodies smaller than this are copied when posted, and so done at once"},
    Parameter{"max_rate_bytes_per_s", "0", "bytes/s", "0..1000000000000",
              "pacing limit of each connection (SO_MAX_PACING_RATE); 0 for none"},
    Parameter{"congestion_control", "auto", "", "auto, a name the kernel knows, or empty",
              "TCP congestion control of each connection, if the system allows it; auto: reno on loopback, where "
              "pacing only costs; "
              "empty: the system's default"},
    Parameter{"connect_timeout_ms", "10000", "ms", "1..3600000", "connecting takes longer than this: peer_down"},
    Parameter{"hello_timeout_ms", "2000", "ms", "1..3600000",
              "an incoming connection that says no proper hello by then is refused"},
    Parameter{"half_open_max", "256", "", "1..65536",
              "incoming connections without a hello at a time; beyond, the oldest is refused"},
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

std::span<const Parameter> parameters() {
    return list;
}

Result<std::unique_ptr<Medium>> make(const Settings& settings) {
    if (const auto checked = check_names(transport_name, list, settings); !checked) return checked.error();
    EndpointSettings made;

    auto bind = SocketAddress::parse(value_of(list, settings, "bind"), 0);
    if (!bind) return Error{"bind = " + bind.error().message};
    made.bind = *bind;
    made.advertise = *bind;
    if (const std::string_view advertise = value_of(list, settings, "advertise"); !advertise.empty()) {
        auto address = SocketAddress::parse(advertise, 0);
        if (!address) return Error{"advertise = " + address.error().message};
        made.advertise = *address;
    }
    if (made.advertise.is_wildcard())
        return Error{"bind = '" + std::string(value_of(list, settings, "bind")) +
                     "' needs advertise: the address peers reach this node at"};

    Error error;
    const auto number = [&](std::string_view name, std::uint64_t low, std::uint64_t high) -> std::uint64_t {
        const auto value = number_of(list, settings, name, low, high);
        if (value) return *value;
        if (error.message.empty()) error = value.error();
        return low;
    };
    constexpr std::uint64_t gib = std::uint64_t{1} << 30;
    made.streams = static_cast<std::uint16_t>(number("streams", 1, max_streams));
    made.socket.buffer_bytes = static_cast<int>(number("socket_buffer_bytes", 0, gib));
    made.socket.max_rate_bytes_per_s = number("max_rate_bytes_per_s", 0, 1'000'000'000'000);
    made.socket.congestion_control = std::string(value_of(list, settings, "congestion_control"));
    made.staging_bytes = number("staging_bytes", 8192, std::size_t{1} << 24);
    made.send_buffer_bytes = number("send_buffer_bytes", 16384, gib);
    made.copy_below_bytes = number("copy_below_bytes", 0, 65536);
    made.connect_timeout = static_cast<Time>(number("connect_timeout_ms", 1, 3'600'000)) * ps_per_ms;
    made.hello_timeout = static_cast<Time>(number("hello_timeout_ms", 1, 3'600'000)) * ps_per_ms;
    made.half_open_max = static_cast<std::uint32_t>(number("half_open_max", 1, 65536));
    if (!error.message.empty()) return error;
    if (made.copy_below_bytes + 4096 > made.send_buffer_bytes) {
        return Error{"copy_below_bytes = '" + std::to_string(made.copy_below_bytes) +
                     "': must be at least 4096 below send_buffer_bytes"};
    }
    return std::unique_ptr<Medium>(std::make_unique<Tcp>(made));
}

}  // namespace incast::transport::tcp
