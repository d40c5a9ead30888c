// What a riomp_mport_t points to.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <rapidio_mport_mgmt.h>

#include "softrio/api/endpoints.h"

namespace incast::softrio::api {

struct PortwriteRange {
    std::uint32_t mask = 0;
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    bool operator==(const PortwriteRange&) const = default;
};

struct Handle : rapidio_mport_handle {
    std::shared_ptr<Endpoint> endpoint;
    std::uint32_t sink = 0;
    bool waits = true;             // no O_NONBLOCK
    std::atomic<int> waiting = 0;  // threads in get_event
    std::mutex portwrites_mutex;
    std::vector<PortwriteRange> portwrites;
    Cookies cookies;

    [[nodiscard]] Port& port() const { return *endpoint->port; }
    [[nodiscard]] std::uint32_t channel() const { return sink % dma_channels; }
};

inline Handle* handle_of(riomp_mport_t handle) {
    return static_cast<Handle*>(handle);
}

/// 0: it can be used; -EINVAL: there is none; -EBADF: it is a parent process's.
inline int check(riomp_mport_t handle) {
    if (handle == nullptr) return -EINVAL;
    return handle_of(handle)->port().is_abandoned() ? -EBADF : 0;
}

}  // namespace incast::softrio::api
