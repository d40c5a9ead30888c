#include "transport/verbs/verbs.h"

#include <bit>
#include <sstream>
#include <string>
#include <utility>

#include "transport/settings.h"
#include "transport/verbs/descriptor/descriptor.h"
#include "transport/verbs/endpoint.h"

namespace incast::transport::verbs {

namespace {

class Verbs final : public Medium {
public:
    explicit Verbs(EndpointSettings settings) : settings_(std::move(settings)) {}
    Result<std::unique_ptr<Transport>> endpoint(const EndpointOptions& options) override {
        auto made = Endpoint::make(settings_, options);
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
    std::istringstream addresses(values->text("bind"));
    for (std::string each; std::getline(addresses, each, ',');) {
        const auto address = SocketAddress::parse(each, 0);
        if (!address) return values->refuse("bind", "'" + each + "' is no address");
        made.bind.push_back(*address);
    }
    made.device = values->text("device");
    const auto byte = [&](std::string_view name) { return static_cast<std::uint8_t>(values->whole(name)); };
    const auto word = [&](std::string_view name) { return static_cast<std::uint32_t>(values->whole(name)); };
    made.traffic_class = byte("traffic_class");
    made.ack_timeout = byte("ack_timeout");
    made.retry = byte("retry");
    made.rnr_retry = byte("rnr_retry");
    made.reads = byte("reads");
    made.immediate = values->choice<Immediate>("immediate");
    made.inline_bytes = word("inline");
    made.send_queue = word("send_queue");
    made.receives = word("receives");
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
