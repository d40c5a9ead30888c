// What the protocol asks of its environment, besides a Transport: where fragments come from, where events go, who keeps
// the ledger. None of these may block. All are called from the node's one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "protocol/config.h"
#include "wire/control.h"

namespace incast::protocol {

/// One MFP in the RU's memory, ready to be written.
struct Piece {
    Slice body;  // the MFP; at most the source's cap_bytes
    std::uint64_t first_event = 0;
    std::uint32_t n_events = 0;
    std::uint32_t goodput_bytes = 0;  // fragment bytes
    wire::SourceFlag flag = wire::SourceFlag::ok;
    std::uint32_t checksum = 0;  // wire::body_checksum of the MFP, if is_checked() for its MEP
    Time trigger = 0;            // open loop: intended time of the last event; closed loop: when it was ready
};

/// The sources of one RU: a ring of `retention_meps` MEPs in regions of the transport (EB-F1).
class Source {
public:
    Source() = default;
    Source(const Source&) = delete;
    Source& operator=(const Source&) = delete;
    virtual ~Source() = default;

    /// Allocates its regions. `first_source`, `count`: this RU's range in Config::sources.
    virtual Result<Ok> attach(Transport& transport, const Config& config, std::uint32_t first_source,
                              std::uint32_t count) = 0;
    /// Those its pieces lie in, once attached; what a BU may read from (scheme pull-read).
    [[nodiscard]] virtual std::span<const Local> regions() const = 0;
    /// The first MEP this incarnation takes part in, and where events are counted its first event; called once, before
    /// produce.
    virtual void start(Time now, MepId first, std::uint64_t first_event) = 0;
    /// Makes the next MEP (consecutive ids from `first`) available. False: not yet, see next_ready(). The protocol
    /// never asks for more than retention_meps beyond the last release.
    virtual bool produce(Time now, MepId mep) = 0;
    /// `index` counts this RU's sources from 0; from produce(mep) to release. What is returned is good until the next
    /// call of the source. Cheap: called once per write.
    virtual const Piece& piece(MepId mep, std::uint32_t index) = 0;
    /// MEPs below may be overwritten.
    virtual void release(MepId below) = 0;
    /// When produce may succeed again; 0 if at once, time_never if it ended.
    [[nodiscard]] virtual Time next_ready() const = 0;
    /// After a produce that failed: when the first event of that MEP will have waited for Config::max_wait. time_never:
    /// it will be full by then, or it is not for this source to say.
    [[nodiscard]] virtual Time impatient_at() const { return time_never; }
    /// Of that MEP, how many events there are. Sources never close one by themselves (EB-C8).
    [[nodiscard]] virtual std::uint32_t open_events(Time) { return 0; }
    /// The EM's order: that MEP ends with so many of them.
    virtual void close(Time, MepId, std::uint32_t) {}
    /// At impatient_at() it has nothing of that MEP, and does not know whether there is anything (EB-C9): give_up()
    /// says that others have all of it.
    [[nodiscard]] virtual bool asks_others() const { return false; }
    virtual void give_up(Time, MepId) {}
    /// MEPs there are in all; 0 = no end. An RU whose sources ended before others' gives desync-flagged pieces for the
    /// rest.
    [[nodiscard]] virtual std::uint64_t total_meps() const = 0;
};

/// One source of a built MEP.
struct BuiltSource {
    wire::SourceFlag flag = wire::SourceFlag::ok;  // missing_*: head and body are empty
    const wire::Head* head = nullptr;
    Bytes body;  // the MFP where it landed; empty if missing or where bodies are phantom
};

struct BuiltMep {
    MepId mep = 0;
    std::uint32_t attempt = 0;
    bool redelivered = false;  // an earlier attempt may have reached a sink before its BU died (EB-F2)
    std::uint16_t slot = 0;
    std::uint64_t first_event = 0;
    std::uint32_t n_events = 0;
    std::uint64_t goodput_bytes = 0;
    std::uint64_t self_bytes = 0;          // of goodput_bytes, what came from this very node (EB-M3)
    std::uint32_t missing_sources = 0;     // that are not there at all
    std::uint32_t flagged_sources = 0;     // these, and those that are there with a defect; not 0: it is incomplete
    Time trigger = 0;                      // the earliest Piece::trigger in it
    Time last_trigger = 0;                 // and the latest
    Time assigned = 0;                     // when this BU learned of it
    Time completed = 0;                    // when the last contribution was placed
    std::span<const BuiltSource> sources;  // by index in Config::sources
};

/// Where a BU's events go.
class Sink {
public:
    enum class Taken : std::uint8_t {
        done,          // consumed and as durable as this sink gets
        pending,       // copied: the slot may be reused, but it is committed only once durable() says so
        busy,          // not taken: offer it again
        held,          // done, but still read in place: the slot stays as it is until returned() names it
        held_pending,  // pending, and the slot stays as it is until returned() names it
    };
    Sink() = default;
    Sink(const Sink&) = delete;
    Sink& operator=(const Sink&) = delete;
    virtual ~Sink() = default;
    /// False: take() gets no BuiltMep::sources, and no MFP is looked at for its sake. Asked once.
    [[nodiscard]] virtual bool wants_sources() const { return true; }
    /// Called once, before anything else: bodies lie in that region of the transport (with self_traffic = pointer,
    /// those of this very node do not). For sinks that hold slots, of which there are Config::held_slots.
    virtual Result<Ok> attach(Transport&, Local) { return Ok{}; }
    /// Called only for MEPs whose commit the EM granted (EB-F2). `mep` and what it points to are valid during the call.
    virtual Taken take(Time now, const BuiltMep& mep) = 0;
    /// MEPs taken as pending that are durable now; returns how many it put into `meps`.
    virtual std::size_t durable(Time now, std::span<MepId> meps) = 0;
    /// Slots of MEPs taken as held that are not read any more, each once; returns how many it put into `slots`.
    virtual std::size_t returned(Time, std::span<std::uint16_t>) { return 0; }
    /// When durable(), returned() or a busy take() should be tried again.
    [[nodiscard]] virtual Time next_deadline() const = 0;
};

/// Decides, when the first stage of a MEP is there, whether the rest is read out (EB-C7). Where a MEP is built
/// again because its BU was lost, it is asked again, and should say the same.
class Filter {
public:
    enum class Verdict : std::uint8_t {
        undecided,  // ask again; after Config::decision_deadline the MEP is accepted
        accept,
        reject,  // no sink gets it
        gone,    // it decides nothing any more: the MEP is accepted, and counted as one that it did not decide on
    };
    Filter() = default;
    Filter(const Filter&) = delete;
    Filter& operator=(const Filter&) = delete;
    virtual ~Filter() = default;
    /// `first`: as for a sink; what was not asked for yet has flag `late` and neither head nor body.
    virtual Verdict decide(Time now, const BuiltMep& first) = 0;
    /// When an undecided MEP should be asked for again.
    [[nodiscard]] virtual Time next_deadline() const = 0;
};

/// One line of the EM's ledger: final once written.
struct LedgerEntry {
    MepId mep = 0;
    std::uint32_t bu = 0;
    std::uint16_t attempt = 0;
    bool redelivered = false;
    bool rejected = false;              // by a filter: no sink got it
    std::uint32_t flagged_sources = 0;  // not 0: incomplete
    std::uint32_t view = 0;
    std::uint32_t n_events = 0;  // 0: the EM does not count them
};

/// Why the view changed.
enum class Cause : std::uint8_t {
    joined,
    connection_lost,
    silent,   // for detection_deadline
    cut_off,  // it and another node cannot reach each other
    late,     // BUs in turn did not get its fragments
    stuck,    // a BU that does not complete what it was given
    distrusted,
};

/// What the EM tells its environment. Called on the hot path (committed) and on view changes.
class Ledger {
public:
    Ledger() = default;
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;
    virtual ~Ledger() = default;
    /// Before any RU is released.
    virtual void committed(const LedgerEntry& entry) = 0;
    /// A node came in (up) or was declared dead or unreachable.
    virtual void view_changed(Time now, std::uint32_t view, Peer node, std::uint32_t incarnation, wire::Change change,
                              Cause cause) = 0;
};

/// A BU without sink work: takes everything, keeps nothing.
class NullSink final : public Sink {
public:
    [[nodiscard]] bool wants_sources() const override { return false; }
    Taken take(Time, const BuiltMep&) override { return Taken::done; }
    std::size_t durable(Time, std::span<MepId>) override { return 0; }
    [[nodiscard]] Time next_deadline() const override { return time_never; }
};

}  // namespace incast::protocol
