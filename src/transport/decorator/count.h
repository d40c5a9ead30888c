// Counts what is posted to and polled from a transport.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <incast/transport.h>

namespace incast::transport::decorator {

/// Plain numbers, written by the endpoint's owner thread.
struct Counts {
    struct Posts {
        std::array<std::uint64_t, 4> by_answer{};  // indexed by Post
        std::uint64_t bytes = 0;                   // of what was taken (done or pending); heads included
        [[nodiscard]] std::uint64_t answered(Post post) const { return by_answer[static_cast<std::size_t>(post)]; }
    };
    Posts sends, writes, reads;
    std::array<std::uint64_t, 7> events{};  // indexed by Event::Kind
    std::uint64_t message_bytes = 0;        // of the message events
    std::uint64_t polls = 0;
    std::uint64_t empty_polls = 0;
    [[nodiscard]] std::uint64_t seen(Event::Kind kind) const { return events[static_cast<std::size_t>(kind)]; }
};

/// `counts` must outlive the transport.
std::unique_ptr<Transport> make_count(std::unique_ptr<Transport> inner, Counts& counts);

}  // namespace incast::transport::decorator
