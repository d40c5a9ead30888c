// Sends datagrams of boards with few system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <incast/result.h>

#include "datagram/address.h"
#include "os/descriptor.h"

namespace incast::ingest {

/// Waits where there is no room: what was handed to it went out. Errors: a system call that fails.
class Sender {
public:
    static Result<std::unique_ptr<Sender>> open(bool is_v6);
    /// Goes out with the next ones, at the latest with send().
    Result<Ok> add(const datagram::Address& to, std::span<const std::byte> bytes);
    Result<Ok> send();

private:
    /// Datagrams of one size, of which the kernel makes single ones.
    struct Piece {
        datagram::Address to;
        std::vector<std::byte> bytes;
        std::size_t segment;
        std::size_t count;
        bool is_complete;  // its last datagram is a shorter one
    };
    Result<Ok> send(const Piece& piece);

    os::Descriptor socket_;
    std::vector<Piece> pieces_;
    bool has_segments_ = true;
};

inline constexpr std::int64_t ns_per_s = 1'000'000'000;

/// What the last system call said: "WHAT: No such file or directory".
[[nodiscard]] std::string reason(const char* what);
/// The time of the monotonic clock.
[[nodiscard]] std::int64_t now_ns();
void sleep_until(std::int64_t at_ns);

}  // namespace incast::ingest
