#include "softrio/options.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace incast::softrio {

namespace {

constexpr std::string_view example =
    "RIO_FABRIC=shm:NAME, udp:ENDPOINTS or linux:PORT, for example shm:lab, udp:loopback:7000 or linux:0";
constexpr std::size_t max_name = 40;
constexpr std::uint32_t max_link_slowdown = 1000;

std::optional<std::uint64_t> number(std::string_view text, std::uint64_t low, std::uint64_t high) {
    int base = 10;
    if (text.starts_with("0x")) {
        text.remove_prefix(2);
        base = 16;
    }
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) return std::nullopt;
    return value;
}

std::optional<std::uint32_t> destid_of(std::string_view text, std::uint32_t lowest = 1) {
    const auto value = number(text, lowest, max_destid);
    if (!value || !is_destid(static_cast<std::uint32_t>(*value))) return std::nullopt;
    return static_cast<std::uint32_t>(*value);
}

Error wrong(std::string_view key, std::string_view value, std::string_view right) {
    return Error{"RIO_FABRIC: " + std::string(key) + "=" + std::string(value) + ": must be " + std::string(right)};
}

/// none, tsi721 or tsi721/N.
bool parse_link(std::string_view text, Options& options) {
    constexpr std::string_view adapter = "tsi721";
    options.link = text == "none" ? Options::Link::none : Options::Link::tsi721;
    options.link_slowdown = 1;
    if (text == "none" || text == adapter) return true;
    if (!text.starts_with(adapter) || text[adapter.size()] != '/') return false;
    const auto slowdown = number(text.substr(adapter.size() + 1), 2, max_link_slowdown);
    options.link_slowdown = static_cast<std::uint32_t>(slowdown.value_or(1));
    return slowdown.has_value();
}

/// GROUP:MEMBER+MEMBER..., several separated by commas.
bool parse_groups(std::string_view text, std::vector<MulticastGroup>& groups) {
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), one.size() + 1));
        const std::size_t colon = one.find(':');
        if (colon == std::string_view::npos) return false;
        const auto id = destid_of(one.substr(0, colon));
        if (!id) return false;
        MulticastGroup group{.destid = *id, .members = {}};
        std::string_view members = one.substr(colon + 1);
        while (!members.empty()) {
            const std::string_view member = members.substr(0, members.find('+'));
            members.remove_prefix(std::min(members.size(), member.size() + 1));
            const auto value = destid_of(member, 0);
            if (!value || *value == *id) return false;
            group.members.push_back(*value);
        }
        if (group.members.empty()) return false;
        groups.push_back(std::move(group));
    }
    return true;
}

Result<Ok> set(Options& options, std::string_view key, std::string_view value) {
    const auto take = [&](auto& field, std::uint64_t low, std::uint64_t high) -> Result<Ok> {
        const auto parsed = number(value, low, high);
        if (!parsed) return wrong(key, value, std::to_string(low) + ".." + std::to_string(high));
        field = static_cast<std::remove_reference_t<decltype(field)>>(*parsed);
        return Ok{};
    };
    if (key == "mports") return take(options.mports, 1, max_mports);
    if (key == "retry_ms") return take(options.retry_ms, 0, 600'000);
    if (key == "hold_us") return take(options.hold_us, 1, 600'000'000);
    if (key == "seed") return take(options.seed, 0, UINT64_MAX);
    if (options.kind == Options::Kind::udp) {
        if (key == "mtu") return take(options.udp.mtu, 576, 9216);
        if (key == "deadline_ms") return take(options.udp.deadline_ms, 50, 600'000);
        if (key == "drop") return take(options.udp.drop, 0, 500'000);
        if (key == "ids") {
            if (value != "8" && value != "16") return wrong(key, value, "8 or 16");
            return take(options.udp.ids, 8, 16);
        }
    }
    if (key == "destid") {
        const auto id = destid_of(value);
        if (!id) return wrong(key, value, "a destination id, 1..65534 and not 255");
        options.destid = *id;
    } else if (key == "order") {
        if (value != "strict" && value != "weak") return wrong(key, value, "strict or weak");
        options.order = value == "weak" ? Options::Order::weak : Options::Order::strict;
    } else if (key == "limits" && options.kind != Options::Kind::device) {
        if (value != "none" && value != "old") return wrong(key, value, "none or old");
        options.limits = value == "old" ? Options::Limits::old : Options::Limits::none;
    } else if (key == "link" && options.kind == Options::Kind::shm) {
        if (!parse_link(value, options)) {
            return wrong(
                key, value,
                "none, tsi721 or tsi721/N, which is N times slower, N = 2.." + std::to_string(max_link_slowdown));
        }
    } else if (key == "multicast") {
        if (!parse_groups(value, options.groups)) {
            return wrong(key, value, "GROUP:MEMBER+MEMBER..., several separated by commas, each a destination id");
        }
    } else {
        return Error{"RIO_FABRIC: no option '" + std::string(key) +
                     "': there are destid, mports, order, multicast, retry_ms, hold_us, seed" +
                     (options.kind == Options::Kind::udp   ? ", limits, mtu, ids, deadline_ms, drop"
                      : options.kind == Options::Kind::shm ? ", limits, link"
                                                           : "")};
    }
    return Ok{};
}

bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= max_name && std::ranges::all_of(text, [](char each) {
        return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || (each >= '0' && each <= '9') ||
               each == '-' || each == '_' || each == '.';
    });
}

}  // namespace

Result<Options> parse_fabric(std::string_view url, std::string_view destid) {
    const std::size_t colon = url.find(':');
    const std::string_view kind = url.substr(0, colon);
    if (url.empty()) return Error{"RIO_FABRIC is not set: it names the fabric to join: " + std::string(example)};
    if ((kind != "shm" && kind != "udp" && kind != "linux") || colon == std::string_view::npos) {
        return Error{"RIO_FABRIC=" + std::string(url) + ": unknown kind of fabric: " + std::string(example)};
    }
    std::string_view rest = url.substr(colon + 1);
    Options options;
    options.kind = kind == "udp" ? Options::Kind::udp : kind == "shm" ? Options::Kind::shm : Options::Kind::device;
    options.fabric = rest.substr(0, rest.find('?'));
    rest.remove_prefix(std::min(rest.size(), options.fabric.size() + 1));
    if (options.kind == Options::Kind::shm && !is_name(options.fabric)) {
        return Error{"RIO_FABRIC=" + std::string(url) + ": the name must be 1.." + std::to_string(max_name) +
                     " letters, digits, '-', '_' or '.': " + std::string(example)};
    }
    if (options.kind == Options::Kind::device && options.fabric != "any" &&
        !(options.fabric.size() == 1 && options.fabric[0] >= '0' && options.fabric[0] <= '7')) {
        return Error{"RIO_FABRIC=" + std::string(url) +
                     ": behind linux: stands the number of a master port, 0..7, or any: " + std::string(example)};
    }
    while (!rest.empty()) {
        const std::string_view one = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(rest.size(), one.size() + 1));
        const std::size_t equals = std::min(one.find('='), one.size());
        const auto done = set(options, one.substr(0, equals), one.substr(std::min(one.size(), equals + 1)));
        if (!done) return done.error();
    }
    options.is_new = destid == "new";
    if (options.is_new) {
        options.destid = 0;
    } else if (!destid.empty()) {
        const auto id = destid_of(destid);
        if (!id) {
            return Error{"RIO_DESTID=" + std::string(destid) +
                         ": must be a destination id, 1..65534 and not 255, or new"};
        }
        options.destid = *id;
    }
    return options;
}

Result<Options> options_of_environment() {
    const char* url = std::getenv("RIO_FABRIC");     // NOLINT(concurrency-mt-unsafe)
    const char* destid = std::getenv("RIO_DESTID");  // NOLINT(concurrency-mt-unsafe)
    return parse_fabric(url == nullptr ? "" : url, destid == nullptr ? "" : destid);
}

bool debugging() {
    static const bool wanted = [] {
        const char* value = std::getenv("RIO_DEBUG");  // NOLINT(concurrency-mt-unsafe)
        return value != nullptr && std::string_view(value) == "1";
    }();
    return wanted;
}

void debug(const std::string& line) {
    if (debugging()) std::fprintf(stderr, "softrio: %s\n", line.c_str());
}

}  // namespace incast::softrio
