// The same protocol library in both worlds: a scripted run on inproc and on the simulated ideal network exchanges the
// same messages and writes per ordered pair of nodes.
//
// The script leaves no freedom to timing: connections are made one at a time, and with one credit per BU and one MEP of
// retention everything that happens has one cause. So whatever differed would be the protocol's doing.
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "sim/sim_medium.h"
#include "support/protocol.h"
#include "transport/decorator/trace.h"
#include "transport/inproc/inproc.h"

namespace incast {
namespace {

using protocol::Config;
using protocol::Node;
using protocol::NodeState;
using transport::decorator::TraceRecord;
using transport::decorator::TraceSink;

constexpr std::uint32_t body_bytes = 1000;
constexpr std::uint64_t meps = 200;

/// What each node posted to each other, in order.
class Conversations final : public TraceSink {
public:
    void record(const TraceRecord& record) override {
        if (record.post != Post::done && record.post != Post::pending) return;
        std::string entry;
        if (record.what == TraceRecord::What::send) {
            entry = "send " + text(record.bytes);
        } else if (record.what == TraceRecord::What::write) {
            entry = "write " + text(record.bytes) + " body " + std::to_string(record.length) + " at " +
                    std::to_string(record.offset) +
                    (record.notice.has_value() ? " notice " + std::to_string(*record.notice) : "");
        } else {
            return;
        }
        of_pair[{static_cast<std::uint32_t>(record.self), static_cast<std::uint32_t>(record.peer)}].push_back(entry);
    }
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::string>> of_pair;

private:
    /// In hexadecimal, without what a transport puts into it: the key of a region.
    static std::string text(Bytes bytes) {
        std::vector<std::byte> copy(bytes.begin(), bytes.end());
        const auto message = wire::ControlView::parse(bytes);
        if (message && message->kind() == wire::ControlKind::region) {
            wire::RegionBody body = message->body<wire::ControlKind::region>();
            body.key_size = 0;
            copy.resize(sizeof(wire::ControlHeader) + sizeof body);
            std::memcpy(copy.data() + sizeof(wire::ControlHeader), &body, sizeof body);
        }
        std::string hex;
        for (const std::byte value : copy) {
            hex += "0123456789abcdef"[std::to_integer<unsigned>(value) >> 4];
            hex += "0123456789abcdef"[std::to_integer<unsigned>(value) & 15];
        }
        return hex;
    }
};

Config script_config(protocol::Scheme scheme, bool folded, protocol::Assignment assignment) {
    Config config = protocol::testing::make_config(2, 2, folded, 2, body_bytes);
    config.scheme = scheme;
    config.assignment = assignment;
    config.total_meps = meps;
    config.credits = 1;
    config.quarantine_slots = 0;
    config.retention_meps = 1;
    // Nothing may happen because time passes: how much of it does is what differs between the worlds.
    config.heartbeat = 1000 * ps_per_s;
    config.detection_deadline = 10'000 * ps_per_s;
    config.late_after = 10'000 * ps_per_s;
    return config;
}

/// The nodes of one world; `settle` runs it until nothing happens any more.
class Crew {
public:
    Crew(const Config& config, transport::Medium& medium, Conversations& conversations)
        : config_(config), members_(config.nodes.size()) {
        for (std::uint32_t index = 0; index < members_.size(); ++index) {
            Member& member = members_[index];
            transport::EndpointOptions options;
            options.self = Peer{index};
            options.run = config.run;
            options.max_peers = static_cast<std::uint32_t>(members_.size());
            auto endpoint = medium.endpoint(options).value();
            member.endpoint = endpoint.get();
            member.transport = transport::decorator::make_trace(std::move(endpoint), Peer{index}, conversations);
            member.source = std::make_unique<protocol::testing::PlainSource>(body_bytes);
            member.sink = std::make_unique<protocol::testing::RecordingSink>(true);
            member.node = std::make_unique<Node>(config_, Peer{index}, 1, *member.transport, member.source.get(),
                                                 member.sink.get(), &ledger);
            EXPECT_TRUE(member.node->start(0).ok());
        }
    }

    void play(const std::function<Time()>& now, const std::function<void()>& settle) {
        const auto em = static_cast<std::uint32_t>(config_.em);
        settle();
        for (std::uint32_t index = 0; index < members_.size(); ++index) {
            if (index != em) introduce(now(), em, index);
            settle();
        }
        for (std::uint32_t one = 0; one < members_.size(); ++one) {
            for (std::uint32_t two = one + 1; two < members_.size(); ++two) {
                if (one != em && two != em) introduce(now(), one, two);
                settle();
            }
        }
        for (const Member& member : members_)
            EXPECT_EQ(member.node->state(), NodeState::finished);
        EXPECT_EQ(ledger.commits, meps);
        EXPECT_EQ(ledger.flagged, 0U);
    }

    struct Member {
        Transport* endpoint = nullptr;  // behind the decorator
        std::unique_ptr<Transport> transport;
        std::unique_ptr<protocol::testing::PlainSource> source;
        std::unique_ptr<protocol::testing::RecordingSink> sink;
        std::unique_ptr<Node> node;
    };
    std::vector<Member>& members() { return members_; }
    protocol::testing::CountingLedger ledger;
    std::function<void(std::uint32_t)> woken = [](std::uint32_t) {};

private:
    void introduce(Time now, std::uint32_t one, std::uint32_t two) {
        members_[one].node->update_peer(now, Peer{two}, 1, members_[two].transport->address());
        members_[two].node->update_peer(now, Peer{one}, 1, members_[one].transport->address());
        woken(one);
        woken(two);
    }

    Config config_;
    std::vector<Member> members_;
};

void on_inproc(const Config& config, Conversations& conversations) {
    const auto medium = transport::inproc::make({}).value();
    Crew crew(config, *medium, conversations);
    Time now = 0;
    crew.play([&] { return now; },
              [&] {
                  for (int quiet = 0; quiet < 3; ++quiet) {
                      now += ps_per_us;
                      for (Crew::Member& member : crew.members()) {
                          if (member.node->step(now)) quiet = 0;
                      }
                  }
              });
}

class NodeActor final : public sim::Actor {
public:
    explicit NodeActor(Node& node) : node_(node) {}
    bool step(Time now) override { return node_.step(now); }
    [[nodiscard]] Time next_deadline() const override { return node_.next_deadline(); }

private:
    Node& node_;
};

void on_simulation(const Config& config, Conversations& conversations) {
    const auto medium = sim::make_sim_medium({}).value();
    sim::World& world = dynamic_cast<sim::SimMedium&>(*medium).world();
    Crew crew(config, *medium, conversations);
    std::vector<std::unique_ptr<NodeActor>> actors;
    std::vector<sim::ActorId> ids;
    for (Crew::Member& member : crew.members()) {
        actors.push_back(std::make_unique<NodeActor>(*member.node));
        ids.push_back(world.add_actor(*actors.back()));
        world.bind(*member.endpoint, ids.back());
    }
    crew.woken = [&](std::uint32_t index) { world.wake(ids[index]); };
    crew.play([&] { return world.now(); }, [&] { world.run_until(world.now() + ps_per_s); });
}

class TwoWorlds : public ::testing::TestWithParam<std::tuple<protocol::Scheme, bool, protocol::Assignment>> {};

TEST_P(TwoWorlds, EB_T1_ExchangeTheSameMessagesPerOrderedPair) {
    const auto [scheme, folded, assignment] = GetParam();
    const Config config = script_config(scheme, folded, assignment);
    Conversations real;
    on_inproc(config, real);
    Conversations simulated;
    on_simulation(config, simulated);
    ASSERT_EQ(real.of_pair.size(), simulated.of_pair.size());
    std::size_t writes = 0;
    for (const auto& [pair, entries] : real.of_pair) {
        const auto found = simulated.of_pair.find(pair);
        ASSERT_NE(found, simulated.of_pair.end()) << pair.first << " -> " << pair.second;
        for (std::size_t index = 0; index < std::min(entries.size(), found->second.size()); ++index) {
            ASSERT_EQ(entries[index], found->second[index])
                << "entry " << index << " of " << pair.first << " -> " << pair.second;
        }
        EXPECT_EQ(entries.size(), found->second.size()) << pair.first << " -> " << pair.second;
        for (const std::string& entry : entries)
            writes += entry.starts_with("write") ? 1 : 0;
    }
    // Two RUs with two sources each; folded, half of the contributions stay on their node.
    EXPECT_EQ(writes, folded ? meps * 2 : meps * 4);
}

INSTANTIATE_TEST_SUITE_P(
    Schemes, TwoWorlds,
    ::testing::Combine(::testing::Values(protocol::Scheme::push, protocol::Scheme::pull_write), ::testing::Bool(),
                       ::testing::Values(protocol::Assignment::em, protocol::Assignment::source_credits)),
    [](const auto& each) {
        const bool ahead = std::get<2>(each.param) == protocol::Assignment::source_credits;
        return std::string(std::get<0>(each.param) == protocol::Scheme::push ? "push" : "pull") +
               (std::get<1>(each.param) ? "_folded" : "_split") + (ahead ? "_source_credits" : "_em");
    });

}  // namespace
}  // namespace incast
