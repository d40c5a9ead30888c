// Boards that are connected to readout units by TCP, and send MFPs back to back.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <incast/result.h>

#include "datagram/address.h"
#include "os/descriptor.h"

namespace incast::ingest {

/// Waits where a readout unit takes no more, and sends to the others meanwhile. Once `stop` is set it waits for
/// nobody. Errors: nobody listens, or a connection ends.
class Streams {
public:
    explicit Streams(const volatile std::sig_atomic_t& stop) : stop_(stop) {}
    /// A connection more. Who does not listen yet may do so within ten seconds.
    Result<Ok> connect(const datagram::Address& to);
    /// Goes out with the next ones, at the latest with send().
    Result<Ok> add(std::size_t connection, std::span<const std::byte> bytes);
    /// All that was added goes out.
    Result<Ok> send() { return push(0); }
    /// What nobody took until it was stopped, or a connection ended.
    [[nodiscard]] std::uint64_t unsent_bytes() const;

private:
    struct Line {
        os::Descriptor socket;
        std::string to;
        std::vector<std::byte> bytes;
        std::size_t sent = 0;
        [[nodiscard]] std::size_t waiting() const { return bytes.size() - sent; }
    };
    Result<Ok> push(std::size_t most_waiting);
    static Result<Ok> push(Line& line);

    const volatile std::sig_atomic_t& stop_;
    std::vector<Line> lines_;
};

}  // namespace incast::ingest
