#include "ingest/emit/replay.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ingest/emit/capture.h"
#include "ingest/emit/frames.h"
#include "ingest/emit/sender.h"

namespace incast::ingest {

namespace {

struct Less {
    bool operator()(const datagram::Address& left, const datagram::Address& right) const {
        return std::tie(left.is_v6, left.ip, left.port) < std::tie(right.is_v6, right.ip, right.port);
    }
};

/// Datagrams to one address of the capture.
struct Way {
    datagram::Address to;  // where they go now
    std::uint64_t datagrams = 0;
    std::uint64_t bytes = 0;
};
using Ways = std::map<datagram::Address, Way, Less>;

/// use(datagram, at_ns) for each until the end, or until it returns false. Returns the frames that gave none, and why
/// the file ended early, if it did.
struct Passed {
    Frames::Skipped skipped;
    std::string error;
};
template <class Use>
Result<Passed> pass(const ReplaySettings& settings, Use&& use) {
    Result<Capture> capture = Capture::open(settings.file);
    if (!capture) return capture.error();
    std::optional<Frames> frames = Frames::of(capture->link_type());
    if (!frames) {
        return Error{
            fmt::format("{}: captured on a device of link type {}; allowed: Ethernet, IP, loopback, Linux cooked",
                        settings.file, capture->link_type())};
    }
    Passed passed;
    while (true) {
        const Result<std::optional<Capture::Frame>> frame = capture->next();
        if (!frame) passed.error = frame.error().message;
        if (!frame || !*frame) break;
        const std::optional<CapturedDatagram> datagram = frames->take((*frame)->bytes, (*frame)->frame_bytes);
        if (!datagram) continue;
        if (!settings.ports.empty() && std::ranges::find(settings.ports, datagram->to.port) == settings.ports.end()) {
            continue;
        }
        if (!use(*datagram, (*frame)->at_ns)) break;
    }
    passed.skipped = frames->skipped();
    return passed;
}

/// Who gets what.
Result<Ways> ways_of(const ReplaySettings& settings) {
    Ways ways;
    const Result<Passed> passed = pass(settings, [&](const CapturedDatagram& datagram, std::int64_t) {
        ways.try_emplace(datagram.to);
        return true;
    });
    if (!passed) return passed.error();
    if (ways.empty()) {
        return Error{passed->error.empty() ? fmt::format("{}: no UDP datagram to send", settings.file) : passed->error};
    }
    if (settings.to.size() != 1 && settings.to.size() != ways.size()) {
        std::string found;
        constexpr int most_named = 8;
        int named = 0;
        for (const auto& [captured, way] : ways) {
            if (named++ == most_named) break;
            found += fmt::format("{}{}", found.empty() ? "" : ", ", datagram::to_string(captured));
        }
        return Error{fmt::format("--to: {} addresses; allowed: 1, or {}, as {} has {}{}", settings.to.size(),
                                 ways.size(), settings.file, found, ways.size() > most_named ? ", ..." : "")};
    }
    auto to = settings.to.begin();
    for (auto& [captured, way] : ways) {
        way.to = *to;
        if (settings.to.size() > 1) ++to;
    }
    return ways;
}

}  // namespace

Result<Replayed> replay(const ReplaySettings& settings, const volatile std::sig_atomic_t& stop) {
    Result<Ways> ways = ways_of(settings);
    if (!ways) return ways.error();
    const bool is_v6 = settings.to.front().is_v6;
    if (std::ranges::any_of(settings.to, [&](const datagram::Address& to) { return to.is_v6 != is_v6; })) {
        return Error{"--to: IPv4 and IPv6 addresses in one list; allowed: one kind"};
    }
    Result<std::unique_ptr<Sender>> sender = Sender::open(is_v6);
    if (!sender) return sender.error();

    Result<Ok> sent = Ok{};
    const std::int64_t begin = now_ns();
    std::optional<std::int64_t> captured_begin;
    std::int64_t captured_end = 0;
    const Result<Passed> passed = pass(settings, [&](const CapturedDatagram& datagram, std::int64_t at_ns) {
        if (!captured_begin) captured_begin = at_ns;
        captured_end = std::max(captured_end, at_ns);
        if (settings.pace > 0) {
            const double since = static_cast<double>(at_ns - *captured_begin) / settings.pace;
            const std::int64_t at = begin + static_cast<std::int64_t>(since);
            if (at > now_ns()) {
                sent = (*sender)->send();
                sleep_until(at);  // a signal ends it
            }
        }
        if (stop != 0 || !sent) return false;
        Way& way = ways->find(datagram.to)->second;
        sent = (*sender)->add(way.to, datagram.bytes);
        ++way.datagrams;
        way.bytes += datagram.bytes.size();
        return sent.ok();
    });
    if (sent) sent = (*sender)->send();
    if (!sent) return sent.error();
    if (!passed) return passed.error();
    nlohmann::ordered_json result;
    result["seconds"] = static_cast<double>(now_ns() - begin) / static_cast<double>(ns_per_s);
    result["captured_seconds"] =
        static_cast<double>(captured_end - captured_begin.value_or(captured_end)) / static_cast<double>(ns_per_s);
    result["other_frames"] = passed->skipped.others;
    result["cut_frames"] = passed->skipped.cut;
    result["incomplete_frames"] = passed->skipped.pieces;
    for (const auto& [captured, way] : *ways) {
        result["sent"].push_back({{"captured_to", datagram::to_string(captured)},
                                  {"to", datagram::to_string(way.to)},
                                  {"datagrams", way.datagrams},
                                  {"bytes", way.bytes}});
    }
    return Replayed{result.dump(), passed->error};
}

}  // namespace incast::ingest
