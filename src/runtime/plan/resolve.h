// From a config as written to everything that follows from it: who plays which role, sizes, slots, credits, memory.
// Checks that need more than one key are here. EB-S1 to EB-S4, EB-C1, EB-F1.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <incast/result.h>

#include "net/config.h"
#include "protocol/config.h"
#include "runtime/config/config.h"
#include "runtime/machine/machine.h"
#include "runtime/record/mep_events.h"
#include "runtime/sources/recorded_shapes.h"
#include "runtime/sources/replay_files.h"

namespace incast::runtime {

/// What all nodes of a replay agree on, wherever their files are.
struct Recorded {
    struct Source {
        std::uint16_t id = 0;
        std::uint32_t largest_bytes = 0;  // of its MFPs
    };
    sources::Numbering numbering;
    std::vector<Source> sources;  // in the order of the run
};

/// Files that are replayed, as this process finds them.
struct Inputs {
    std::vector<sources::InputFile> files;  // in the order of their sources; none if the run was laid out elsewhere
    std::uint64_t first_event = 0;
    std::uint64_t events = 0;  // of one pass
};

/// What was not asked for, and why it is as it is: nodes, packets, credits, source, stores, consumers.
struct Choice {
    std::string_view what;
    std::string why;
};

struct Plan {
    RunConfig config;                           // as asked for, autos replaced
    protocol::Config protocol;                  // what every node agrees on
    std::map<std::string, std::string> values;  // the same by key, as text: what other processes and result.json get

    net::Config net;  // what every node agrees on, if no events are built

    [[nodiscard]] bool is_net() const { return config.task == Task::net; }
    /// The run ends with that node.
    [[nodiscard]] bool is_vital(std::uint32_t node) const { return is_net() || Peer{node} == protocol.em; }

    /// So it does with any node of a launcher's, which cannot be started again by itself.
    [[nodiscard]] bool ends_with(std::uint32_t node) const { return is_vital(node) || config.traits().nature.launch; }

    std::uint32_t n_nodes = 0;  // the event manager's own node included
    std::uint32_t n_rus = 0;
    std::uint32_t n_bus = 0;
    std::uint32_t packing = 0;               // events in an MFP
    std::uint64_t mfp_bytes = 0;             // of an MFP of mean fragments
    std::uint64_t cap_bytes = 0;             // largest MFP of any source
    std::vector<std::uint64_t> source_caps;  // generated: by source
    std::uint64_t slot_bytes = 0;
    std::uint64_t bu_memory_bytes = 0;         // all slots, quarantine included
    std::uint64_t ru_memory_bytes = 0;         // what the MFPs kept until release may take
    std::uint64_t ru_memory_needed_bytes = 0;  // EB-F1
    std::uint64_t working_set_bytes = 0;  // EB-M4: slots in service and payload cycled through, all nodes of one host
    MepEvents mep_events;
    std::uint64_t total_events = 0;    // 0 = no end of its own
    std::optional<Recorded> recorded;  // of a replay
    Inputs inputs;                     // of a replay
    Time duration = 0;                 // 0 = until the events or the source end
    bool measured_whole = false;       // no warm-up: from the first event to the last
    Time sample_interval = 0;
    sources::TriggerOptions triggers;  // but for their origin
    std::uint32_t memory_meps = 0;     // with data, in the memory of a readout unit
    std::shared_ptr<const sources::SizeHistogram> size_histogram;
    std::vector<Choice> chosen;
};

/// Of a node's roles in protocol::Config, where no events are built.
inline constexpr std::uint32_t role_sender = 16;
inline constexpr std::uint32_t role_receiver = 32;

/// Of the machine, or what is assumed where it does not say.
[[nodiscard]] std::uint64_t last_level_cache(const Machine& machine);

/// The part of resolve() for run.task = net; `plan` holds the config as parsed.
Result<Ok> resolve_net(Plan& plan, const ConfigText& text, const Machine& machine);

/// `machine` decides the autos that depend on the cache; a process that joins gets them resolved, and what was recorded
/// as the coordinator found it.
Result<Plan> resolve(const ConfigText& text, const Machine& machine, std::optional<Recorded> recorded = {});

}  // namespace incast::runtime
