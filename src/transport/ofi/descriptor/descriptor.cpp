#include "transport/ofi/descriptor/descriptor.h"

#include <array>

#include <dlfcn.h>

#include "transport/settings.h"

namespace incast::transport::ofi {

namespace {

using base::Kind;

constexpr double ms = ps_per_ms;
constexpr double s = ps_per_s;
constexpr std::array<std::string_view, 3> endpoint_words{"auto", "msg", "rdm"};
constexpr std::array<std::string_view, 2> order_words{"auto", "gate"};
constexpr const char* library = "libfabric.so.1";

constexpr std::array list{
    base::text("provider", "tcp", "the provider of libfabric that carries everything (fi_info -l)",
               "a name such as tcp, shm, verbs, or a layered one such as tcp;ofi_rxm"),
    base::text("bind", "127.0.0.1",
               "address of this node, for the connection that each pair keeps beside the fabric, and for providers "
               "that have IP addresses; of a list node i takes the i-th, in turn",
               "IPv4 or IPv6 addresses with commas between"),
    transport::ports_setting,
    base::choice("endpoint", "auto", endpoint_words,
                 "msg: a connected endpoint for each peer (FI_EP_MSG); rdm: one endpoint for all of them (FI_EP_RDM); "
                 "auto: msg where the provider has it"),
    base::choice("order", "auto", order_words,
                 "auto: a write carries its notice where the provider keeps writes in order; gate: a notice is a "
                 "message that waits until all writes before it are delivered"),
    base::number(Kind::count, "send_queue", "256", 32, 16384, "writes and reads under way to each peer",
                 "a power of two"),
    base::number(Kind::count, "receives", "64", 8, 16384,
                 "messages and notices that each peer may have on the way here; each has a buffer of 4 KiB"),
    base::number(Kind::duration, "ack_deadline", "10s", s, 3600 * s,
                 "the host of a peer does not answer for this long: the peer is lost"),
    base::number(Kind::duration, "connect_timeout", "10s", ms, 3600 * s,
                 "connecting takes longer than this: peer_down"),
};

std::string look_for_library() {
    if (INCAST_OFI_BUILT == 0) return "this program was built without libfabric (libfabric-dev)";
    // It stays: what its libraries keep would be lost with each closing.
    if (dlopen(library, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE) == nullptr)
        return std::string("this host has no ") + library + ": the package libfabric1 brings it";
    return {};
}

}  // namespace

std::span<const base::Setting> settings() {
    return list;
}

std::string missing_here() {
    // Once: what libfabric links with (PSM) sleeps a fifth of a second whenever it is loaded.
    static const std::string answer = look_for_library();
    return answer;
}

Descriptor describe() {
    return {.name = transport_name,
            .summary = "libfabric: tcp, shm, and the fabrics that it has providers for",
            .traits = {.nature = nature, .bind = "bind"},
            .settings = list,
            .former_names = {},
            .package = "incast-ofi (with libfabric1)",
            .untested =
                "every provider on hardware (verbs, EFA, PSM, CXI), registration modes other than those of tcp "
                "and shm; tcp and shm alone were seen",
            .missing_here = missing_here};
}

}  // namespace incast::transport::ofi
