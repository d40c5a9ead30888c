#include "softrio/api/endpoints.h"

#include <array>
#include <cstdio>
#include <string>

#include <pthread.h>

#include "softrio/shm/port.h"
#include "softrio/udp/port.h"

namespace incast::softrio::api {

namespace {

struct Known {
    std::weak_ptr<Endpoint> open;
    std::string fabric;  // of the last one
    std::uint32_t destid = 0;
};

/// One for a process, as the ports are.
struct Registry {
    std::mutex mutex;
    std::array<Known, max_mports> mports;
};

Registry& registry() {
    static Registry instance;
    return instance;
}

void before_fork() {
    registry().mutex.lock();
}

void after_fork() {
    registry().mutex.unlock();
}

/// The endpoints stay the parent's; the child opens its own.
void in_child() {
    for (Known& each : registry().mports) {
        if (const auto endpoint = each.open.lock()) {
            endpoint->port->abandon();
            // Its thread is the parent's, and waits there on what its end would destroy: it is left behind.
            if (endpoint->weak != nullptr) endpoint->weak.release()->abandon();
        }
        each = {};
    }
    registry().mutex.unlock();
}

Result<std::shared_ptr<Port>> open_port(const Options& options, std::uint32_t mport, std::uint32_t wanted) {
    const auto as_port = [](auto&& opened) -> Result<std::shared_ptr<Port>> {
        if (!opened) return opened.error();
        return std::shared_ptr<Port>(*opened);
    };
    if (options.kind == Options::Kind::udp) return as_port(udp::Port::open(options, mport, wanted));
    return as_port(shm::Port::open(options, mport, wanted));
}

Error complain(const Error& error) {
    std::fprintf(stderr, "%s\n", error.message.c_str());
    return error;
}

void hook_forks() {
    static const int hooked = ::pthread_atfork(before_fork, after_fork, in_child);
    (void)hooked;  // without memory for it there is none for the rest either
}

Result<std::shared_ptr<Endpoint>> open_as(Known& entry, const Options& options, std::uint32_t mport,
                                          std::uint32_t wanted) {
    auto port = open_port(options, mport, wanted);
    if (!port) return complain(port.error());
    auto endpoint = std::make_shared<Endpoint>();
    endpoint->port = *port;
    if (options.order == Options::Order::weak) endpoint->weak = std::make_unique<WeakOrder>(*port);
    entry = {endpoint, options.fabric, (*port)->destid()};
    return endpoint;
}

}  // namespace

Result<std::shared_ptr<Endpoint>> open_endpoint(std::uint32_t mport) {
    hook_forks();
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    if (mport >= max_mports) return Error{"SoftRIO: no master port " + std::to_string(mport)};
    Known& entry = known.mports[mport];
    if (auto endpoint = entry.open.lock()) return endpoint;
    const auto options = options_of_environment();
    if (!options) return complain(options.error());
    if (mport >= options->mports) {
        return complain(Error{"SoftRIO: no master port " + std::to_string(mport) +
                              ": RIO_FABRIC says mports=" + std::to_string(options->mports)});
    }
    return open_as(entry, *options, mport, entry.fabric == options->fabric ? entry.destid : 0);
}

Result<OpenedEndpoint> open_free_endpoint(std::string_view fabric) {
    hook_forks();
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    const auto options = parse_fabric(fabric, "");
    if (!options) return complain(options.error());
    for (std::uint32_t mport = 0; mport < max_mports; ++mport) {
        if (!known.mports[mport].open.expired()) continue;
        auto endpoint = open_as(known.mports[mport], *options, mport, 0);
        if (!endpoint) return endpoint.error();
        return OpenedEndpoint{*endpoint, mport};
    }
    return OpenedEndpoint{};
}

std::uint32_t count_mports() {
    const auto options = options_of_environment();
    if (!options) {
        (void)complain(options.error());
        return 0;
    }
    return options->mports;
}

}  // namespace incast::softrio::api
