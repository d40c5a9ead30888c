// Arbitrary bytes as MEPs, the MFPs inside, and gathering them again: no read outside, no broken promise
// (tests/support/wire_walk.h).
#include <cstddef>
#include <cstdint>
#include <span>

#include "support/wire_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    incast::wire::testing::walk_mep(std::as_bytes(std::span(data, size)));
    return 0;
}
