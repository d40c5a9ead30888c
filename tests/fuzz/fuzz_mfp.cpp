// Arbitrary bytes as MFPs, either variant, and their mending after truncation: no read outside, no broken promise
// (wire/walk_testing.h).
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/walk_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    incast::wire::testing::walk_mfp(std::as_bytes(std::span(data, size)));
    return 0;
}
