#include "runtime/report/audit.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/units.h"

namespace incast::runtime {
namespace {

std::string utc_now() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

/// What counts as the same. Strangers have no node, and give many reasons; numbers in them are no reason of its own.
std::string group_of(const AuditEntry& entry) {
    std::string group = entry.kind + ' ';
    if (entry.node) {
        return group + std::to_string(*entry.node);
    }
    std::ranges::copy_if(entry.reason, std::back_inserter(group),
                         [](char letter) { return letter < '0' || letter > '9'; });
    return group;
}

}  // namespace

void Audit::say(Time now, Level level, const std::string& line, AuditEntry entry) {
    std::string key = group_of(entry);
    if (floods_.size() >= most_floods && !floods_.contains(key)) {
        key.clear();
    }
    Flood& flood = floods_[key];
    if (now >= flood.until) {
        say_rest(now, flood);
        flood.until = now + span;
        flood.said = 0;
    }
    if (flood.said < said_at_once) {
        ++flood.said;
        if (!line.empty()) {
            reporter_.notice(level, line);
        }
        write(now, entry, 1);
        return;
    }
    ++flood.more;
    flood.level = level;
    flood.line = line;
    flood.entry = std::move(entry);
}

void Audit::say_rest(Time now, Flood& flood) {
    if (flood.more == 0) {
        return;
    }
    if (!flood.line.empty()) {
        reporter_.notice(flood.level,
                         fmt::format("{} more like it within {}, the last: {}", flood.more,
                                     base::format_duration(span - std::max<Time>(flood.until - now, 0)), flood.line));
    }
    write(now, flood.entry, flood.more);
    flood.more = 0;
}

void Audit::tick(Time now) {
    for (auto each = floods_.begin(); each != floods_.end();) {
        if (now < each->second.until) {
            ++each;
            continue;
        }
        say_rest(now, each->second);
        each = floods_.erase(each);
    }
}

Time Audit::next_deadline() const {
    Time next = time_never;
    for (const auto& [key, flood] : floods_) {
        next = flood.more > 0 ? std::min(next, flood.until) : next;
    }
    return next;
}

void Audit::finish(Time now) {
    for (auto& [key, flood] : floods_) {
        say_rest(now, flood);
    }
    floods_.clear();
}

void Audit::write(Time now, const AuditEntry& entry, std::uint64_t count) {
    nlohmann::ordered_json json{
        {"time", utc_now()},      {"t", base::seconds(now - started_)},
        {"kind", entry.kind},     {"node", entry.node ? nlohmann::ordered_json(*entry.node) : nullptr},
        {"reason", entry.reason}, {"count", count}};
    if (!entry.from.empty()) {
        json["from"] = entry.from;
    }
    if (!entry.cost.is_null()) {
        json["cost"] = entry.cost;
    }
    reporter_.audit(json);
}

}  // namespace incast::runtime
