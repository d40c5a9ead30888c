// The adversarial network never breaks the contract, whatever it draws.
#include "sim/models/adversarial.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "sim/endpoint.h"
#include "support/sim.h"

namespace incast::sim {
namespace {

using testing::Listener;

constexpr std::uint32_t nodes = 3;

AdversarialSettings unkind(std::uint64_t seed) {
    AdversarialSettings settings;
    settings.seed = seed;
    settings.tail_chance = 50'000;
    settings.overtake_chance = 500'000;
    settings.scatter_chance = 500'000;
    settings.done_chance = 200'000;
    settings.again_chance = 100'000;
    settings.connect_again_chance = 200'000;
    settings.connect_refused_chance = 200'000;
    return settings;
}

/// What every pair was promised, checked as it happens.
class ContractChecker final : public Observer {
public:
    explicit ContractChecker(World& world) : world_(world) { world.observe(this); }

    void message_posted(Time, EndpointId from, EndpointId to, Bytes message) override {
        pairs[{from, to}].posted.push_back(std::string(reinterpret_cast<const char*>(message.data()), message.size()));
    }
    void write_posted(Time, EndpointId from, EndpointId to, const Transfer& write) override {
        Pair& pair = pairs[{from, to}];
        if (!write.faulty) pair.unlanded.insert(write.number);
        if (write.noticed) pair.posted.push_back("notice " + std::to_string(write.number));
    }
    void landed(Time, EndpointId from, EndpointId to, const Transfer& write, std::uint8_t parts) override {
        Pair& pair = pairs[{from, to}];
        EXPECT_FALSE(pair.fenced) << "write " << write.number << " landed after peer_down";
        EXPECT_NE(parts, 0);
        if (write.landed == part_all) pair.unlanded.erase(write.number);
        if (write.landed != part_all) ++partial;
    }
    void message_delivered(Time, EndpointId from, EndpointId to, Bytes message) override {
        arrived(from, to, std::string(reinterpret_cast<const char*>(message.data()), message.size()));
    }
    void notice_delivered(Time, EndpointId from, EndpointId to, const Transfer& write) override {
        arrived(from, to, "notice " + std::to_string(write.number));
        const Pair& pair = pairs[{from, to}];
        EXPECT_TRUE(pair.unlanded.empty() || *pair.unlanded.begin() > write.number)
            << "bytes of an earlier write are not there";
        const Area* area = world_.find(to)->area(write.region, write.offset);
        ASSERT_NE(area, nullptr);
        EXPECT_EQ(area->head_write, write.number);
        EXPECT_EQ(std::min(area->body_write[0], area->body_write[1]), write.number);
    }
    void read_posted(Time, EndpointId from, EndpointId to, const Transfer& read) override {
        EXPECT_TRUE(reads.insert({read.number, {from, to, 0, 0}}).second);
    }
    void read_taken(Time, EndpointId, EndpointId to, const Transfer& read, std::uint8_t parts) override {
        Read& known = reads.at(read.number);
        EXPECT_FALSE((pairs[{known.from, to}].fenced)) << "read " << read.number << " after the owner's peer_down";
        EXPECT_EQ(known.taken & parts, 0);
        known.taken = static_cast<std::uint8_t>(known.taken | parts);
        if (known.taken != part_all) ++partial_reads;
    }
    void read_landed(Time, EndpointId from, EndpointId to, const Transfer& read, std::uint8_t parts) override {
        ASSERT_TRUE(reads.contains(read.number)) << "read " << read.number << " landed after it completed";
        Read& known = reads.at(read.number);
        EXPECT_FALSE((pairs[{to, from}].fenced)) << "read " << read.number << " landed after peer_down";
        EXPECT_EQ(known.taken & parts, parts) << "what was never read";
        EXPECT_EQ(known.landed & parts, 0);
        known.landed = static_cast<std::uint8_t>(known.landed | parts);
        const Area* area = world_.find(from)->area(static_cast<std::uint16_t>(read.body.region), read.body.offset);
        ASSERT_NE(area, nullptr);
        if ((parts & part_first_half) != 0) {
            EXPECT_EQ(area->body_write[0], read.number);
        }
    }
    void read_completed(Time, EndpointId from, EndpointId to, const Transfer& read, Status status) override {
        ASSERT_TRUE(reads.contains(read.number));
        const Read known = reads.at(read.number);
        EXPECT_EQ(known.from, from);
        EXPECT_EQ(known.to, to);
        if (status == Status::ok) {
            EXPECT_EQ(known.landed, part_all);
        }
        if (status == Status::remote_fault) {
            EXPECT_EQ(known.taken, 0);
        }
        reads.erase(read.number);
        ++read_ends[static_cast<std::size_t>(status)];
    }
    void peer_up(Time, EndpointId at, EndpointId peer) override {
        pairs[{peer, at}].fenced = false;
        pairs[{at, peer}] = {};
    }
    void peer_down(Time, EndpointId at, EndpointId peer) override { pairs[{peer, at}].fenced = true; }

    struct Pair {
        std::vector<std::string> posted;
        std::size_t next = 0;
        std::set<std::uint64_t> unlanded;
        bool fenced = false;
    };
    struct Read {
        EndpointId from = 0;
        EndpointId to = 0;
        std::uint8_t taken = 0;
        std::uint8_t landed = 0;
    };
    std::map<std::pair<EndpointId, EndpointId>, Pair> pairs;
    std::map<std::uint64_t, Read> reads;       // pending, by number
    std::array<std::uint64_t, 4> read_ends{};  // by Status
    std::uint64_t partial = 0;
    std::uint64_t partial_reads = 0;
    std::uint64_t arrivals = 0;

private:
    void arrived(EndpointId from, EndpointId to, const std::string& what) {
        Pair& pair = pairs[{from, to}];
        EXPECT_FALSE(pair.fenced);
        ASSERT_LT(pair.next, pair.posted.size());
        EXPECT_EQ(pair.posted[pair.next++], what);
        ++arrivals;
    }
    World& world_;
};

struct Mesh {
    explicit Mesh(const AdversarialSettings& settings, bool check = true)
        : world(std::make_unique<AdversarialModel>(settings)) {
        if (check) checker = std::make_unique<ContractChecker>(world);
        for (std::uint32_t self = 0; self < nodes; ++self) {
            node.push_back(std::make_unique<Listener>(world, self, 1U, 32U));
            regions.push_back(node.back()->endpoint->allocate(1 << 30).value());
        }
        for (std::uint32_t self = 0; self < nodes; ++self) {
            for (std::uint32_t peer = 0; peer < nodes; ++peer) {
                if (peer == self) continue;
                const Blob key = node[peer]->endpoint->expose(regions[peer]).value();
                remotes[self][peer] = node[self]->endpoint->import_key(Peer{peer}, key).value();
            }
        }
    }
    AdversarialModel& model() { return static_cast<AdversarialModel&>(world.model()); }
    void connect_all() {
        for (std::uint32_t self = 0; self < nodes; ++self) {
            for (std::uint32_t peer = 0; peer < nodes; ++peer) {
                if (peer != self) (void)node[self]->endpoint->connect(Peer{peer}, node[peer]->endpoint->address(), 1);
            }
        }
    }
    World world;
    std::unique_ptr<ContractChecker> checker;
    std::vector<std::unique_ptr<Listener>> node;
    std::vector<Local> regions;
    std::array<std::array<Remote, nodes>, nodes> remotes{};
};

std::uint64_t storm(std::uint64_t seed, bool check) {
    Mesh mesh(unkind(seed), check);
    base::Prng prng(seed + 1000);
    std::array<std::map<Token, int>, nodes> open;  // pending tokens
    std::array<std::array<int, nodes>, nodes> room_owed{};
    for (std::uint32_t self = 0; self < nodes; ++self) {
        mesh.node[self]->on_event = [&, self](const Listener::Seen& seen) {
            const auto peer = static_cast<std::uint32_t>(seen.event.peer);
            if (seen.event.kind == Event::Kind::completed) {
                EXPECT_EQ(open[self].erase(seen.event.token), 1U) << "completed twice, or never posted";
            } else if (seen.event.kind == Event::Kind::room) {
                EXPECT_EQ(room_owed[self][peer], 1);
                room_owed[self][peer] = 0;
            } else if (seen.event.kind == Event::Kind::peer_down) {
                room_owed[self][peer] = 0;
            }
        };
    }
    Token token = 0;
    for (int index = 0; index < 6000; ++index) {
        const auto self = static_cast<std::uint32_t>(prng.below(nodes));
        const auto peer = static_cast<std::uint32_t>((self + 1 + prng.below(nodes - 1)) % nodes);
        Transport& from = *mesh.node[self]->endpoint;
        Post post = Post::refused;
        if (prng.chance(300'000)) {
            post = mesh.node[self]->send(peer, "message " + std::to_string(index));
        } else if (prng.chance(300'000)) {
            // Now and then outside the peer's region.
            const std::uint64_t offset = prng.chance(50'000) ? (1 << 30) - 499 : std::uint64_t{1024} * prng.below(4000);
            post = from.read(
                Peer{peer}, {mesh.remotes[self][peer], offset},
                {mesh.regions[self], 500, (1 << 29) + std::uint64_t{1024} * static_cast<std::uint64_t>(index)},
                ++token);
            if (post == Post::pending) open[self][token] = 1;
        } else {
            const std::string head = "head " + std::to_string(index);
            const Notice notice = prng.chance(400'000) ? Notice(static_cast<std::uint16_t>(index)) : std::nullopt;
            post = from.write(
                Peer{peer}, std::as_bytes(std::span(head.data(), head.size())), {mesh.regions[self], 500, 0},
                {mesh.remotes[self][peer], std::uint64_t{1024} * static_cast<std::uint64_t>(index)}, notice, ++token);
            if (post == Post::pending) open[self][token] = 1;
        }
        if (post == Post::again) room_owed[self][peer] = 1;
        if (prng.chance(300'000))
            mesh.world.run_until(mesh.world.now() + static_cast<Time>(prng.below(30 * ps_per_us)));
        if (prng.chance(3'000) && mesh.world.connection_count() > 0) {
            mesh.model().cut(mesh.world, static_cast<ConnectionId>(prng.below(mesh.world.connection_count())));
        }
        if (prng.chance(3'000) && mesh.world.connection_count() > 0) {
            mesh.model().stall(mesh.world, static_cast<ConnectionId>(prng.below(mesh.world.connection_count())),
                               static_cast<std::uint8_t>(prng.below(2)), mesh.world.now() + ps_per_ms);
        }
        if (prng.chance(6'000)) from.disconnect(Peer{peer});
        if (index % 16 == 0) mesh.connect_all();
    }
    while (mesh.world.advance()) {
    }
    for (std::uint32_t self = 0; self < nodes; ++self) {
        EXPECT_TRUE(open[self].empty()) << open[self].size() << " operations of node " << self << " never completed";
        for (std::uint32_t peer = 0; peer < nodes; ++peer)
            EXPECT_EQ(room_owed[self][peer], 0);
    }
    if (check) {
        EXPECT_GT(mesh.checker->arrivals, 200U);
        EXPECT_GT(mesh.checker->partial, 100U);
        EXPECT_TRUE(mesh.checker->reads.empty());
        EXPECT_GT(mesh.checker->partial_reads, 50U);
        for (const Status status : {Status::ok, Status::peer_lost, Status::remote_fault, Status::cancelled}) {
            EXPECT_GT(mesh.checker->read_ends[static_cast<std::size_t>(status)], 0U) << static_cast<int>(status);
        }
        for (const Fault fault : {Fault::heavy_delay, Fault::overtaking, Fault::scattered_write, Fault::done_at_once,
                                  Fault::again, Fault::connect_again, Fault::connect_refused, Fault::connection_cut,
                                  Fault::stall, Fault::scattered_read}) {
            EXPECT_GT(mesh.model().count(fault), 0U) << static_cast<int>(fault);
        }
    }
    return mesh.world.trace_hash();
}

TEST(AdversarialModel, KeepsTheContractInAStorm) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(seed);
        storm(seed, true);
    }
}

TEST(AdversarialModel, SameSeedSameTrace) {
    EXPECT_EQ(storm(5, false), storm(5, false));
    EXPECT_EQ(storm(5, true), storm(5, false)) << "an observer must not change what happens";
    EXPECT_NE(storm(5, false), storm(6, false));
}

TEST(AdversarialModel, AMessageDoesNotSayThatEarlierUnannouncedWritesLanded) {
    bool overtaken = false;
    for (std::uint64_t seed = 1; seed <= 50 && !overtaken; ++seed) {
        AdversarialSettings settings = unkind(seed);
        settings.again_chance = settings.connect_again_chance = settings.connect_refused_chance = 0;
        Mesh mesh(settings);
        mesh.connect_all();
        while (mesh.world.advance()) {
        }
        ASSERT_NE(mesh.node[0]->endpoint->write(Peer{1}, std::as_bytes(std::span("head", 4)), {mesh.regions[0], 9, 0},
                                                {mesh.remotes[0][1], 0}, {}, 0),
                  Post::refused);
        ASSERT_EQ(mesh.node[0]->send(1, "after it"), Post::done);
        while (mesh.node[1]->count(Event::Kind::message) == 0 && mesh.world.advance()) {
        }
        overtaken = mesh.node[1]->endpoint->local({mesh.regions[1], 4, 0}).empty();
    }
    EXPECT_TRUE(overtaken);
}

TEST(AdversarialModel, WithoutFencesPeerDownWaitsForTheEndOfTheIncarnation) {
    AdversarialSettings settings;
    settings.fences_live_peer = false;
    Mesh mesh(settings);
    EXPECT_FALSE(mesh.node[0]->endpoint->capabilities().fences_live_peer);
    mesh.connect_all();
    while (mesh.world.advance()) {
    }
    mesh.node[1]->endpoint->disconnect(Peer{0});
    mesh.world.run_until(mesh.world.now() + ps_per_s);
    EXPECT_EQ(mesh.node[1]->count(Event::Kind::peer_down), 0U);
    EXPECT_EQ(mesh.node[0]->count(Event::Kind::peer_down), 0U);
    // A write posted only now still lands, but nothing is said of it.
    const auto write = [&] {
        return mesh.node[0]->endpoint->write(Peer{1}, std::as_bytes(std::span("late", 4)), {mesh.regions[0], 9, 0},
                                             {mesh.remotes[0][1], 0}, std::uint16_t{3}, 0);
    };
    EXPECT_EQ(write(), Post::pending);
    mesh.world.run_until(mesh.world.now() + ps_per_s);
    EXPECT_EQ(mesh.node[1]->endpoint->local({mesh.regions[1], 4, 0}).size(), 4U);
    EXPECT_EQ(mesh.node[1]->count(Event::Kind::notice), 0U);
    EXPECT_EQ(mesh.node[1]->endpoint->connect(Peer{0}, mesh.node[0]->endpoint->address(), 1), Post::again);
    mesh.node[0].reset();
    mesh.world.run_until(mesh.world.now() + ps_per_s);
    EXPECT_EQ(mesh.node[1]->count(Event::Kind::peer_down), 1U);
}

TEST(AdversarialModel, AReadFromAPeerThatWasLeftMayStillLandUntilItCompletes) {
    AdversarialSettings settings;
    settings.fences_live_peer = false;
    Mesh mesh(settings);
    mesh.connect_all();
    while (mesh.world.advance()) {
    }
    Listener& reader = *mesh.node[0];
    const Slice into{mesh.regions[0], 100, 4096};
    ASSERT_EQ(reader.endpoint->read(Peer{1}, {mesh.remotes[0][1], 0}, into, 7), Post::pending);
    reader.endpoint->disconnect(Peer{1});
    EXPECT_TRUE(mesh.world.body_in_use(static_cast<Endpoint&>(*reader.endpoint).id(), into));
    mesh.world.run_until(mesh.world.now() + ps_per_s);
    EXPECT_EQ(mesh.model().count(Fault::unfenced_landing), 1U);
    ASSERT_EQ(reader.count(Event::Kind::completed), 1U);
    EXPECT_EQ(reader.of(Event::Kind::completed)[0].event.status, Status::cancelled);
    EXPECT_EQ(reader.of(Event::Kind::completed)[0].event.token, 7U);
    EXPECT_EQ(reader.count(Event::Kind::peer_down), 0U);
    EXPECT_FALSE(mesh.world.body_in_use(static_cast<Endpoint&>(*reader.endpoint).id(), into));
}

TEST(AdversarialModel, ReadsCompleteInAnyOrder) {
    AdversarialSettings settings;
    settings.done_chance = 300'000;
    Mesh mesh(settings);
    mesh.connect_all();
    while (mesh.world.advance()) {
    }
    Listener& reader = *mesh.node[0];
    std::vector<Token> posted;
    for (Token token = 1; token <= 30; ++token) {
        const Post post = reader.endpoint->read(Peer{1}, {mesh.remotes[0][1], 4096 * token},
                                                {mesh.regions[0], 100, 4096 * token}, token);
        if (post == Post::pending) posted.push_back(token);
    }
    EXPECT_LT(posted.size(), 30U) << "some are done at once";
    EXPECT_GT(posted.size(), 10U);
    while (mesh.world.advance()) {
    }
    std::vector<Token> completed;
    for (const Listener::Seen& seen : reader.of(Event::Kind::completed))
        completed.push_back(seen.event.token);
    EXPECT_NE(completed, posted);
    std::ranges::sort(completed);
    EXPECT_EQ(completed, posted);
}

TEST(World, TellsWhichBytesAWriteStillNeeds) {
    AdversarialSettings settings;
    Mesh mesh(settings);
    mesh.connect_all();
    while (mesh.world.advance()) {
    }
    Transport& from = *mesh.node[0]->endpoint;
    const EndpointId id = static_cast<Endpoint&>(from).id();
    ASSERT_EQ(from.write(Peer{1}, {}, {mesh.regions[0], 100, 200}, {mesh.remotes[0][1], 0}, {}, 1), Post::pending);
    EXPECT_TRUE(mesh.world.body_in_use(id, {mesh.regions[0], 10, 299}));
    EXPECT_FALSE(mesh.world.body_in_use(id, {mesh.regions[0], 10, 300}));
    EXPECT_FALSE(mesh.world.body_in_use(id, {mesh.regions[0], 200, 0}));
    while (mesh.world.advance()) {
    }
    EXPECT_FALSE(mesh.world.body_in_use(id, {mesh.regions[0], 10, 299}));
}

}  // namespace
}  // namespace incast::sim
