// How many slots a builder unit has in service, and whether the fabric's limits allow them.
#include <algorithm>

#include <fmt/format.h>

#include "base/cache.h"
#include "runtime/plan/resolve_parts.h"

namespace incast::runtime {
namespace {

std::string text_of(std::uint64_t bytes) {
    return base::format_bytes(static_cast<double>(bytes));
}

/// Slots besides those of the credits.
std::uint64_t further_slots(const Plan& plan) {
    return std::uint64_t{plan.protocol.quarantine_slots} + plan.protocol.held_slots;
}

std::uint64_t buffers_per_slot(const Plan& plan) {
    return plan.config.layout == protocol::Layout::segmented ? plan.protocol.sources.size() : 1;
}

/// What an endpoint has room for (`max_regions` of its capabilities), beside the ring of its readout unit's sources.
std::uint64_t room_for_buffers(const Plan& plan) {
    return (plan.config.traits().simulated ? 65535 : 1024) - 1;
}

/// Other processes have work while one waits.
bool nodes_share_cores(const Plan& plan, const Machine& machine) {
    return plan.config.traits().shares_memory() && plan.protocol.nodes.size() > machine.cores;
}

/// Of a builder unit: a further slot is one more to keep in the cache, and keeps it busy only where nobody else has
/// work for the core while it waits. In one process all nodes are of one thread.
std::uint64_t fewest_credits(const Plan& plan, const Machine& machine) {
    return plan.config.traits().in_process || nodes_share_cores(plan, machine) ? 1 : 2;
}

std::uint64_t credits_within(std::uint64_t bytes, const Plan& plan) {
    return bytes / std::max<std::uint64_t>(1, plan.slot_bytes * plan.n_bus);
}

/// Of the slots of the credits: those given, or chosen so far, or else as they are chosen where slots stay in the
/// cache.
std::uint64_t bytes_in_turn(const Plan& plan, const Machine& machine, std::uint64_t cache) {
    const std::uint64_t credits = plan.config.credits > 0
                                      ? plan.config.credits
                                      : std::max(credits_within(cache / 2, plan), fewest_credits(plan, machine));
    return credits * plan.n_bus * plan.slot_bytes;
}

/// Of those and a window of slots that processes have.
std::uint64_t bytes_with_window(const Plan& plan, const Machine& machine, std::uint64_t cache) {
    return bytes_in_turn(plan, machine, cache) + plan.config.window * plan.n_bus * plan.slot_bytes;
}

/// The slots of the credits stay in the cache if builder units wait for those that processes have.
bool worth_waiting_for_consumers(const Plan& plan, const Machine& machine, std::uint64_t cache) {
    const RunConfig& config = plan.config;
    return sinks::traits_of(config.sink_kind).lends_slots && config.reuse_wait > 0 &&
           nodes_share_cores(plan, machine) && bytes_with_window(plan, machine, cache) > cache / 2 &&
           !base::slots_exceed(bytes_in_turn(plan, machine, cache), cache);
}

/// Whether the slots had better lie past the cache: this processor is faster at storing past it than at storing into
/// it, and nobody reads the bodies in them, or they stay in it only if builder units wait for those who do.
bool slots_leave_the_cache(Plan& plan, const Machine& machine, std::uint64_t cache) {
    const RunConfig& config = plan.config;
    const bool unread = !sinks::traits_of(config.sink_kind).reads_bodies ||
                        (config.sink_kind == SinkKind::verify && config.verify == Verify::header);
    const bool would_wait = worth_waiting_for_consumers(plan, machine, cache) &&
                            base::slots_exceed(bytes_with_window(plan, machine, cache), cache);
    if (!config.traits().shares_memory() || !(unread || would_wait)) return false;
    if (const auto given = config.transport_settings.find("stores"); given != config.transport_settings.end()) {
        return given->second == "streaming";
    }
    if (machine.plain_over_streaming == nullptr) return false;
    const std::uint64_t bytes = std::max(cache / 2, bytes_in_turn(plan, machine, cache));
    const auto copying = std::min(static_cast<std::uint32_t>(plan.protocol.nodes.size()), std::max(1U, machine.cores));
    const double ratio = machine.plain_over_streaming(bytes / copying, copying);
    plan.chosen.push_back(
        {"stores", fmt::format("{}: as just measured, stores into {} of cache run at {:.2f} times the speed of stores "
                               "past it",
                               ratio < 1 ? "streaming" : "plain", text_of(bytes), ratio)});
    return ratio < 1;
}

/// Those of the credits fit into the cache; the further ones that processes have do not, so they are waited for if that
/// costs little. Processes that are too slow for that are what limits the rate.
void wait_for_consumers(Plan& plan, const Machine& machine, std::uint64_t cache) {
    const RunConfig& config = plan.config;
    plan.protocol.reuse_wait = config.reuse_wait;
    plan.chosen.push_back(
        {"consumers",
         fmt::format("builder units wait up to {} for a slot that a consumer holds before they use another "
                     "(sink.reuse_wait): {} of slots do not fit in half of the {} of cache",
                     base::duration_text(config.reuse_wait), text_of(bytes_with_window(plan, machine, cache)),
                     text_of(cache))});
}

}  // namespace

Result<Ok> check_buffers(const Plan& plan) {
    const RunConfig& config = plan.config;
    if (config.layout != protocol::Layout::contiguous && sinks::traits_of(config.sink_kind).lends_slots) {
        return not_allowed("protocol.layout",
                           std::string(protocol::layout_words[static_cast<std::size_t>(config.layout)]),
                           "with sink.kind = consumer all slots are shared as one", "contiguous");
    }
    const std::vector<std::uint64_t> buffers =
        protocol::slot_layout(plan.protocol)
            .region_bytes(static_cast<std::uint32_t>(config.credits + further_slots(plan)));
    const std::uint64_t largest = *std::max_element(buffers.begin(), buffers.end());
    if (config.max_buffer_bytes > 0 && largest > config.max_buffer_bytes) {
        return not_allowed("protocol.max_buffer_size", bytes_text(config.max_buffer_bytes),
                           fmt::format("a buffer would have {}", bytes_text(largest)),
                           "smaller MFPs, or a layout of more and smaller buffers");
    }
    if (config.max_buffers > 0 && buffers.size() > config.max_buffers) {
        return not_allowed("protocol.max_buffers", std::to_string(config.max_buffers),
                           fmt::format("{} credits and {} slots for quarantine and consumers need {}", config.credits,
                                       further_slots(plan), buffers.size()),
                           "fewer credits, quarantine_slots or sources");
    }
    if (const std::uint64_t room = room_for_buffers(plan); buffers.size() > room) {
        return not_allowed("protocol.layout",
                           std::string(protocol::layout_words[static_cast<std::size_t>(config.layout)]),
                           fmt::format("{} credits and {} slots for quarantine and consumers need {} buffers, and an "
                                       "endpoint has room for {}",
                                       config.credits, further_slots(plan), buffers.size(), room),
                           "contiguous, or fewer credits, quarantine_slots or sources");
    }
    return Ok{};
}

void count_credits(Plan& plan, const Machine& machine) {
    RunConfig& config = plan.config;
    const std::uint64_t cache = base::usable_cache_bytes(machine.last_level_cache_bytes, machine.cores);
    plan.slot_bytes = protocol::slot_layout(plan.protocol).slot_bytes;
    const bool leave = slots_leave_the_cache(plan, machine, cache);
    if (config.credits == 0) {
        // All slots in service within half of the cache: the rest is for sources and for everybody else. Where they may
        // leave it, four times as many, so that nodes that share cores find more to do in their turn, and at least two,
        // as none of them has to be filled again soon.
        // Over shared memory small MFPs may have more still: a node then does so much in its turn that changing to the
        // next one, and back, weighs little.
        const std::uint64_t fewest = leave ? 2 : fewest_credits(plan, machine);
        const std::uint64_t most = config.traits().most_credits;
        const std::uint64_t that_fit = credits_within(leave ? 2 * cache : cache / 2, plan);
        config.credits = std::clamp(that_fit, fewest, most);
        std::string why =
            that_fit < fewest ? "the fewest that keep a builder unit busy"
            : that_fit > most ? "the most Incast chooses by itself"
            : leave
                ? fmt::format("so all slots take at most twice the {} of cache that these cores have", text_of(cache))
                : fmt::format("so all slots fit in half of the {} of cache that these cores have", text_of(cache));
        const std::uint64_t room = room_for_buffers(plan);
        const std::uint64_t allowed = config.max_buffers > 0 ? std::min(config.max_buffers, room) : room;
        const std::uint64_t slots = allowed / buffers_per_slot(plan);
        const std::uint64_t buffered = slots - std::min(slots, further_slots(plan));
        if (buffered < config.credits) {
            config.credits = std::max<std::uint64_t>(buffered, 1);
            why = fmt::format("the most that {} buffers allow", allowed);
        }
        plan.chosen.push_back({"credits", why});
    }
    plan.protocol.credits = static_cast<std::uint32_t>(config.credits);
    bool stream = leave || base::slots_exceed(bytes_in_turn(plan, machine, cache), cache);
    if (!stream && sinks::traits_of(config.sink_kind).lends_slots) {
        if (worth_waiting_for_consumers(plan, machine, cache)) {
            wait_for_consumers(plan, machine, cache);
        } else {
            stream = base::slots_exceed(bytes_with_window(plan, machine, cache), cache);
        }
    }
    if (config.traits().shares_memory() && !config.transport_settings.contains("cache")) {
        // As just decided, for slots in quarantine are not in service: the transport would count them.
        const auto [stores, chosen] = config.transport_settings.try_emplace("stores", stream ? "streaming" : "plain");
        stream = stores->second == "streaming" || (stores->second == "auto" && stream);
    }
    plan.protocol.stream_self_copies = stream;
}

}  // namespace incast::runtime
