// Emulation of a link: what a transfer would take over a real adapter, reserved on the links of both endpoints as real
// time.
//
// The Tsi721 of IDT (x4 PCIe 2.1 to x4 Serial RapidIO 2.1 at 5 Gbaud): 16 Gb/s after 8b/10b; the papers give 14.8 Gb/s
// as the most that it receives and 13.4 Gb/s as the most that it sends (J. Phys. Conf. Ser. 898 082007). A DMA request
// costs what IDT's goodput samples at 16 KiB and 4 MiB differ by (12.38 and 12.77 Gb/s: 0.32 us), a round trip what
// they give for reads of a word (1.86 us). RapidIO loses nothing: a receiver that is full holds its senders back.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

namespace incast::softrio::shm {

struct LinkModel {
    double send_bytes_per_ns = 13.4 / 8;
    double receive_bytes_per_ns = 14.8 / 8;
    std::int64_t request_ns = 320;
    std::int64_t round_trip_ns = 1860;
};

/// One over which everything takes `times` as long: for hosts that are slower than the adapter.
constexpr LinkModel slowed(const LinkModel& model, std::uint32_t times) {
    return {.send_bytes_per_ns = model.send_bytes_per_ns / times,
            .receive_bytes_per_ns = model.receive_bytes_per_ns / times,
            .request_ns = model.request_ns * times,
            .round_trip_ns = model.round_trip_ns * times};
}

/// Takes `cost_ns` of a link from `from_ns` on, or from when it is free; returns until when.
inline std::int64_t reserve_link(std::atomic<std::int64_t>& busy_until_ns, std::int64_t from_ns, std::int64_t cost_ns) {
    std::int64_t until = busy_until_ns.load(std::memory_order_relaxed);
    std::int64_t end = 0;
    do {
        end = std::max(until, from_ns) + cost_ns;
    } while (!busy_until_ns.compare_exchange_weak(until, end, std::memory_order_relaxed));
    return end;
}

/// When `bytes` from one endpoint have arrived at all of some others: a multicast leaves it once.
inline std::int64_t reserve_path(const LinkModel& model, std::atomic<std::int64_t>& sender,
                                 std::span<std::atomic<std::int64_t>* const> receivers, std::int64_t now_ns,
                                 std::uint64_t bytes) {
    const auto size = static_cast<double>(bytes);
    const auto send_ns = model.request_ns + static_cast<std::int64_t>(size / model.send_bytes_per_ns);
    const auto receive_ns = static_cast<std::int64_t>(size / model.receive_bytes_per_ns);
    const std::int64_t sent = reserve_link(sender, now_ns, send_ns);
    std::int64_t arrived = sent;
    for (std::atomic<std::int64_t>* const receiver : receivers) {
        arrived = std::max(arrived, reserve_link(*receiver, sent - send_ns, receive_ns));
    }
    // Held back, the sender can send nothing to others either.
    (void)reserve_link(sender, arrived, 0);
    return arrived;
}

}  // namespace incast::softrio::shm
