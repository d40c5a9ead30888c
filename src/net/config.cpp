#include "net/config.h"

#include <algorithm>
#include <numeric>

#include "base/prng.h"

namespace incast::net {
namespace {

constexpr std::uint64_t line_bytes = 64;

constexpr std::uint64_t whole_lines(std::uint64_t bytes) {
    return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

std::uint64_t body_stride(const Config& config) {
    return whole_lines(config.message_bytes);
}

/// Queues of a pair whose messages are answered by writes.
std::uint64_t answered_queues(const Config& config) {
    if (config.operation == Operation::read || config.measure == Measure::bandwidth) {
        return 0;
    }
    return config.measure == Measure::latency ? config.queues : 1;
}

}  // namespace

std::vector<Pair> make_pairs(const PatternOptions& options) {
    std::vector<Pair> pairs;
    const std::uint32_t n = options.nodes;
    switch (options.pattern) {
        case Pattern::one_to_one:
            pairs.push_back({0, 1});
            break;
        case Pattern::many_to_one:
        case Pattern::one_to_many:
            for (std::uint32_t node = 1; node < n; ++node) {
                pairs.push_back(options.pattern == Pattern::many_to_one ? Pair{node, 0} : Pair{0, node});
            }
            break;
        case Pattern::pairs:
            for (std::uint32_t node = 0; node < n / 2; ++node) {
                pairs.push_back({node, node + n / 2});
            }
            break;
        case Pattern::all_to_all:
            for (std::uint32_t from = 0; from < n; ++from) {
                for (std::uint32_t to = 0; to < n; ++to) {
                    if (from != to) {
                        pairs.push_back({from, to});
                    }
                }
            }
            break;
        case Pattern::bipartite:
            for (std::uint32_t from = 0; from < options.producers; ++from) {
                for (std::uint32_t to = 0; to < options.consumers; ++to) {
                    pairs.push_back({from, options.producers + to});
                }
            }
            break;
    }
    if (options.duplex) {
        const std::size_t one_way = pairs.size();
        for (std::size_t index = 0; index < one_way; ++index) {
            pairs.push_back({pairs[index].to, pairs[index].from});
        }
    }
    std::ranges::sort(pairs);
    const auto repeated = std::ranges::unique(pairs);
    pairs.erase(repeated.begin(), repeated.end());
    return pairs;
}

Result<Ok> validate(const Config& config) {
    if (config.pairs.empty() || !std::ranges::is_sorted(config.pairs) ||
        std::ranges::adjacent_find(config.pairs) != config.pairs.end()) {
        return Error{"the pairs of a traffic pattern are sorted, each once, and at least one"};
    }
    for (const Pair& pair : config.pairs) {
        if (pair.from == pair.to || pair.from >= config.n_nodes || pair.to >= config.n_nodes) {
            return Error{"a traffic pattern pairs two different nodes of the run"};
        }
    }
    if (config.queues == 0 || config.queues > max_queues || config.outstanding == 0 ||
        all_queues(config) * std::uint64_t{config.outstanding} > max_slots_per_pair) {
        return Error{"a pair has 1 to 64 queues, and at most 32768 messages in flight"};
    }
    if (config.measure == Measure::latency && config.outstanding != 1) {
        return Error{"a ping-pong has one message in flight"};
    }
    if (config.operation == Operation::read && (config.measure == Measure::loaded || config.sends != 0)) {
        return Error{"reads are measured without a load, and limited by what is in flight alone"};
    }
    if (config.measure == Measure::loaded && (config.ping_bytes == 0 || config.ping_bytes > config.message_bytes)) {
        return Error{"a ping has at least one byte, and at most as many as a message of the load"};
    }
    if (config.message_bytes == 0 || config.message_bytes > max_write_bytes - head_bytes) {
        return Error{"a message has at least one byte, and with its head at most what one write carries"};
    }
    return Ok{};
}

std::uint64_t fingerprint(const Config& config) {
    std::uint64_t hash = base::mix64(config.run);
    const auto add = [&hash](std::uint64_t value) { hash = base::mix64(hash ^ value); };
    add(config.n_nodes);
    for (const Pair& pair : config.pairs) {
        add(std::uint64_t{pair.from} << 32 | pair.to);
    }
    add(static_cast<std::uint64_t>(config.measure));
    add(static_cast<std::uint64_t>(config.operation));
    add(config.queues);
    add(config.outstanding);
    add(config.sends);
    add(config.message_bytes);
    add(config.ping_bytes);
    add(config.messages);
    add(ring_messages(config));
    return hash;
}

std::uint64_t slot_stride(const Config& config) {
    return head_bytes + body_stride(config);
}

std::uint64_t ring_messages(const Config& config) {
    if (config.buffers == Buffers::one) {
        return 1;
    }
    std::uint64_t count =
        std::max<std::uint64_t>(config.working_set_bytes / body_stride(config), std::uint64_t{config.outstanding} + 1);
    while (std::gcd(count, std::uint64_t{config.outstanding}) != 1) {
        ++count;
    }
    return count;
}

std::uint64_t ring_bytes(const Config& config) {
    return ring_messages(config) * body_stride(config);
}

std::uint64_t pair_slots_bytes(const Config& config) {
    return slot_stride(config) * all_queues(config) * config.outstanding;
}

Layout layout_of(const Config& config, Peer self) {
    const auto me = static_cast<std::uint32_t>(self);
    const std::uint64_t area = pair_slots_bytes(config);
    const std::uint64_t answers = slot_stride(config) * answered_queues(config);
    std::vector<std::uint32_t> sends(config.n_nodes);  // pairs from and to every node
    std::vector<std::uint32_t> hears(config.n_nodes);
    for (const Pair& pair : config.pairs) {
        ++sends[pair.from];
        ++hears[pair.to];
    }
    const auto answers_of = [&](std::uint32_t node) { return hears[node] * area; };
    std::vector<Partner> by_peer(config.n_nodes);
    std::vector<std::uint32_t> sends_before(config.n_nodes);
    std::vector<std::uint32_t> hears_before(config.n_nodes);
    for (const Pair& pair : config.pairs) {
        if (pair.from == me) {
            Partner& partner = by_peer[pair.to];
            partner.sends_to = true;
            partner.area_there = hears_before[pair.to] * area;
            partner.answers_here = answers_of(me) + sends_before[me] * answers;
        }
        if (pair.to == me) {
            Partner& partner = by_peer[pair.from];
            partner.hears_from = true;
            partner.area_here = hears_before[me] * area;
            partner.answers_there = answers_of(pair.from) + sends_before[pair.from] * answers;
        }
        ++sends_before[pair.from];
        ++hears_before[pair.to];
    }
    Layout layout;
    for (std::uint32_t peer = 0; peer < config.n_nodes; ++peer) {
        if (by_peer[peer].sends_to || by_peer[peer].hears_from) {
            by_peer[peer].peer = Peer{peer};
            layout.partners.push_back(by_peer[peer]);
        }
    }
    layout.region_bytes = answers_of(me) + sends[me] * answers;
    return layout;
}

}  // namespace incast::net
