// An event manager alone: readout units and builder units are played by hand, message by message, on inproc with a
// scripted clock.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/node.h"
#include "support/protocol.h"
#include "transport/inproc/inproc.h"
#include "wire/control.h"

namespace incast::protocol::testing {

using wire::AttemptEntry;
using wire::Change;
using wire::ControlKind;
using wire::ControlView;

/// A ledger that remembers who left, and how.
class Departures final : public Ledger {
public:
    void committed(const LedgerEntry& entry) override {
        ++commits;
        flagged += entry.flagged_sources > 0 ? 1 : 0;
    }
    void view_changed(Time, std::uint32_t, Peer node, std::uint32_t, Change change, Cause) override {
        if (change != Change::up) {
            left.emplace_back(node, change);
        }
    }
    std::vector<std::pair<Peer, Change>> left;
    std::uint64_t commits = 0;
    std::uint64_t flagged = 0;
};

/// Two readout units (0, 1) and two builder units (2, 3) by hand, and the event manager (4).
class ManagerAlone : public ::testing::Test {
protected:
    static constexpr std::uint32_t peers = 4;
    static constexpr Peer em{4};

    explicit ManagerAlone(std::uint64_t total_meps = 0) : total_meps_(total_meps) {}

    void SetUp() override {
        config_ = make_config(2, 2, false, 1, 64);
        config_.late_after = 100 * ps_per_ms;
        config_.heartbeat = ps_per_ms;
        config_.detection_deadline = 50 * ps_per_ms;
        config_.suspect_grace = 5 * ps_per_ms;
        config_.max_attempts = 2;
        config_.credits = 8;
        config_.total_meps = total_meps_;
        configure(config_);
        for (std::uint32_t peer = 0; peer <= peers; ++peer) {
            transport::EndpointOptions options;
            options.self = Peer{peer};
            options.incarnation = 1;
            options.run = config_.run;
            options.max_peers = peers + 1;
            ends_.push_back(medium_->endpoint(options).value());
        }
        manager_ = std::make_unique<Node>(config_, em, 1, end(em), nullptr, nullptr, &ledger_);
        ASSERT_TRUE(manager_->start(now_).ok());
        for (std::uint32_t peer = 0; peer < peers; ++peer) {
            manager_->update_peer(now_, Peer{peer}, 1, end(Peer{peer}).address());
            step();
            ASSERT_NE(end(Peer{peer}).connect(em, end(em).address(), 1), Post::refused);
        }
        step();
        for (std::uint32_t peer = 0; peer < peers; ++peer) {
            wire::ControlMessage<ControlKind::hello> hello(config_.run, 0, 1);
            hello.set_body({fingerprint(config_), 0, config_.nodes[peer].roles, 0});
            ASSERT_EQ(end(Peer{peer}).send(em, hello.bytes()), Post::done);
            for (std::uint32_t other = 0; other < peers; ++other) {
                if ((peer < 2) != (other < 2)) {
                    say<ControlKind::connected>(Peer{peer}, {{other, 1}});
                }
            }
        }
        step();
        ASSERT_TRUE(manager_->all_joined());
        for (const Peer ru : {Peer{0}, Peer{1}}) {
            available(ru, holds_at_first_);
        }
    }
    /// For tests that want it otherwise.
    virtual void configure(Config& /*config*/) {}

    Transport& end(Peer peer) { return *ends_[static_cast<std::size_t>(peer)]; }
    /// Everybody but `silent_` is alive, whatever else it says.
    void step(Time pause = ps_per_us) {
        now_ += pause;
        if (manager_->all_joined()) {
            for (std::uint32_t peer = 0; peer < peers; ++peer) {
                if (silent_ == Peer{peer}) continue;
                wire::ControlMessage<ControlKind::beat> beat(config_.run, 0, 1);
                static_cast<void>(end(Peer{peer}).send(em, beat.bytes()));
            }
        }
        manager_->step(now_);
        listen();
    }
    void run_for(Time time) {
        for (const Time until = now_ + time; now_ < until;) {
            step(ps_per_ms);
        }
    }
    template <ControlKind kind>
    void say(Peer from, const std::vector<typename wire::Traits<kind>::Entry>& entries) {
        wire::ControlMessage<kind> message(config_.run, 0, 1);
        for (const auto& entry : entries) {
            ASSERT_TRUE(message.add(entry));
        }
        ASSERT_EQ(end(from).send(em, message.bytes()), Post::done);
    }
    void available(Peer ru, MepId below) {
        wire::ControlMessage<ControlKind::available> message(config_.run, 0, 1);
        message.set_body({below});
        ASSERT_EQ(end(ru).send(em, message.bytes()), Post::done);
    }
    void grant(Peer bu, std::uint16_t credits = 1) {
        std::vector<wire::CreditEntry> entries;
        for (std::uint16_t& slot = granted_[static_cast<std::size_t>(bu)]; credits > 0; --credits, ++slot) {
            entries.push_back({slot + 1U, slot, 0});
        }
        say<ControlKind::grant>(bu, entries);
        step();
    }
    void late(Peer bu, const AttemptEntry& attempt, const std::vector<std::uint32_t>& named) {
        wire::ControlMessage<ControlKind::late> message(config_.run, 0, 1);
        message.set_body({attempt});
        for (const std::uint32_t node : named) {
            ASSERT_TRUE(message.add({node}));
        }
        ASSERT_EQ(end(bu).send(em, message.bytes()), Post::done);
        step();
    }
    void listen() {
        std::array<Event, 64> events;
        for (std::uint32_t peer = 0; peer < peers; ++peer) {
            while (const std::size_t count = end(Peer{peer}).poll(now_, events)) {
                for (std::size_t index = 0; index < count; ++index) {
                    if (events[index].kind == Event::Kind::message) {
                        hear(peer, *ControlView::parse({events[index].data, events[index].size_or_value}));
                    }
                }
            }
        }
    }
    void hear(std::uint32_t peer, const ControlView& message) {
        const std::uint32_t count = message.header().count;
        switch (message.kind()) {
            case ControlKind::assign:
                assigned_[peer] = message.entry<ControlKind::assign>(count - 1);
                break;
            case ControlKind::commit_verdict:
                verdict_[peer] = message.entry<ControlKind::commit_verdict>(count - 1);
                break;
            case ControlKind::announce: {
                const auto body = message.body<ControlKind::announce>();
                released_[peer] = body.released_below;
                if (count > 0) {
                    runs_[peer].push_back({body.base, count});
                }
                break;
            }
            case ControlKind::close:
                closed_[peer] = message.body<ControlKind::close>();
                break;
            default:
                break;
        }
    }
    /// What that BU was given last, as it speaks of it: nothing is missing.
    AttemptEntry given(Peer bu) {
        const auto found = assigned_[static_cast<std::size_t>(bu)];
        EXPECT_TRUE(found.has_value());
        AttemptEntry attempt = found.value_or(AttemptEntry{});
        attempt.value = 0;
        return attempt;
    }
    [[nodiscard]] const Counters& counters() const { return manager_->counters(); }

    /// MEPs from `base` on that an RU was told of in one message.
    struct Run {
        MepId base;
        std::uint32_t meps;
        bool operator==(const Run&) const = default;
    };

    std::uint64_t total_meps_;
    MepId holds_at_first_ = 32;  // MEPs: as many as an RU can keep
    Config config_;
    std::unique_ptr<transport::Medium> medium_ = transport::inproc::make({}).value();
    std::vector<std::unique_ptr<Transport>> ends_;
    Departures ledger_;
    std::unique_ptr<Node> manager_;
    Time now_ = 0;
    std::optional<Peer> silent_;
    std::array<std::uint16_t, peers> granted_{};
    std::array<std::optional<AttemptEntry>, peers> assigned_;
    std::array<std::optional<AttemptEntry>, peers> verdict_;
    std::array<std::vector<Run>, peers> runs_;
    std::array<MepId, peers> released_{};
    std::array<std::optional<wire::CloseBody>, peers> closed_;
};

class ManagerOfTwoMeps : public ManagerAlone {
protected:
    ManagerOfTwoMeps() : ManagerAlone(2) {}
};

}  // namespace incast::protocol::testing
