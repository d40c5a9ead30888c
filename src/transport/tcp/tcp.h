// tcp: one or more TCP connections per pair of nodes, payload received straight into its place. See
// docs/transports/tcp.md.
#pragma once

#include <string_view>

#include "transport/medium.h"

namespace incast::transport::tcp {

inline constexpr std::string_view transport_name = "tcp";
inline constexpr Nature nature{.bounds = Bounds::strided, .copies = Copies::kernel, .any_memory = true};

std::span<const base::Setting> settings();
std::span<const base::FormerName> former_names();
Result<std::unique_ptr<Medium>> make(const Settings& given);
/// An endpoint's address with another host, a number: where an endpoint that listens at every interface was reached. As
/// it is, if either is none.
Blob with_host(const Blob& blob, std::string_view ip);

}  // namespace incast::transport::tcp
