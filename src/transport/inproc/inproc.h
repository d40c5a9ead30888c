// inproc: all endpoints of a Medium live in one thread; a write is a memcpy, a notice an entry in the receiver's queue.
// Deterministic and without locks. See docs/transports/inproc.md.
#pragma once

#include <string_view>

#include "transport/medium.h"

namespace incast::transport::inproc {

inline constexpr std::string_view transport_name = "inproc";
inline constexpr Nature nature{
    .copies = Copies::processor, .progress = Progress::independent, .one_host = true, .any_memory = true};

std::span<const base::Setting> settings();
Result<std::unique_ptr<Medium>> make(const Settings& given);

}  // namespace incast::transport::inproc
