// Arbitrary bytes as MFPs, either variant, and their mending after truncation: no read outside, no broken promise
// (tests/support/wire_walk.h).
#include <cstddef>
#include <cstdint>
#include <span>

#include "support/wire_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    incast::wire::testing::walk_mfp(std::as_bytes(std::span(data, size)));
    return 0;
}
