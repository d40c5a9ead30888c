// One node of the run in this process: endpoint, source, sink, ledger and protocol node of its current incarnation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include <incast/result.h>
#include <incast/transport.h>

#include "protocol/node.h"
#include "runtime/ledger.h"
#include "runtime/metrics.h"
#include "runtime/resolve.h"
#include "runtime/sinks/sink.h"
#include "runtime/sources/source.h"
#include "transport/medium.h"

namespace incast::runtime {

struct HostOptions {
    std::uint32_t node = 0;
    std::uint64_t token = 0;          // of the run, for connections between endpoints
    std::filesystem::path directory;  // of the event manager's ledger
    bool counts_process = true;       // CPU time and memory are those of the process: one host of a process tells them
};

class NodeHost {
public:
    /// Plan and medium are borrowed.
    NodeHost(const Plan& plan, transport::Medium& medium, HostOptions options);
    ~NodeHost();
    NodeHost(const NodeHost&) = delete;
    NodeHost& operator=(const NodeHost&) = delete;

    /// Ends the incarnation there is, and starts a new one: allocates all memory. Returns its address, for all peers.
    Result<Blob> begin(Time now, std::uint32_t incarnation);
    void update_peer(Time now, std::uint32_t peer, std::uint32_t incarnation, const Blob& address);
    bool step(Time now);
    [[nodiscard]] Time next_deadline() const { return node_->next_deadline(); }
    void stop_admission();
    /// Open loop: also for the incarnations to come.
    void start_triggers(Time origin);

    [[nodiscard]] std::uint32_t node() const { return options_.node; }
    [[nodiscard]] std::uint32_t incarnation() const { return incarnation_; }
    [[nodiscard]] protocol::NodeState state() const { return node_->state(); }
    /// The event manager dropped this incarnation, or cannot be heard: only a new one can take part.
    [[nodiscard]] bool needs_new_incarnation() const;
    /// The state changed, or all nodes joined, since this was last asked.
    bool news();
    [[nodiscard]] bool news_pending() const;
    [[nodiscard]] Transport& transport() { return *transport_; }
    /// Before sleeping: false if the sink has something to do; true if sleeping on sink_fd() beside the transport is
    /// safe.
    bool sink_prepare_wait() { return !sink_ || sink_->prepare_wait(); }
    /// -1: none.
    [[nodiscard]] int sink_fd() const { return sink_ ? sink_->wait_fd() : -1; }

    /// At window_begin the latencies start anew.
    NodeSample sample(Mark mark, Time now);
    /// What the driver counts: steps, useful_steps, sleeps, polling_cpu_ns.
    [[nodiscard]] NodeTotals& driven() { return driven_; }

private:
    class Meter;
    Result<Ok> make_units();
    [[nodiscard]] NodeTotals current(Time now);

    const Plan& plan_;
    transport::Medium& medium_;
    HostOptions options_;
    std::uint32_t roles_;
    std::uint32_t incarnation_ = 0;
    std::uint64_t cpu_at_setup_ns_ = 0;
    Time joined_at_ = 0;
    Time trigger_origin_ = 0;  // 0: not known yet
    protocol::NodeState known_state_ = protocol::NodeState::joining;
    bool known_joined_ = false;
    NodeTotals carried_;  // of earlier incarnations
    NodeTotals driven_;
    // The node uses the others until it is destroyed, and units use their regions, which the endpoint owns.
    std::unique_ptr<LedgerFile> ledger_;
    std::unique_ptr<Transport> transport_;
    std::unique_ptr<sources::RuntimeSource> source_;
    std::unique_ptr<sinks::RuntimeSink> sink_;
    std::unique_ptr<protocol::Node> node_;
};

}  // namespace incast::runtime
