// What every unit of a run agrees on. Built once by the runtime from the TOML config (or by a test), then read-only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <incast/transport.h>

#include "wire/control.h"

namespace incast::protocol {

using MepId = std::uint64_t;

enum Role : std::uint32_t { role_em = 1, role_ru = 2, role_bu = 4 };

/// How contributions come to a BU. In the two-stage schemes the first RUs (Config::first_stage_rus) are read out, then
/// a Filter decides whether the others are (EB-C7).
enum class Scheme : std::uint8_t {
    push,        // RUs write what the EM announces
    pull_write,  // RUs write what the BU asks for
    push_pull,   // the first stage is pushed, the second pulled
    pull_pull,   // both are pulled
    pull_read,   // RUs answer what the BU asks for with where it lies, and the BU reads it
};
[[nodiscard]] constexpr bool two_stages(Scheme scheme) {
    return scheme == Scheme::push_pull || scheme == Scheme::pull_pull;
}
/// The order in which an RU serves BUs (push) or a BU asks RUs (pull). EB-C6.
enum class Schedule : std::uint8_t {
    sequential,        // in the order of the MEPs
    random,            // any that can be served, evenly
    linear_shift,      // one after the other, beginning behind oneself; who cannot be served is passed over
    none,              // no order promised: the same one as long as it has work
    barrel_barrier,    // phase k: RU i serves BU (i + k) mod P alone, once; all RUs end a phase together
    barrel_time_slot,  // the same, phases by the clock
    lockstep,          // rounds of one MEP per BU: all RUs end a round together
};
/// As a person writes them.
inline constexpr std::array<std::string_view, 7> schedule_words{
    "sequential", "random", "linear-shift", "none", "barrel-barrier", "barrel-time-slot", "lockstep"};
/// Which BU builds a MEP. EB-C5.
enum class Assignment : std::uint8_t {
    em,              // one with credit, in turn
    fixed,           // "static": MEP m belongs to the BU at m mod n of the n in the view
    source_credits,  // as static, but ahead of credits: RUs hold these, and pass over a BU of which they have none
};
/// What an RU does in a time slot that begins before its last contribution is placed.
enum class Overrun : std::uint8_t {
    skip,     // sends nothing in it: its order stays that of the clock
    slip,     // goes on with its order as soon as it can: from then on it is that much behind the clock
    overlap,  // uses it: no slot waits for what was sent in another
};
/// What a BU allocates and exposes as one region, on which fabrics have limits.
enum class Layout : std::uint8_t {
    contiguous,  // all its slots
    per_mep,     // each slot: contiguous where a region has a largest size
    segmented,   // each source's place in each slot
    per_source,  // each source's places in all slots: granted to its RU alone, where a transport bounds by regions
};
inline constexpr std::array<std::string_view, 4> layout_words{"contiguous", "per-mep", "segmented", "per-source"};
/// What a node does with fragments for itself (EB-M3): copies them into the slot, as a network would; or leaves
/// them where its RU keeps them until the MEP is committed, and points the sink there.
enum class SelfTraffic : std::uint8_t { copy, pointer };

/// Of which MFPs RUs make checksums and BUs look at them; none where bodies are phantom.
enum class Checksum : std::uint8_t { off, sampled, full };

/// Deliberate bugs, one per invariant, that prove the checkers see (docs/protocol.md). Never set outside tests and
/// incast-adversary.
enum class Plant : std::uint8_t {
    none,
    no_generation_check,  // BU takes a contribution whatever its head says, and an RU writes a wrong one now and then
    no_attempt_check,     // EM takes a commit request whatever its attempt
    early_release,        // EM releases RUs when the commit is granted, not when it is done
    double_credit,        // BU grants the same slot twice
    no_quarantine,        // BU reuses a slot that a lost or late peer may still write
    skipped_commit,       // BU delivers without the EM's verdict
    double_commit,        // EM grants the commit of two attempts
    unconfirmed_missing,  // BU flags a source missing on its own
    forgotten_reassign,   // EM forgets one MEP of a dead BU
    unmarked_redelivery,  // EM does not mark a repeat
    admit_unretained,     // EM admits MEPs that an RU does not hold yet
    stale_incarnation,    // assignments for a dead BU incarnation are carried out on its successor
    unordered_abort_ack,  // RU acknowledges an abort before its posted writes are announced
    undecided_reject,     // BU rejects a MEP whose filter has not decided in time
    ignored_reject,       // BU goes on with a MEP that its filter rejected
    wrong_phase_order,    // RU serves another BU than the one whose turn it is
    early_phase,          // RU says that its phase is over before what it sent is placed
    open_barrier,         // EM begins a phase though an RU is not done with the one before
    hasty_send,           // RU does not wait for the gap between two sends
    wrong_builder,        // EM gives a MEP to a BU that the static assignment does not name
    early_reuse,          // BU reuses a slot that its sink holds
    uncredited_send,      // RU guesses the slot of a credit that it was not granted
    uneven_grant,         // BU tells one RU another slot for a credit than the others
    unfinished_read,      // BU takes what it reads for placed as soon as the read is posted
    kept_credits,         // RU keeps credits of a BU incarnation for its successor
    unseen_damage,        // BU takes what a notice calls damaged for whole
    believed_late,        // EM believes whoever says that a MEP is late, and whom that BU names
    believed_loss,        // EM believes one node that complains of another
    believed_missing,     // EM believes a BU that says which sources are missing
    believed_grant,       // RU believes any grant
    believed_abort,       // RU forgets an attempt, whoever says so
    lone_close,           // RU closes a MEP early on its own
};

struct NodeSpec {
    std::uint32_t roles = 0;  // Role bits
};

/// One source: a stream of fragments, read out by one RU. EB-S2.
struct SourceSpec {
    std::uint16_t id = 0;         // the detector's number for it, in MFP and MEP
    Peer ru{};                    // the node that reads it out
    std::uint32_t cap_bytes = 0;  // largest MFP; longer ones are delivered truncated and flagged (EB-S4)
};

struct Config {
    std::uint64_t run = 1;
    /// Of control messages and heads, which all nodes of the run speak.
    std::uint8_t control_version = wire::control_version;
    Peer em{};
    std::vector<NodeSpec> nodes;      // by Peer index
    std::vector<SourceSpec> sources;  // ordered by RU, then id; indices into this table travel on the wire

    Scheme scheme = Scheme::push;
    Schedule schedule = Schedule::linear_shift;
    std::uint32_t first_stage_rus = 0;  // two-stage schemes: how many RUs, by index, the first stage has
    bool second_stage_all = false;      // pull-pull: the second stage asks the RUs of the first again, too
    bool views = false;                 // pull-read: the sink looks at the RU's memory, where the transport can
    Assignment assignment = Assignment::em;
    Layout layout = Layout::contiguous;
    SelfTraffic self_traffic = SelfTraffic::copy;
    Checksum checksum = Checksum::off;
    std::uint64_t seed = 1;

    std::uint32_t credits = 4;             // MEP slots in service per BU (EB-C1)
    std::uint32_t quarantine_slots = 2;    // further slots, used while others are quarantined (EB-F3)
    std::uint32_t held_slots = 0;          // further slots, used while a sink holds others
    Time reuse_wait = 0;                   // for a slot that the sink holds, before a further one is used; 0: no wait
    std::uint32_t retention_meps = 32;     // MEPs an RU keeps (EB-F1)
    std::uint32_t parallel_requests = 0;   // pull: outstanding requests per BU; 0 = no limit (EB-C2)
    std::uint32_t parallel_sends = 0;      // contributions an RU may have unplaced; 0 = no limit but credits (EB-C2)
    std::uint32_t message_size = 0;        // body bytes of one write; 0: an MFP is one write (EB-S1)
    bool ack_per_write = false;            // every write is acknowledged, not every contribution (EB-C2)
    std::uint32_t outstanding_writes = 0;  // to one BU, not yet acknowledged; 0 = no limit; needs ack_per_write (EB-C2)
    std::uint64_t total_meps = 0;          // 0 = until stop_admission(), or what the sources say
    // Sources that count events (EB-C8): a MEP has `packing`, unless it is closed early, and the last one what is left.
    std::uint32_t packing = 0;       // 0: nobody counts, and no MEP is closed early
    std::uint64_t total_events = 0;  // 0 = no end
    Time max_wait = 0;               // of a MEP's first event for the others; 0 = until it is full

    /// Bodies of self traffic are copied past the cache: for slots that do not fit into it, or that nobody reads. A
    /// node's own affair.
    bool stream_self_copies = false;

    Time heartbeat = 200 * ps_per_ms;        // between signs of life
    Time detection_deadline = 3 * ps_per_s;  // silence after which a node is dead
    Time late_after = 2 * ps_per_s;          // from assignment; then the MEP is late (reassigned, EB-F5)
    Time decision_deadline = ps_per_s;       // a MEP whose filter has not decided by then is accepted (EB-C7)
    Time suspect_grace = 300 * ps_per_ms;    // between a lost data connection and the EM's decision
    Time connect_retry = 50 * ps_per_ms;
    // Schedules (EB-C6)
    Time inter_send_gap = 0;                  // at least, between the beginnings of two contributions of an RU
    Time barrier_deadline = 100 * ps_per_ms;  // after which the EM goes on without the RUs that are not done
    Time slot_time = ps_per_ms;
    Overrun overrun = Overrun::skip;
    std::uint32_t max_attempts = 3;  // by lateness; then RUs that two BUs found not to deliver are unreachable

    Plant plant = Plant::none;
    /// Of every BU incarnation, as if it had granted so many: tests begin near the end of 32 bits, which runs of hours
    /// cross.
    std::uint32_t credits_before = 0;
};

/// How long a BU waits for an attempt at a MEP before it says that it is late, where so many before it were. From the
/// second of these on twice as long as at the one before: were the deadline below what the network needs, every attempt
/// would be voided for ever (adversary seed 1036). Attempts that ended otherwise say nothing of the network.
[[nodiscard]] constexpr Time patience(const Config& config, std::uint32_t late_before) {
    constexpr std::uint32_t max_doublings = 10;
    const std::uint32_t doublings = late_before == 0 ? 0 : late_before - 1;
    return config.late_after << (doublings < max_doublings ? doublings : max_doublings);
}

/// In a notice: further writes of the same contribution follow. The other bits are the slot.
inline constexpr std::uint16_t more_follows = 0x8000;

/// RUs go from phase to phase together, as the EM says.
[[nodiscard]] constexpr bool has_barriers(Schedule schedule) {
    return schedule == Schedule::barrel_barrier || schedule == Schedule::lockstep;
}
/// The EM gives MEPs to BUs ahead of their credits: it knows a credit's number, and only the BU its slot.
[[nodiscard]] constexpr bool assigns_ahead(const Config& config) {
    return config.assignment == Assignment::source_credits;
}
/// The MFPs of that MEP have checksums.
[[nodiscard]] constexpr bool is_checked(Checksum checksum, MepId mep) {
    constexpr MepId sampled_every = 16;
    return checksum == Checksum::full || (checksum == Checksum::sampled && mep % sampled_every == 0);
}
/// BUs tell RUs what is placed.
[[nodiscard]] constexpr bool tells_placed(const Config& config) {
    return config.parallel_sends > 0 || config.ack_per_write || has_barriers(config.schedule) ||
           (config.schedule == Schedule::barrel_time_slot && config.overrun != Overrun::overlap);
}

/// Where source i of a slot lies (EB-S3): a Head, then up to cap_bytes of body, 64-byte aligned.
struct SlotLayout {
    struct Place {
        std::uint32_t region = 0;  // of the BU's, counted from 0
        std::uint64_t offset = 0;  // of the head
    };
    Layout kind = Layout::contiguous;
    std::vector<std::uint64_t> source_offset;  // of the head, within the slot
    std::uint64_t slot_bytes = 0;

    [[nodiscard]] Place at(std::uint32_t slot, std::uint32_t source) const {
        if (kind == Layout::contiguous) [[likely]] {
            return {0, slot * slot_bytes + source_offset[source]};
        }
        if (kind == Layout::per_mep) {
            return {slot, source_offset[source]};
        }
        if (kind == Layout::per_source) {
            return {source, slot * source_bytes(source)};
        }
        return {slot * static_cast<std::uint32_t>(source_offset.size()) + source, 0};
    }
    /// Of a source's place in a slot.
    [[nodiscard]] std::uint64_t source_bytes(std::size_t source) const {
        return (source + 1 < source_offset.size() ? source_offset[source + 1] : slot_bytes) - source_offset[source];
    }
    /// The sizes of the regions of a BU with so many slots, in order.
    [[nodiscard]] std::vector<std::uint64_t> region_bytes(std::uint32_t slots) const;
    /// The regions of which an RU with that range of sources must know the keys, in the order in which it is told.
    [[nodiscard]] std::uint32_t regions_of_ru(std::uint32_t slots, std::uint32_t sources) const {
        switch (kind) {
            case Layout::contiguous:
                return 1;
            case Layout::per_mep:
                return slots;
            case Layout::segmented:
                return slots * sources;
            case Layout::per_source:
                break;
        }
        return sources;
    }
    /// The place in that order of the region that holds the RU's source number `own`.
    [[nodiscard]] std::uint32_t index_of_ru(std::uint32_t slot, std::uint32_t own, std::uint32_t sources) const {
        if (kind == Layout::contiguous) [[likely]] {
            return 0;
        }
        return kind == Layout::per_mep ? slot : kind == Layout::per_source ? own : slot * sources + own;
    }
    /// Where an RU with that range of sources writes in the region at a place in that order: its sources lie side by
    /// side, so it is one run of bytes per slot.
    [[nodiscard]] Grant grant_of_ru(std::uint32_t first, std::uint32_t sources, std::uint32_t slots) const {
        if (has_region_per_source()) {
            return {.read = false};
        }
        const std::size_t behind = std::size_t{first} + sources;
        const std::uint64_t end = behind < source_offset.size() ? source_offset[behind] : slot_bytes;
        return {.read = false,
                .offset = source_offset[first],
                .length = end - source_offset[first],
                .stride = slot_bytes,
                .count = kind == Layout::contiguous ? slots : 1};
    }
    /// No region holds places of two sources.
    [[nodiscard]] bool has_region_per_source() const { return kind == Layout::segmented || kind == Layout::per_source; }
    /// And the region at a place in that order.
    [[nodiscard]] std::uint32_t region_of_ru(std::uint32_t index, std::uint32_t first, std::uint32_t sources) const {
        if (kind == Layout::per_source) {
            return first + index;
        }
        return kind != Layout::segmented ? index : at(index / sources, first + index % sources).region;
    }
};
[[nodiscard]] SlotLayout slot_layout(const Config& config);

/// BU memory: all slots, those for quarantine and for holding included.
[[nodiscard]] std::uint64_t bu_memory_bytes(const Config& config);

/// The part of validate() that needs no node and no source: keys that do not go together.
[[nodiscard]] Result<Ok> check_keys(const Config& config);
/// One clear line if the config cannot work; every unit assumes it was checked.
[[nodiscard]] Result<Ok> validate(const Config& config);

/// Over everything the units must agree on; carried in hello.
[[nodiscard]] std::uint64_t fingerprint(const Config& config);

}  // namespace incast::protocol
