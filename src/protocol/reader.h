// What a builder unit reads itself (scheme pull-read): an RU answers a request with an offer, which says where its MFPs
// lie; the BU reads them into the slot, or, with views, leaves them where they are until the sink has taken the MEP.
//
// A slot with reads under way may not be used again: the RU stays `owed` until they are done, as with writes (EB-F3).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bitmap.h"
#include "base/fifo.h"
#include "protocol/port.h"
#include "protocol/shape.h"

namespace incast::protocol {

class Reader {
public:
    /// Tokens of reads, apart from those of writes.
    static constexpr Token token_bit = Token{1} << 63;

    Reader(Port& port, const Shape& shape);
    /// Where slots are, once they are allocated.
    /// The next of the BU's own, as SlotLayout counts them.
    void add_region(Local region) { own_regions_.push_back(region); }

    void on_connection_lost(std::uint32_t ru);
    /// A region of an RU, from which offers are. False: not understood.
    bool on_region(Peer from, std::uint32_t ru, const wire::ControlView& message);

    /// That RU was asked for its contribution to what is in that slot.
    void expect(std::uint32_t slot, std::uint32_t ru);
    /// Keeps what an offer says of one source. False: it cannot be (EB-T8).
    bool take_offer(std::uint32_t slot, std::uint32_t ru, const wire::OfferEntry& entry);
    /// All sources of that RU were offered.
    [[nodiscard]] bool offered(std::uint32_t slot, std::uint32_t ru) const { return of(slot, ru).to_offer == 0; }
    /// Reads of that contribution that are under way or to be posted.
    [[nodiscard]] bool reading(std::uint32_t slot, std::uint32_t ru) const { return of(slot, ru).to_read > 0; }

    [[nodiscard]] const wire::Head& head(std::uint32_t slot, std::uint32_t source) const {
        return places_[place(slot, source)].head;
    }
    /// The body where the RU has it; empty if it cannot be had (any more).
    [[nodiscard]] Bytes view(std::uint32_t slot, std::uint32_t source) const;

    /// Queues the reads of an offered contribution.
    void begin(std::uint32_t slot, std::uint32_t ru);
    enum class Done : std::uint8_t { no, placed, failed };
    struct Finished {
        std::uint32_t slot = 0;
        std::uint32_t ru = 0;
        Done done = Done::no;
    };
    /// A read is over; `done`: what that makes of the contribution.
    Finished on_completed(Token token, Status status);
    /// Posts what can be posted: on_finished(Finished) for every contribution that this ends. `is_void(slot)`: its
    /// attempt is over, nothing more is read into it.
    template <class IsVoid, class OnFinished>
    void flush(IsVoid&& is_void, OnFinished&& on_finished) {
        for (std::size_t ru = due_.next(0); ru != base::Bitmap::none; ru = due_.next(ru + 1)) {
            base::Fifo<Task>& tasks = units_[ru].tasks;
            while (!tasks.empty()) {
                const Task task = tasks.front();
                const std::optional<Finished> finished = post(static_cast<std::uint32_t>(ru), task, is_void(task.slot));
                if (!finished) {
                    break;  // `again`: a room event wakes the node
                }
                tasks.pop();
                if (finished->done != Done::no) {
                    on_finished(*finished);
                }
            }
            if (tasks.empty()) {
                due_.reset(ru);
            }
        }
    }

private:
    struct Place {  // of one source in one slot
        wire::Head head;
        Remote remote{};
        std::uint64_t offset = 0;
    };
    struct Contribution {
        std::uint32_t to_offer = 0;  // sources
        std::uint32_t to_read = 0;   // sources
        bool failed = false;
    };
    struct Task {
        std::uint32_t slot = 0;
        std::uint32_t source = 0;
    };
    struct Unit {
        std::vector<std::pair<std::uint16_t, Remote>> regions;  // of this connection
        base::Fifo<Task> tasks;
    };

    [[nodiscard]] std::size_t place(std::uint32_t slot, std::uint32_t source) const {
        return std::size_t{slot} * shape_.layout.source_offset.size() + source;
    }
    Contribution& of(std::uint32_t slot, std::uint32_t ru) {
        return contributions_[std::size_t{slot} * units_.size() + ru];
    }
    [[nodiscard]] const Contribution& of(std::uint32_t slot, std::uint32_t ru) const {
        return contributions_[std::size_t{slot} * units_.size() + ru];
    }
    std::optional<Finished> post(std::uint32_t ru, Task task, bool is_void);
    Finished finish(std::uint32_t slot, std::uint32_t ru, bool ok);

    Port& port_;
    const Shape& shape_;
    std::vector<Local> own_regions_;
    std::vector<Place> places_;
    std::vector<Contribution> contributions_;
    std::vector<Unit> units_;  // by RU
    base::Bitmap due_;         // RUs with reads to post
};

}  // namespace incast::protocol
