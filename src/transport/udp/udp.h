// udp: reliable datagrams between processes and hosts, many of them per system call. See docs/transports/udp.md.
#pragma once

#include <string_view>

#include "transport/medium.h"

namespace incast::transport::udp {

inline constexpr std::string_view transport_name = "udp";
inline constexpr Nature nature{.bounds = Bounds::strided, .copies = Copies::kernel, .any_memory = true};

std::span<const base::Setting> settings();
Result<std::unique_ptr<Medium>> make(const Settings& given);

}  // namespace incast::transport::udp
