// The wire between the coordinator of a run and its nodes: how they find each other, and how they are told what to do.
//
// A stream of frames over TCP: u32 length (little-endian), then that many bytes of JSON, one object with a string
// "type". A frame is at most as long as what its sender may have to say (max_..._frame), and nested at most 8 deep.
//   node -> coordinator   hello {magic, protocol, oldest_protocol, control: [oldest, newest], token, node or null, pid,
//                         version}   address {incarnation, address,
//                         metrics: HOST:PORT or "", place: {host, address, ...}}
//                         inputs {host, files: [[source, numbers ...], ...]} (before the address, of files that are
//                         replayed) sample {sample}   rejoin {}   failed {text}   file {part}, file_end {bytes} (when
//                         the run is over, if it was asked for its ledger)
//   coordinator -> node   refused {reason, again}   welcome {node, incarnation, run_token, directory, recorded, config}
//                         peers {control: version, peers: [[node, incarnation, address], ...]}   incarnation
//                         {incarnation} ended {node, incarnation} (its process is gone: who started it saw it end)
//                         sample {mark}   stop {}   quit {ledger}   triggers {origin_ns, clock}
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <incast/result.h>
#include <incast/transport.h>

#include "base/versions.h"
#include "os/socket.h"

namespace incast::runtime {

/// Spoken by this side. Two sides speak the newest that both know; a hello without the oldest is of a side that knows
/// one alone.
inline constexpr base::Versions rendezvous_versions{4, 4};
inline constexpr std::string_view rendezvous_magic = "incast-rendezvous";
inline constexpr std::size_t max_token = 256;
inline constexpr std::size_t max_stranger_frame = 1024;  // a hello, before the token in it was seen
/// What a node says, but for a sample: its address, in hexadecimal digits, and little else.
inline constexpr std::size_t max_small_frame = 2 * max_address_bytes + 8192;
inline constexpr std::size_t max_said = 500;  // of a line for a person, from another process
inline constexpr unsigned max_nesting = 8;

/// A node's sample: every total, a full histogram, boards, and in raw traffic one entry per peer.
constexpr std::size_t max_sample_frame(std::uint32_t nodes) {
    return (std::size_t{160} << 10U) + std::size_t{384} * nodes;
}
/// What the coordinator says: the whole configuration, or the addresses of all nodes (2000 bytes each, of 4096 nodes).
constexpr std::size_t max_coordinator_frame = std::size_t{16} << 20U;

using Json = nlohmann::json;

/// How long a frame may be.
struct FrameLimits {
    std::size_t most = max_stranger_frame;
    std::size_t but_for_samples = most;  // of any other type
};

/// Takes the stream apart.
class FrameReader {
public:
    void append(std::string_view bytes);
    /// The next whole message; nothing if it is not there yet. Error: it is too long, nested too deep, or no JSON
    /// object.
    Result<std::optional<Json>> next(FrameLimits limits);

private:
    std::string bytes_;
    std::size_t taken_ = 0;  // bytes that were handed out
};

/// One end of such a stream. Never blocks.
class Channel {
public:
    Channel() = default;
    Channel(os::Descriptor fd, FrameLimits limits) : fd_(std::move(fd)), limits_(limits) {}

    /// Queues and sends what the socket takes. False once the stream is broken, or the other side reads so little that
    /// more is queued than it may ever be told.
    bool send(const Json& message);
    /// Sends more of what is queued.
    bool flush();
    /// The next whole message; nothing if it is not there yet. Error: the stream ended or what came is no frame of an
    /// object.
    Result<std::optional<Json>> receive();

    void set_limits(FrameLimits limits) { limits_ = limits; }
    [[nodiscard]] bool wants_write() const { return queued() > 0; }
    /// Bytes that the socket has not taken yet.
    [[nodiscard]] std::size_t queued() const { return out_.size() - sent_; }
    [[nodiscard]] bool stuck() const { return stuck_; }
    [[nodiscard]] int fd() const { return fd_.fd(); }
    [[nodiscard]] bool open() const { return fd_.is_open(); }
    void close() { fd_ = os::Descriptor(); }

private:
    os::Descriptor fd_;
    FrameLimits limits_;
    std::string out_;
    std::size_t sent_ = 0;
    bool stuck_ = false;  // more was to be said than may be queued
    FrameReader in_;
};

/// Compares in a time that does not depend on where they differ.
[[nodiscard]] bool same_token(std::string_view one, std::string_view other);
/// 32 hexadecimal digits from the system's random numbers.
[[nodiscard]] std::string make_token();
[[nodiscard]] std::uint64_t random_word();

[[nodiscard]] std::string to_hex(Bytes bytes);
[[nodiscard]] std::optional<Blob> blob_from_hex(std::string_view text);

/// Fields of a message from another process: nothing if absent or of another type.
[[nodiscard]] std::optional<std::uint64_t> number_in(const Json& message, const char* key);
[[nodiscard]] std::optional<std::string> text_in(const Json& message, const char* key);
/// "" if there is none.
[[nodiscard]] std::string type_of(const Json& message);
/// Foreign words as part of one line: without control characters, and at most max_said bytes.
[[nodiscard]] std::string one_line(std::string_view text);

}  // namespace incast::runtime
