// The master ports that this process has open. A port is opened by its first handle or mailbox and closed with the
// last; it then comes back with the destination id it had, if that is still free.
#pragma once

#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include <incast/result.h>

#include "softrio/api/ordering.h"
#include "softrio/api/port_server.h"
#include "softrio/api/shared_port.h"
#include "softrio/port.h"

namespace incast::softrio::api {

struct Endpoint {
    Endpoint() = default;
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;
    ~Endpoint();

    std::shared_ptr<Port> port;
    /// Of other processes that use this port; nullptr: there may be none.
    std::unique_ptr<PortServer> server;
    /// The port is another process's: the parent's, or of whoever came first.
    std::shared_ptr<SharedPort> shared;
    bool is_inherited = false;  // by a fork
    bool is_named = false;      // in a fabric that the program named itself
    /// With order=weak, else nullptr. Ends, and delivers what it held back, before the port does.
    std::unique_ptr<WeakOrder> weak;

    // Handles, as all processes use them: the last that leaves one closes it. Those of a shared port are counted where
    // it is open.
    void use_sink(std::uint32_t sink);
    void leave_sink(std::uint32_t sink);
    [[nodiscard]] bool has_sink(std::uint32_t sink);
    [[nodiscard]] std::set<std::uint32_t> sinks_in_use();

private:
    std::mutex sinks_mutex_;
    std::map<std::uint32_t, int> sinks_;
};

/// What a riomp_sock_t names. Programs may free() the latter, and children of a fork go on using it.
struct OpenedSocket {
    std::shared_ptr<Endpoint> endpoint;
    std::unique_ptr<Socket> socket;
};
std::uint64_t add_socket(const std::shared_ptr<Endpoint>& endpoint);
/// nullptr: it is closed.
std::shared_ptr<OpenedSocket> find_socket(std::uint64_t id);
void close_socket(std::uint64_t id);

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
