#include "transport/ucx/descriptor/descriptor.h"

#include <array>

#include <dlfcn.h>

#include "transport/settings.h"

namespace incast::transport::ucx {

namespace {

using base::Kind;

constexpr double ms = ps_per_ms;
constexpr double s = ps_per_s;
constexpr std::array<std::string_view, 3> failure_words{"auto", "peer", "none"};
constexpr const char* library = "libucp.so.0";

constexpr std::array list{
    base::text("tls", "", "UCX's transports that may be used (ucx_info -d); empty: those of UCX_TLS, or all",
               "names with commas between, as tcp,self or posix,cma,self"),
    base::text("bind", "127.0.0.1",
               "address of this node, for the connection that each pair keeps beside UCX; of a list node i takes the "
               "i-th, in turn",
               "IPv4 or IPv6 addresses with commas between"),
    transport::ports_setting,
    base::choice("failures", "auto", failure_words,
                 "peer: UCX tells of peers that fail, which its shared memory cannot (1.13); none: it does not; auto: "
                 "peer where something that it may use can"),
    base::number(Kind::count, "send_queue", "256", 32, 16384, "writes and reads under way to each peer",
                 "a power of two"),
    base::number(Kind::count, "receives", "64", 8, 16384,
                 "messages and notices that each peer may have on the way here"),
    base::number(Kind::duration, "ack_deadline", "10s", s, 3600 * s,
                 "the host of a peer does not answer for this long: the peer is lost"),
    base::number(Kind::duration, "connect_timeout", "10s", ms, 3600 * s,
                 "connecting takes longer than this: peer_down"),
};

std::string look_for_library() {
    if (INCAST_UCX_BUILT == 0) return "this program was built without UCX (libucx-dev)";
    // It stays, as the module that links with it would have it.
    if (dlopen(library, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE) == nullptr)
        return std::string("this host has no ") + library + ": the package libucx0 brings it";
    return {};
}

}  // namespace

std::span<const base::Setting> settings() {
    return list;
}

std::string missing_here() {
    static const std::string answer = look_for_library();
    return answer;
}

Descriptor describe() {
    return {
        .name = transport_name,
        .summary = "UCX: tcp, shared memory, and the fabrics that it has transports for",
        .traits = {.nature = nature, .bind = "bind"},
        .settings = list,
        .former_names = {},
        .package = "incast-ucx (with libucx0)",
        .untested = "every transport of UCX on hardware (rc, dc, ud, xpmem); tcp, posix, sysv and cma alone were seen",
        .missing_here = missing_here};
}

}  // namespace incast::transport::ucx
