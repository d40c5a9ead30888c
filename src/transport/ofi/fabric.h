// What libfabric gives an endpoint: a domain of the provider with its queues, and how the provider wants to be used.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <incast/result.h>
#include <incast/transport.h>

#include "os/descriptor.h"
#include "transport/calls/socket_address.h"
#include "transport/settings.h"

namespace incast::transport::ofi {

/// What libfabric opened; closed with its owner.
struct Close {
    template <class T>
    void operator()(T* opened) const {
        (void)fi_close(&opened->fid);
    }
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
template <class T>
using Opened = std::unique_ptr<T, Close>;

enum class EndpointKind : std::uint8_t { any, msg, rdm };
enum class Order : std::uint8_t { any, gate };

struct EndpointSettings {
    std::string provider;
    std::vector<SocketAddress> bind;  // of each node, with port 0
    PortRange ports;
    EndpointKind kind = EndpointKind::any;
    Order order = Order::any;
    std::uint32_t send_queue = 0;  // a power of two
    std::uint32_t receives = 0;
    Time ack_deadline = 0;
    Time connect_timeout = 0;
};

inline constexpr std::uint32_t records = 64;        // sends under way to each peer; a power of two
inline constexpr std::uint32_t spare_receives = 8;  // of each peer, for sends that need no credit
inline constexpr std::uint32_t reserved_transfers = 2;

struct Fabric {
    /// For that node, of `max_peers`. Error: one line.
    static Result<Fabric> open(const EndpointSettings& settings, std::uint32_t self, std::uint32_t max_peers);

    [[nodiscard]] bool is_connected() const { return info->ep_attr->type == FI_EP_MSG; }
    [[nodiscard]] bool has_mode(std::uint64_t bit) const { return (info->mode & bit) != 0; }
    [[nodiscard]] bool has_memory_mode(int bit) const { return (info->domain_attr->mr_mode & bit) != 0; }
    /// Such as "tcp".
    [[nodiscard]] const char* provider() const { return info->fabric_attr->prov_name; }
    /// Of 1.17: what its endpoints in one process see of each other goes with them, in use or not; and it completes
    /// what is under way in order of posting, so nothing behind what a peer left behind that was killed.
    [[nodiscard]] bool is_shm() const { return std::string_view(provider()).starts_with("shm"); }
    /// Copies that processors make of each byte on its way.
    [[nodiscard]] std::uint64_t copies(std::uint64_t bytes) const;
    /// An endpoint that is connected, or is to be: made from `from`, enabled.
    [[nodiscard]] Result<Opened<fid_ep>> make_connected(fi_info* from) const;

    Opened<fi_info> info;
    Opened<fid_fabric> fabric;
    Opened<fid_domain> domain;
    Opened<fid_cq> completions;
    Opened<fid_eq> events;       // of connected endpoints
    Opened<fid_pep> listening;   // the same
    Opened<fid_av> addresses;    // of the others
    Opened<fid_ep> datagrams;    // the same: the endpoint
    bool is_ordered = false;     // a write may carry its notice
    std::uint64_t delivery = 0;  // flag of an operation that is to be known to have arrived
    std::uint64_t piece = 0;     // bytes that one operation moves at most
    int wait_fd = -1;            // of the completions
    int events_fd = -1;
    std::vector<std::byte> name;  // on the fabric
    os::Descriptor calls;         // listens
    SocketAddress address;        // there
};

/// What an error number of libfabric, of any sign, means.
std::string meaning(std::int64_t error);

}  // namespace incast::transport::ofi
