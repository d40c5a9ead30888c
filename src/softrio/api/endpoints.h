// The master ports that this process has open. A port is opened by its first handle or mailbox and closed with the
// last; it then comes back with the destination id it had, if that is still free.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include <incast/result.h>

#include "softrio/api/ordering.h"
#include "softrio/port.h"

namespace incast::softrio::api {

struct Endpoint {
    std::shared_ptr<Port> port;
    /// With order=weak, else nullptr. Ends, and delivers what it held back, before the port does.
    std::unique_ptr<WeakOrder> weak;
    std::mutex devices_mutex;
    std::set<std::uint32_t> devices;  // that were made known by riomp_mgmt_device_add
};

/// Opens master port `mport`, or joins in its use. An error is said on stderr too: a program that was written for real
/// hardware prints no more than a number.
Result<std::shared_ptr<Endpoint>> open_endpoint(std::uint32_t mport);
struct OpenedEndpoint {
    std::shared_ptr<Endpoint> endpoint;
    std::uint32_t mport = 0;
};
/// Opens a master port that is not in use, in that fabric; no endpoint: all are. An error is said on stderr too.
Result<OpenedEndpoint> open_free_endpoint(std::string_view fabric);
/// How many master ports there are; 0: no fabric, which is said on stderr.
std::uint32_t count_mports();

/// What a function of the API returns: its error is in errno, too, as the original's are those of system calls.
inline int tell(int result) {
    if (result < 0) errno = -result;
    return result;
}

}  // namespace incast::softrio::api
