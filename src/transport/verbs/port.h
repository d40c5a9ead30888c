// A port of an RDMA device and the path from it to another one, for connections without rdma_cm.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <infiniband/verbs.h>

#include <incast/result.h>

#include "transport/verbs/wire.h"

namespace incast::transport::verbs {

template <auto release>
struct Releaser {
    template <class T>
    void operator()(T* what) const {
        (void)release(what);
    }
};
using OpenDevice = std::unique_ptr<ibv_context, Releaser<ibv_close_device>>;

/// What connections by exchanged addresses are made with. rdma_cm knows all of it by itself.
struct PathSettings {
    std::uint8_t port = 0;                   // 0: the first that is active
    std::optional<std::uint32_t> gid_index;  // nothing: the one of the address, or the first
    std::uint8_t service_level = 0;
    std::uint8_t mtu = 0;  // an ibv_mtu; 0: that of the port
    std::uint8_t traffic_class = 0;
    std::uint8_t ack_timeout = 0;
    std::uint8_t retry = 0;
    std::uint8_t rnr_retry = 0;
};

/// One end of a path, as far as it is the same for all queue pairs.
struct Port {
    std::uint8_t number = 0;
    std::uint8_t link = 0;  // IBV_LINK_LAYER_...
    std::uint8_t mtu = 0;   // an ibv_mtu
    std::uint8_t gid_type = 0;
    std::uint16_t lid = 0;
    bool needs_grh = false;  // InfiniBand: routed by the GID even within a subnet
    std::uint32_t gid_index = 0;
    std::array<std::byte, 16> gid{};
};

struct FoundPort {
    OpenDevice device;
    Port port;
    SocketAddress address;  // to listen at, with port 0
};

/// The device of that name and its port; without a name the one that has a GID of one of `addresses` (RoCE), else the
/// first with an active port. Of `addresses` the first is taken, or the first that is a GID of the device.
/// Error: one line with the setting to change.
Result<FoundPort> find_port(const std::string& device, const PathSettings& settings,
                            std::span<const SocketAddress> addresses);

/// What is wrong with a path from `own` to `theirs`; empty: nothing.
std::string unfit(const Port& own, const PairAddress& theirs);

/// What its device offers for it, and once it is connected, what of the other end's offer was accepted.
Ece ece_of(ibv_qp* pair);
/// Before it is connected. An errno.
int set_ece(ibv_qp* pair, const Ece& theirs);

/// From the state that a queue pair is made in to the next one, in which it can be told of. An errno.
int begin_pair(ibv_qp* pair, const Port& port);
/// On to where it receives and sends. Error: the step that failed, and why.
Result<Ok> connect_pair(ibv_qp* pair, const PathSettings& settings, const Port& port, const PairAddress& own,
                        const PairAddress& theirs);

}  // namespace incast::transport::verbs
