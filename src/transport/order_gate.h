// Where writes and notices may overtake each other on their way: a notice or message is held back until every transfer
// that was posted before it is there (TC-O3). One gate for each peer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fifo.h"

namespace incast::transport {

/// Notices and messages are records with positions that only grow, in order of posting.
class OrderGate {
public:
    explicit OrderGate(std::size_t max_transfers) : before_(max_transfers) {}
    /// A transfer was posted: records from `position` on, where the next one goes, wait for it.
    void enter(std::uint64_t position) { before_.must_push(position); }
    /// The oldest of the transfers, and so all before it, is there.
    void leave() { before_.pop(); }
    /// Records before that position may leave. `next`: where the next record goes.
    [[nodiscard]] std::uint64_t open_until(std::uint64_t next) const { return before_.empty() ? next : before_[0]; }
    /// No transfer is waited for.
    void clear() { before_.clear(); }

private:
    base::Fifo<std::uint64_t> before_;  // of each transfer: the position when it was posted
};

}  // namespace incast::transport
