// What a ucx endpoint knows of each peer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ucp/api/ucp.h>

#include "transport/rma/calling.h"
#include "transport/ucx/outgoing.h"
#include "transport/ucx/wire.h"

namespace incast::transport::ucx {

struct PeerState : rma::CalledPeer {
    ucp_ep_h endpoint = nullptr;
    ucs_status_ptr_t closing = nullptr;  // the request
    bool is_broken = false;              // UCX said so
    ucs_status_t why = UCS_OK;
    std::uint32_t pushed = 0;   // active messages to it, on this connection
    std::uint32_t heard = 0;    // and from it
    std::uint32_t in_hand = 0;  // of those from it, not handed out yet
    std::uint64_t copies = 0;   // that processors make of each byte
    std::unique_ptr<Outgoing> out;
    Address address;
};

}  // namespace incast::transport::ucx
