// What an ofi endpoint knows of each peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <sys/mman.h>

#include "transport/ofi/fabric.h"
#include "transport/ofi/outgoing.h"
#include "transport/ofi/wire.h"
#include "transport/rma/calling.h"

namespace incast::transport::ofi {

struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* memory) const { (void)::munmap(memory, bytes); }
};

/// Memory that libfabric may use: registered where the provider asks for it.
class Buffers {
public:
    Buffers() = default;
    static Result<Buffers> make(const Fabric& fabric, std::size_t bytes, std::uint64_t key);
    [[nodiscard]] std::byte* data() const { return memory_.get(); }
    [[nodiscard]] void* descriptor() const {
        return registration_ == nullptr ? nullptr : fi_mr_desc(registration_.get());
    }

private:
    std::unique_ptr<std::byte, Unmap> memory_;
    Opened<fid_mr> registration_;
};

/// A buffer for what a peer sends.
struct Receive : Context {
    std::byte* buffer = nullptr;
    void* descriptor = nullptr;
    std::uint32_t of = 0;                    // the peer whose buffers it is among
    std::uint32_t counts_for = rma::nobody;  // who gets it back
    bool is_posted = false;
};

/// What goes to a peer, with its memory.
struct Sending {
    Buffers memory;
    std::unique_ptr<Outgoing> out;
};

struct PeerState : rma::CalledPeer {
    Opened<fid_ep> endpoint;          // connected to it
    fi_addr_t at = FI_ADDR_NOTAVAIL;  // of the name that the provider was told
    std::array<std::byte, max_name_bytes> name_there{};
    Address address;

    // From its first connection to the endpoint's end.
    Buffers buffers;
    std::unique_ptr<Receive[]> receives;
    Sending sending;
};

}  // namespace incast::transport::ofi
