// What goes to one peer: transfers (writes and reads), which UCX has at once; and records (active messages), each of
// which leaves when a flush has shown that all transfers made before it are there. UCX 1.13 keeps no order between
// them, and its fence none over several lanes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include <ucp/api/ucp.h>

#include <incast/transport.h>

#include "transport/rma/wire.h"
#include "transport/ucx/wire.h"

namespace incast::transport::ucx {

class Endpoint;

class Outgoing {
public:
    struct Operation {
        enum class Kind : std::uint8_t { transfer, record, flush };
        Outgoing* owner = nullptr;
        Token token = 0;
        std::uint64_t position = 0;  // of a record: transfers that it waits for; of a flush: those that it is about
        std::uint64_t records = 0;   // that a flush is about
        std::size_t bytes = 0;       // of a record, behind its frame
        std::uint32_t parts = 0;     // that are still under way
        Kind kind = Kind::transfer;
    };

    /// `depth` and `most_records`: powers of two.
    Outgoing(Endpoint* of, std::uint32_t peer, std::uint32_t depth, std::uint32_t most_records);

    [[nodiscard]] Endpoint& of() const { return *of_; }
    [[nodiscard]] std::uint32_t peer() const { return peer_; }
    [[nodiscard]] std::uint64_t transfers() const { return transfers_.made - transfers_.ended; }
    [[nodiscard]] bool has_room(std::uint32_t more) const { return transfers() + more <= transfers_.mask + 1; }
    [[nodiscard]] bool has_record(std::uint32_t more = 1) const {
        return records_.made - records_.ended + more <= records_.mask + 1;
    }
    [[nodiscard]] bool has_unposted() const {
        return records_.posted != records_.made || (asked_ != transfers_.made && !is_full());
    }
    [[nodiscard]] bool has_work() const {
        return shown_ != transfers_.made || transfers() > 0 || settled_ != records_.made;
    }
    /// UCX has nothing of it.
    [[nodiscard]] bool is_quiet() const { return there_ == 0; }

    /// The next one, of so many parts. Precondition: has_room(1).
    Operation& make_transfer(std::uint32_t parts);
    /// Where the head of the next transfer goes.
    [[nodiscard]] std::byte* next_head() const {
        return heads_.get() + (transfers_.made & transfers_.mask) * max_head_bytes;
    }
    /// An active message with `bytes` behind its frame. Precondition: has_record().
    Operation& make_record(std::size_t bytes);
    /// Its frame, and what follows it.
    [[nodiscard]] std::byte* memory(const Operation& record) const {
        return buffers_.get() + static_cast<std::size_t>(&record - records_.operations.get()) * rma::buffer_bytes;
    }
    /// A flush, if transfers need one that is not under way, or records, should UCX have to let them go; null: none.
    Operation* make_flush(bool also_for_records = false);
    /// The next record, if it may leave; null: none. It has left.
    Operation* next_record();

    /// UCX took a part of it.
    void left() { ++there_; }
    /// A part of it has ended. Calls each(token) for transfers that have ended with all that were made before.
    template <class Each>
    void back(Operation& operation, Each each) {
        --operation.parts;
        switch (operation.kind) {
            case Operation::Kind::transfer:
                while (transfers_.ended != transfers_.made && transfers_.at(transfers_.ended).parts == 0) {
                    if (const Token token = transfers_.at(transfers_.ended++).token; token != 0) each(token);
                }
                if (!keys_.empty()) [[unlikely]]
                    destroy_keys();
                break;
            case Operation::Kind::record:
                while (records_.ended != records_.posted && records_.at(records_.ended).parts == 0)
                    ++records_.ended;
                break;
            case Operation::Kind::flush:
                while (flushes_.ended != flushes_.made && flushes_.at(flushes_.ended).parts == 0) {
                    const Operation& flush = flushes_.at(flushes_.ended++);
                    shown_ = flush.position;
                    settled_ = flush.records;
                }
                break;
        }
    }
    void returned() { --there_; }
    /// When all transfers that were made so far have ended.
    void destroy(ucp_rkey_h key) {
        keys_.push_back({transfers_.made, key});
        destroy_keys();
    }
    /// Without UCX nothing uses them: before its worker goes.
    void destroy_all_keys() {
        for (const auto& [position, key] : std::exchange(keys_, {}))
            ucp_rkey_destroy(key);
    }
    /// All of it ends. What UCX has then stays with it.
    template <class Each>
    void end_all(Each each) {
        for (; transfers_.ended != transfers_.made; ++transfers_.ended)
            if (const Token token = transfers_.at(transfers_.ended).token; token != 0) each(token);
        records_.ended = records_.posted = asked_records_ = settled_ = records_.made;
        flushes_.ended = flushes_.made;
        asked_ = shown_ = transfers_.made;
        is_left_behind_ = !is_quiet();
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
    static constexpr std::uint32_t most_flushes = 16;
    void destroy_keys() {
        for (; !keys_.empty() && keys_.front().first <= transfers_.ended && !is_left_behind_; keys_.pop_front())
            ucp_rkey_destroy(keys_.front().second);
    }
    [[nodiscard]] bool is_full() const { return flushes_.made - flushes_.ended > flushes_.mask; }

    Endpoint* of_;
    std::uint32_t peer_;
    Ring transfers_;
    Ring records_;
    Ring flushes_;
    std::unique_ptr<std::byte[]> heads_;
    std::unique_ptr<std::byte[]> buffers_;
    std::uint64_t asked_ = 0;          // transfers that a flush was posted for
    std::uint64_t shown_ = 0;          // transfers that are there
    std::uint64_t asked_records_ = 0;  // the same of records
    std::uint64_t settled_ = 0;        // records that UCX holds back no more
    std::uint64_t there_ = 0;          // parts that UCX has
    bool is_left_behind_ = false;
    std::deque<std::pair<std::uint64_t, ucp_rkey_h>> keys_;  // to be destroyed when so many transfers have ended
};

}  // namespace incast::transport::ucx
