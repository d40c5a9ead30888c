// Outbound windows that were mapped before the peer, or its window, was there. Until it is, what is mapped is memory of
// nobody: what is stored there is lost, as on hardware.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "softrio/port.h"

namespace incast::softrio::api {

/// Maps nobody's memory, and the window's in its place within a few ms of its opening. 0, or a negative errno.
int map_awaited(const std::shared_ptr<Port>& port, std::uint64_t local, std::size_t bytes, void*& at);
/// Before any unmapping: what is there is not replaced any more.
void forget_awaited(const void* at, std::size_t bytes);

}  // namespace incast::softrio::api
