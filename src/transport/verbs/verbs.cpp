#include "transport/verbs/verbs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "transport/settings.h"
#include "transport/verbs/descriptor/descriptor.h"
#include "transport/verbs/endpoint.h"
#include "transport/verbs/rails.h"

namespace incast::transport::verbs {

namespace {

std::vector<std::string> split(const std::string& text, char between) {
    std::vector<std::string> parts;
    std::istringstream all(text);
    for (std::string each; std::getline(all, each, between);)
        parts.push_back(each);
    return parts;
}

class Verbs final : public Medium {
public:
    explicit Verbs(EndpointSettings settings) : settings_(std::move(settings)) {}
    Result<std::unique_ptr<Transport>> endpoint(const EndpointOptions& options) override {
        auto made = settings_.rails > 1 ? Rails::make(settings_, options) : Endpoint::make(settings_, options);
        // A driver that begins anew takes its device away and gives it back.
        const std::string removed = settings_.removed->take();
        if (made || removed.empty()) return made;
        return Error{std::string(transport_name) + ": the RDMA device " + removed + " was removed"};
    }

private:
    EndpointSettings settings_;
};

}  // namespace

Result<std::unique_ptr<Medium>> make(const Settings& given) {
    const Result<Values> values = Values::read(transport_name, settings(), given);
    if (!values) return values.error();
    EndpointSettings made;
    for (const std::string& node : split(values->text("bind"), ',')) {
        std::vector<SocketAddress>& rails = made.bind.emplace_back();
        for (const std::string& each : split(node, '+')) {
            const auto address = SocketAddress::parse(each, 0);
            if (!address) return values->refuse("bind", "'" + each + "' is no address");
            rails.push_back(*address);
        }
        if (rails.size() != made.bind.front().size())
            return values->refuse("bind", "all nodes have to have as many rails");
    }
    made.devices = split(values->text("device"), ',');
    made.rails = static_cast<std::uint32_t>(
        std::max(made.bind.empty() ? 1 : made.bind.front().size(), std::max<std::size_t>(made.devices.size(), 1)));
    if (made.rails > max_rails) {
        return values->refuse(made.devices.size() > max_rails ? "device" : "bind",
                              std::to_string(made.rails) + " rails; at most " + std::to_string(max_rails));
    }
    if (made.devices.size() > 1 && !made.bind.empty() && made.bind.front().size() != made.devices.size()) {
        return values->refuse("bind", "transport.verbs.device has " + std::to_string(made.devices.size()) +
                                          " rails: each node needs an address for each, with + between");
    }
    made.devices.resize(made.rails, made.devices.empty() ? "" : made.devices.front());
    const auto byte = [&](std::string_view name) { return static_cast<std::uint8_t>(values->whole(name)); };
    const auto word = [&](std::string_view name) { return static_cast<std::uint32_t>(values->whole(name)); };
    const Result<PortRange> ports = values->ports("ports");
    if (!ports) return ports.error();
    made.ports = *ports;
    made.connect = values->choice<Connect>("connect");
    made.path = {.port = byte("port"),
                 .gid_index = {},
                 .service_level = byte("service_level"),
                 .mtu = byte("path_mtu"),
                 .traffic_class = byte("traffic_class"),
                 .ack_timeout = byte("ack_timeout"),
                 .retry = byte("retry"),
                 .rnr_retry = byte("rnr_retry")};
    if (const std::string& text = values->text("gid_index"); text != "auto") {
        std::uint8_t number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error != std::errc() || end != text.data() + text.size())
            return values->refuse("gid_index", "no number of a GID");
        made.path.gid_index = number;
    }
    if (made.connect == Connect::cm) {
        const PathSettings& path = made.path;
        const std::array<std::pair<const char*, bool>, 4> others{{{"port", path.port != 0},
                                                                  {"gid_index", path.gid_index.has_value()},
                                                                  {"service_level", path.service_level != 0},
                                                                  {"path_mtu", path.mtu != 0}}};
        for (const auto& [name, is_set] : others) {
            if (is_set) return values->refuse(name, "rdma_cm finds it by itself: it takes connect = exchange");
        }
    }
    made.reads = byte("reads");
    made.immediate = values->choice<Immediate>("immediate");
    made.inline_bytes = word("inline");
    made.send_queue = word("send_queue");
    made.receives = word("receives");
    // Never down to 0, which is no limit.
    made.rate_limit = static_cast<std::uint32_t>(std::ceil(values->number("rate_limit") * 8 / 1000));
    made.piece = values->whole("piece");
    made.staging = values->whole("staging");
    for (const std::string_view name : {"send_queue", "staging"}) {
        if (!std::has_single_bit(values->whole(name))) return values->refuse(name, "no power of two");
    }
    made.heartbeat = values->time("heartbeat");
    made.ack_deadline = values->time("ack_deadline");
    made.connect_timeout = values->time("connect_timeout");
    return std::unique_ptr<Medium>(std::make_unique<Verbs>(std::move(made)));
}

}  // namespace incast::transport::verbs
