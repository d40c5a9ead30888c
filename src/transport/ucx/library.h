// What UCX gives an endpoint: a context and a worker, and memory that other processes of the host can be given.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ucp/api/ucp.h>

#include <incast/result.h>
#include <incast/transport.h>

#include "os/descriptor.h"
#include "transport/calls/socket_address.h"
#include "transport/regions.h"
#include "transport/settings.h"

namespace incast::transport::ucx {

enum class Failures : std::uint8_t { any, peer, none };

struct EndpointSettings {
    std::string tls;                  // of UCX; empty: what it says itself
    std::vector<SocketAddress> bind;  // of each node, with port 0
    PortRange ports;
    Failures failures = Failures::any;
    std::uint32_t send_queue = 0;  // a power of two
    std::uint32_t receives = 0;
    Time ack_deadline = 0;
    Time connect_timeout = 0;
};

inline constexpr std::uint32_t records = 64;        // active messages under way to each peer; a power of two
inline constexpr std::uint32_t spare_receives = 8;  // of each peer, for those that need no credit
inline constexpr std::uint32_t reserved_transfers = 2;

struct CleanUp {
    void operator()(ucp_context_h made) const { ucp_cleanup(made); }
};
using Context = std::shared_ptr<ucp_context>;

/// What is registered with UCX, or was allocated by it.
class Mapping {
public:
    Mapping() = default;
    /// Registers `memory`; if its data is null, UCX allocates it.
    static Result<Mapping> make(const Context& context, std::span<std::byte> memory);
    Mapping(Mapping&& other) noexcept
        : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)), memory_(other.memory_) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(context_, other.context_);
        std::swap(handle_, other.handle_);
        std::swap(memory_, other.memory_);
        return *this;
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (handle_ != nullptr) (void)ucp_mem_unmap(context_.get(), handle_);
    }
    [[nodiscard]] ucp_mem_h handle() const { return handle_; }
    [[nodiscard]] std::span<std::byte> memory() const { return memory_; }

private:
    Context context_;
    ucp_mem_h handle_ = nullptr;
    std::span<std::byte> memory_;
};

/// Memory of regions from UCX, which peers on this host can be given, whatever their processes.
class Allocator final : public Regions::Source {
public:
    explicit Allocator(Context context) : context_(std::move(context)) {}
    Result<std::span<std::byte>> take(std::size_t bytes) override;
    void give_back(std::span<std::byte> memory) override;
    [[nodiscard]] ucp_mem_h handle_of(const std::byte* memory) const;

private:
    Context context_;
    std::vector<Mapping> all_;
};

struct Destroy {
    void operator()(ucp_worker_h made) const { ucp_worker_destroy(made); }
};

struct Library {
    /// For that node, of `max_peers`. Error: one line.
    static Result<Library> open(const EndpointSettings& settings, std::uint32_t self, std::uint32_t max_peers);
    /// To the worker of that name. If `hear` has a function, UCX tells it of failures.
    ucs_status_t connect(std::span<const std::byte> to, ucp_err_handler_t hear, ucp_ep_h& made) const;
    Context context;
    std::unique_ptr<ucp_worker, Destroy> worker;
    std::vector<std::byte> name;  // of the worker
    bool tells = false;           // of peers that fail
    bool reads = false;           // without messages of UCX
    int wait_fd = -1;
    os::Descriptor calls;   // listens
    SocketAddress address;  // there
};

/// Null: it is closed. Else the request shows when it is.
ucs_status_ptr_t close(ucp_ep_h endpoint, bool by_force);
/// What UCX says of it: the transports that it uses, each as NAME/DEVICE, and how it puts and gets, unless by messages.
std::string lanes_of(ucp_ep_h endpoint);
/// Instead of destroying it. UCX 1.13 crashes if it destroys a worker that still has an answer to a put or a get to
/// send: these do not set what it then calls (ucp_request_send_state_ff). Nothing uses the worker any more; it and its
/// context stay until the process ends.
void abandon(std::unique_ptr<ucp_worker, Destroy> worker, const Context& context);
/// What an error of UCX means, with the last words that it logged about it.
std::string meaning(ucs_status_t status);

}  // namespace incast::transport::ucx
