#include "transport/udp/udp.h"

#include <array>
#include <string>
#include <string_view>

#include "transport/settings.h"
#include "transport/udp/endpoint.h"

namespace incast::transport::udp {

namespace {

using base::Kind;

constexpr double ms = ps_per_ms;
constexpr double gib = 0x1p30;
constexpr double million = 1'000'000;

constexpr std::array<std::string_view, 2> repair_words{"all", "none"};

constexpr std::array list{
    base::text("bind", "127.0.0.1", "address to listen at and to be dialled at", "an IPv4 or IPv6 address"),
    base::text("advertise", "", "address told to peers; needed if bind is 0.0.0.0 or ::, otherwise bind itself",
               "an IPv4 or IPv6 address, or empty"),
    ports_setting,
    base::choice("repair", "all", repair_words,
                 "what is sent again if it gets lost: all, or of the bodies of writes none, where an event that misses "
                 "some of its bytes is flagged; the same on all nodes"),
    base::number(Kind::bytes, "mtu", "0", 0, 65'536,
                 "largest IP packet, 576 B at least; 0: what the way to each peer has, as far as this host knows, 9000 "
                 "B at most; of two nodes the smaller one counts"),
    base::number(Kind::bytes, "window", "1MiB", 65'536, gib,
                 "what may be on its way to each peer, and is kept until it has arrived"),
    base::number(Kind::bytes, "socket_buffer", "8MiB", 4096, gib,
                 "SO_SNDBUF and SO_RCVBUF of the endpoint's socket, as far as the system allows"),
    base::number(Kind::bytes, "staging", "64KiB", 8192, 1 << 24,
                 "receive buffer of each peer for headers and small frames"),
    base::number(Kind::bytes, "send_buffer", "256KiB", 16384, gib,
                 "send buffer of each peer for headers, messages and copied bodies"),
    base::number(Kind::bytes, "copy_below", "2KiB", 0, 65536,
                 "bodies smaller than this are copied when posted, and so done at once; 4 KiB less than send_buffer at "
                 "most"),
    base::number(Kind::rate, "max_rate", "0", 0, 1e12, "pacing limit of what is sent to each peer; 0 for none"),
    base::number(Kind::count, "dscp", "0", 0, 63, "class of service in the header of each packet"),
    base::number(Kind::duration, "connect_timeout", "10s", ms, 3'600'000 * ms,
                 "connecting takes longer than this: peer_down"),
    base::number(Kind::duration, "deadline", "10s", 100 * ms, 3'600'000 * ms,
                 "without a sign of life for this long a peer is lost"),
    base::number(Kind::count, "drop", "0", 0, million, "for tests: of a million datagrams, so many are not sent"),
    base::number(Kind::count, "twice", "0", 0, million, "for tests: of a million datagrams, so many are sent twice"),
    base::number(Kind::count, "late", "0", 0, million,
                 "for tests: of a million datagrams, so many are sent behind the next few"),
    base::number(Kind::count, "fault_seed", "1", 0, 1e15, "for tests: which datagrams these are"),
};

class Udp final : public Medium {
public:
    explicit Udp(EndpointSettings settings) : settings_(settings) {}
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

Result<EndpointSettings> read_settings(const Settings& given) {
    const Result<Values> values = Values::read(transport_name, list, given);
    if (!values) return values.error();
    EndpointSettings made;

    const auto bind = datagram::parse_ip(values->text("bind"));
    if (!bind) return values->refuse("bind", "no address");
    made.bind = *bind;
    made.advertise = *bind;
    if (const std::string& advertise = values->text("advertise"); !advertise.empty()) {
        const auto address = datagram::parse_ip(advertise);
        if (!address || address->is_v6 != bind->is_v6)
            return values->refuse("advertise", address ? "bind is an address of the other kind" : "no address");
        made.advertise = *address;
    }
    if (is_wildcard(made.advertise)) {
        return values->refuse("advertise", "peers cannot reach a node at '" + values->text("bind") + "'");
    }

    const Result<PortRange> ports = values->ports("ports");
    if (!ports) return ports.error();
    made.ports = *ports;
    made.mtu = static_cast<std::uint32_t>(values->whole("mtu"));
    if (made.mtu != 0 && made.mtu < 576) return values->refuse("mtu", "smaller than 576 B, and not 0");
    made.repairs = values->word("repair") == "all";
    made.window_bytes = values->whole("window");
    made.socket_buffer_bytes = static_cast<int>(values->whole("socket_buffer"));
    made.staging_bytes = values->whole("staging");
    made.send_buffer_bytes = values->whole("send_buffer");
    made.copy_below_bytes = values->whole("copy_below");
    if (made.copy_below_bytes + 4096 > made.send_buffer_bytes) {
        return values->refuse("copy_below",
                              "not 4 KiB below transport." + std::string(transport_name) +
                                  ".send_buffer = " + base::format_bytes(static_cast<double>(made.send_buffer_bytes)));
    }
    made.max_rate_bytes_per_s = static_cast<std::uint64_t>(values->number("max_rate"));
    made.dscp = static_cast<std::uint8_t>(values->whole("dscp"));
    made.connect_timeout = values->time("connect_timeout");
    made.deadline = values->time("deadline");
    made.faults = {.drop = static_cast<std::uint32_t>(values->whole("drop")),
                   .twice = static_cast<std::uint32_t>(values->whole("twice")),
                   .late = static_cast<std::uint32_t>(values->whole("late"))};
    made.fault_seed = values->whole("fault_seed");
    return made;
}

Result<std::unique_ptr<Medium>> make(const Settings& given) {
    const Result<EndpointSettings> settings = read_settings(given);
    if (!settings) return settings.error();
    return std::unique_ptr<Medium>(std::make_unique<Udp>(*settings));
}

}  // namespace incast::transport::udp
