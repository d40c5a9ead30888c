// The module: the transport's description, with its settings.
#include <array>

#include "endpoint.h"
#include "transport/module.h"
#include "transport/settings.h"

namespace {

using namespace incast;
using base::Kind;

constexpr std::array list{
    base::number(Kind::bytes, "send_buffer", "256KiB", 16384, 0x1p30,
                 "send buffer per connection for headers, messages and small bodies"),
    base::number(Kind::duration, "connect_timeout", "10s", ps_per_ms, 3'600.0 * ps_per_s,
                 "connecting takes longer than this: peer_down"),
};

class UnixSockets final : public transport::Medium {
public:
    explicit UnixSockets(unix_sockets::EndpointSettings settings) : settings_(settings) {}
    Result<std::unique_ptr<Transport>> endpoint(const transport::EndpointOptions& options) override {
        return unix_sockets::make_endpoint(settings_, options);
    }

private:
    unix_sockets::EndpointSettings settings_;
};

Result<std::unique_ptr<transport::Medium>> make(const transport::Settings& given) {
    const auto values = transport::Values::read(unix_sockets::transport_name, list, given);
    if (!values) return values.error();
    return std::unique_ptr<transport::Medium>(std::make_unique<UnixSockets>(unix_sockets::EndpointSettings{
        .send_buffer_bytes = values->whole("send_buffer"), .connect_timeout = values->time("connect_timeout")}));
}

const transport::Descriptor description{.name = unix_sockets::transport_name,
                                        .summary = "Unix-domain sockets between processes of one host",
                                        .traits = {.nature = unix_sockets::nature},
                                        .settings = list,
                                        .former_names = {},
                                        .make = make,
                                        .package = "incast-unix"};

}  // namespace

INCAST_TRANSPORT_MODULE(description)
