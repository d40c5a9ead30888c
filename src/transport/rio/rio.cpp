#include "transport/rio/rio.h"

#include <array>
#include <bit>

#include "transport/cache_of_host.h"
#include "transport/rio/endpoint.h"
#include "transport/settings.h"

namespace incast::transport::rio {

namespace {

constexpr std::array list{
    Parameter{"fabric", "", "", "a value of RIO_FABRIC, or empty",
              "the fabric to join (docs/rapidio.md); empty: one of shm that nobody but this run uses"},
    Parameter{"order", "strict", "", "strict or weak",
              "what the fabric does with writes that have no response; weak: doorbells, messages and other channels "
              "overtake them"},
    Parameter{"limits", "none", "", "none or old",
              "old: 8 allocations of at most 2 MiB, as in early versions of the library"},
    Parameter{"link", "none", "", "none or tsi721",
              "an emulated link: transfers take the time they would over that adapter, as far as the host can"},
    Parameter{"notice", "doorbell", "", "doorbell, memory or cm",
              "what carries notices and messages: a ring in the peer's memory and a doorbell, that ring polled for, or "
              "CM and a doorbell"},
    Parameter{"layout", "contiguous", "", "contiguous or segments",
              "of a region in RapidIO memory: one window, shared by small regions, or a window for each segment"},
    Parameter{"segment_bytes", "2097152", "bytes", "65536..2147483648, a multiple of 4096", "layout segments: of one"},
    Parameter{"pool_bytes", "67108864", "bytes", "65536..2147483648, a multiple of 4096",
              "layout contiguous: regions of at most this size share windows as large as this"},
    Parameter{"stores", "auto", "", "auto, plain or streaming",
              "NWRITE_R or SWRITE_R for large bodies; auto: SWRITE_R, which goes past the caches of this host, if the "
              "slots do not fit into them"},
    Parameter{"dma_channels", "1", "", "1..8", "DMA channels that large bodies take in turn"},
    Parameter{"ring_bytes", "32768", "bytes", "16384..16777216, a power of two",
              "ring per ordered pair of nodes for messages and notices"},
    Parameter{"poll_every_us", "200", "us", "1..1000000",
              "notice memory: how often an endpoint that sleeps looks into its memory"},
    Parameter{"look_every_ms", "50", "ms", "1..10000",
              "how often an endpoint sees whether its peers are there, and looks whatever it was told"},
    Parameter{"connect_timeout_ms", "10000", "ms", "1..3600000", "connecting takes longer than this: peer_down"},
};

class Rio final : public Medium {
public:
    explicit Rio(EndpointSettings settings) : settings_(std::move(settings)) {}
    Result<std::unique_ptr<Transport>> endpoint(const EndpointOptions& options) override {
        return Endpoint::make(settings_, options);
    }

private:
    EndpointSettings settings_;
};

/// The number of `text` among the words; an Error that names them.
Result<std::size_t> choice(const Settings& settings, std::string_view name, std::span<const std::string_view> words) {
    const std::string_view text = value_of(list, settings, name);
    std::string known;
    for (std::size_t number = 0; number < words.size(); ++number) {
        if (text == words[number]) return number;
        known.append(number == 0 ? "" : number + 1 == words.size() ? " or " : ", ").append(words[number]);
    }
    return Error{std::string(name) + " = '" + std::string(text) + "': expected " + known};
}

}  // namespace

std::span<const Parameter> parameters() {
    return list;
}

Result<std::unique_ptr<Medium>> make(const Settings& settings) {
    if (const auto checked = check_names(transport_name, list, settings); !checked) return checked.error();
    EndpointSettings made;
    Error error;
    const auto keep = [&](const auto& value) {
        if (!value && error.message.empty()) error = value.error();
        return value ? *value : 0;
    };
    const auto number = [&](std::string_view name, std::uint64_t low, std::uint64_t high) {
        return keep(number_of(list, settings, name, low, high));
    };
    constexpr std::array<std::string_view, 2> orders{"strict", "weak"};
    constexpr std::array<std::string_view, 2> limits{"none", "old"};
    constexpr std::array<std::string_view, 2> links{"none", "tsi721"};
    constexpr std::array<std::string_view, 3> notices{"doorbell", "memory", "cm"};
    constexpr std::array<std::string_view, 3> stores{"auto", "plain", "streaming"};
    constexpr std::array<std::string_view, 2> layouts{"contiguous", "segments"};
    constexpr std::uint64_t max_window_bytes = std::uint64_t{1} << 31;
    made.fabric = std::string(value_of(list, settings, "fabric"));
    const auto option = [&](std::string_view name, std::span<const std::string_view> words) {
        const std::size_t chosen = keep(choice(settings, name, words));
        if (chosen == 0) return;
        made.fabric_options.append(made.fabric_options.empty() ? "" : "&")
            .append(name)
            .append("=")
            .append(words[chosen]);
    };
    option("order", orders);
    option("limits", limits);
    option("link", links);
    made.stores = static_cast<EndpointSettings::Stores>(keep(choice(settings, "stores", stores)));
    made.cache_bytes = usable_cache_bytes();
    made.notice = static_cast<NoticeKind>(keep(choice(settings, "notice", notices)));
    const bool segments = keep(choice(settings, "layout", layouts)) != 0;
    const std::uint64_t segment_bytes = number("segment_bytes", 65536, max_window_bytes);
    const std::uint64_t pool_bytes = number("pool_bytes", 65536, max_window_bytes);
    made.layout = segments ? Layout{segment_bytes, segment_bytes} : Layout{pool_bytes, max_window_bytes};
    made.dma_channels = static_cast<std::uint32_t>(number("dma_channels", 1, 8));
    made.ring_bytes = static_cast<std::uint32_t>(number("ring_bytes", 16384, std::uint64_t{1} << 24));
    made.poll_every = static_cast<Time>(number("poll_every_us", 1, 1'000'000)) * ps_per_us;
    made.look_every = static_cast<Time>(number("look_every_ms", 1, 10'000)) * ps_per_ms;
    made.connect_timeout = static_cast<Time>(number("connect_timeout_ms", 1, 3'600'000)) * ps_per_ms;
    if (!error.message.empty()) return error;
    if (!std::has_single_bit(made.ring_bytes)) {
        return Error{"ring_bytes = '" + std::to_string(made.ring_bytes) +
                     "': must be a power of two in 16384..16777216"};
    }
    for (const auto& [name, value] : {std::pair{"segment_bytes", segment_bytes}, {"pool_bytes", pool_bytes}}) {
        if (value % api::page_bytes != 0)
            return Error{std::string(name) + " = '" + std::to_string(value) + "': must be a multiple of 4096"};
    }
    return std::unique_ptr<Medium>(std::make_unique<Rio>(made));
}

}  // namespace incast::transport::rio
