// udp: reliable datagrams between processes and hosts, many of them per system call. See docs/transports/udp.md.
#pragma once

#include <string_view>

#include "transport/medium.h"

namespace incast::transport::udp {

inline constexpr std::string_view transport_name = "udp";
inline constexpr Nature nature{.bounds = Bounds::strided, .copies = Copies::kernel, .any_memory = true};

std::span<const base::Setting> settings();
Result<std::unique_ptr<Medium>> make(const Settings& given);
/// An endpoint's address with another host, a number: where an endpoint that listens at every interface was reached. As
/// it is, if either is none.
Blob with_host(const Blob& blob, std::string_view ip);

}  // namespace incast::transport::udp
