// The RDMA device of one endpoint: what it listens at, and what all its connections share.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <incast/result.h>
#include <incast/transport.h>

#include "os/descriptor.h"
#include "transport/settings.h"
#include "transport/verbs/port.h"
#include "transport/verbs/wire.h"

namespace incast::transport::verbs {

/// Receives beyond those that peers count: the welcome, and sends that only give receives back.
inline constexpr std::uint32_t spare_receives = 4;

/// Requests of each send queue that no post of the owner's takes up: for receives given back, changes, heartbeats.
inline constexpr std::uint32_t reserved_requests = 4;

enum class Connect : std::uint8_t { cm, exchange };

enum class Immediate : std::uint8_t { automatic, yes, no };

/// The device that was taken away from an endpoint, for whoever makes the next one. Endpoints have their own threads.
class Removed {
public:
    void set(const std::string& device) {
        const std::lock_guard guard(lock_);
        device_ = device;
    }
    /// Empty: none, or it was taken.
    std::string take() {
        const std::lock_guard guard(lock_);
        return std::exchange(device_, {});
    }

private:
    std::mutex lock_;
    std::string device_;
};

/// The settings of verbs, checked and in machine form.
struct EndpointSettings {
    std::vector<std::vector<SocketAddress>> bind;  // of each node those of its rails, with port 0; empty: any
    std::vector<std::string> devices;              // of each rail; empty: any
    std::uint32_t rails = 1;
    Connect connect = Connect::cm;
    PortRange ports;
    PathSettings path;
    std::uint8_t reads = 0;
    Immediate immediate = Immediate::automatic;
    std::uint32_t inline_bytes = 0;
    std::uint32_t send_queue = 0;
    std::uint32_t receives = 0;
    std::uint32_t rate_limit = 0;  // of each queue pair, in kbit/s as devices take it; 0: none
    std::uint64_t piece = 0;
    std::uint64_t staging = 0;
    Time heartbeat = 0;
    Time ack_deadline = 0;
    Time connect_timeout = 0;
    [[nodiscard]] const SocketAddress& bind_of(std::uint32_t self, std::uint32_t rail) const {
        return bind[self % bind.size()][rail];
    }
    std::shared_ptr<Removed> removed = std::make_shared<Removed>();
};

using EventChannel = std::unique_ptr<rdma_event_channel, Releaser<rdma_destroy_event_channel>>;
using CmId = std::unique_ptr<rdma_cm_id, Releaser<rdma_destroy_id>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Releaser<ibv_dealloc_pd>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Releaser<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Releaser<ibv_destroy_cq>>;
using ReceiveQueue = std::unique_ptr<ibv_srq, Releaser<ibv_destroy_srq>>;
using MemoryRegion = std::unique_ptr<ibv_mr, Releaser<ibv_dereg_mr>>;

/// In the order in which they are made.
struct Device {
    EventChannel events;  // rdma_cm's; of connections by exchanged addresses there are none
    CmId listener;
    OpenDevice opened;  // without rdma_cm, as the next two
    Port port;
    os::Descriptor calls;   // listens
    SocketAddress address;  // where it listens
    ProtectionDomain domain;
    CompletionChannel completions;
    CompletionQueue sent;
    CompletionQueue received;
    ReceiveQueue receives;
    std::uint64_t piece = 0;
    std::uint8_t responder_reads = 0;
    std::uint8_t initiator_reads = 0;
    bool is_iwarp = false;
    bool immediates = false;

    /// Error: one line that says what is missing, or which limit of the device is exceeded.
    static Result<Device> open(const EndpointSettings& settings, std::uint32_t rail, std::uint32_t self,
                               std::uint32_t max_peers);
    [[nodiscard]] std::string name() const { return ibv_get_device_name(context()->device); }
    [[nodiscard]] ibv_context* context() const { return opened != nullptr ? opened.get() : listener->verbs; }
};

/// "2.5 GB/s"
std::string rate_text(std::uint32_t kbit_per_s);
/// "Cannot allocate memory", and what to do about it.
std::string reason(int error);
/// Makes reads of it answer EAGAIN in place of waiting.
void make_nonblocking(int fd);

}  // namespace incast::transport::verbs
