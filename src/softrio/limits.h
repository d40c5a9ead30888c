// How much of everything an endpoint has, on every fabric. Numbers of the Tsi721 and its Linux driver where those have
// one.
#pragma once

#include <cstdint>

namespace incast::softrio {

inline constexpr std::uint64_t max_size = 0xFFFF'FFFF;  // of memory, a window or a transfer: the API's have 32 bits
inline constexpr std::uint32_t max_windows = 8;
inline constexpr std::uint32_t max_guarded = 1024;  // windows with a list of who reaches them: no hardware has these
inline constexpr std::uint32_t max_sinks = 128;     // handles of one master port
inline constexpr std::uint32_t max_filters = 32;    // doorbell ranges of one handle
inline constexpr std::uint32_t doorbell_depth = 512;
inline constexpr std::uint32_t dma_channels = 8;
inline constexpr std::uint32_t max_channels = 1024;  // CM channels of one endpoint
inline constexpr std::uint32_t accept_depth = 64;    // connections that wait to be accepted by one socket
inline constexpr std::uint32_t ring_depth = 128;     // messages that lie unread in one channel
inline constexpr std::uint32_t min_message = 20;     // the header
inline constexpr std::uint32_t max_message = 4096;
inline constexpr std::uint32_t first_dynamic_channel = 256;
inline constexpr std::uint32_t connect_ms = 3000;
inline constexpr std::uint32_t send_ms = 3000;
inline constexpr std::uint32_t dma_ms = 3000;

}  // namespace incast::softrio
