// What every unit of a run agrees on. Built once by the runtime from the TOML config (or by a test), then read-only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <incast/transport.h>

namespace incast::protocol {

using MepId = std::uint64_t;

enum Role : std::uint32_t { role_em = 1, role_ru = 2, role_bu = 4 };

enum class Scheme : std::uint8_t { push, pull_write };
/// The order in which an RU serves BUs (push) or a BU asks RUs (pull). PROTOCOL C6.
enum class Schedule : std::uint8_t { sequential, random, linear_shift };
/// What a node does with fragments for itself (PROTOCOL M3): copies them into the slot, as a network would; or leaves
/// them where its RU keeps them until the MEP is committed, and points the sink there.
enum class SelfTraffic : std::uint8_t { copy, pointer };

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
    early_reuse,          // BU reuses a slot that its sink holds
};

struct NodeSpec {
    std::uint32_t roles = 0;  // Role bits
};

/// One source: a stream of fragments, read out by one RU. S2.
struct SourceSpec {
    std::uint16_t id = 0;         // the detector's number for it, in MFP and MEP
    Peer ru{};                    // the node that reads it out
    std::uint32_t cap_bytes = 0;  // largest MFP; longer ones are delivered truncated and flagged (S4)
};

struct Config {
    std::uint64_t run = 1;
    Peer em{};
    std::vector<NodeSpec> nodes;      // by Peer index
    std::vector<SourceSpec> sources;  // ordered by RU, then id; indices into this table travel on the wire

    Scheme scheme = Scheme::push;
    Schedule schedule = Schedule::linear_shift;
    SelfTraffic self_traffic = SelfTraffic::copy;
    std::uint64_t seed = 1;

    std::uint32_t credits = 4;            // MEP slots in service per BU (C1)
    std::uint32_t quarantine_slots = 2;   // further slots, used while others are quarantined (F3)
    std::uint32_t held_slots = 0;         // further slots, used while a sink holds others
    std::uint32_t retention_meps = 32;    // MEPs an RU keeps (F1)
    std::uint32_t parallel_requests = 0;  // pull: outstanding requests per BU; 0 = no limit (C2)
    std::uint32_t parallel_sends = 0;     // contributions an RU may have unplaced; 0 = no limit but credits (C2)
    std::uint64_t total_meps = 0;         // 0 = until stop_admission(), or what the sources say

    Time heartbeat = 200 * ps_per_ms;        // between signs of life
    Time detection_deadline = 3 * ps_per_s;  // silence after which a node is dead
    Time late_after = 2 * ps_per_s;          // from assignment; then the MEP is late (reassigned, F5)
    Time suspect_grace = 300 * ps_per_ms;    // between a lost data connection and the EM's decision
    Time connect_retry = 50 * ps_per_ms;
    std::uint32_t max_attempts = 3;  // by lateness; then RUs that do not deliver are unreachable

    Plant plant = Plant::none;
};

/// Where source i of a slot lies (S3, contiguous layout): a Head, then up to cap_bytes of body, 64-byte aligned.
struct SlotLayout {
    std::vector<std::uint64_t> source_offset;  // of the head, within the slot
    std::uint64_t slot_bytes = 0;
};
[[nodiscard]] SlotLayout slot_layout(const Config& config);

/// BU memory: all slots, those for quarantine and for holding included.
[[nodiscard]] std::uint64_t bu_memory_bytes(const Config& config);

/// One clear line if the config cannot work; every unit assumes it was checked.
[[nodiscard]] Result<Ok> validate(const Config& config);

/// Over everything the units must agree on; carried in hello.
[[nodiscard]] std::uint64_t fingerprint(const Config& config);

}  // namespace incast::protocol
