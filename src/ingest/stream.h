// A board's packets as a stream of bytes: MFPs back to back, which come in pieces that may end anywhere. Sans IO.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "wire/mfp.h"

namespace incast::ingest {

class Stream {
public:
    explicit Stream(std::size_t most_packet_bytes) : most_bytes_(most_packet_bytes) {}

    /// Where the next bytes belong, at least one of them. Only while peek() has nothing. What is kept grows with what
    /// has come, not with what a header announces.
    [[nodiscard]] wire::MutableBytes room();
    /// So many bytes were written there.
    void took(std::size_t bytes) { end_ += bytes; }

    /// The oldest packet, once all of it has come; good until the next call of anything but peek(). The packet that
    /// ends a file is left out. Errors: there is something else, or a packet is too large; where the next one begins is
    /// not known then.
    Result<std::optional<wire::MfpView>> peek();
    /// The packet of peek() is done with.
    void pop(const wire::MfpView& packet) { begin_ += packet.bytes().size(); }

    /// Nothing of a packet is there.
    [[nodiscard]] bool is_empty() const { return begin_ == end_; }

private:
    std::size_t most_bytes_;
    std::vector<std::byte> bytes_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

}  // namespace incast::ingest
