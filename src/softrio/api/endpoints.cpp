#include "softrio/api/endpoints.h"

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <pthread.h>

#include "softrio/api/devices.h"
#include "softrio/device/port.h"
#include "softrio/shm/port.h"
#include "softrio/udp/port.h"

namespace incast::softrio::api {

namespace {

constexpr int attach_tries = 200;  // of 10 ms: whoever took the id may be about to share it

struct Known {
    std::weak_ptr<Endpoint> open;
    std::string fabric;  // of the last one
    std::uint32_t destid = 0;
};

struct Fork {
    std::shared_ptr<Endpoint> endpoint;
    PortServer::Ticket ticket;
};

/// One for a process, as the ports are. It is never destroyed: threads of PortServer end with the process.
struct Registry {
    std::mutex mutex;
    std::array<Known, max_mports> mports;
    std::vector<Fork> forks;  // while one is made
    std::mutex sockets_mutex;
    std::map<std::uint64_t, std::shared_ptr<OpenedSocket>> sockets;
    std::uint64_t last_socket = 0;
};

Registry& registry() {
    static auto& instance = *new Registry;
    return instance;
}

/// What is the parent's, with locks that may be held there.
template <class T>
void leave_behind(T what) {
    static auto& left = *new std::vector<T>;
    left.push_back(std::move(what));
}

void before_fork() {
    Registry& known = registry();
    known.mutex.lock();
    for (const Known& each : known.mports) {
        auto endpoint = each.open.lock();
        if (endpoint == nullptr) continue;
        Fork fork{.endpoint = std::move(endpoint), .ticket = {}};
        if (fork.endpoint->shared != nullptr) {
            fork.endpoint->shared->prepare_fork();
        } else {
            if (fork.endpoint->server == nullptr) fork.endpoint->server = PortServer::start(fork.endpoint);
            if (fork.endpoint->server != nullptr) fork.ticket = fork.endpoint->server->prepare_fork();
        }
        known.forks.push_back(std::move(fork));
    }
    known.sockets_mutex.lock();
}

void after_fork() {
    Registry& known = registry();
    known.sockets_mutex.unlock();
    const std::vector<Fork> done = std::move(known.forks);
    known.forks.clear();
    for (const Fork& each : done)
        if (each.endpoint->shared != nullptr) each.endpoint->shared->forget_child();
    known.mutex.unlock();
}

/// The port is the parent's, and used through it from now on.
void become_shared(Fork& fork, Registry& known) {
    Endpoint& endpoint = *fork.endpoint;
    const std::shared_ptr<Port> before = endpoint.port;
    before->abandon();
    endpoint.shared =
        std::make_shared<SharedPort>(before->options(), endpoint.server == nullptr ? "" : endpoint.server->name(),
                                     fork.ticket.process, std::move(fork.ticket.life));
    for (const std::uint32_t sink : endpoint.sinks_in_use())
        endpoint.shared->keep_bell(sink, before->bell(sink));
    for (auto& [id, each] : known.sockets) {
        if (each->endpoint != fork.endpoint) continue;
        leave_behind(std::shared_ptr<Socket>(std::move(each->socket)));
        each->socket = endpoint.shared->socket_of(id);
    }
    leave_behind(before);
    endpoint.port = endpoint.shared;
    if (endpoint.server != nullptr) endpoint.server->abandon();
    endpoint.server.reset();
    // Its thread is the parent's, and waits there on what its end would destroy: it is left behind.
    if (endpoint.weak == nullptr) return;
    endpoint.weak.release()->abandon();
    endpoint.weak = std::make_unique<WeakOrder>(endpoint.port);
}

void in_child() {
    Registry& known = registry();
    for (Fork& each : known.forks) {
        if (each.endpoint->shared != nullptr) {
            each.endpoint->shared->become_child();
        } else {
            become_shared(each, known);
        }
        each.endpoint->is_inherited = true;
    }
    for (Known& each : known.mports)
        if (each.open.expired()) each = {};
    known.forks.clear();
    known.sockets_mutex.unlock();
    known.mutex.unlock();
}

Result<std::shared_ptr<Port>> open_port(const Options& options, std::uint32_t mport, std::uint32_t wanted) {
    const auto as_port = [](auto&& opened) -> Result<std::shared_ptr<Port>> {
        if (!opened) return opened.error();
        return std::shared_ptr<Port>(*opened);
    };
    if (options.kind == Options::Kind::device) return as_port(device::Port::open(options, mport));
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

std::shared_ptr<Endpoint> enter(Known& entry, const Options& options, std::shared_ptr<Port> port) {
    auto endpoint = std::make_shared<Endpoint>();
    endpoint->port = std::move(port);
    if (options.order == Options::Order::weak) endpoint->weak = std::make_unique<WeakOrder>(endpoint->port);
    entry = {endpoint, options.fabric, endpoint->port->destid()};
    show_port(*endpoint->port, static_cast<std::uint32_t>(&entry - registry().mports.data()));
    return endpoint;
}

Result<std::shared_ptr<Endpoint>> open_as(Known& entry, const Options& options, std::uint32_t mport,
                                          std::uint32_t wanted) {
    auto port = open_port(options, mport, wanted);
    if (!port) return complain(port.error());
    return enter(entry, options, *port);
}

/// The port with that destination id, whoever has it open.
Result<std::shared_ptr<Endpoint>> open_or_share(Known& entry, const Options& options, std::uint32_t mport) {
    const std::string name = share_name(options.fabric, options.destid + mport);
    Error error;
    for (int tries = 0; tries < attach_tries; ++tries) {
        if (auto shared = SharedPort::attach(options, name)) {
            auto endpoint = enter(entry, options, shared);
            endpoint->shared = std::move(shared);
            return endpoint;
        }
        auto port = open_port(options, mport, 0);
        if (port) {
            auto endpoint = enter(entry, options, *port);
            endpoint->server = PortServer::start(endpoint);
            return endpoint;
        }
        error = port.error();
        if (error.message.find("is taken") == std::string::npos) break;
        ::poll(nullptr, 0, 10);
    }
    return complain(error);
}

}  // namespace

Endpoint::~Endpoint() = default;

void Endpoint::use_sink(std::uint32_t sink) {
    const std::lock_guard lock(sinks_mutex_);
    ++sinks_[sink];
}

void Endpoint::leave_sink(std::uint32_t sink) {
    if (shared != nullptr) {
        shared->close_sink(sink);
        return;
    }
    {
        const std::lock_guard lock(sinks_mutex_);
        const auto found = sinks_.find(sink);
        if (found == sinks_.end() || --found->second > 0) return;
        sinks_.erase(found);
    }
    port->free_all(sink);
    port->close_sink(sink);
}

bool Endpoint::has_sink(std::uint32_t sink) {
    const std::lock_guard lock(sinks_mutex_);
    return sinks_.contains(sink);
}

std::set<std::uint32_t> Endpoint::sinks_in_use() {
    const std::lock_guard lock(sinks_mutex_);
    std::set<std::uint32_t> all;
    for (const auto& [sink, users] : sinks_)
        all.insert(sink);
    return all;
}

std::uint64_t add_socket(const std::shared_ptr<Endpoint>& endpoint) {
    auto made = std::make_shared<OpenedSocket>();
    made->endpoint = endpoint;
    made->socket = endpoint->port->make_socket();
    Registry& known = registry();
    const std::lock_guard lock(known.sockets_mutex);
    known.sockets.emplace(++known.last_socket, std::move(made));
    return known.last_socket;
}

std::shared_ptr<OpenedSocket> find_socket(std::uint64_t id) {
    Registry& known = registry();
    const std::lock_guard lock(known.sockets_mutex);
    const auto found = known.sockets.find(id);
    return found == known.sockets.end() ? nullptr : found->second;
}

void close_socket(std::uint64_t id) {
    std::shared_ptr<OpenedSocket> closed;  // closes without the lock
    Registry& known = registry();
    const std::lock_guard lock(known.sockets_mutex);
    const auto found = known.sockets.find(id);
    if (found == known.sockets.end()) return;
    closed = std::move(found->second);
    known.sockets.erase(found);
}

Result<std::shared_ptr<Endpoint>> open_endpoint(std::uint32_t mport) {
    hook_forks();
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    if (mport >= max_mports) return Error{"SoftRIO: no master port " + std::to_string(mport)};
    Known& entry = known.mports[mport];
    const auto open = entry.open.lock();
    if (open != nullptr && open->is_named) return open;
    const auto options = options_of_environment();
    // Other processes may still use one of another fabric, which is no longer this one's.
    const bool is_other =
        options && (options->fabric != entry.fabric || (open != nullptr && open->is_inherited && options->is_new));
    if (open != nullptr && !is_other) return open;
    if (!options) return complain(options.error());
    if (mport >= options->mports) {
        return complain(Error{"SoftRIO: no master port " + std::to_string(mport) +
                              ": RIO_FABRIC says mports=" + std::to_string(options->mports)});
    }
    if (options->destid != 0) return open_or_share(entry, *options, mport);
    return open_as(entry, *options, mport, entry.fabric == options->fabric && open == nullptr ? entry.destid : 0);
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
        (*endpoint)->is_named = true;
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
