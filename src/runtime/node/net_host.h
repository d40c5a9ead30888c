// A node of raw traffic in this process: endpoint and traffic node. It has one incarnation: a run of raw traffic ends
// with the first node that is lost.
#pragma once

#include <cstdint>
#include <memory>

#include "net/node.h"
#include "runtime/node/host.h"

namespace incast::runtime {

class NetHost final : public Host {
public:
    /// Plan and medium are borrowed.
    NetHost(const Plan& plan, transport::Medium& medium, HostOptions options);
    ~NetHost() override;

    Result<Blob> begin(Time now, std::uint32_t incarnation) override;
    void update_peer(Time now, std::uint32_t peer, std::uint32_t incarnation, const Blob& address) override;
    bool step(Time now) override;
    [[nodiscard]] Time next_deadline() const override { return node_->next_deadline(); }
    void stop_admission() override { node_->stop(); }
    /// Sending begins.
    void start_triggers(Time origin) override { node_->go(origin); }

    [[nodiscard]] std::uint32_t incarnation() const override { return incarnation_; }
    [[nodiscard]] bool needs_new_incarnation() const override { return false; }
    /// The state changed, or it cannot go on.
    bool news() override;
    [[nodiscard]] bool news_pending() const override;
    [[nodiscard]] Transport& transport() override { return *transport_; }

    NodeSample sample(Mark mark, Time now) override;
    [[nodiscard]] NodeTotals& driven() override { return driven_; }

private:
    class Payload;
    [[nodiscard]] NodeTotals current() const;

    const Plan& plan_;
    transport::Medium& medium_;
    HostOptions options_;
    std::uint32_t incarnation_ = 0;
    Usage at_setup_;  // of the process, when its memory was set up
    net::State known_state_ = net::State::joining;
    bool known_failed_ = false;
    NodeTotals driven_;
    // The node uses the others until it is destroyed.
    std::unique_ptr<Payload> payload_;
    std::unique_ptr<Transport> transport_;
    std::unique_ptr<net::Node> node_;
};

}  // namespace incast::runtime
