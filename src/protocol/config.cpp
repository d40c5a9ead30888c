#include "protocol/config.h"

#include <algorithm>
#include <utility>

#include "base/prng.h"
#include "base/units.h"
#include "wire/control.h"

namespace incast::protocol {
namespace {

constexpr std::uint64_t line_bytes = 64;

std::uint64_t round_up(std::uint64_t value) {
    return (value + line_bytes - 1) / line_bytes * line_bytes;
}

/// What a person did not write: the program that made the configuration is wrong.
Error refuse(const char* what, std::uint64_t value, const char* range) {
    return Error{std::string(what) + " = " + std::to_string(value) + ": must be " + range};
}

Error refuse_time(const char* what, Time time, const char* range) {
    return Error{std::string(what) + " = " + base::duration_text(time) + ": must be " + range};
}

/// What a person may have written, by its key.
Error not_allowed(const char* key, const std::string& value, const std::string& problem, const std::string& allowed) {
    return Error{std::string("protocol.") + key + " = " + value + ": " + problem + "; allowed: " + allowed};
}

bool within(std::uint64_t value, std::uint64_t low, std::uint64_t high) {
    return value >= low && value <= high;
}

/// An order of sends that gives each BU its turn makes MEPs wait for it: all credits of a BU must get theirs before the
/// last of them is late, or lateness would never end.
Result<Ok> check_patience(const Config& config, std::uint64_t rus, std::uint64_t bus) {
    const auto patience = [&](Time step, std::uint64_t steps, const std::string& what) -> Result<Ok> {
        if (static_cast<std::uint64_t>(step) <= static_cast<std::uint64_t>(config.late_after) / steps) return Ok{};
        const bool endless = steps > static_cast<std::uint64_t>(time_never / step);
        return not_allowed(
            "late_after", base::duration_text(config.late_after), "a MEP may wait longer for its turn, " + what,
            endless ? "less of these" : "at least " + base::duration_text(step * static_cast<Time>(steps)));
    };
    const std::uint64_t credits = config.credits;
    if (config.schedule == Schedule::barrel_time_slot) {
        const Result<Ok> slots = patience(config.slot_time, 2 * credits * std::max(rus, bus),
                                          "2 x protocol.credits x max(RUs, BUs) x protocol.slot_time");
        if (!slots) return slots;
    }
    if (config.inter_send_gap == 0) return Ok{};
    return patience(config.inter_send_gap, 2 * credits * bus, "2 x protocol.credits x BUs x protocol.inter_send_gap");
}

/// A chain over numbers; order matters.
class Fingerprint {
public:
    void add(std::uint64_t value) { state_ = base::mix64(state_ ^ value); }
    [[nodiscard]] std::uint64_t value() const { return state_; }

private:
    std::uint64_t state_ = 0x1ca57;
};

}  // namespace

SlotLayout slot_layout(const Config& config) {
    SlotLayout layout;
    layout.kind = config.layout;
    layout.source_offset.reserve(config.sources.size());
    for (const SourceSpec& source : config.sources) {
        layout.source_offset.push_back(layout.slot_bytes);
        layout.slot_bytes += sizeof(wire::Head) + round_up(source.cap_bytes);
    }
    return layout;
}

std::vector<std::uint64_t> SlotLayout::region_bytes(std::uint32_t slots) const {
    if (kind == Layout::contiguous) {
        return {slot_bytes * slots};
    }
    if (kind == Layout::per_mep) {
        return std::vector<std::uint64_t>(slots, slot_bytes);
    }
    const bool each_slot = kind == Layout::segmented;
    std::vector<std::uint64_t> sizes;
    sizes.reserve((each_slot ? slots : 1) * source_offset.size());
    for (std::uint32_t slot = 0; slot < (each_slot ? slots : 1); ++slot) {
        for (std::size_t source = 0; source < source_offset.size(); ++source) {
            sizes.push_back(source_bytes(source) * (each_slot ? 1 : slots));
        }
    }
    return sizes;
}

std::uint64_t bu_memory_bytes(const Config& config) {
    return slot_layout(config).slot_bytes *
           (std::uint64_t{config.credits} + config.quarantine_slots + config.held_slots);
}

Result<Ok> check_keys(const Config& config) {
    const std::string schedule(schedule_words[static_cast<std::size_t>(config.schedule)]);
    const bool barrel = has_barriers(config.schedule) || config.schedule == Schedule::barrel_time_slot;
    if (barrel && config.scheme != Scheme::push) {
        return not_allowed("schedule", schedule, "builder units pull",
                           "none, sequential, random or linear-shift; or protocol.scheme = push");
    }
    const bool pushed = config.scheme == Scheme::push || config.scheme == Scheme::push_pull;
    if (assigns_ahead(config) && pushed &&
        (config.schedule == Schedule::sequential || config.schedule == Schedule::lockstep)) {
        return not_allowed("schedule", schedule,
                           "with protocol.assignment = source-credits a readout unit passes over a builder unit "
                           "without credit",
                           "none, random, linear-shift, barrel-barrier or barrel-time-slot");
    }
    if (config.second_stage_all && config.scheme != Scheme::pull_pull) {
        return not_allowed("second_stage", "all", "only pull-pull can pull again",
                           "rest, or protocol.scheme = pull-pull");
    }
    if (config.views && config.scheme != Scheme::pull_read) {
        return not_allowed("views", "true", "only pull-read looks at the memory of others",
                           "false, or protocol.scheme = pull-read");
    }
    if (config.outstanding_writes > 0 && !config.ack_per_write) {
        return not_allowed("outstanding_writes", std::to_string(config.outstanding_writes),
                           "only acknowledged writes can be counted", "0, or protocol.ack_per_write = true");
    }
    if (config.scheme == Scheme::pull_read) {
        constexpr const char* nothing = "nothing is written with pull-read";
        if (config.message_size > 0) {
            return not_allowed("message_size", std::to_string(config.message_size) + "B", nothing,
                               "0, or another protocol.scheme");
        }
        if (config.ack_per_write) {
            return not_allowed("ack_per_write", "true", nothing, "false, or another protocol.scheme");
        }
        if (config.parallel_sends > 0) {
            return not_allowed("parallel_sends", std::to_string(config.parallel_sends), nothing,
                               "0, or another protocol.scheme");
        }
    }
    if (config.detection_deadline < 2 * config.heartbeat) {
        return not_allowed("detection_deadline", base::duration_text(config.detection_deadline),
                           "protocol.heartbeat is " + base::duration_text(config.heartbeat),
                           "at least " + base::duration_text(2 * config.heartbeat));
    }
    return Ok{};
}

Result<Ok> validate(const Config& config) {
    constexpr std::uint64_t max_index = 65535;  // nodes, slots and sources travel as u16
    if (!within(config.nodes.size(), 1, max_index)) {
        return refuse("nodes", config.nodes.size(), "1..65535");
    }
    const auto em = static_cast<std::size_t>(config.em);
    if (em >= config.nodes.size() || (config.nodes[em].roles & role_em) == 0) {
        return refuse("event manager node", em, "a node with the role EM");
    }
    std::size_t rus = 0;
    std::size_t bus = 0;
    for (std::size_t index = 0; index < config.nodes.size(); ++index) {
        const std::uint32_t roles = config.nodes[index].roles;
        if (roles == 0 || (roles & ~std::uint32_t{role_em | role_ru | role_bu}) != 0) {
            return refuse("roles of a node", roles, "a union of EM, RU and BU");
        }
        if ((roles & role_em) != 0 && index != em) {
            return refuse("nodes with the role EM", 2, "exactly 1");
        }
        rus += (roles & role_ru) != 0 ? 1 : 0;
        bus += (roles & role_bu) != 0 ? 1 : 0;
    }
    if (rus == 0) {
        return refuse("readout units", 0, "at least 1");
    }
    if (bus == 0) {
        return refuse("builder units", 0, "at least 1");
    }
    if (!within(config.sources.size(), 1, max_index)) {
        return refuse("sources", config.sources.size(), "1..65535");
    }
    std::size_t rus_with_sources = 0;
    for (std::size_t index = 0; index < config.sources.size(); ++index) {
        const SourceSpec& source = config.sources[index];
        const auto ru = static_cast<std::size_t>(source.ru);
        if (ru >= config.nodes.size() || (config.nodes[ru].roles & role_ru) == 0) {
            return refuse("node of a source", ru, "a readout unit");
        }
        if (!within(source.cap_bytes, 1, max_write_bytes - sizeof(wire::Head))) {
            return refuse("largest MFP of a source in bytes", source.cap_bytes, "1..1073741760");
        }
        if (index > 0 && source.ru < config.sources[index - 1].ru) {
            return refuse("sources ordered by readout unit: source", index,
                          "of the same or a later unit than the one before");
        }
        rus_with_sources += index == 0 || source.ru != config.sources[index - 1].ru ? 1 : 0;
    }
    if (rus_with_sources != rus) {
        return refuse("readout units with sources", rus_with_sources, "all of them");
    }
    if (!within(config.credits, 1, 16384)) {
        return refuse("credits", config.credits, "1..16384");
    }
    if (!within(config.quarantine_slots, 0, 16384)) {
        return refuse("quarantine_slots", config.quarantine_slots, "0..16384");
    }
    if (!within(config.held_slots, 0, 16384)) {
        return refuse("held_slots", config.held_slots, "0..16384");
    }
    const std::uint64_t slots = std::uint64_t{config.credits} + config.quarantine_slots + config.held_slots;
    if (config.layout == Layout::segmented && slots * config.sources.size() > max_index) {
        return not_allowed("layout", "segmented",
                           std::to_string(slots) + " slots for " + std::to_string(config.sources.size()) +
                               " sources are too many buffers",
                           "at most 65535 buffers, or another layout");
    }
    if (!within(config.retention_meps, 1, 1U << 20)) {
        return refuse("retention_meps", config.retention_meps, "1..1048576");
    }
    if (two_stages(config.scheme) && !within(config.first_stage_rus, 1, rus)) {
        return refuse("first_stage_rus", config.first_stage_rus, "1..the number of readout units");
    }
    // The run's keys are within these ranges; a configuration that a program made may not be.
    for (const auto& [name, time] : {std::pair{"barrier_deadline", config.barrier_deadline},
                                     {"slot_time", config.slot_time},
                                     {"decision_deadline", config.decision_deadline},
                                     {"heartbeat", config.heartbeat},
                                     {"late_after", config.late_after},
                                     {"connect_retry", config.connect_retry}}) {
        if (time <= 0) return refuse_time(name, time, "more than 0");
    }
    for (const auto& [name, time] : {std::pair{"inter_send_gap", config.inter_send_gap},
                                     {"reuse_wait", config.reuse_wait},
                                     {"suspect_grace", config.suspect_grace},
                                     {"max_wait", config.max_wait}}) {
        if (time < 0) return refuse_time(name, time, "0 or more");
    }
    if (!within(config.max_attempts, 1, 1000)) {
        return refuse("max_attempts", config.max_attempts, "1..1000");
    }
    if (Result<Ok> allowed = check_keys(config); !allowed) {
        return allowed;
    }
    return check_patience(config, rus, bus);
}

std::uint64_t fingerprint(const Config& config) {
    Fingerprint sum;
    sum.add(config.control_version);
    sum.add(config.run);
    sum.add(static_cast<std::uint64_t>(config.em));
    sum.add(config.nodes.size());
    for (const NodeSpec& node : config.nodes) {
        sum.add(node.roles);
    }
    sum.add(config.sources.size());
    for (const SourceSpec& source : config.sources) {
        sum.add(source.id);
        sum.add(static_cast<std::uint64_t>(source.ru));
        sum.add(source.cap_bytes);
    }
    sum.add(static_cast<std::uint64_t>(config.scheme));
    sum.add(config.first_stage_rus);
    sum.add(static_cast<std::uint64_t>(config.schedule));
    sum.add(static_cast<std::uint64_t>(config.assignment));
    sum.add(static_cast<std::uint64_t>(config.slot_time));
    sum.add(static_cast<std::uint64_t>(config.layout));
    sum.add(static_cast<std::uint64_t>(config.checksum));
    sum.add(config.credits);
    sum.add(config.quarantine_slots);
    sum.add(config.held_slots);
    sum.add(config.retention_meps);
    sum.add(config.packing);
    sum.add(config.total_events);
    sum.add(static_cast<std::uint64_t>(config.max_wait));
    sum.add(config.parallel_sends);
    sum.add(config.ack_per_write ? 1 : 0);
    return sum.value();
}

}  // namespace incast::protocol
