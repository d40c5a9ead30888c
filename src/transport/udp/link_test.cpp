// Two links through a network that drops, doubles and delays, from seeds, in virtual time: what was posted arrives
// once, in order and whole, and what was lost on the way is counted. Where bodies are sent once, it is whole or damaged
// as its notice says.
#include "transport/udp/link.h"

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "transport/regions.h"

namespace incast::transport::udp {
namespace {

constexpr std::size_t place_bytes = 16384;
constexpr std::uint64_t places = 8;
constexpr std::uint64_t rounds = 150;
constexpr std::uint32_t million = 1'000'000;

struct Network {
    std::uint32_t drop = 0;
    std::uint32_t twice = 0;
    std::int64_t delay_ns = 0;  // at most, on top of 20 us
};

void fill(std::span<std::byte> into, std::uint64_t seed) {
    for (std::size_t at = 0; at < into.size(); ++at)
        into[at] = static_cast<std::byte>(base::mix64(seed + at / 8) >> (8 * (at % 8)));
}

std::size_t body_bytes(std::uint64_t number) {
    return base::mix64(number) % (place_bytes + 1);
}

struct Side {
    Side(std::uint32_t self, std::uint32_t datagram_bytes, bool once)
        : number(self),
          link({.datagram_bytes = datagram_bytes, .window_packets = 64}, static_cast<std::uint16_t>(self),
               framed::SessionOptions{.self = Peer{self},
                                      .peer = Peer{1 - self},
                                      .self_incarnation = 1,
                                      .peer_incarnation = 1,
                                      .max_posted = 8,
                                      .max_peer_reads = 8,
                                      .staging_bytes = 8192,
                                      .copied_bytes = 16384,
                                      .copy_below_bytes = 100,
                                      .bodies_beside = once ? 64U : 0U},
               regions) {
        source = regions.allocate(place_bytes * places).value();
        slots = regions.allocate(place_bytes * places).value();
        EXPECT_TRUE(regions.expose(slots, {}));
        key = {.generation = 1, .region = static_cast<std::uint32_t>(slots), .bytes = place_bytes * places, .write = 1};
    }
    std::uint32_t number;
    Regions regions{4};
    Link link;
    Local source{};
    Local slots{};
    framed::Key key;
    std::uint64_t posted = 0;  // write and message of each round
    std::uint64_t completed = 0;
    std::uint64_t arrived = 0;
    std::uint64_t damaged = 0;  // of these
    bool message_is_due = false;
    std::uint64_t polls = 0;
};

class World {
public:
    World(std::uint64_t seed, const Network& network, std::uint32_t datagram_bytes = 512, bool once = false)
        : random_(seed), network_(network), sides_{Side(0, datagram_bytes, once), Side(1, datagram_bytes, once)} {
        sides_[0].link.connection().start(0, 0x10000, 0x20001, 64);
        sides_[1].link.connection().start(0, 0x20001, 0x10000, 64);
    }

    void run() {
        while (!is_complete()) {
            ASSERT_LT(now_ns_, 120'000 * reliable::ms_ns) << "it does not come to an end";
            for (Side& side : sides_)
                poll(side);
            step();
            if (testing::Test::HasFailure()) return;
        }
    }
    [[nodiscard]] Datagrams datagrams() const {
        Datagrams sum = sides_[0].link.datagrams();
        return sum += sides_[1].link.datagrams();
    }
    [[nodiscard]] std::uint64_t damaged() const { return sides_[0].damaged + sides_[1].damaged; }
    [[nodiscard]] std::int64_t took_ns() const { return now_ns_; }
    std::uint64_t dropped = 0;

private:
    [[nodiscard]] bool is_complete() const {
        return sides_[0].arrived == rounds && sides_[1].arrived == rounds && sides_[0].link.drained() &&
               sides_[1].link.drained();
    }

    /// A body with a notice, and then a message, as long as the other side has places left.
    void post(Side& side) {
        const Side& other = sides_[1 - side.number];
        while (side.posted < rounds && side.posted < other.arrived + places && side.completed + places > side.posted) {
            const std::uint64_t number = side.posted;
            const std::size_t offset = number % places * place_bytes;
            const std::span body = side.regions.memory(side.source).subspan(offset, body_bytes(number));
            fill(body, number + side.number);
            const Post post =
                side.link.session().write({}, body, other.key, offset, static_cast<std::uint16_t>(number), number + 1);
            if (post == Post::again) return;
            if (post == Post::done) ++side.completed;
            std::array<std::byte, 40> message;
            fill(message, ~number);
            ASSERT_EQ(side.link.session().send(message), Post::done);
            ++side.posted;
        }
    }

    void poll(Side& side) {
        // Few places for events at times: what has to wait, waits.
        std::array<Event, 16> room;
        const std::span<Event> places_left = std::span(room).first(random_.below(room.size() + 1));
        framed::EventWriter events(places_left);
        ++side.polls;
        post(side);
        is_stuck_[side.number] = side.link.unpack(events, side.polls) == Link::Progress::stuck;
        while (!is_stuck_[side.number] && !waiting_[side.number].empty()) {
            const std::vector<std::byte> bytes = std::move(waiting_[side.number].front());
            waiting_[side.number].erase(waiting_[side.number].begin());
            received_[side.number] = bytes;
            const auto packet = reliable::parse(received_[side.number]);
            ASSERT_TRUE(packet.has_value());
            (void)side.link.connection().receive(now_ns_, 0, *packet);
            const Link::Progress progress = side.link.unpack(events, side.polls);
            ASSERT_NE(progress, Link::Progress::violated) << side.link.session().violation();
            is_stuck_[side.number] = progress == Link::Progress::stuck;
        }
        (void)side.link.session().settle(events);
        bool goes_on = true;
        while (goes_on) {
            (void)side.link.pack(events);
            send(side);
            goes_on = false;
            while (const auto piece = side.link.next_piece(now_ns_, events)) {
                std::vector<std::byte> whole(piece->head.begin(), piece->head.end());
                whole.insert(whole.end(), piece->rest.begin(), piece->rest.end());
                fly(side, whole);
                goes_on = !side.link.is_body_next();
            }
        }
        for (const Event& event : std::span(room).first(events.count()))
            look_at(side, event);
    }

    void look_at(Side& side, const Event& event) {
        if (event.kind == Event::Kind::completed) {
            ++side.completed;
        } else if (event.kind == Event::Kind::notice) {
            ASSERT_FALSE(side.message_is_due);
            ASSERT_EQ(event.size_or_value, static_cast<std::uint16_t>(side.arrived));
            std::vector<std::byte> expected(body_bytes(side.arrived));
            fill(expected, side.arrived + 1 - side.number);
            const auto place =
                side.regions.memory(side.slots).subspan(side.arrived % places * place_bytes, expected.size());
            if (event.status == Status::damaged) {
                EXPECT_FALSE(std::ranges::equal(place, expected)) << "round " << side.arrived;
                std::ranges::copy(expected, place.begin());  // so that what lands too late would be seen
                ++side.damaged;
            } else {
                ASSERT_EQ(event.status, Status::ok);
                ASSERT_TRUE(std::ranges::equal(place, expected)) << "round " << side.arrived;
            }
            side.message_is_due = true;
        } else if (event.kind == Event::Kind::message) {
            ASSERT_TRUE(side.message_is_due);
            std::array<std::byte, 40> expected;
            fill(expected, ~side.arrived);
            ASSERT_TRUE(std::ranges::equal(Bytes(event.data, event.size_or_value), expected));
            side.message_is_due = false;
            ++side.arrived;
        }
    }

    void send(Side& side) {
        while (true) {
            const reliable::Datagram datagram = side.link.connection().next_datagram(now_ns_);
            if (datagram.bytes.empty()) return;
            fly(side, datagram.bytes);
        }
    }

    void fly(const Side& side, Bytes bytes) {
        if (random_.chance(network_.drop)) {
            ++dropped;
            return;
        }
        for (int copies = random_.chance(network_.twice) ? 2 : 1; copies > 0; --copies) {
            const std::int64_t late = network_.delay_ns == 0 ? 0 : random_.between(0, network_.delay_ns);
            flying_.emplace(now_ns_ + 20'000 + late,
                            std::pair{1 - side.number, std::vector(bytes.begin(), bytes.end())});
        }
    }

    void step() {
        std::int64_t next = flying_.empty() ? reliable::never_ns : flying_.begin()->first;
        for (const Side& side : sides_)
            next = std::min(next, side.link.connection().next_deadline_ns());
        // Who is stuck, or has had no room for its events, polls again soon.
        now_ns_ = std::max(now_ns_ + 1, std::min(next, now_ns_ + 50'000));
        for (Side& side : sides_) {
            side.link.connection().advance(now_ns_);
            ASSERT_FALSE(side.link.connection().take_loss().has_value()) << "nobody died";
        }
        while (!flying_.empty() && flying_.begin()->first <= now_ns_) {
            auto& [to, bytes] = flying_.begin()->second;
            waiting_[to].push_back(std::move(bytes));
            flying_.erase(flying_.begin());
        }
    }

    base::Prng random_;
    Network network_;
    std::array<Side, 2> sides_;
    std::multimap<std::int64_t, std::pair<std::uint32_t, std::vector<std::byte>>> flying_;
    std::array<std::vector<std::vector<std::byte>>, 2> waiting_;
    std::array<std::vector<std::byte>, 2> received_;  // what is being handed on lies here
    std::array<bool, 2> is_stuck_{};
    std::int64_t now_ns_ = 0;
};

TEST(UdpLink, NothingIsLostWhereNothingIs) {
    World world(1, {});
    world.run();
    EXPECT_EQ(world.datagrams().lost, 0U);
    EXPECT_EQ(world.datagrams().repeated, 0U);
    EXPECT_GT(world.datagrams().sent, rounds);
}

TEST(UdpLink, AllArrivesOnceInOrderAndWholeWhateverTheNetworkDoes) {
    const std::array networks{
        Network{.drop = million / 1000}, Network{.drop = million / 100},
        Network{.drop = million / 10},   Network{.twice = million / 5},
        Network{.delay_ns = 2'000'000},  Network{.drop = million / 20, .twice = million / 20, .delay_ns = 500'000}};
    for (const Network& network : networks) {
        for (std::uint64_t seed = 0; seed < 2; ++seed) {
            SCOPED_TRACE("drop " + std::to_string(network.drop) + ", twice " + std::to_string(network.twice) +
                         ", delay " + std::to_string(network.delay_ns) + " ns, seed " + std::to_string(seed));
            World world(seed, network, seed % 2 == 0 ? 512 : 9000);
            world.run();
            ASSERT_FALSE(HasFailure());
            if (network.drop >= million / 20) {
                EXPECT_GT(world.datagrams().repeated, 0U);
                EXPECT_GT(world.datagrams().lost, 0U);
            }
        }
    }
}

TEST(UdpLink, WhatIsSentOnceIsWholeOrSaidToBeDamaged) {
    const std::array networks{Network{},
                              Network{.drop = million / 100},
                              Network{.drop = million / 10},
                              Network{.twice = million / 5},
                              Network{.delay_ns = 300'000},
                              Network{.drop = million / 20, .twice = million / 20, .delay_ns = 500'000}};
    for (const Network& network : networks) {
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
            SCOPED_TRACE("drop " + std::to_string(network.drop) + ", twice " + std::to_string(network.twice) +
                         ", delay " + std::to_string(network.delay_ns) + " ns, seed " + std::to_string(seed));
            World world(seed, network, seed % 2 == 0 ? 512 : 9000, true);
            world.run();
            ASSERT_FALSE(HasFailure());
            if (network.drop == 0 && network.delay_ns == 0) {
                EXPECT_EQ(world.damaged(), 0U);
            }
            if (network.drop >= million / 20) {
                EXPECT_GT(world.damaged(), 0U);
                EXPECT_LT(world.damaged(), 2 * rounds);
                EXPECT_GT(world.datagrams().lost, 0U);
            }
        }
    }
}

TEST(UdpLink, TheSameSeedGivesTheSameRun) {
    const Network network{.drop = million / 20, .twice = million / 50, .delay_ns = 300'000};
    World first(7, network);
    World second(7, network);
    first.run();
    second.run();
    EXPECT_EQ(first.took_ns(), second.took_ns());
    EXPECT_EQ(first.datagrams().sent, second.datagrams().sent);
    EXPECT_EQ(first.datagrams().repeated, second.datagrams().repeated);
    EXPECT_EQ(first.dropped, second.dropped);
}

}  // namespace
}  // namespace incast::transport::udp
