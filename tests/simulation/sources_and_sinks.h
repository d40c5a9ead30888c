// Model sources and sinks: they do what the interfaces allow, at random, and report any misuse.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "checker.h"
#include "plan.h"
#include "protocol/interfaces.h"
#include "sim/world.h"

namespace incast::adversary {

class ModelSource final : public protocol::Source {
public:
    ModelSource(const Plan& plan, std::uint32_t node, sim::EndpointId endpoint, sim::World& world, Checker& checker,
                std::uint64_t seed);

    Result<Ok> attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                      std::uint32_t count) override;
    [[nodiscard]] std::span<const Local> regions() const override { return regions_; }
    void start(Time now, protocol::MepId first, std::uint64_t first_event) override;
    bool produce(Time now, protocol::MepId mep) override;
    const protocol::Piece& piece(protocol::MepId mep, std::uint32_t index) override;
    void release(protocol::MepId below) override;
    [[nodiscard]] Time next_ready() const override { return next_ready_; }
    [[nodiscard]] Time impatient_at() const override;
    std::uint32_t open_events(Time now) override;
    void close(Time now, protocol::MepId mep, std::uint32_t events) override;
    [[nodiscard]] std::uint64_t total_meps() const override {
        return plan_.source.says_total ? plan_.source.total_meps : 0;
    }

private:
    [[nodiscard]] bool counts() const { return plan_.source.packing > 0; }
    [[nodiscard]] std::uint32_t next_events() const;
    void look(Time now);
    [[nodiscard]] Slice body(protocol::MepId mep, std::uint32_t index) const;

    const Plan& plan_;
    std::uint32_t node_;
    sim::EndpointId endpoint_;
    sim::World& world_;
    Checker& checker_;
    base::Prng prng_;
    std::uint32_t first_source_ = 0;
    std::uint32_t count_ = 0;
    std::vector<Local> regions_;  // by source of this RU
    protocol::Piece piece_;
    bool started_ = false;
    protocol::MepId first_ = 0;
    protocol::MepId produced_ = 0;  // below
    protocol::MepId released_ = 0;  // below
    Time next_ready_ = 0;

    // Where events come one by one.
    struct Made {
        std::uint64_t first_event = 0;
        std::uint32_t n_events = 0;
    };
    std::uint64_t first_event_ = 0;  // of the next MEP
    std::uint64_t arrived_ = 0;      // events below
    Time next_arrival_ = 0;
    Time open_since_ = 0;       // the first event of the next MEP came
    std::uint32_t closed_ = 0;  // what the EM said of it
    std::vector<Made> made_;    // by MEP of the retention
};

class ModelSink final : public protocol::Sink {
public:
    ModelSink(const Plan& plan, std::uint32_t node, std::uint32_t incarnation, Checker& checker, std::uint64_t seed);

    Taken take(Time now, const protocol::BuiltMep& mep) override;
    std::size_t durable(Time now, std::span<protocol::MepId> meps) override;
    std::size_t returned(Time now, std::span<std::uint16_t> slots) override;
    [[nodiscard]] Time next_deadline() const override;

private:
    struct Pending {
        protocol::MepId mep = 0;
        Time durable_at = 0;
    };
    /// A slot that it reads on; its heads, where they lie and what they were.
    struct Held {
        std::uint16_t slot = 0;
        protocol::MepId mep = 0;
        Time until = 0;
        std::vector<std::pair<const wire::Head*, wire::Head>> heads;
    };
    [[nodiscard]] bool hold(Time now, const protocol::BuiltMep& mep);

    const Plan& plan_;
    std::uint32_t node_;
    std::uint32_t incarnation_;
    Checker& checker_;
    base::Prng prng_;
    Time busy_until_ = 0;
    std::deque<Pending> pending_;
    std::vector<Held> held_;
};

/// Rejects some MEPs, whoever builds them; hesitates now and then.
class ModelFilter final : public protocol::Filter {
public:
    ModelFilter(const Plan& plan, std::uint32_t node, std::uint32_t incarnation, Checker& checker, std::uint64_t seed)
        : plan_(plan), node_(node), incarnation_(incarnation), checker_(checker), prng_(seed) {}
    Verdict decide(Time now, const protocol::BuiltMep& first) override;
    [[nodiscard]] Time next_deadline() const override { return ask_again_; }

private:
    const Plan& plan_;
    std::uint32_t node_;
    std::uint32_t incarnation_;
    Checker& checker_;
    base::Prng prng_;
    Time ask_again_ = time_never;
};

}  // namespace incast::adversary
