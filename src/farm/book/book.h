// What a dispatcher took of builder units, who has it, and what became of it. Every MEP is finished by some farm node
// at least once, and every sending but the first is marked, if anybody may have seen it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "farm/book/credits.h"
#include "farm/book/frames.h"
#include "farm/book/taker.h"

namespace incast::farm {

struct DispatcherCounts {
    std::uint64_t taken_meps = 0;  // of builder units
    std::uint64_t sent_meps = 0;   // to farm nodes, each time
    std::uint64_t done_meps = 0;
    std::uint64_t repeated_meps = 0;  // sent again, since the farm node that had it was lost, or its program was
    std::uint64_t refused_meps = 0;   // that came back, as nobody was there to take them
    std::uint64_t judged_meps = 0;
    std::uint64_t accepted_events = 0;
    std::uint64_t rejected_events = 0;
    std::uint64_t sent_bytes = 0;  // of MFPs, each time
    std::uint64_t joined_nodes = 0;
    std::uint64_t left_nodes = 0;  // in order
    std::uint64_t lost_nodes = 0;
};

/// Load: what a dispatcher needs to send a MEP, and to give it back.
template <typename Load>
class Book {
public:
    /// A MEP that was taken.
    struct Flight {
        Load load{};
        std::uint32_t n_events = 0;
        Taker* taker = nullptr;  // null: it waits for one
        bool is_repeated = false;
        bool was_sent = false;
    };
    /// A MEP that is finished: the flight is over.
    struct Finished {
        Load load{};
        std::uint64_t verdict = 0;  // as in consumer/layout.h
    };
    enum class Heard : std::uint8_t { well, finished, nonsense };

    /// Its ticket, never used twice.
    std::uint64_t take(Load load, std::uint32_t n_events, bool is_repeated) {
        flights_[++tickets_] = {.load = load, .n_events = n_events, .is_repeated = is_repeated};
        ++counts.taken_meps;
        return tickets_;
    }
    /// It waits for a farm node, before all that is taken later.
    void wait(std::uint64_t ticket) { again_.push_back(ticket); }
    [[nodiscard]] bool has_waiting() const { return !again_.empty(); }
    /// The next that waits; 0: none does.
    std::uint64_t next_waiting() {
        if (again_.empty()) return 0;
        const std::uint64_t ticket = again_.front();
        again_.pop_front();
        return ticket;
    }

    /// Of those takers the one that gets the next MEP; nothing: none has a credit. `Pointer`: to one.
    template <typename Pointer>
    std::optional<std::size_t> choose(std::span<const Pointer> takers) {
        free_.clear();
        for (const Pointer& taker : takers)
            free_.push_back(taker->may_get() ? taker->credits.free() : 0);
        return turn_.choose(free_);
    }

    /// The frame of that MEP for its next sending, but for what the MEP itself says.
    void mark(std::uint64_t ticket, MepFrame& frame) const {
        frame.what = What::mep;
        frame.ticket = ticket;
        if (flights_.at(ticket).is_repeated) frame.flags |= MepFrame::repeated;
    }
    void sent(std::uint64_t ticket, Taker& taker, Time now) {
        Flight& flight = flights_.at(ticket);
        if (taker.held++ == 0) taker.progress = now;
        taker.said = now;
        taker.credits.send();
        ++counts.sent_meps;
        counts.repeated_meps += flight.was_sent && flight.is_repeated ? 1 : 0;
        flight.was_sent = true;
        flight.taker = &taker;
    }
    [[nodiscard]] Flight& at(std::uint64_t ticket) { return flights_.at(ticket); }
    [[nodiscard]] std::size_t size() const { return flights_.size(); }

    /// `finished` is filled in where a MEP is.
    Heard hear(Taker& taker, const Reply& reply, Time now, Finished& finished) {
        switch (reply.says) {
            case Says::alive:
                return Heard::well;
            case Says::credit:
                return taker.credits.grant(reply.value) ? Heard::well : Heard::nonsense;
            case Says::leave:
                taker.is_leaving = true;
                return Heard::well;
            case Says::done:
            case Says::refused:
                break;
            default:
                return Heard::nonsense;
        }
        const auto found = flights_.find(reply.ticket);
        if (found == flights_.end() || found->second.taker != &taker) {
            return Heard::nonsense;
        }
        Flight& flight = found->second;
        if (reply.says == Says::done && reply.value > std::uint64_t{flight.n_events} + 1) {
            return Heard::nonsense;
        }
        --taker.held;
        taker.progress = now;
        if (reply.says == Says::refused) {
            flight.taker = nullptr;
            flight.is_repeated = flight.is_repeated || reply.value != 0;
            ++counts.refused_meps;
            again_.push_back(reply.ticket);
            return Heard::well;
        }
        ++taker.done;
        ++counts.done_meps;
        if (reply.value != 0) {
            ++counts.judged_meps;
            counts.accepted_events += reply.value - 1;
            counts.rejected_events += flight.n_events - (reply.value - 1);
        }
        finished = {flight.load, reply.value};
        flights_.erase(found);
        return Heard::finished;
    }

    /// What it has goes to others, marked, in the order in which it was taken.
    void lose(Taker& taker) {
        lost_.clear();
        for (auto& [ticket, flight] : flights_) {
            if (flight.taker != &taker) continue;
            flight.taker = nullptr;
            flight.is_repeated = true;
            lost_.push_back(ticket);
        }
        std::ranges::sort(lost_);
        again_.insert(again_.end(), lost_.begin(), lost_.end());
    }

    DispatcherCounts counts;

private:
    std::unordered_map<std::uint64_t, Flight> flights_;  // by ticket
    std::deque<std::uint64_t> again_;                    // tickets that wait for another node
    std::vector<std::uint64_t> free_;                    // scratch
    std::vector<std::uint64_t> lost_;                    // scratch
    Turn turn_;
    std::uint64_t tickets_ = 0;
};

}  // namespace incast::farm
