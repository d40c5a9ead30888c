// One channel of a hub: both directions, their memory, and what is still to be said to the peer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <incast/transport.h>

#include "channel/hub/control.h"
#include "channel/hub/level.h"
#include "channel/receiver.h"
#include "channel/sender.h"

namespace incast::channel {

struct Channel {
    Peer peer{};
    std::uint16_t number = 0;  // here
    std::uint16_t there = 0;   // at the peer
    Shape shape;
    Kind kind{};
    Way announce{};
    Way acknowledge{};
    std::uint32_t port = 0;
    Channel* twin = nullptr;  // the other end, where both are of one hub
    Fault fault = Fault::none;
    const char* broken = nullptr;  // Fault::broken: which rule

    bool is_opened = false;  // both sides know each other
    bool says_open = false;  // still to be sent
    bool says_opened = false;
    bool is_closed = false;        // it was sent
    bool is_closed_there = false;  // it came
    bool is_given_back = false;    // by the application
    bool is_aborted = false;
    bool is_gone = false;       // its peer
    bool was_readable = false;  // when it was last looked at
    std::uint64_t wrote = 0;    // Way::message: still to be told; 0: nothing

    // The memory of one end: cells for credits, the ring, the staging buffers. Peers write in the first two.
    Local region{};
    bool has_region = false;
    Remote remote{};
    bool has_remote = false;
    std::vector<std::byte> key;   // of the region, until it was sent
    std::vector<std::byte> own;   // where it is no region, or one without memory
    std::span<std::byte> memory;  // all of it, in the region or in `own`
    bool is_mirrored = false;     // bodies are phantom: `own` mirrors the heads that landed

    std::unique_ptr<Sender> sender;  // made with the memory, as is the next one
    std::unique_ptr<Receiver> receiver;
    Level data;
    bool is_data_held = false;  // see Hub::hold_data()
    Level room;

    [[nodiscard]] std::uint64_t cells_bytes() const {
        const std::uint64_t bytes = std::uint64_t{shape.cells()} * sizeof(CreditCell);
        return (bytes + buffer_align - 1) / buffer_align * buffer_align;
    }
    /// What the peer writes in.
    [[nodiscard]] std::uint64_t shared_bytes() const { return cells_bytes() + shape.bytes(); }
    [[nodiscard]] std::uint64_t staging_at() const { return shared_bytes(); }
    [[nodiscard]] std::uint64_t all_bytes() const { return shared_bytes() + shape.bytes(); }
    [[nodiscard]] bool can_write() const {
        return is_opened && fault == Fault::none && !is_closed_there && !is_given_back;
    }
};

}  // namespace incast::channel
