// What goes to one peer, in order of posting: transfers (writes and reads) and records (sends). Made when posted,
// handed to libfabric by the next flush, and known to have ended by completions, in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include <incast/transport.h>

#include "transport/order_gate.h"

namespace incast::transport::ofi {

/// The first part of what completions name: libfabric uses `room` meanwhile.
struct Context {
    fi_context2 room{};
};

class Outgoing {
public:
    struct Operation : Context {
        Outgoing* owner = nullptr;
        std::array<iovec, 2> parts{};
        std::array<void*, 2> descriptors{};
        fi_rma_iov remote{};
        std::size_t count = 0;  // of the parts
        Token token = 0;
        std::uint64_t waits_for = 0;  // records that were made before a transfer; transfers before a record
        std::uint16_t notice = 0;
        bool is_record = false;
        bool is_read = false;
        bool notifies = false;
        bool is_fenced = false;  // a record that leaves when all transfers before it have ended
        bool is_back = false;
    };

    /// `depth` and `most_records`: powers of two. `heads` has max_head_bytes for each transfer, `buffers`
    /// `buffer_bytes` for each record; `descriptor` is of both. `is_gated`: a record leaves when all transfers before
    /// it are delivered; else when they have left.
    Outgoing(std::uint32_t peer, std::uint32_t depth, std::uint32_t most_records, std::byte* heads, std::byte* buffers,
             void* descriptor, bool is_gated);

    [[nodiscard]] std::uint32_t peer() const { return peer_; }
    [[nodiscard]] bool has_room(std::uint32_t more) const {
        return transfers_.made - transfers_.ended + more <= transfers_.mask + 1;
    }
    [[nodiscard]] bool has_record(std::uint32_t more = 1) const {
        return records_.made - records_.ended + more <= records_.mask + 1;
    }
    /// Made and not ended.
    [[nodiscard]] std::uint64_t transfers() const { return transfers_.made - transfers_.ended; }
    [[nodiscard]] bool has_work() const { return transfers() > 0 || records_.made != records_.ended; }
    [[nodiscard]] std::uint64_t unposted() const {
        return transfers_.made - transfers_.posted + records_.made - records_.posted;
    }
    /// libfabric has nothing of it.
    [[nodiscard]] bool is_quiet() const { return there_ == 0; }
    [[nodiscard]] bool owns(const void* context) const;

    /// The next one, to be filled in: no parts, no token. Precondition: has_room(1).
    Operation& make_transfer();
    /// Where a head of the next transfer goes.
    [[nodiscard]] std::byte* next_head() const { return heads_ + (transfers_.made & transfers_.mask) * max_head_bytes; }
    [[nodiscard]] void* descriptor() const { return descriptor_; }
    /// A send of `bytes`, which its only part shows. Precondition: has_record().
    Operation& make_record(std::size_t bytes);

    /// What may leave now; null: nothing.
    [[nodiscard]] Operation* next();
    /// libfabric has taken it.
    void left(const Operation& operation);
    /// It has ended. Calls each(token) for what has ended with all that was made before it.
    template <class Each>
    void back(Operation& operation, Each each) {
        operation.is_back = true;
        --there_;
        while (records_.ended != records_.posted && records_.at(records_.ended).is_back)
            ++records_.ended;
        while (transfers_.ended != transfers_.posted && transfers_.at(transfers_.ended).is_back) {
            const Token token = transfers_.at(transfers_.ended++).token;
            if (is_gated_) gate_.leave();
            if (token != 0) each(token);
        }
    }
    /// All of it ends.
    template <class Each>
    void end_all(Each each) {
        for (; transfers_.ended != transfers_.made; ++transfers_.ended) {
            if (const Token token = transfers_.at(transfers_.ended).token; token != 0) each(token);
        }
        transfers_.posted = transfers_.made;
        records_.ended = records_.posted = records_.made;
        gate_.clear();
        there_ = 0;
    }

private:
    struct Ring {
        explicit Ring(std::uint32_t depth) : operations(new Operation[depth]), mask(depth - 1) {}
        [[nodiscard]] Operation& at(std::uint64_t number) const { return operations[number & mask]; }
        std::unique_ptr<Operation[]> operations;
        std::uint32_t mask;
        std::uint64_t made = 0;
        std::uint64_t posted = 0;
        std::uint64_t ended = 0;
    };

    std::uint32_t peer_;
    Ring transfers_;
    Ring records_;
    OrderGate gate_;
    std::byte* heads_;
    std::byte* buffers_;
    void* descriptor_;
    bool is_gated_;
    std::uint64_t there_ = 0;  // libfabric has them
};

}  // namespace incast::transport::ofi
