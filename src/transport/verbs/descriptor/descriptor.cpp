#include "transport/verbs/descriptor/descriptor.h"

#include <array>
#include <filesystem>
#include <system_error>

#include "transport/settings.h"

namespace incast::transport::verbs {

namespace {

using base::Kind;

constexpr double ms = ps_per_ms;
constexpr double s = ps_per_s;
constexpr std::array<std::string_view, 3> immediate_words{"auto", "yes", "no"};

constexpr std::array<std::string_view, 2> connect_words{"cm", "exchange"};
constexpr std::array<std::string_view, 6> mtu_words{"auto", "256", "512", "1024", "2048", "4096"};

constexpr std::array list{
    base::text(
        "bind", "",
        "address to listen at, of an RDMA device; of a list node i takes the i-th, in turn; several rails have one "
        "each, with + between; empty: the first address of this host that is one",
        "IPv4 or IPv6 addresses with commas between, or empty"),
    transport::ports_setting,
    base::text("device", "",
               "the RDMA device that the address has to be of (ibv_devices); several, with commas between: a "
               "rail each; empty: any",
               "names such as mlx5_0, or empty"),
    base::choice("connect", "cm", connect_words,
                 "cm: rdma_cm makes connections; exchange: addresses of queue pairs go through TCP connections to "
                 "`bind`, where rdma_cm cannot be used (InfiniBand without IPoIB); the next four are for that alone"),
    base::number(Kind::count, "port", "0", 0, 254, "port of the device; 0: the first that is active"),
    base::text("gid_index", "auto",
               "GID of the port (ibv_devinfo -v); auto: on RoCE that of the address, v2 before v1, else the first",
               "auto, or 0..255"),
    base::number(Kind::count, "service_level", "0", 0, 15, "service level (InfiniBand) of every connection"),
    base::choice("path_mtu", "auto", mtu_words,
                 "bytes of a packet, the smaller one of both ends; auto: what the port has"),
    base::number(Kind::count, "traffic_class", "0", 0, 255,
                 "traffic class (RoCE: DSCP and ECN bits) of every connection; 0 leaves it to the system"),
    base::number(
        Kind::rate, "rate_limit", "0", 0, 5e11,
        "the device sends to each peer no faster than this, if it can limit reliable connections; 0: no limit"),
    base::number(Kind::count, "ack_timeout", "16", 1, 31,
                 "wait for an acknowledgement before sending again: 4.096 us times 2 to the power of this"),
    base::number(Kind::count, "retry", "6", 1, 6, "how often it is sent again before the peer is lost"),
    base::number(Kind::count, "rnr_retry", "6", 0, 7,
                 "how often it is sent again to a peer without a receive, which credits rule out; 7: without end"),
    base::number(Kind::bytes, "inline", "128", 0, 1024,
                 "messages and writes up to this size travel within their work request, as far as the device can"),
    base::choice("immediate", "auto", immediate_words,
                 "a write carries its notice; no: a send follows it; auto: as the device can (iWARP cannot)"),
    base::number(Kind::bytes, "piece", "8MiB", 65536, 1 << 30,
                 "a write or read is cut into pieces of at most this, and of what the device can"),
    base::number(Kind::count, "send_queue", "256", 32, 16384, "work requests under way to each peer", "a power of two"),
    base::number(Kind::count, "receives", "128", 8, 16384,
                 "messages and notices that each peer may have on the way here; each has a buffer of 4 KiB"),
    base::number(Kind::bytes, "staging", "128KiB", 16384, 1 << 26,
                 "memory for heads and messages under way to each peer", "a power of two"),
    base::number(Kind::count, "reads", "16", 1, 255, "reads under way at a time with each peer, if both devices can"),
    base::number(Kind::duration, "heartbeat", "1s", 10 * ms, 3600 * s,
                 "a write of nothing goes to a peer that nothing else went to for this long: a dead link is noticed"),
    base::number(Kind::duration, "ack_deadline", "10s", 100 * ms, 3600 * s,
                 "nothing of what went to a peer is acknowledged for this long: it is lost"),
    base::number(Kind::duration, "connect_timeout", "10s", ms, 3600 * s,
                 "connecting takes longer than this: peer_down"),
};

constexpr const char* devices_folder = "/sys/class/infiniband";

}  // namespace

std::span<const base::Setting> settings() {
    return list;
}

std::string missing_here() {
    std::error_code none;
    if (std::filesystem::directory_iterator(devices_folder, none) != std::filesystem::directory_iterator()) return {};
    return std::string("this host has no RDMA device: nothing is in ") + devices_folder;
}

Descriptor describe() {
    return {.name = transport_name,
            .summary = "RDMA verbs: InfiniBand, RoCE, iWARP",
            .traits = {.nature = nature},
            .settings = list,
            .former_names = {},
            .package = "incast-verbs (with libibverbs1, librdmacm1 and ibverbs-providers)",
            .untested =
                "InfiniBand's own paths, traffic classes, rate limits, ECE, service levels, path MTU, inline data, "
                "huge pages, rails of several adapters; all was seen on soft-RoCE, soft-iWARP or a mock device alone",
            .missing_here = missing_here};
}

}  // namespace incast::transport::verbs
