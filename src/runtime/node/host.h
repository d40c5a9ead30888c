// One node of the run in this process, whatever the run is for: what drivers step and run control ask.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include <incast/result.h>
#include <incast/transport.h>

#include "protocol/shape.h"
#include "runtime/plan/resolve.h"
#include "runtime/record/metrics.h"
#include "runtime/sinks/sink.h"
#include "transport/medium.h"

namespace incast::runtime {

struct HostOptions {
    std::uint32_t node = 0;
    std::uint64_t token = 0;          // of the run, for connections between endpoints
    std::filesystem::path directory;  // of the event manager's ledger
    bool counts_process = true;       // CPU time and memory are those of the process: one host of a process tells them
    const protocol::Shape* shape = nullptr;  // of the plan's protocol, for all nodes of a process; null: its own
    // Takes what transport, ledger and sink have to say: a refused connection, a lost peer and why, a full disk.
    transport::LogSink log;

    [[nodiscard]] transport::EndpointOptions endpoint(const Plan& plan, std::uint32_t incarnation) const;
};

class Host {
public:
    Host() = default;
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;
    virtual ~Host() = default;

    /// Ends the incarnation there is, and starts a new one: allocates all memory. Returns its address, for all peers.
    virtual Result<Blob> begin(Time now, std::uint32_t incarnation) = 0;
    virtual void update_peer(Time now, std::uint32_t peer, std::uint32_t incarnation, const Blob& address) = 0;
    virtual bool step(Time now) = 0;
    [[nodiscard]] virtual Time next_deadline() const = 0;
    /// A hint that step() is near; for level 0, 1, .. in turn, see sim::Actor.
    virtual void prefetch(unsigned /*level*/) const {}
    /// Nothing new is begun; what was begun is brought to its end.
    virtual void stop_admission() = 0;
    /// From `origin` on there is something to send, also for the incarnations to come.
    virtual void start_triggers(Time origin) = 0;

    [[nodiscard]] virtual std::uint32_t incarnation() const = 0;
    /// The run dropped this incarnation: only a new one can take part.
    [[nodiscard]] virtual bool needs_new_incarnation() const = 0;
    /// There is something that run control should know before the next sample, since this was last asked.
    virtual bool news() = 0;
    [[nodiscard]] virtual bool news_pending() const = 0;
    [[nodiscard]] virtual Transport& transport() = 0;
    /// Before sleeping: false if the sink has something to do; true if sleeping on sink_fd() beside the transport is
    /// safe.
    virtual bool sink_prepare_wait() { return true; }
    /// -1: none.
    [[nodiscard]] virtual int sink_fd() const { return -1; }

    /// Of its builder unit's current incarnation; null: it has none.
    virtual sinks::RuntimeSink* sink() { return nullptr; }

    /// At window_begin the latencies start anew.
    virtual NodeSample sample(Mark mark, Time now) = 0;
    /// What the driver counts: steps, useful_steps, sleeps, polling_cpu_ns.
    [[nodiscard]] virtual NodeTotals& driven() = 0;
};

/// Plan and medium are borrowed.
std::unique_ptr<Host> make_host(const Plan& plan, transport::Medium& medium, HostOptions options);

}  // namespace incast::runtime
