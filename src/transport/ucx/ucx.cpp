#include "transport/ucx/ucx.h"

#include <bit>
#include <sstream>
#include <string>
#include <utility>

#include "transport/settings.h"
#include "transport/ucx/descriptor/descriptor.h"
#include "transport/ucx/endpoint.h"

namespace incast::transport::ucx {

namespace {

class Ucx final : public Medium {
public:
    explicit Ucx(EndpointSettings settings) : settings_(std::move(settings)) {}
    Result<std::unique_ptr<Transport>> endpoint(const EndpointOptions& options) override {
        return Endpoint::make(settings_, options);
    }

private:
    EndpointSettings settings_;
};

}  // namespace

Result<std::unique_ptr<Medium>> make(const Settings& given) {
    const Result<Values> values = Values::read(transport_name, settings(), given);
    if (!values) return values.error();
    EndpointSettings made;
    made.tls = values->text("tls");
    std::istringstream all(values->text("bind"));
    for (std::string each; std::getline(all, each, ',');) {
        const auto address = SocketAddress::parse(each, 0);
        if (!address) return values->refuse("bind", "'" + each + "' is no address");
        made.bind.push_back(*address);
    }
    if (made.bind.empty()) return values->refuse("bind", "an address is needed");
    const Result<PortRange> ports = values->ports("ports");
    if (!ports) return ports.error();
    made.ports = *ports;
    made.failures = values->choice<Failures>("failures");
    made.send_queue = static_cast<std::uint32_t>(values->whole("send_queue"));
    if (!std::has_single_bit(made.send_queue)) return values->refuse("send_queue", "no power of two");
    made.receives = static_cast<std::uint32_t>(values->whole("receives"));
    made.ack_deadline = values->time("ack_deadline");
    made.connect_timeout = values->time("connect_timeout");
    return std::unique_ptr<Medium>(std::make_unique<Ucx>(std::move(made)));
}

}  // namespace incast::transport::ucx
