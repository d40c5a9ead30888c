// A node of the event builder in this process: endpoint, source, sink, ledger and protocol node of its current
// incarnation.
#pragma once

#include <cstdint>
#include <memory>

#include <incast/result.h>
#include <incast/transport.h>

#include "protocol/node.h"
#include "runtime/node/host.h"
#include "runtime/record/ledger.h"
#include "runtime/sinks/sink.h"
#include "runtime/sources/source.h"
#include "transport/medium.h"

namespace incast::runtime {

class NodeHost final : public Host {
public:
    /// Plan and medium are borrowed.
    NodeHost(const Plan& plan, transport::Medium& medium, HostOptions options);
    ~NodeHost() override;

    Result<Blob> begin(Time now, std::uint32_t incarnation) override;
    void update_peer(Time now, std::uint32_t peer, std::uint32_t incarnation, const Blob& address) override;
    bool step(Time now) override;
    [[nodiscard]] Time next_deadline() const override { return node_->next_deadline(); }
    void prefetch(unsigned level) const override;
    void stop_admission() override;
    /// Open loop.
    void start_triggers(Time origin) override;

    [[nodiscard]] std::uint32_t incarnation() const override { return incarnation_; }
    /// The event manager dropped this incarnation, or cannot be heard.
    [[nodiscard]] bool needs_new_incarnation() const override;
    /// The state changed, or all nodes joined.
    bool news() override;
    [[nodiscard]] bool news_pending() const override;
    [[nodiscard]] Transport& transport() override { return *transport_; }
    bool sink_prepare_wait() override { return !sink_ || sink_->prepare_wait(); }
    [[nodiscard]] int sink_fd() const override { return sink_ ? sink_->wait_fd() : -1; }
    sinks::RuntimeSink* sink() override { return sink_.get(); }

    NodeSample sample(Mark mark, Time now) override;
    [[nodiscard]] NodeTotals& driven() override { return driven_; }

private:
    class Meter;
    Result<Ok> make_units();
    [[nodiscard]] NodeTotals current(Time now);
    void tell_of_ledger();
    void tell_of_source(Time now);
    void tell_of_shortage(Time now);

    const Plan& plan_;
    transport::Medium& medium_;
    HostOptions options_;
    std::uint32_t roles_;
    std::uint32_t incarnation_ = 0;
    Usage at_setup_;  // of the process, when its memory was set up
    Time joined_at_ = 0;
    Time trigger_origin_ = 0;  // 0: not known yet
    protocol::NodeState known_state_ = protocol::NodeState::joining;
    bool known_joined_ = false;
    NodeTotals carried_;  // of earlier incarnations
    NodeTotals driven_;
    // The node uses the others until it is destroyed, and units use their regions, which the endpoint owns.
    std::unique_ptr<LedgerFile> ledger_;
    bool told_ledger_lacks_ = false;
    bool told_ledger_goes_on_ = false;
    Time sink_waits_since_ = 0;  // for room on its disk; 0: it does not
    Time may_tell_of_shortage_ = 0;
    bool told_of_shortage_ = false;
    std::unique_ptr<Transport> transport_;
    std::unique_ptr<sources::RuntimeSource> source_;
    std::unique_ptr<sinks::RuntimeSink> sink_;
    std::unique_ptr<protocol::Filter> filter_;
    std::unique_ptr<protocol::Node> node_;
};

}  // namespace incast::runtime
