// A small file of a node elsewhere, on its way to the coordinator when the run is over: messages "file", each with a
// part, and "file_end" with its size.
#pragma once

#include <cstdint>
#include <filesystem>

#include "runtime/launch/rendezvous.h"

namespace incast::runtime {

inline constexpr std::uint64_t max_fetched_bytes = std::uint64_t{64} << 20U;

/// Blocks as long as the other side goes on reading. A file that cannot be read, or is larger, is not sent.
void send_file(Channel& channel, const std::filesystem::path& file);
/// Waits until the other side has ended the stream, at most `patience_ms` without a word from it, and at most twice as
/// long in all. True: a file came, and is there now.
bool receive_file(Channel& channel, const std::filesystem::path& into, int patience_ms);

}  // namespace incast::runtime
