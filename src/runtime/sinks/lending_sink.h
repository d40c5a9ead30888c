// Lends MEPs to somebody in this process who takes them over a network, the dispatcher of a simulated farm
// (docs/farm.md): a MEP stays in its slot, and is committed once it was given back.
#pragma once

#include <functional>
#include <vector>

#include "base/fifo.h"
#include "runtime/sinks/metered_sink.h"

namespace incast::sinks {

class LendingSink final : public MeteredSink {
public:
    /// What its borrower is told of a MEP.
    struct Lent {
        protocol::MepId mep = 0;
        std::uint64_t first_event = 0;
        std::uint64_t goodput_bytes = 0;
        std::uint64_t body_bytes = 0;  // of all MFPs
        std::uint32_t n_events = 0;
        std::uint32_t missing_sources = 0;
        std::uint32_t attempt = 0;
        std::uint16_t slot = 0;
        bool redelivered = false;
    };

    LendingSink(const SinkOptions& options, const protocol::Config& config);

    Taken take(Time now, const protocol::BuiltMep& mep) override;
    std::size_t durable(Time now, std::span<protocol::MepId> meps) override;
    std::size_t returned(Time now, std::span<std::uint16_t> slots) override;
    [[nodiscard]] Time next_deadline() const override;

    // --- the borrower's
    // ------------------------------------------------------------------------------------------------
    /// Called when there is a MEP to be had.
    void on_lent(std::function<void()> call) { on_lent_ = std::move(call); }
    [[nodiscard]] bool has_next() const { return !waiting_.empty(); }
    /// Precondition: has_next().
    Lent next();
    /// Once each. `verdict` as in consumer/layout.h. The builder unit is to be stepped then.
    void give_back(Time now, const Lent& lent, std::uint64_t verdict);

private:
    std::function<void()> on_lent_;
    std::uint32_t most_;
    std::uint32_t lent_ = 0;
    bool refused_ = false;  // the last take() was answered busy
    Time now_ = 0;
    std::vector<Begin> begins_;  // by slot
    base::Fifo<Lent> waiting_;
    base::Fifo<std::uint16_t> returned_;
    base::Fifo<protocol::MepId> durable_;
};

}  // namespace incast::sinks
