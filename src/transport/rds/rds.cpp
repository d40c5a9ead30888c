#include "transport/rds/rds.h"

#include <array>
#include <sstream>
#include <string>
#include <utility>

#include "transport/rds/endpoint.h"
#include "transport/settings.h"

namespace incast::transport::rds {

namespace {

using base::Kind;

constexpr double ms = ps_per_ms;
constexpr double gib = 0x1p30;

constexpr std::array<std::string_view, 3> carrier_words{"any", "tcp", "rdma"};

constexpr std::array list{
    base::text("bind", "127.0.0.1", "address of this host to bind to; of a list node i takes the i-th, in turn",
               "IPv4 or IPv6 addresses with commas between"),
    base::choice("carrier", "any", carrier_words,
                 "what has to carry RDS at that address: tcp (module rds_tcp) or rdma (module rds_rdma, InfiniBand or "
                 "RoCE); any: as the kernel chooses"),
    base::number(Kind::bytes, "message", "64KiB", 4096, 1 << 20,
                 "largest message of RDS; half of what socket_buffer came to at most"),
    base::number(Kind::bytes, "socket_buffer", "1MiB", 16384, gib,
                 "SO_SNDBUF and SO_RCVBUF of each peer's socket, as far as the system allows"),
    base::number(Kind::bytes, "staging", "64KiB", 8192, 1 << 24,
                 "receive buffer of each peer for headers and small frames"),
    base::number(Kind::bytes, "send_buffer", "256KiB", 16384, gib,
                 "send buffer of each peer for headers, messages and copied bodies"),
    base::number(Kind::bytes, "copy_below", "2KiB", 0, 65536,
                 "bodies smaller than this are copied when posted, and so done at once; 4 KiB less than send_buffer at "
                 "most"),
    base::number(Kind::duration, "connect_timeout", "10s", ms, 3'600'000 * ms,
                 "connecting takes longer than this: peer_down"),
    base::number(Kind::duration, "deadline", "10s", 100 * ms, 3'600'000 * ms,
                 "without a sign of life for this long a peer is lost"),
};

class Rds final : public Medium {
public:
    explicit Rds(EndpointSettings settings) : settings_(std::move(settings)) {}
    Result<std::unique_ptr<Transport>> endpoint(const EndpointOptions& options) override {
        return Endpoint::make(settings_, options);
    }

private:
    EndpointSettings settings_;
};

}  // namespace

std::span<const base::Setting> settings() {
    return list;
}

Result<EndpointSettings> read_settings(const Settings& given) {
    const Result<Values> values = Values::read(transport_name, list, given);
    if (!values) return values.error();
    EndpointSettings made;
    std::istringstream all(values->text("bind"));
    for (std::string each; std::getline(all, each, ',');) {
        const auto address = SocketAddress::parse(each, 0);
        if (!address) return values->refuse("bind", "'" + each + "' is no address");
        if (address->is_wildcard()) return values->refuse("bind", "RDS needs one address of this host");
        made.bind.push_back(*address);
    }
    if (made.bind.empty()) return values->refuse("bind", "an address is needed");
    made.socket.carrier = values->choice<Carrier>("carrier");
    made.socket.buffer_bytes = static_cast<int>(values->whole("socket_buffer"));
    made.message_bytes = static_cast<std::uint32_t>(values->whole("message"));
    made.staging_bytes = values->whole("staging");
    made.send_buffer_bytes = values->whole("send_buffer");
    made.copy_below_bytes = values->whole("copy_below");
    if (made.copy_below_bytes + 4096 > made.send_buffer_bytes) {
        return values->refuse("copy_below",
                              "not 4 KiB below transport." + std::string(transport_name) +
                                  ".send_buffer = " + base::format_bytes(static_cast<double>(made.send_buffer_bytes)));
    }
    made.connect_timeout = values->time("connect_timeout");
    made.deadline = values->time("deadline");
    return made;
}

Result<std::unique_ptr<Medium>> make(const Settings& given) {
    Result<EndpointSettings> settings = read_settings(given);
    if (!settings) return settings.error();
    return std::unique_ptr<Medium>(std::make_unique<Rds>(std::move(*settings)));
}

}  // namespace incast::transport::rds
