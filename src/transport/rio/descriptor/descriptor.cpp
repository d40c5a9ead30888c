#include "transport/rio/descriptor/descriptor.h"

#include <array>

namespace incast::transport::rio {

namespace {

using base::Kind;

constexpr double us = ps_per_us;
constexpr double ms = ps_per_ms;
constexpr double max_window{max_window_bytes};

constexpr std::array<std::string_view, 2> order_words{"strict", "weak"};
constexpr std::array<std::string_view, 2> limits_words{"none", "old"};
constexpr std::array<std::string_view, 2> link_words{"none", "tsi721"};
constexpr std::array<std::string_view, 3> notice_words{"doorbell", "memory", "cm"};
constexpr std::array<std::string_view, 2> layout_words{"contiguous", "segments"};
constexpr std::array<std::string_view, 3> stores_words{"auto", "plain", "streaming"};

constexpr std::array list{
    base::text("fabric", "", "the fabric to join (docs/rapidio.md); empty: one of shm that nobody but this run uses",
               "a value of RIO_FABRIC, or empty"),
    base::choice("order", "strict", order_words,
                 "what the fabric does with writes that have no response; weak: doorbells, messages and other channels "
                 "overtake them"),
    base::choice("limits", "none", limits_words,
                 "old: 8 allocations of at most 2 MiB, as in early versions of the library"),
    base::choice("link", "none", link_words,
                 "an emulated link: transfers take the time they would over that adapter, as far as the host can"),
    base::choice("notice", "doorbell", notice_words,
                 "what carries notices and messages: a ring in the peer's memory and a doorbell, that ring polled for, "
                 "or CM and a doorbell"),
    base::choice("layout", "contiguous", layout_words,
                 "of a region in RapidIO memory: one window, shared by small regions, or a window for each segment"),
    base::number(Kind::bytes, "segment", "2MiB", 65536, max_window, "layout segments: of one", "a multiple of 4 KiB"),
    base::number(Kind::bytes, "pool", "64MiB", 65536, max_window,
                 "layout contiguous: regions of at most this size share windows as large as this",
                 "a multiple of 4 KiB"),
    base::choice("stores", "auto", stores_words,
                 "NWRITE_R or SWRITE_R for large bodies; auto: SWRITE_R, which goes past the caches of this host, if "
                 "the slots do not fit into them"),
    base::number(Kind::count, "dma_channels", "1", 1, 8, "DMA channels that large bodies take in turn"),
    base::number(Kind::bytes, "ring", "32KiB", 16384, 1 << 24,
                 "ring per ordered pair of nodes for messages and notices", "a power of two"),
    base::number(Kind::duration, "poll_every", "200us", us, 1'000'000 * us,
                 "notice memory: how often an endpoint that sleeps looks into its memory"),
    base::number(Kind::duration, "look_every", "50ms", ms, 10'000 * ms,
                 "how often an endpoint sees whether its peers are there, and looks whatever it was told"),
    base::number(Kind::duration, "connect_timeout", "10s", ms, 3'600'000 * ms,
                 "connecting takes longer than this: peer_down"),
};

/// They go with the next version.
constexpr std::array former_list{
    base::FormerName{"segment_bytes", "segment", ""},
    base::FormerName{"pool_bytes", "pool", ""},
    base::FormerName{"ring_bytes", "ring", ""},
    base::FormerName{"poll_every_us", "poll_every", "us"},
    base::FormerName{"look_every_ms", "look_every", "ms"},
    base::FormerName{"connect_timeout_ms", "connect_timeout", "ms"},
};

}  // namespace

Bounds bounds_with(const Settings& given) {
    const auto fabric = given.find("fabric");
    return fabric != given.end() && fabric->second.starts_with("linux:") ? Bounds::trusted : nature.bounds;
}

std::span<const base::Setting> settings() {
    return list;
}

Descriptor describe() {
    return {.name = transport_name,
            .summary = "RapidIO: rDMA, doorbells and messages, over SoftRIO",
            .traits = {.nature = nature},
            .settings = list,
            .former_names = former_list,
            .package = "incast-rio"};
}

}  // namespace incast::transport::rio
