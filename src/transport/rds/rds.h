// rds: the kernel's reliable datagrams (AF_RDS), over TCP or RDMA. See docs/transports/rds.md.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "transport/medium.h"

namespace incast::transport::rds {

inline constexpr std::string_view transport_name = "rds";
inline constexpr Nature nature{.bounds = Bounds::strided, .copies = Copies::kernel, .any_memory = true};

std::span<const base::Setting> settings();
Result<std::unique_ptr<Medium>> make(const Settings& given);
/// Why no endpoint can be made on this host, or empty.
std::string missing_here();

}  // namespace incast::transport::rds
