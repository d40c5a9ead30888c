// THE list of sinks: what sink.kind may be, and what the rest of a run decides by it. make_sink() makes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace incast::sinks {

enum class Kind : std::uint8_t { verify, touch, null, mep, command, consumer, farm };

struct KindTraits {
    std::string_view word;             // in a config
    bool reads_bodies = true;          // events should lie in the cache when they are complete
    bool lends_slots = false;          // to other processes, which give them back: all slots are one shared region
    bool has_other_processes = false;  // that belong to the run and need cores, too
    std::string_view committed_means = "taken; nothing is kept";  // empty: the sink's own options say
};

inline constexpr std::array<KindTraits, 7> kinds{{
    {.word = "verify"},
    {.word = "touch"},
    {.word = "null", .reads_bodies = false},
    {.word = "mep", .committed_means = ""},
    {.word = "command", .has_other_processes = true, .committed_means = "in the pipe to the command"},
    {.word = "consumer", .lends_slots = true, .has_other_processes = true},
    {.word = "farm", .lends_slots = true, .committed_means = "finished by a farm node of the simulated network"},
}};

constexpr const KindTraits& traits_of(Kind kind) {
    return kinds[static_cast<std::size_t>(kind)];
}

}  // namespace incast::sinks
