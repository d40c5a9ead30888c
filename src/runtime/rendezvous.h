// The wire between the coordinator of a run and its nodes: how they find each other, and how they are told what to do.
//
// A stream of frames over TCP: u32 length (little-endian), then that many bytes of JSON, one object with a string
// "type". Until the other side has shown the run's token, frames are at most 4 KiB.
//   node -> coordinator   hello {magic, protocol, token, node or null, pid, version}   address {incarnation, address,
//                         metrics: HOST:PORT or ""}
//                         sample {sample}   rejoin {}   failed {text}
//   coordinator -> node   refused {reason}   welcome {node, incarnation, run_token, directory, config}
//                         peers {peers: [[node, incarnation, address], ...]}   incarnation {incarnation}
//                         sample {mark}   stop {}   quit {}   triggers {origin_ns, clock}
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <incast/result.h>
#include <incast/transport.h>

#include "runtime/socket.h"

namespace incast::runtime {

inline constexpr int rendezvous_version = 1;
inline constexpr std::string_view rendezvous_magic = "incast-rendezvous";
inline constexpr std::size_t max_stranger_frame = 4096;
inline constexpr std::size_t max_frame = std::size_t{16} << 20U;

using Json = nlohmann::json;

/// Takes the stream apart.
class FrameReader {
public:
    void append(std::string_view bytes) { bytes_ += bytes; }
    /// The next whole message; nothing if it is not there yet. Error: it is longer than `limit`, or no JSON object.
    Result<std::optional<Json>> next(std::size_t limit);

private:
    std::string bytes_;
};

/// One end of such a stream. Never blocks.
class Channel {
public:
    Channel() = default;
    Channel(Descriptor fd, std::size_t frame_limit) : fd_(std::move(fd)), limit_(frame_limit) {}

    /// Queues and sends what the socket takes. False once the stream is broken.
    bool send(const Json& message);
    /// Sends more of what is queued.
    bool flush();
    /// The next whole message; nothing if it is not there yet. Error: the stream ended or what came is no frame of an
    /// object.
    Result<std::optional<Json>> receive();

    void set_frame_limit(std::size_t bytes) { limit_ = bytes; }
    [[nodiscard]] bool wants_write() const { return sent_ < out_.size(); }
    [[nodiscard]] int fd() const { return fd_.fd(); }
    [[nodiscard]] bool open() const { return fd_.is_open(); }
    void close() { fd_ = Descriptor(); }

private:
    Descriptor fd_;
    std::size_t limit_ = max_stranger_frame;
    std::string out_;
    std::size_t sent_ = 0;
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

}  // namespace incast::runtime
