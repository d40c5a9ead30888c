// Copying past the cache.
#pragma once

#include <cstddef>
#include <span>

namespace incast::base {

/// Past the cache, where the machine can: the lines are written without being read first, and nothing is evicted for
/// them. Faster once the slots do not fit into the cache, slower while they do. Before anything tells a reader of it,
/// fence_streams() must be called.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);
/// Orders streaming stores before what follows.
void fence_streams();

/// One way of doing it.
struct StreamingStores {
    const char* name;
    std::size_t streams;  // pages side by side
    bool here;            // this processor has them
    void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes);
};
/// All ways, the widest first: copy_streaming takes the first that is here with as many streams as suit the processor's
/// maker. Empty where there are none.
std::span<const StreamingStores> streaming_stores();

}  // namespace incast::base
