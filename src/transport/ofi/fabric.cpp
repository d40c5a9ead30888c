#include "transport/ofi/fabric.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <rdma/fi_errno.h>
#include <sys/random.h>
#include <unistd.h>

#include "transport/calls/calls.h"
#include "transport/ofi/descriptor/descriptor.h"
#include "transport/ofi/wire.h"

namespace incast::transport::ofi {

namespace {

constexpr std::uint32_t version = FI_VERSION(1, 17);
constexpr std::uint64_t largest_piece = std::uint64_t{256} << 20;
constexpr std::uint64_t order_of_writes = FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_WAS | FI_ORDER_WAW | FI_ORDER_RMA_WAW;
constexpr std::size_t shm_peers = 256;  // SMR_MAX_PEERS

Error refused(const std::string& what, const std::string& why) {
    return Error{std::string(transport_name) + ": " + what + ": " + why};
}

/// Names of what fi_info -l lists, with commas between; layers and hooks aside.
std::string providers_here() {
    fi_info* all = nullptr;
    if (fi_getinfo(version, nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &all) != 0) return "none";
    const Opened<fi_info> owner(all);
    std::string names;
    for (const fi_info* each = all; each != nullptr; each = each->next) {
        const std::string_view name = each->fabric_attr->prov_name;
        if (!name.starts_with("ofi_")) names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return names;
}

/// `name` is of that list, or begins with one of it.
bool is_there(const std::string& names, const std::string& name) {
    return (", " + names + ",").find(", " + name.substr(0, name.find(';')) + ",") != std::string::npos;
}

struct Wanted {
    fi_ep_type type;
    bool is_ordered;
    bool is_delivered;
};

bool is_ip(const fi_info& info) {
    return info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN || info.addr_format == FI_SOCKADDR_IN6;
}

/// A name for files in /dev/shm that no other process has. The provider would take the process number alone. A process
/// that was killed left its file behind, and one in another container may have the same number: in both cases fi_enable
/// says "busy", and removes the file (libfabric 1.17: smr_retry_map).
std::string unique_name() {
    std::uint64_t chance = 0;
    if (::getrandom(&chance, sizeof chance, 0) != static_cast<ssize_t>(sizeof chance)) chance = 0;
    std::array<char, 64> text{};
    (void)std::snprintf(text.data(), text.size(), "%d-%016" PRIx64, ::getpid(), chance);
    return text.data();
}

/// Null: the provider has no such thing, at that address if it has IP addresses.
Opened<fi_info> find(const EndpointSettings& settings, SocketAddress at, const Wanted& wanted) {
    const Opened<fi_info> hints(fi_allocinfo());
    if (hints == nullptr) return nullptr;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->ep_attr->type = wanted.type;
    hints->fabric_attr->prov_name = ::strdup(settings.provider.c_str());
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    if (wanted.is_ordered) {
        hints->tx_attr->msg_order = hints->rx_attr->msg_order = order_of_writes;
        hints->ep_attr->max_order_waw_size = max_write_bytes;
        hints->domain_attr->cq_data_size = wanted.type == FI_EP_MSG ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
    } else {
        hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    }
    if (wanted.is_delivered) hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    const auto ask = [&](const char* node) {
        fi_info* found = nullptr;
        (void)fi_getinfo(version, node, nullptr, node != nullptr ? FI_SOURCE : 0, hints.get(), &found);
        return Opened<fi_info>(found);
    };
    Opened<fi_info> found = ask(nullptr);
    if (found == nullptr) return found;
    if (std::string_view(found->fabric_attr->prov_name).starts_with("shm")) return ask(unique_name().c_str());
    if (!is_ip(*found)) return found;
    at.set_port(0);
    const std::string text = at.to_string();  // [address]:0 or address:0
    const std::string node =
        text.starts_with('[') ? text.substr(1, text.find(']') - 1) : text.substr(0, text.find(':'));
    return ask(node.c_str());
}

template <class Name>
Result<std::vector<std::byte>> name_of(Name* opened) {
    std::vector<std::byte> name(max_name_bytes);
    std::size_t size = name.size();
    if (const int error = fi_getname(&opened->fid, name.data(), &size); error != 0)
        return refused("its address on the fabric", meaning(error));
    name.resize(size);
    return name;
}

Result<Ok> open_queues(Fabric& made, std::size_t entries) {
    fi_cq_attr wanted{};
    wanted.size = std::min<std::size_t>(entries, std::size_t{1} << 20);
    wanted.format = FI_CQ_FORMAT_DATA;
    fid_cq* completions = nullptr;
    // Where there is nothing to wait for, the node polls.
    int error = 0;
    for (const fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_NONE}) {
        wanted.wait_obj = wait;
        error = fi_cq_open(made.domain.get(), &wanted, &completions, nullptr);
        if (error == 0) break;
    }
    if (error != 0) return refused(std::string("no completion queue of ") + made.provider(), meaning(error));
    made.completions.reset(completions);
    if (wanted.wait_obj == FI_WAIT_FD) error = fi_control(&completions->fid, FI_GETWAIT, &made.wait_fd);
    if (error != 0) return refused("what to wait for", meaning(error));
    if (!made.is_connected()) return Ok{};
    fi_eq_attr events_wanted{};
    events_wanted.wait_obj = FI_WAIT_FD;
    fid_eq* events = nullptr;
    error = fi_eq_open(made.fabric.get(), &events_wanted, &events, nullptr);
    if (error != 0) return refused(std::string("no event queue of ") + made.provider(), meaning(error));
    made.events.reset(events);
    error = fi_control(&events->fid, FI_GETWAIT, &made.events_fd);
    if (error != 0) return refused("what to wait for", meaning(error));
    return Ok{};
}

Result<Ok> open_listening(Fabric& made) {
    fid_pep* listening = nullptr;
    int error = fi_passive_ep(made.fabric.get(), made.info.get(), &listening, nullptr);
    if (error == 0) {
        made.listening.reset(listening);
        error = fi_pep_bind(listening, &made.events->fid, 0);
        if (error == 0) error = fi_listen(listening);
    }
    if (error != 0) return refused(std::string(made.provider()) + " does not listen", meaning(error));
    auto name = name_of(listening);
    if (!name) return name.error();
    made.name = std::move(*name);
    return Ok{};
}

Result<Ok> open_datagrams(Fabric& made, std::size_t max_peers) {
    fi_av_attr wanted{};
    wanted.type = FI_AV_TABLE;
    wanted.count = max_peers;
    fid_av* addresses = nullptr;
    fid_ep* endpoint = nullptr;
    int error = fi_av_open(made.domain.get(), &wanted, &addresses, nullptr);
    if (error == 0) {
        made.addresses.reset(addresses);
        error = fi_endpoint(made.domain.get(), made.info.get(), &endpoint, nullptr);
    }
    if (error == 0) {
        made.datagrams.reset(endpoint);
        error = fi_ep_bind(endpoint, &addresses->fid, 0);
        if (error == 0) error = fi_ep_bind(endpoint, &made.completions->fid, FI_TRANSMIT | FI_RECV);
        if (error == 0) error = fi_enable(endpoint);
    }
    if (error != 0) return refused(std::string("no endpoint of ") + made.provider(), meaning(error));
    auto name = name_of(endpoint);
    if (!name) return name.error();
    made.name = std::move(*name);
    return Ok{};
}

}  // namespace

std::string meaning(std::int64_t error) {
    return fi_strerror(static_cast<int>(error < 0 ? -error : error));
}

std::uint64_t Fabric::copies(std::uint64_t bytes) const {
    const std::string_view of = provider();
    if (of.starts_with("shm")) return bytes;
    const bool by_sockets =
        of.starts_with("tcp") || of.starts_with("net") || of.starts_with("sockets") || of.starts_with("udp");
    return by_sockets ? 2 * bytes : 0;
}

Result<Opened<fid_ep>> Fabric::make_connected(fi_info* from) const {
    fid_ep* endpoint = nullptr;
    int error = fi_endpoint(domain.get(), from, &endpoint, nullptr);
    if (error != 0) return refused(std::string("no endpoint of ") + provider(), meaning(error));
    Opened<fid_ep> made(endpoint);
    error = fi_ep_bind(endpoint, &events->fid, 0);
    if (error == 0) error = fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV);
    if (error == 0) error = fi_enable(endpoint);
    if (error != 0) return refused(std::string("no endpoint of ") + provider(), meaning(error));
    return made;
}

Result<Fabric> Fabric::open(const EndpointSettings& settings, std::uint32_t self, std::uint32_t max_peers) {
    Fabric made;
    made.address = settings.bind[self % settings.bind.size()];
    for (const fi_ep_type type : {FI_EP_MSG, FI_EP_RDM}) {
        if (settings.kind == (type == FI_EP_MSG ? EndpointKind::rdm : EndpointKind::msg)) continue;
        for (const bool is_ordered : {true, false}) {
            if (is_ordered && settings.order == Order::gate) continue;
            // What is gated has to be known to be delivered.
            for (const bool is_delivered : {true, false}) {
                if (made.info != nullptr || (!is_delivered && !is_ordered)) continue;
                made.info = find(settings, made.address, {type, is_ordered, is_delivered});
                made.is_ordered = is_ordered;
                made.delivery = is_delivered ? FI_DELIVERY_COMPLETE : FI_TRANSMIT_COMPLETE;
            }
        }
    }
    if (made.info == nullptr) {
        const std::string here = providers_here();
        if (!is_there(here, settings.provider)) {
            return refused("transport.ofi.provider = '" + settings.provider + "'",
                           "libfabric (the package libfabric1) has " + here + " here");
        }
        made.address.set_port(0);
        return refused("provider " + settings.provider,
                       "it has no endpoint with writes that is usable at transport.ofi.bind = " +
                           made.address.to_string() + " (fi_info -p " + settings.provider + " -v)");
    }
    const std::size_t most_peers = made.is_shm() ? shm_peers : std::numeric_limits<std::uint16_t>::max();
    if (max_peers > most_peers) {
        return refused("provider " + settings.provider,
                       std::to_string(max_peers) + " peers; at most " + std::to_string(most_peers) + " are possible");
    }
    // An operation has a part for the head and one for the body.
    made.piece = std::min<std::uint64_t>(made.info->ep_attr->max_msg_size, largest_piece);
    if (made.info->tx_attr->iov_limit < 2 || max_write_bytes / made.piece >= settings.send_queue / 4) {
        return refused("provider " + settings.provider,
                       "its operations have at most " + std::to_string(made.info->tx_attr->iov_limit) + " parts and " +
                           std::to_string(made.piece) + " bytes, which is too few");
    }
    if (made.is_connected() && made.has_memory_mode(FI_MR_ENDPOINT)) {
        return refused("provider " + settings.provider,
                       "it registers memory for one connection: transport.ofi.endpoint = rdm");
    }
    fid_fabric* fabric = nullptr;
    int error = fi_fabric(made.info->fabric_attr, &fabric, nullptr);
    if (error != 0) return refused("provider " + settings.provider, meaning(error));
    made.fabric.reset(fabric);
    fid_domain* domain = nullptr;
    error = fi_domain(fabric, made.info.get(), &domain, nullptr);
    if (error != 0) return refused("provider " + settings.provider, meaning(error));
    made.domain.reset(domain);
    const std::size_t each = settings.send_queue + records + settings.receives + spare_receives;
    if (const auto opened = open_queues(made, each * max_peers); !opened) return opened.error();
    const auto opened = made.is_connected() ? open_listening(made) : open_datagrams(made, max_peers);
    if (!opened) return opened.error();
    auto calls = listen_at(made.address, settings.ports);
    if (!calls) return refused("no calls at transport.ofi.bind = " + made.address.to_string(), calls.error().message);
    made.calls = std::move(*calls);
    return made;
}

}  // namespace incast::transport::ofi
