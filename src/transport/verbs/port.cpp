#include "transport/verbs/port.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "transport/verbs/descriptor/descriptor.h"

namespace incast::transport::verbs {

namespace {

constexpr std::size_t most_gids = 1024;
constexpr std::uint8_t rnr_timer = 12;  // 0.64 ms: what perftest and rdma_cm take
constexpr std::uint8_t hop_limit = 64;

std::string text_of(int error) {
    return std::generic_category().message(error);
}

std::string name_of(const ibv_context& device) {
    return ibv_get_device_name(device.device);
}

const char* link_name(std::uint8_t link) {
    return link == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
}

const char* gid_type_name(std::uint8_t type) {
    return type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "RoCE v1";
}

std::vector<OpenDevice> open_devices(const std::string& name) {
    std::vector<OpenDevice> opened;
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (list == nullptr) return opened;
    for (ibv_device* each : std::span(list, static_cast<std::size_t>(count))) {
        if (!name.empty() && name != ibv_get_device_name(each)) continue;
        if (OpenDevice device(ibv_open_device(each)); device != nullptr) opened.push_back(std::move(device));
    }
    ibv_free_device_list(list);
    return opened;
}

std::vector<ibv_gid_entry> gids_of(ibv_context* device) {
    std::vector<ibv_gid_entry> all(most_gids);
    const ssize_t count = ibv_query_gid_table(device, all.data(), all.size(), 0);
    all.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return all;
}

/// An IPv4 address is the last four bytes of ::ffff:0:0.
std::array<std::byte, 16> gid_of(const SocketAddress& address) {
    const Address bytes(0, address);
    if (bytes.is_v6 != 0) return bytes.ip;
    std::array<std::byte, 16> gid{};
    gid[10] = gid[11] = std::byte{0xff};
    std::copy_n(bytes.ip.begin(), 4, gid.begin() + 12);
    return gid;
}

/// A port as settings and what the device says of it allow; nothing: it is not active.
struct Candidate {
    std::optional<Port> port;
    std::uint32_t max_ports = 0;
    bool is_iwarp = false;
};

Candidate look_at(ibv_context* device, std::uint8_t wanted) {
    Candidate found;
    ibv_device_attr can{};
    if (ibv_query_device(device, &can) == 0) found.max_ports = can.phys_port_cnt;
    found.is_iwarp = device->device->transport_type == IBV_TRANSPORT_IWARP;
    for (std::uint32_t number = 1; number <= found.max_ports && !found.port; ++number) {
        ibv_port_attr said{};
        if (wanted != 0 && number != wanted) continue;
        if (ibv_query_port(device, static_cast<std::uint8_t>(number), &said) != 0) continue;
        if (said.state != IBV_PORT_ACTIVE) continue;
        found.port = Port{.number = static_cast<std::uint8_t>(number),
                          .link = said.link_layer == IBV_LINK_LAYER_ETHERNET
                                      ? static_cast<std::uint8_t>(IBV_LINK_LAYER_ETHERNET)
                                      : static_cast<std::uint8_t>(IBV_LINK_LAYER_INFINIBAND),
                          .mtu = static_cast<std::uint8_t>(said.active_mtu),
                          .lid = said.lid,
                          .needs_grh = (said.flags & IBV_QPF_GRH_REQUIRED) != 0};
    }
    return found;
}

/// Of a port's GIDs the one that is asked for, or is the address, or the best one there is. Then whether it is the
/// address's is said.
const ibv_gid_entry* choose(std::span<const ibv_gid_entry> gids, const Port& port, std::optional<std::uint32_t> index,
                            std::span<const SocketAddress> addresses, const SocketAddress*& address) {
    const ibv_gid_entry* best = nullptr;
    int best_worth = -1;
    for (const ibv_gid_entry& each : gids) {
        if (each.port_num != port.number || (index && each.gid_index != *index)) continue;
        const auto own = std::ranges::find_if(addresses, [&](const SocketAddress& one) {
            return std::memcmp(gid_of(one).data(), each.gid.raw, sizeof each.gid.raw) == 0;
        });
        const bool is_own = port.link == IBV_LINK_LAYER_ETHERNET && own != addresses.end();
        const int worth = (is_own ? 2 : 0) + (each.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0);
        if (worth <= best_worth) continue;
        best = &each;
        best_worth = worth;
        address = is_own ? &*own : nullptr;
    }
    return best;
}

}  // namespace

Result<FoundPort> find_port(const std::string& name, const PathSettings& settings,
                            std::span<const SocketAddress> addresses) {
    const std::string start = std::string(transport_name) + ": ";
    if (addresses.empty())
        return Error{start +
                     "this host has no address to exchange addresses of queue pairs at; set transport.verbs.bind"};
    std::string why;
    FoundPort first;
    for (OpenDevice& device : open_devices(name)) {
        const std::string who = name_of(*device);
        const Candidate candidate = look_at(device.get(), settings.port);
        if (candidate.is_iwarp) {
            why = who + " is an iWARP device, which only rdma_cm connects: set transport.verbs.connect to cm";
        } else if (settings.port > candidate.max_ports) {
            why = "transport.verbs.port = " + std::to_string(settings.port) + ": " + who + " has " +
                  std::to_string(candidate.max_ports);
        } else if (!candidate.port) {
            why = settings.port == 0
                      ? who + " has no port that is active (ibv_devinfo)"
                      : "port " + std::to_string(settings.port) + " of " + who + " is not active (ibv_devinfo)";
        } else {
            FoundPort found{std::move(device), *candidate.port, addresses.front()};
            const std::vector<ibv_gid_entry> gids = gids_of(found.device.get());
            const SocketAddress* address = nullptr;
            const ibv_gid_entry* const gid = choose(gids, found.port, settings.gid_index, addresses, address);
            if (gid == nullptr && (settings.gid_index || found.port.link == IBV_LINK_LAYER_ETHERNET)) {
                why = settings.gid_index
                          ? "transport.verbs.gid_index = " + std::to_string(*settings.gid_index) + ": " + who +
                                " has no such GID at port " + std::to_string(found.port.number) + " (ibv_devinfo -v)"
                          : who + " has no GID: its network interface needs an address";
                continue;
            }
            if (gid != nullptr) {
                found.port.gid_index = gid->gid_index;
                found.port.gid_type = static_cast<std::uint8_t>(gid->gid_type);
                std::memcpy(found.port.gid.data(), gid->gid.raw, sizeof gid->gid.raw);
            }
            found.port.needs_grh |= settings.gid_index.has_value();
            if (settings.mtu > found.port.mtu) {
                why = "transport.verbs.path_mtu = " + std::to_string(128U << settings.mtu) + ": port " +
                      std::to_string(found.port.number) + " of " + who + " has " +
                      std::to_string(128U << found.port.mtu) + " bytes";
                continue;
            }
            if (settings.mtu != 0) found.port.mtu = settings.mtu;
            if (address != nullptr) {
                found.address = *address;
                return found;
            }
            if (first.device == nullptr) first = std::move(found);
        }
    }
    if (first.device != nullptr) return first;
    if (!why.empty()) return Error{start + why};
    if (!name.empty())
        return Error{"transport.verbs.device = " + name + ": this host has no such RDMA device (ibv_devices)"};
    const std::string missing = missing_here();
    return Error{start + (missing.empty() ? "no RDMA device of this host can be opened" : missing)};
}

std::string unfit(const Port& own, const PairAddress& theirs) {
    if (theirs.link != own.link)
        return std::string("its port is of ") + link_name(theirs.link) + ", and the one here of " + link_name(own.link);
    if (own.link == IBV_LINK_LAYER_ETHERNET && theirs.gid_type != own.gid_type) {
        return std::string("its GID is of ") + gid_type_name(theirs.gid_type) + ", and the one here of " +
               gid_type_name(own.gid_type) + "; set transport.verbs.gid_index";
    }
    if (own.link != IBV_LINK_LAYER_ETHERNET && (theirs.lid == 0 || own.lid == 0))
        return std::string(theirs.lid == 0 ? "its" : "the") + " port" + (theirs.lid == 0 ? "" : " here") +
               " has no LID: no subnet manager has given it one";
    return {};
}

Ece ece_of(ibv_qp* pair) {
    ibv_ece said{};
    if (ibv_query_ece(pair, &said) != 0) return {};
    return {said.vendor_id, said.options};
}

int set_ece(ibv_qp* pair, const Ece& theirs) {
    ibv_ece to{.vendor_id = theirs.vendor, .options = theirs.options, .comp_mask = 0};
    return ibv_set_ece(pair, &to);
}

int begin_pair(ibv_qp* pair, const Port& port) {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = port.number;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    return ibv_modify_qp(pair, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

Result<Ok> connect_pair(ibv_qp* pair, const PathSettings& settings, const Port& port, const PairAddress& own,
                        const PairAddress& theirs) {
    constexpr std::size_t prefix = 8;  // of a GID: its subnet
    const bool is_ethernet = port.link == IBV_LINK_LAYER_ETHERNET;
    const bool is_near = std::equal(port.gid.begin(), port.gid.begin() + prefix, theirs.gid.begin());
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = static_cast<ibv_mtu>(std::min(own.mtu, theirs.mtu));
    to.dest_qp_num = theirs.pair;
    to.rq_psn = theirs.psn;
    to.max_dest_rd_atomic = std::min(own.responder_reads, theirs.initiator_reads);
    to.min_rnr_timer = rnr_timer;
    to.ah_attr.dlid = theirs.lid;
    to.ah_attr.sl = settings.service_level;
    to.ah_attr.port_num = port.number;
    if (is_ethernet || port.needs_grh || !is_near) {
        to.ah_attr.is_global = 1;
        to.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port.gid_index);
        to.ah_attr.grh.hop_limit = hop_limit;
        to.ah_attr.grh.traffic_class = settings.traffic_class;
        std::memcpy(to.ah_attr.grh.dgid.raw, theirs.gid.data(), theirs.gid.size());
    }
    int failed = ibv_modify_qp(pair, &to,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (failed != 0) return Error{"its queue pair is not reached (state RTR): " + text_of(failed)};
    to = {};
    to.qp_state = IBV_QPS_RTS;
    to.timeout = settings.ack_timeout;
    to.retry_cnt = settings.retry;
    to.rnr_retry = settings.rnr_retry;
    to.sq_psn = own.psn;
    to.max_rd_atomic = std::min(own.initiator_reads, theirs.responder_reads);
    failed = ibv_modify_qp(
        pair, &to,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (failed != 0) return Error{"its queue pair cannot send (state RTS): " + text_of(failed)};
    return Ok{};
}

}  // namespace incast::transport::verbs
