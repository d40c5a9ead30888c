// Index tables derived once from the config: nodes that are RUs and BUs, in node order, and the sources of each RU.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocol/config.h"

namespace incast::protocol {

inline constexpr std::uint32_t no_index = ~std::uint32_t{0};

/// An RU is told of releases, and the EM of productions, in steps of this share of the retention, or when there is
/// nothing else to do, and then no more often than Shape::lazy_interval().
inline constexpr std::uint32_t lazy_share = 8;

struct Shape {
    struct Ru {
        Peer node{};
        std::uint32_t first_source = 0;
        std::uint32_t sources = 0;
    };
    std::vector<Ru> rus;
    std::vector<Peer> bus;
    std::vector<std::uint32_t> ru_of_node;  // index in rus, or no_index
    std::vector<std::uint32_t> bu_of_node;
    SlotLayout layout;
    std::uint32_t slots = 0;            // per BU, those for quarantine and for holding included
    std::uint32_t first_stage_rus = 0;  // RUs below this index are in the first stage; all, unless there are two
    std::uint32_t pushing_rus = 0;      // RUs below this index push, the others are pulled
    std::size_t window = 0;             // MEPs that may be admitted and not released: see EventManager

    [[nodiscard]] bool pushes(std::size_t ru) const { return ru < pushing_rus; }
    /// With many RUs telling each of them, and hearing from each, would be all that the EM does. A delay is not free
    /// either: what is released and assigned in heaps is sent in heaps, and ports wait. So few RUs are told at once.
    [[nodiscard]] Time lazy_interval() const { return pause_of(500 * ps_per_ns); }
    /// Between announcements: what was assigned meanwhile goes out in one message.
    [[nodiscard]] Time announce_interval() const { return pause_of(100 * ps_per_ns); }

    explicit Shape(const Config& config)
        : ru_of_node(config.nodes.size(), no_index),
          bu_of_node(config.nodes.size(), no_index),
          layout(slot_layout(config)),
          slots(config.credits + config.quarantine_slots + config.held_slots),
          // Twice the retention: an RU that came back holds up to `retention` beyond the first MEP it takes part in.
          window(std::bit_ceil(2 * std::size_t{config.retention_meps})) {
        for (std::uint32_t node = 0; node < config.nodes.size(); ++node) {
            if ((config.nodes[node].roles & role_ru) != 0) {
                ru_of_node[node] = static_cast<std::uint32_t>(rus.size());
                rus.push_back({Peer{node}, 0, 0});
            }
            if ((config.nodes[node].roles & role_bu) != 0) {
                bu_of_node[node] = static_cast<std::uint32_t>(bus.size());
                bus.push_back(Peer{node});
            }
        }
        for (std::uint32_t source = 0; source < config.sources.size(); ++source) {
            Ru& ru = rus[ru_of_node[static_cast<std::size_t>(config.sources[source].ru)]];
            if (ru.sources++ == 0) {
                ru.first_source = source;
            }
        }
        const auto all = static_cast<std::uint32_t>(rus.size());
        first_stage_rus = two_stages(config.scheme) ? config.first_stage_rus : all;
        const bool pushed = config.scheme == Scheme::push || config.scheme == Scheme::push_pull;
        pushing_rus = pushed ? first_stage_rus : 0;
    }

private:
    static constexpr std::size_t told_at_once = 128;
    [[nodiscard]] Time pause_of(Time of_each_ru) const {
        return rus.size() <= told_at_once ? 0 : static_cast<Time>(rus.size()) * of_each_ru;
    }
};

}  // namespace incast::protocol
