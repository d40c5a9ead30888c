// Shared memory between processes of one host.
#pragma once

#include <string_view>

#include "os/descriptor.h"
#include "transport/medium.h"

namespace incast::transport::shm {

inline constexpr std::string_view transport_name = "shm";
inline constexpr Nature nature{.bounds = Bounds::region,
                               .copies = Copies::processor,
                               .progress = Progress::independent,
                               .one_host = true,
                               .any_memory = true};

std::span<const base::Setting> settings();
std::span<const base::FormerName> former_names();
Result<std::unique_ptr<Medium>> make(const Settings& given);

// Endpoints that share no names, as those of two network namespaces, still meet if a pair of sockets can be handed from
// one to the other. `endpoint`: one of this transport.

/// What the caller is to be handed; it is not open: no descriptor is left, or too many callers have not called yet.
os::Descriptor way_for_caller(Transport& endpoint, Time now);
/// As Transport::dial, by a way that was handed over by the endpoint of that address.
Result<Peer> dial_by(Transport& endpoint, os::Descriptor way, const Blob& address, Bytes greeting);

/// A hint to an endpoint of this transport: nobody slept on wait_fd() since prepare_wait(), or somebody did and it was
/// not readable. The next poll need not ask the kernel.
void cancel_wait(Transport& endpoint);

}  // namespace incast::transport::shm
