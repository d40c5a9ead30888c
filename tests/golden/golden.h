// Transcripts: what goes over the wire in a small exchange, a line for each message or datagram, bytes as hex. Those of
// the present version are files here, so that a change of a protocol shows, and a later version can be held against it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace incast::golden {

class Transcript {
public:
    /// `note`, then the bytes.
    void add(std::string_view note, std::span<const std::byte> bytes);
    /// Fails the running test where it is not what tests/golden/NAME.txt holds. With INCAST_GOLDEN=write in the
    /// environment it becomes that.
    void expect(std::string_view name) const;

private:
    std::vector<std::string> lines_;
};

}  // namespace incast::golden
