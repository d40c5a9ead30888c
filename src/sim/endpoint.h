// transport_sim: one endpoint of a simulated world. Bodies are phantom: only heads land (sim/area_map.h).
#pragma once

#include <memory>
#include <vector>

#include <incast/transport.h>

#include "sim/area_map.h"
#include "sim/pool.h"
#include "sim/records.h"
#include "transport/imports.h"
#include "transport/medium.h"

namespace incast::sim {

class World;

class Endpoint final : public Transport {
public:
    Endpoint(World& world, EndpointId id, const transport::EndpointOptions& options, const Capabilities& capabilities);
    ~Endpoint() override;

    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
    [[nodiscard]] Blob address() const override;
    Post connect(Peer peer, const Blob& address, std::uint32_t incarnation) override;
    void disconnect(Peer peer) override;
    [[nodiscard]] bool drained() const override;
    Result<Local> allocate(std::size_t bytes) override;
    std::span<std::byte> memory(Local region) override;
    Result<Blob> expose(Local region, const Grant& grant) override;
    Result<Remote> import_key(Peer peer, const Blob& key) override;
    Result<Ok> release(Local region) override;
    Result<Ok> release(Remote import) override { return remotes_.release(import); }

    Post send(Peer peer, Bytes message) override;
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override;
    Post read(Peer peer, Target from, Slice into, Token token) override;
    [[nodiscard]] Bytes local(Slice where) const override;
    Bytes view(Target where, std::uint32_t length) override;
    /// An endpoint without an actor takes the world along to `now`.
    std::size_t poll(Time now, std::span<Event> events) override;
    /// With an actor never: the world wakes it.
    [[nodiscard]] Time next_deadline() const override;
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return -1; }

    // --- for the World and for checkers
    // ----------------------------------------------------------------------------------
    [[nodiscard]] EndpointId id() const { return id_; }
    [[nodiscard]] const transport::EndpointOptions& options() const { return options_; }
    /// nullptr if nothing landed there.
    [[nodiscard]] const Area* area(std::uint16_t region, std::uint64_t offset) const;
    [[nodiscard]] World& world() { return *world_; }
    /// A hint that it will be polled soon; for level 0, 1, 2, 3 in turn, see Actor.
    void prefetch(unsigned level) const;
    static constexpr std::size_t often_used_bytes = 128;  // of the object, from its beginning

private:
    friend class World;

    /// What this endpoint knows of a peer.
    struct Contact {
        bool known = false;    // connect was called and no peer_down followed yet
        bool refused = false;  // the attempt will fail
        EndpointId target = nil;
        std::uint32_t incarnation = 0;
        ConnectionId connection = nil;  // once both sides connect
        std::uint8_t side = 0;
        std::uint32_t attempt = 0;  // counts connects: an old give-up must not end a new attempt
    };
    struct Region {
        std::uint64_t bytes = 0;
        AreaMap areas;
        std::uint32_t use = 0;  // how many regions of that number were released
        bool there = true;
    };
    struct RemoteRegion {
        EndpointId endpoint = nil;
        std::uint16_t region = 0;
        std::uint32_t use = 0;
        std::uint64_t bytes = 0;
        Peer peer{};
    };

    /// nullptr if the peer may not be posted to.
    Contact* up(Peer peer);
    Contact& contact(Peer peer);
    [[nodiscard]] bool inside_own(const Slice& bytes) const;
    [[nodiscard]] bool has(std::size_t region) const { return region < regions_.size() && regions_[region].there; }
    /// False: a key of an earlier incarnation, or bytes beyond the region's end.
    [[nodiscard]] static bool reaches(const Contact& contact, const RemoteRegion& there, std::uint64_t offset,
                                      std::uint64_t bytes);
    void put(const Arrival& arrival);
    Arrival pop_arrival();
    void put_simple(Event::Kind kind, Peer peer, Status status, std::uint32_t incarnation, Token token = 0);
    void release_polled();

    World* world_;
    EndpointId id_;
    ActorId actor_ = nil;
    std::uint32_t inbox_head_ = nil;  // Arrivals, the oldest first
    std::uint32_t inbox_tail_ = nil;
    std::vector<std::uint32_t> contact_of_;  // by Peer: index in contacts_, or nil
    std::vector<Contact> contacts_;
    std::vector<Region> regions_;
    std::vector<std::uint16_t> released_;  // numbers of regions
    transport::Imports<RemoteRegion> remotes_;
    std::vector<BufferPool::Buffer> polled_;  // messages of the last poll
    transport::EndpointOptions options_;
    Capabilities capabilities_;
};

}  // namespace incast::sim
