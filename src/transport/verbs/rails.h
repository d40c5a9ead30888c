// Several rails: an endpoint of each, over the same regions. All that goes to one peer goes by one of them, so that its
// order is kept.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "os/poller.h"
#include "transport/verbs/endpoint.h"

namespace incast::transport::verbs {

class Rails final : public Transport {
public:
    static Result<std::unique_ptr<Transport>> make(const EndpointSettings& settings, const EndpointOptions& options);

    [[nodiscard]] const Capabilities& capabilities() const override { return rails_.front()->capabilities(); }
    [[nodiscard]] Blob address() const override;

    [[nodiscard]] Blob address_for(Peer peer) override;

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override;
    void disconnect(Peer peer) override { of(peer).disconnect(peer); }
    void ended(Peer peer, std::uint32_t incarnation) override { of(peer).ended(peer, incarnation); }
    [[nodiscard]] bool drained() const override;
    Result<Local> allocate(std::size_t bytes) override;
    std::span<std::byte> memory(Local region) override { return rails_.front()->memory(region); }
    Result<Blob> expose(Local region, const Grant& grant) override;
    Result<int> share(Local region) override { return rails_.front()->share(region); }
    Result<Remote> import_key(Peer peer, const Blob& blob) override;
    Result<Ok> release(Local region) override;
    Result<Ok> release(Remote import) override;
    Post send(Peer peer, Bytes message) override { return of(peer).send(peer, message); }
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        if (rail_in(target.region) != rail_of(peer)) return Post::refused;
        return of(peer).write(peer, head, body, {without_rail(target.region), target.offset}, notice, token);
    }
    Post read(Peer peer, Target from, Slice into, Token token) override {
        if (rail_in(from.region) != rail_of(peer)) return Post::refused;
        return of(peer).read(peer, {without_rail(from.region), from.offset}, into, token);
    }
    [[nodiscard]] Bytes local(Slice where) const override { return rails_.front()->local(where); }
    Bytes view(Target, std::uint32_t) override { return {}; }
    std::size_t poll(Time now, std::span<Event> events) override;
    void flush() override {
        for (const auto& rail : rails_)
            rail->flush();
    }
    [[nodiscard]] Time next_deadline() const override;
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return poller_.fd(); }

private:
    Rails(std::uint32_t self, std::vector<std::unique_ptr<Endpoint>> rails)
        : self_(self), there_(rails.front()->capabilities().max_peers, self), rails_(std::move(rails)) {}

    /// The same at both ends. Neighbours take turns, so that a node with N peers uses all of its rails.
    [[nodiscard]] std::uint32_t rail_of(Peer peer) const {
        const auto number = static_cast<std::uint32_t>(peer);
        const std::uint64_t there = number < there_.size() ? there_[number] : self_;
        return static_cast<std::uint32_t>((there + number) % rails_.size());
    }
    Endpoint& of(Peer peer) { return *rails_[rail_of(peer)]; }
    // A rail counts its own imports: outside, their numbers say whose they are.
    static constexpr std::uint32_t rail_shift = 30;
    static_assert(max_rails <= 4);
    static std::uint32_t rail_in(Remote import) { return static_cast<std::uint32_t>(import) >> rail_shift; }
    static Remote without_rail(Remote import) {
        return Remote{static_cast<std::uint32_t>(import) & ((1U << rail_shift) - 1)};
    }

    std::uint32_t self_;
    std::vector<std::uint32_t> there_;  // this node's number at each peer
    std::vector<std::unique_ptr<Endpoint>> rails_;
    std::size_t first_ = 0;  // that the next poll asks
    os::Poller poller_;
};

}  // namespace incast::transport::verbs
