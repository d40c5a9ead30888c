// What one seed of the adversary stands for: the run's configuration, the network's temper and the faults to come.
#pragma once

#include <cstdint>
#include <string>

#include "protocol/config.h"
#include "sim/models/adversarial.h"

namespace incast::adversary {

/// Faults that the harness brings about: mean time between two of a kind, 0 for none.
struct ChaosPlan {
    Time crash_every = 0;
    Time pause_every = 0;
    Time cut_every = 0;
    Time stall_every = 0;
    Time mute_every = 0;
    Time pause_max = 0;
    Time stall_max = 0;
    Time mute_min = 0;     // longer than the EM waits, so that it drops the node; at most stall_max more
    Time restart_max = 0;  // after a crash or an eviction
    Time tell_max = 0;     // until a peer knows the address of a new incarnation
    Time until = 0;        // safety phase; from then on there is none
};

struct SourcePlan {
    Time interval = 0;                 // mean between two MEPs
    std::uint32_t stutter_chance = 0;  // per million: a pause of many intervals
    bool says_total = false;           // the sources, not the config, know how many MEPs there are
    std::uint64_t total_meps = 0;      // at most, where MEPs are closed early
    std::uint32_t packing = 0;         // events of a full MEP, which come one by one; 0: MEPs come whole
};

struct SinkPlan {
    std::uint32_t busy_chance = 0;     // per million
    std::uint32_t pending_chance = 0;  // per million
    Time busy_max = 0;
    Time durable_max = 0;
    std::uint32_t hold_chance = 0;  // per million
    Time hold_max = 0;
};

struct FilterPlan {
    std::uint32_t undecided_chance = 0;  // per million, each time it is asked
    std::uint32_t reject_chance = 0;     // per million: a property of the MEP
    Time undecided_max = 0;
};

/// What a lying node says (docs/simulation.md).
enum class Lie : std::uint8_t {
    none,
    late,      // BU: what it was just given is late, and no RU delivers
    withheld,  // BU: keeps what is complete, and says at the deadline that it is late, and no RU delivers
    loss,      // BU or RU: its connection with another node is lost
    missing,   // BU: sources are missing, or the filter rejected it
    grant,     // BU: credits far ahead (source-credits)
    abort,     // BU: attempts of other BUs are void
};
/// No run has so many; the true ones go on from 1.
inline constexpr std::uint32_t far_credit = 2'000'000'000;

struct Plan {
    std::uint64_t seed = 0;
    protocol::Config config;
    sim::AdversarialSettings network;
    ChaosPlan chaos;
    SourcePlan source;
    SinkPlan sink;
    FilterPlan filter;
    Lie lie = Lie::none;
    std::uint32_t liar = 0;   // a node
    std::uint32_t about = 0;  // the node it speaks ill of, where it is one
    Time lie_every = 0;
    Time stop_at = 0;         // the EM is told to admit no more (Ctrl-C); 0: never
    Time liveness_bound = 0;  // by then every MEP is committed and every node has finished
};

/// Everything is drawn from the seed alone.
/// With a lie nothing else goes wrong: no faults, a calm network, and deadlines that nobody honest misses.
Plan make_plan(std::uint64_t seed, protocol::Plant plant, Lie lie = Lie::none);

/// For the story: one line per aspect.
std::string describe(const Plan& plan);

}  // namespace incast::adversary
