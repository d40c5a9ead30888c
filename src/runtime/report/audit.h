// What went wrong and what it cost: a line for people, of which there are never too many, and audit.jsonl for programs
// (docs/formats.md). Whoever floods the run gets a few lines of each kind, and then a count.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <incast/transport.h>

#include "runtime/report/report.h"

namespace incast::runtime {

struct AuditEntry {
    std::string kind;                   // refused, bad_message, dropped, back, ...: docs/formats.md
    std::optional<std::uint32_t> node;  // whom it is about
    std::string from;                   // address of a stranger; empty: none
    std::string reason;
    nlohmann::ordered_json cost;  // null: none, or not known
};

class Audit {
public:
    /// `started`: times are counted from then.
    Audit(Reporter& reporter, Time started) : reporter_(reporter), started_(started) {}

    /// Says `line` and writes the entry, or counts both as more of their kind and node. Empty line: no line.
    void say(Time now, Level level, const std::string& line, AuditEntry entry);
    /// Says what was only counted, once its time is over.
    void tick(Time now);
    [[nodiscard]] Time next_deadline() const;
    /// Says all that was only counted: the run is over.
    void finish(Time now);

    static constexpr unsigned said_at_once = 20;
    static constexpr Time span = 10 * ps_per_s;

private:
    struct Flood {
        Time until = 0;
        unsigned said = 0;
        std::uint64_t more = 0;
        Level level{};
        std::string line;  // the last one
        AuditEntry entry;
    };
    void write(Time now, const AuditEntry& entry, std::uint64_t count);
    void say_rest(Time now, Flood& flood);

    static constexpr std::size_t most_floods = 8192;  // beyond that all are one

    Reporter& reporter_;
    Time started_;
    std::map<std::string, Flood> floods_;
};

}  // namespace incast::runtime
