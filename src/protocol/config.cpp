#include "protocol/config.h"

#include <algorithm>

#include "base/prng.h"
#include "wire/control.h"

namespace incast::protocol {
namespace {

constexpr std::uint64_t line_bytes = 64;

std::uint64_t round_up(std::uint64_t value) {
    return (value + line_bytes - 1) / line_bytes * line_bytes;
}

Error refuse(const char* key, std::uint64_t value, const char* range) {
    return Error{std::string(key) + " = " + std::to_string(value) + ": must be " + range};
}

bool within(std::uint64_t value, std::uint64_t low, std::uint64_t high) {
    return value >= low && value <= high;
}

/// An order of sends that gives each BU its turn makes MEPs wait for it: all credits of a BU must get theirs before the
/// last of them is late, or lateness would never end.
Result<Ok> check_schedule(const Config& config, std::uint64_t rus, std::uint64_t bus) {
    const bool barrel = has_barriers(config.schedule) || config.schedule == Schedule::barrel_time_slot;
    if (barrel && config.scheme != Scheme::push) {
        constexpr const char* names[] = {"barrel-barrier", "barrel-time-slot", "lockstep"};
        const auto index =
            static_cast<std::size_t>(config.schedule) - static_cast<std::size_t>(Schedule::barrel_barrier);
        return Error{std::string("schedule = ") + names[index] +
                     ": must be none, sequential, random or linear-shift where builder units pull"};
    }
    const bool pushed = config.scheme == Scheme::push || config.scheme == Scheme::push_pull;
    if (assigns_ahead(config) && pushed &&
        (config.schedule == Schedule::sequential || config.schedule == Schedule::lockstep)) {
        return Error{std::string("schedule = ") + (config.schedule == Schedule::lockstep ? "lockstep" : "sequential") +
                     ": must be none, random, linear-shift, barrel-barrier or barrel-time-slot with assignment = "
                     "source-credits, where a readout unit passes over a builder unit without credit"};
    }
    if (config.barrier_deadline <= 0) {
        return refuse("barrier_deadline in ps", static_cast<std::uint64_t>(config.barrier_deadline), "positive");
    }
    if (config.slot_time <= 0) {
        return refuse("slot_time in ps", static_cast<std::uint64_t>(config.slot_time), "positive");
    }
    if (config.inter_send_gap < 0) {
        return refuse("inter_send_gap in ps", static_cast<std::uint64_t>(config.inter_send_gap), "0 or more");
    }
    const auto patience = static_cast<std::uint64_t>(config.late_after);
    const std::uint64_t slots = 2 * std::uint64_t{config.credits} * std::max(rus, bus);
    if (config.schedule == Schedule::barrel_time_slot &&
        static_cast<std::uint64_t>(config.slot_time) > patience / slots) {
        return refuse("late_after in ps", patience, "at least 2 x credits x max(RUs, BUs) x slot_time");
    }
    if (static_cast<std::uint64_t>(config.inter_send_gap) > patience / (2 * std::uint64_t{config.credits} * bus)) {
        return refuse("late_after in ps", patience, "at least 2 x credits x BUs x inter_send_gap");
    }
    return Ok{};
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
    std::vector<std::uint64_t> sizes;
    sizes.reserve(std::size_t{slots} * source_offset.size());
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
        for (std::size_t source = 0; source < source_offset.size(); ++source) {
            const bool last = source + 1 == source_offset.size();
            sizes.push_back((last ? slot_bytes : source_offset[source + 1]) - source_offset[source]);
        }
    }
    return sizes;
}

std::uint64_t bu_memory_bytes(const Config& config) {
    return slot_layout(config).slot_bytes *
           (std::uint64_t{config.credits} + config.quarantine_slots + config.held_slots);
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
    if (config.reuse_wait < 0) {
        return refuse("reuse_wait in ps", static_cast<std::uint64_t>(config.reuse_wait), "0 or more");
    }
    const std::uint64_t slots = std::uint64_t{config.credits} + config.quarantine_slots + config.held_slots;
    if (config.layout == Layout::segmented && slots * config.sources.size() > max_index) {
        return refuse("slots x sources", slots * config.sources.size(), "1..65535 with layout = segmented");
    }
    if (!within(config.retention_meps, 1, 1U << 20)) {
        return refuse("retention_meps", config.retention_meps, "1..1048576");
    }
    if (two_stages(config.scheme) && !within(config.first_stage_rus, 1, rus)) {
        return refuse("first_stage_rus", config.first_stage_rus, "1..the number of readout units");
    }
    if (config.second_stage_all && config.scheme != Scheme::pull_pull) {
        return refuse("second_stage_all", 1, "false unless the scheme is pull-pull");
    }
    if (config.outstanding_writes > 0 && !config.ack_per_write) {
        return refuse("outstanding_writes", config.outstanding_writes, "0 unless ack_per_write is true");
    }
    if (config.scheme == Scheme::pull_read && (config.message_size > 0 || config.ack_per_write)) {
        return refuse("message_size, ack_per_write", config.message_size, "0 and false with the scheme pull-read");
    }
    if (config.scheme == Scheme::pull_read && config.parallel_sends > 0) {
        return refuse("parallel_sends", config.parallel_sends, "0 with the scheme pull-read, where nothing is sent");
    }
    if (config.views && config.scheme != Scheme::pull_read) {
        return refuse("views", 1, "false unless the scheme is pull-read");
    }
    if (config.decision_deadline <= 0) {
        return refuse("decision_deadline in ps", static_cast<std::uint64_t>(config.decision_deadline), "positive");
    }
    if (config.heartbeat <= 0 || config.detection_deadline < 2 * config.heartbeat) {
        return refuse("detection_deadline in ps", static_cast<std::uint64_t>(config.detection_deadline),
                      "at least twice the heartbeat");
    }
    if (config.late_after <= 0 || config.suspect_grace < 0 || config.connect_retry <= 0) {
        return refuse("late_after in ps", static_cast<std::uint64_t>(config.late_after),
                      "positive, as suspect_grace and connect_retry");
    }
    if (config.max_wait < 0) {
        return refuse("max_wait in ps", static_cast<std::uint64_t>(config.max_wait), "0 or more");
    }
    if (!within(config.max_attempts, 1, 1000)) {
        return refuse("max_attempts", config.max_attempts, "1..1000");
    }
    return check_schedule(config, rus, bus);
}

std::uint64_t fingerprint(const Config& config) {
    Fingerprint sum;
    sum.add(wire::control_version);
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
