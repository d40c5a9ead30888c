// A whole event builder in one thread on inproc, with a scripted clock: for the protocol's own tests and its benchmark.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "protocol/node.h"
#include "protocol/shape.h"
#include "transport/inproc/inproc.h"
#include "wire/body_checksum.h"

namespace incast::protocol::testing {

/// What every byte of a body is.
inline std::byte content(MepId mep, std::uint32_t source, std::uint32_t byte) {
    return static_cast<std::byte>(mep * 31 + std::uint64_t{source} * 7 + std::uint64_t{byte} * 3);
}

/// Every MEP is there at once, each MFP `body_bytes` long. Records misuse. With 0 bytes nothing is kept of a piece: the
/// benchmark counts this source's time as the protocol's.
class alignas(64) PlainSource final : public Source {
public:
    explicit PlainSource(std::uint32_t body_bytes, std::uint64_t total = 0) : body_bytes_(body_bytes), total_(total) {
        empty_.n_events = events_per_mep;
    }

    Result<Ok> attach(Transport& transport, const Config& config, std::uint32_t first, std::uint32_t count) override {
        retention_ = config.retention_meps;
        checksum_ = config.checksum;
        first_source_ = first;
        sources_ = count;
        if (body_bytes_ > 0) {
            ring_ = std::bit_ceil(std::size_t{retention_});
            pieces_.resize(ring_ * count);
            const Result<Local> region = transport.allocate(body_bytes_ * pieces_.size());
            if (!region) {
                return region.error();
            }
            region_ = *region;
            memory_ = transport.memory(region_);
        }
        return Ok{};
    }
    [[nodiscard]] std::span<const Local> regions() const override {
        return {&region_, body_bytes_ > 0 ? std::size_t{1} : std::size_t{0}};
    }
    void start(Time, MepId first, std::uint64_t) override { produced_ = released_ = first; }
    bool produce(Time, MepId mep) override {
        misuse += mep != produced_ || mep - released_ >= retention_ ? 1 : 0;
        ++produced_;
        if (body_bytes_ == 0) {
            return true;
        }
        for (std::uint32_t index = 0; index < sources_; ++index) {
            Piece& piece = pieces_[place(mep, index)];
            piece.body = {region_, body_bytes_, place(mep, index) * body_bytes_};
            piece.first_event = mep * events_per_mep;
            piece.n_events = events_per_mep;
            piece.goodput_bytes = body_bytes_;
            for (std::uint32_t byte = 0; byte < body_bytes_ && !memory_.empty(); ++byte) {
                memory_[piece.body.offset + byte] = content(mep, first_source_ + index, byte);
            }
            if (is_checked(checksum_, mep) && !memory_.empty()) {
                const std::span<std::byte> body = memory_.subspan(piece.body.offset, body_bytes_);
                piece.checksum = wire::body_checksum(body);
                if (damage_every > 0 && mep % damage_every == 0) {
                    body[mep % body_bytes_] ^= std::byte{4};  // behind its back
                }
            }
        }
        return true;
    }
    const Piece& piece(MepId mep, std::uint32_t index) override {
        misuse += mep < released_ || mep >= produced_ ? 1 : 0;
        if (body_bytes_ == 0) {
            empty_.first_event = mep * events_per_mep;
            return empty_;
        }
        return pieces_[place(mep, index)];
    }
    void release(MepId below) override {
        misuse += below < released_ || below > produced_ ? 1 : 0;
        released_ = below;
    }
    [[nodiscard]] Time next_ready() const override { return time_never; }
    [[nodiscard]] std::uint64_t total_meps() const override { return total_; }

    std::uint64_t misuse = 0;
    MepId damage_every = 0;  // of MEPs with checksums, so many arrive with a wrong bit

private:
    static constexpr std::uint32_t events_per_mep = 10;

    [[nodiscard]] std::size_t place(MepId mep, std::uint32_t index) const {
        return (mep & (ring_ - 1)) * sources_ + index;
    }

    // What the benchmark needs is two cache lines, this one and empty_.
    std::uint32_t body_bytes_;
    std::uint32_t retention_ = 0;
    MepId produced_ = 0;
    MepId released_ = 0;
    std::uint64_t total_;
    std::size_t ring_ = 0;  // MEPs
    alignas(64) Piece empty_;
    std::vector<Piece> pieces_;
    std::uint32_t sources_ = 0;
    std::uint32_t first_source_ = 0;
    Checksum checksum_ = Checksum::off;
    std::span<std::byte> memory_;
    Local region_{};
};

/// Remembers which MEPs came, and how.
class RecordingSink final : public Sink {
public:
    /// `phantom`: of the transport: bodies do not move.
    explicit RecordingSink(bool phantom = false) : phantom_(phantom) {}
    Taken take(Time, const BuiltMep& mep) override {
        repeated += taken.insert(mep.mep).second ? 0 : 1;
        incomplete += mep.flagged_sources > 0 ? 1 : 0;
        for (std::size_t source = 0; source < mep.sources.size(); ++source) {
            const BuiltSource& built = mep.sources[source];
            damaged += built.flag == wire::SourceFlag::bad_checksum ? 1 : 0;
            if (wire::is_missing(built.flag) || built.flag == wire::SourceFlag::bad_checksum) {
                continue;
            }
            wrong += built.head->mep != mep.mep || built.head->source != source ? 1 : 0;
            for (std::uint32_t byte = 0; byte < built.body.size(); ++byte) {
                wrong += built.body[byte] != content(mep.mep, static_cast<std::uint32_t>(source), byte) ? 1 : 0;
            }
            wrong += !phantom_ && built.body.size() != built.head->body_bytes ? 1 : 0;
        }
        return Taken::done;
    }
    std::size_t durable(Time, std::span<MepId>) override { return 0; }
    [[nodiscard]] Time next_deadline() const override { return time_never; }

    std::set<MepId> taken;
    std::uint64_t repeated = 0;
    std::uint64_t incomplete = 0;
    std::uint64_t wrong = 0;
    std::uint64_t damaged = 0;  // sources

private:
    bool phantom_;
};

/// Rejects every MEP whose id is a multiple of `every`; hesitates once before each decision.
class EveryNthFilter final : public Filter {
public:
    explicit EveryNthFilter(std::uint64_t every) : every_(every) {}
    Verdict decide(Time now, const BuiltMep& first) override {
        next_ = now;
        if (hesitated_.insert({first.mep, first.attempt}).second) {
            return Verdict::undecided;
        }
        return first.mep % every_ == 0 ? Verdict::reject : Verdict::accept;
    }
    [[nodiscard]] Time next_deadline() const override { return next_; }

private:
    std::uint64_t every_;
    Time next_ = time_never;
    std::set<std::pair<MepId, std::uint32_t>> hesitated_;
};

class CountingLedger final : public Ledger {
public:
    void committed(const LedgerEntry& entry) override {
        ++commits;
        flagged += entry.flagged_sources > 0 ? 1 : 0;
        rejected += entry.rejected ? 1 : 0;
    }
    void view_changed(Time, std::uint32_t, Peer, std::uint32_t, wire::Change, Cause) override {}
    std::uint64_t commits = 0;
    std::uint64_t flagged = 0;
    std::uint64_t rejected = 0;
};

/// `rus` readout units with `sources_per_ru` sources, `bus` builder units; folded: unit i of both kinds on node i, the
/// EM on node 0. Split: nodes 0..rus-1 read out, then the BUs, then the EM.
inline Config make_config(std::uint32_t rus, std::uint32_t bus, bool folded, std::uint32_t sources_per_ru,
                          std::uint32_t cap_bytes) {
    Config config;
    const std::uint32_t nodes = folded ? std::max(rus, bus) : rus + bus + 1;
    config.nodes.resize(nodes);
    for (std::uint32_t ru = 0; ru < rus; ++ru) {
        config.nodes[ru].roles |= role_ru;
        for (std::uint32_t source = 0; source < sources_per_ru; ++source) {
            config.sources.push_back({static_cast<std::uint16_t>(ru * sources_per_ru + source), Peer{ru}, cap_bytes});
        }
    }
    for (std::uint32_t bu = 0; bu < bus; ++bu) {
        config.nodes[folded ? bu : rus + bu].roles |= role_bu;
    }
    config.em = Peer{folded ? 0 : nodes - 1};
    config.nodes[folded ? 0 : nodes - 1].roles |= role_em;
    return config;
}

class Cluster {
public:
    using Wrap = std::unique_ptr<Transport> (*)(std::unique_ptr<Transport>);
    /// Sinks are RecordingSinks unless `null_sinks` (the benchmark), or others are lent. `wrap` decorates transports.
    Cluster(const Config& config, std::uint32_t body_bytes, bool null_sinks = false,
            std::map<Peer, Sink*> lent_sinks = {}, Wrap wrap = nullptr,
            std::unique_ptr<transport::Medium> medium = transport::inproc::make({}).value())
        : config_(config),
          shape_(std::make_unique<const Shape>(config_)),
          lent_sinks_(std::move(lent_sinks)),
          wrap_(wrap),
          medium_(std::move(medium)) {
        for (std::uint32_t index = 0; index < config.nodes.size(); ++index) {
            members_.emplace_back();
            nodes_.emplace_back();
            join(Peer{index}, 1, body_bytes, null_sinks);
        }
        introduce_all();
    }

    /// A fresh incarnation of a node; everybody is told.
    void restart(Peer peer, std::uint32_t incarnation, std::uint32_t body_bytes) {
        kill(peer);
        join(peer, incarnation, body_bytes, false);
        introduce_all();
    }
    void kill(Peer peer) {
        Member& member = members_[static_cast<std::size_t>(peer)];
        nodes_[static_cast<std::size_t>(peer)].reset();
        member.transport.reset();
    }

    /// One step of every node. True if anything happened.
    bool round() {
        bool any = false;
        now += 1'000'000;
        for (std::size_t node = 0; node < nodes_.size(); ++node) {
            any = (nodes_[node] && step(node)) || any;
        }
        return any;
    }
    template <class Condition>
    bool run_until(Condition&& condition, std::uint64_t max_rounds = 200'000) {
        for (std::uint64_t step = 0; step < max_rounds; ++step) {
            if (condition()) {
                return true;
            }
            round();
        }
        return condition();
    }
    [[nodiscard]] bool all_finished() const {
        return std::all_of(nodes_.begin(), nodes_.end(), [](const std::optional<Node>& node) {
            return !node || node->state() == NodeState::finished;
        });
    }

    struct Member {
        std::unique_ptr<Transport> transport;
        std::unique_ptr<PlainSource> source;
        std::unique_ptr<Sink> sink;
        RecordingSink* recording = nullptr;
        std::unique_ptr<EveryNthFilter> filter;
        std::uint32_t incarnation = 0;
    };
    Member& operator[](std::size_t index) { return members_[index]; }
    /// Steps that node, which exists; the next ones are told, as an environment with many nodes does.
    bool step(std::size_t node) {
        constexpr unsigned prefetch_levels = 4;
        for (unsigned level = 0; level < prefetch_levels; ++level) {
            const std::size_t later = node + prefetch_levels - level;
            if (later < nodes_.size() && nodes_[later]) {
                nodes_[later]->prefetch(level);
            }
        }
        return nodes_[node]->step(now);
    }
    /// It exists.
    Node& node(std::size_t index) { return *nodes_[index]; }
    Node& em() { return node(static_cast<std::size_t>(config_.em)); }
    CountingLedger ledger;
    Time now = 0;

private:
    void join(Peer peer, std::uint32_t incarnation, std::uint32_t body_bytes, bool null_sinks) {
        const auto index = static_cast<std::size_t>(peer);
        Member& member = members_[index];
        transport::EndpointOptions options;
        options.self = peer;
        options.incarnation = incarnation;
        options.run = config_.run;
        options.max_peers = static_cast<std::uint32_t>(config_.nodes.size());
        member.transport = medium_->endpoint(options).value();
        if (wrap_ != nullptr) {
            member.transport = wrap_(std::move(member.transport));
        }
        member.source = std::make_unique<PlainSource>(body_bytes);
        if (null_sinks) {
            member.sink = std::make_unique<NullSink>();
        } else {
            auto sink = std::make_unique<RecordingSink>();
            member.recording = sink.get();
            member.sink = std::move(sink);
        }
        member.incarnation = incarnation;
        member.filter = std::make_unique<EveryNthFilter>(7);
        Node& node = nodes_[index].emplace(config_, peer, incarnation, *member.transport, member.source.get(),
                                           lent_sinks_.contains(peer) ? lent_sinks_[peer] : member.sink.get(), &ledger,
                                           member.filter.get(), shape_.get());
        if (!node.start(now).ok()) {
            std::abort();
        }
    }
    void introduce_all() {
        for (std::uint32_t one = 0; one < nodes_.size(); ++one) {
            for (std::uint32_t other = 0; other < nodes_.size(); ++other) {
                if (nodes_[one] && nodes_[other] && one != other) {
                    nodes_[one]->update_peer(now, Peer{other}, members_[other].incarnation,
                                             members_[other].transport->address());
                }
            }
        }
    }

    Config config_;
    std::unique_ptr<const Shape> shape_;
    std::map<Peer, Sink*> lent_sinks_;
    Wrap wrap_;
    std::unique_ptr<transport::Medium> medium_;
    std::vector<Member> members_;
    std::deque<std::optional<Node>> nodes_;  // apart: each is cold when it is stepped, if there are a thousand
};

}  // namespace incast::protocol::testing
