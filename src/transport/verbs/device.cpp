#include "transport/verbs/device.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/resource.h>

#include "base/units.h"
#include "transport/calls/calls.h"
#include "transport/verbs/descriptor/descriptor.h"

namespace incast::transport::verbs {

namespace {

constexpr int backlog = 1024;

Error failed(const std::string& what) {
    return Error{std::string(transport_name) + ": " + what + ": " + reason(errno)};
}

/// IPv4 first; without loopback, and without addresses that need a scope.
std::vector<SocketAddress> addresses_here() {
    std::vector<SocketAddress> v4;
    std::vector<SocketAddress> v6;
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return {};
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
        SocketAddress address;
        if (each->ifa_addr->sa_family == AF_INET) {
            reinterpret_cast<sockaddr_in&>(address.storage) = *reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
            v4.push_back(address);
        } else if (each->ifa_addr->sa_family == AF_INET6) {
            auto& made = reinterpret_cast<sockaddr_in6&>(address.storage);
            made = *reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
            if (!IN6_IS_ADDR_LINKLOCAL(&made.sin6_addr)) v6.push_back(address);
        }
    }
    ::freeifaddrs(all);
    v4.insert(v4.end(), v6.begin(), v6.end());
    return v4;
}

/// Nothing: the address is of no RDMA device, or not of the one that is asked for.
CmId listen_by_cm(rdma_event_channel* events, SocketAddress address, const EndpointSettings& settings,
                  const std::string& device, std::string& why) {
    rdma_cm_id* made = nullptr;
    if (rdma_create_id(events, &made, nullptr, RDMA_PS_TCP) != 0) {
        why = "rdma_create_id: " + reason(errno);
        return nullptr;
    }
    CmId id(made);
    const Result<Ok> bound = bind_in(settings.ports, address.to_string(), [&](std::uint16_t port) {
        address.set_port(port);
        return rdma_bind_addr(id.get(), address.get()) == 0 ? 0 : errno;
    });
    if (!bound) {
        why = bound.error().message;
    } else if (id->verbs == nullptr) {
        why = address.to_string() + " is of no RDMA device";
    } else if (!device.empty() && device != ibv_get_device_name(id->verbs->device)) {
        why = address.to_string() + " is of " + ibv_get_device_name(id->verbs->device);
    } else if (rdma_listen(id.get(), backlog) != 0) {
        why = "listening at " + address.to_string() + ": " + reason(errno);
    } else {
        return id;
    }
    return nullptr;
}

Result<CmId> find_listener(rdma_event_channel* events, const EndpointSettings& settings, std::uint32_t rail,
                           std::uint32_t self) {
    const std::string& device = settings.devices[rail];
    std::string why;
    if (!settings.bind.empty()) {
        CmId id = listen_by_cm(events, settings.bind_of(self, rail), settings, device, why);
        if (id != nullptr) return id;
        return Error{"transport.verbs.bind: " + why + (device.empty() ? "" : "; wanted " + device) +
                     "; right is an address of an RDMA device (rdma link, ip addr)"};
    }
    for (const SocketAddress& address : addresses_here()) {
        CmId id = listen_by_cm(events, address, settings, device, why);
        if (id != nullptr) return id;
    }
    return Error{std::string(transport_name) + ": no address of this host is of " +
                 (device.empty() ? "an RDMA device" : "the RDMA device " + device) +
                 (why.empty() ? "" : " (the last one tried: " + why + ")") + "; set transport.verbs.bind"};
}

struct Demand {
    const char* what;
    std::uint64_t needed;
    std::uint64_t possible;
    const char* setting;
};

Result<Ok> check_limits(const EndpointSettings& settings, const Device& device, const ibv_device_attr& can,
                        std::uint32_t max_peers) {
    const auto limit = [](int value) { return static_cast<std::uint64_t>(std::max(value, 0)); };
    const std::uint64_t sends = std::uint64_t{max_peers} * settings.send_queue;
    const std::uint64_t receives = std::uint64_t{max_peers} * (settings.receives + spare_receives);
    const Demand demands[] = {
        {"queue pairs", max_peers, limit(can.max_qp), "fewer nodes"},
        {"work requests in a send queue", settings.send_queue, limit(can.max_qp_wr), "transport.verbs.send_queue"},
        {"completions of sends", sends, limit(can.max_cqe), "transport.verbs.send_queue"},
        {"completions of receives", receives, limit(can.max_cqe), "transport.verbs.receives"},
        {"receives in the shared queue", receives, limit(can.max_srq_wr), "transport.verbs.receives"},
        {"parts of a work request", 2, limit(can.max_sge), "another device"},
        {"work requests for one write", max_write_bytes / device.piece + 2 + reserved_requests, settings.send_queue,
         "a larger transport.verbs.send_queue, or larger pieces"},
    };
    for (const Demand& each : demands) {
        if (each.needed <= each.possible) continue;
        const std::string most =
            each.needed == sends || each.needed == receives
                ? " of at most " +
                      std::to_string(each.possible / max_peers -
                                     (each.needed == receives
                                          ? std::min<std::uint64_t>(each.possible / max_peers, spare_receives)
                                          : 0))
                : std::string();
        return Error{std::string(transport_name) + ": " + device.name() + " can have " + std::to_string(each.possible) +
                     " " + each.what + ", and " + std::to_string(each.needed) + " are needed for " +
                     std::to_string(max_peers) + " nodes; it takes " + each.setting + most};
    }
    return Ok{};
}

Result<Ok> check_rate(std::uint32_t wanted, const Device& device) {
    if (wanted == 0) return Ok{};
    ibv_device_attr_ex can{};
    errno = ibv_query_device_ex(device.context(), nullptr, &can);
    if (errno != 0) return failed(device.name() + ": its limits");
    const ibv_packet_pacing_caps& rates = can.packet_pacing_caps;
    const std::string start = "transport.verbs.rate_limit = " + rate_text(wanted) + ": " + device.name();
    if (!ibv_is_qpt_supported(rates.supported_qpts, IBV_QPT_RC))
        return Error{start + " cannot limit the rate of a reliable connection: set it to 0, or take another device"};
    if (wanted < rates.qp_rate_limit_min || wanted > rates.qp_rate_limit_max) {
        return Error{start + " limits rates from " + rate_text(rates.qp_rate_limit_min) + " to " +
                     rate_text(rates.qp_rate_limit_max)};
    }
    return Ok{};
}

}  // namespace

std::string rate_text(std::uint32_t kbit_per_s) {
    constexpr double bytes_of_kbit = 125;
    return base::format_rate(kbit_per_s * bytes_of_kbit);
}

std::string reason(int error) {
    std::string text = std::generic_category().message(error);
    rlimit locked{};
    if (error == ENOMEM && ::getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY) {
        text += " (at most " + std::to_string(locked.rlim_cur / 1024) +
                " KiB may be locked: raise it with ulimit -l or limits.conf)";
    }
    return text;
}

void make_nonblocking(int fd) {
    (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

namespace {

Result<Ok> open_by_cm(Device& made, const EndpointSettings& settings, std::uint32_t rail, std::uint32_t self) {
    made.events.reset(rdma_create_event_channel());
    if (made.events == nullptr) {
        const std::string missing = missing_here();
        if (!missing.empty()) return Error{std::string(transport_name) + ": " + missing};
        return failed("no connections by rdma_cm (is the kernel module rdma_ucm loaded?)");
    }
    auto listener = find_listener(made.events.get(), settings, rail, self);
    if (!listener) return listener.error();
    made.listener = std::move(*listener);
    make_nonblocking(made.events->fd);
    made.address.storage = made.listener->route.addr.src_storage;
    made.address.set_port(ntohs(rdma_get_src_port(made.listener.get())));
    made.port.number = made.listener->port_num;
    return Ok{};
}

Result<Ok> open_by_exchange(Device& made, const EndpointSettings& settings, std::uint32_t rail, std::uint32_t self) {
    const std::vector<SocketAddress> addresses =
        settings.bind.empty() ? addresses_here() : std::vector{settings.bind_of(self, rail)};
    auto found = find_port(settings.devices[rail], settings.path, addresses);
    if (!found) return found.error();
    made.opened = std::move(found->device);
    made.port = found->port;
    made.address = found->address;
    make_nonblocking(made.opened->async_fd);
    auto listener = listen_at(made.address, settings.ports);
    if (!listener) return Error{std::string(transport_name) + ": listening at " + listener.error().message};
    made.calls = std::move(*listener);
    return Ok{};
}

}  // namespace

Result<Device> Device::open(const EndpointSettings& settings, std::uint32_t rail, std::uint32_t self,
                            std::uint32_t max_peers) {
    Device made;
    const Result<Ok> opened = settings.connect == Connect::cm ? open_by_cm(made, settings, rail, self)
                                                              : open_by_exchange(made, settings, rail, self);
    if (!opened) return opened.error();
    ibv_context* const context = made.context();

    ibv_device_attr can{};
    ibv_port_attr port{};
    errno = ibv_query_device(context, &can);
    if (errno != 0) return failed(made.name() + ": its limits");
    errno = ibv_query_port(context, made.port.number, &port);
    if (errno != 0) return failed(made.name() + ": port");
    made.is_iwarp = context->device->transport_type == IBV_TRANSPORT_IWARP;
    made.immediates =
        settings.immediate == Immediate::yes || (settings.immediate == Immediate::automatic && !made.is_iwarp);
    made.piece = std::min<std::uint64_t>(settings.piece, port.max_msg_sz);
    made.responder_reads =
        static_cast<std::uint8_t>(std::clamp<int>(settings.reads, 1, std::max(can.max_qp_rd_atom, 1)));
    made.initiator_reads =
        static_cast<std::uint8_t>(std::clamp<int>(settings.reads, 1, std::max(can.max_qp_init_rd_atom, 1)));
    if (const auto fits = check_limits(settings, made, can, max_peers); !fits) return fits.error();
    if (const auto fits = check_rate(settings.rate_limit, made); !fits) return fits.error();

    made.domain.reset(ibv_alloc_pd(context));
    if (made.domain == nullptr) return failed(made.name() + ": protection domain");
    made.completions.reset(ibv_create_comp_channel(context));
    if (made.completions == nullptr) return failed(made.name() + ": completion channel");
    make_nonblocking(made.completions->fd);
    const auto queue = [&](std::uint32_t entries) {
        return ibv_create_cq(context, static_cast<int>(entries), nullptr, made.completions.get(), 0);
    };
    const std::uint32_t receives = max_peers * (settings.receives + spare_receives);
    made.sent.reset(queue(max_peers * settings.send_queue));
    if (made.sent == nullptr) return failed(made.name() + ": completion queue of sends");
    made.received.reset(queue(receives));
    if (made.received == nullptr) return failed(made.name() + ": completion queue of receives");
    ibv_srq_init_attr shared{};
    shared.attr.max_wr = receives;
    shared.attr.max_sge = 1;
    made.receives.reset(ibv_create_srq(made.domain.get(), &shared));
    if (made.receives == nullptr) return failed(made.name() + ": shared receive queue");
    return made;
}

}  // namespace incast::transport::verbs
