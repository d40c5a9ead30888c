// A farm node in a simulated world: its host, its slots, and processes that take a time for every MEP.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "farm/book/frames.h"
#include "farm/book/supply.h"
#include "farm/book/taker.h"
#include "farm/simulated/link.h"
#include "sim/world.h"

namespace incast::farm::simulated {

struct FarmHostOptions {
    Peer self{};
    std::uint32_t incarnation = 1;
    std::uint32_t hosts = 0;        // peers have numbers below it
    std::uint32_t window = 0;       // MEPs that it has of each dispatcher
    std::uint32_t processes = 0;    // that take one MEP each at a time
    std::uint64_t place_bytes = 0;  // of a MEP
    std::uint64_t run = 0;
    Time work = 0;  // that a process takes for a MEP
    Time silence = 5 * ps_per_s;
};

/// Counted since it began.
struct FarmHostCounts {
    std::uint64_t meps = 0;
    std::uint64_t events = 0;
    std::uint64_t goodput_bytes = 0;
    std::uint64_t repeated_meps = 0;  // of those that came, marked
    std::uint64_t done_meps = 0;
    std::uint64_t late_meps = 0;  // done when the dispatcher was gone, which had given them to others
    Time busy = 0;                // of all its processes together
};

/// Is told of every MEP that a process finishes.
class Witness {
public:
    Witness() = default;
    Witness(const Witness&) = delete;
    Witness& operator=(const Witness&) = delete;
    virtual ~Witness() = default;
    virtual void came(std::uint32_t node, const MepFrame& frame) = 0;
};

class FarmHost final : public sim::Actor {
public:
    static Result<std::unique_ptr<FarmHost>> make(sim::World& world, const FarmHostOptions& options,
                                                  std::vector<Whereabouts> dispatchers);
    ~FarmHost() override;

    void watch(Witness* witness, std::uint32_t number) {
        witness_ = witness;
        number_ = number;
    }
    /// As that dispatcher is to know it.
    [[nodiscard]] Whereabouts whereabouts(std::size_t dispatcher) const;
    /// It wants no more, and finishes what it has.
    void leave();
    [[nodiscard]] FarmHostCounts counts(Time now) const;

    bool step(Time now) override;
    [[nodiscard]] Time next_deadline() const override;

private:
    struct Supplier {
        Link link;
        Supply supply;
        std::uint32_t life = 0;  // of the connection: what came by an earlier one is nobody's
        Local ring{};
        std::vector<Reply> replies;  // that wait to be said together
        Time heard = 0;
        Time said = 0;
        bool is_welcomed = false;
        bool is_leaving = false;
    };
    struct Slot {
        std::uint32_t supplier = 0;
        std::uint32_t life = 0;
        MepFrame frame;
    };
    using Finish = std::pair<Time, std::uint32_t>;  // when, and the slot

    FarmHost(sim::World& world, const FarmHostOptions& options) : world_(world), options_(options) {}
    Result<Ok> open(std::vector<Whereabouts> dispatchers);
    void hear(const Event& event);
    void heard(Supplier& supplier, Bytes message);
    void take(std::uint32_t index, std::uint16_t place);
    void lose(std::uint32_t index);
    void finish_all();
    void hand_out();
    void settle(std::uint32_t slot);
    void grant_all();
    void look_after_all();
    [[nodiscard]] std::uint32_t supplier_of(Peer peer) const;

    sim::World& world_;
    FarmHostOptions options_;
    std::unique_ptr<Transport> transport_;
    sim::ActorId actor_ = 0;
    std::vector<std::unique_ptr<Supplier>> suppliers_;
    std::vector<std::uint32_t> by_peer_;
    std::vector<Slot> slots_;
    std::deque<std::uint32_t> waiting_;  // slots that no process has yet
    std::priority_queue<Finish, std::vector<Finish>, std::greater<>> running_;
    std::vector<std::uint32_t> touched_;  // suppliers to whom there may be something to say
    FarmHostCounts counts_;
    Witness* witness_ = nullptr;
    std::uint32_t number_ = 0;
    Time now_ = 0;
    Time next_look_ = 0;
    bool is_leaving_ = false;
};

}  // namespace incast::farm::simulated
