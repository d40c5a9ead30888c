// Two endpoints in one place, without sockets: what one sends is handed to the other.
#include "softrio/udp/engine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace incast::softrio::udp {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t window_at = 0x1000;
constexpr std::uint32_t first_id = 1;
constexpr std::uint32_t second_id = 2;

TEST(Directory, Forms) {
    const auto network = Directory::parse("10.1.0.0/16:7000");
    ASSERT_TRUE(network.ok()) << network.error().message;
    EXPECT_EQ(to_string(*(*network).find(300)), "10.1.1.44:7000");
    EXPECT_FALSE((*network).find(0).has_value());
    EXPECT_FALSE((*network).find(255).has_value()) << "nobody's";
    EXPECT_FALSE((*network).find(2000).has_value());
    EXPECT_EQ(to_string(*(*Directory::parse("loopback:9")).find(3)), "127.64.0.3:9");
    const auto list = Directory::parse("5=127.0.0.1:70,900=[::1]:71");
    ASSERT_TRUE(list.ok()) << list.error().message;
    EXPECT_EQ((*list).all(), (std::vector<std::uint32_t>{5, 900}));
    EXPECT_EQ(to_string(*(*list).find(900)), "[::1]:71");
    const std::string path = testing::TempDir() + "endpoints.toml";
    std::ofstream(path) << "[endpoints]\n7 = \"127.0.0.1:70\"\n";
    const auto file = Directory::parse(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(to_string(*(*file).find(7)), "127.0.0.1:70");
}

TEST(Directory, WrongOnesAreOneClearLine) {
    const std::string path = testing::TempDir() + "wrong.toml";
    std::ofstream(path) << "[endpoints]\n7 = 7\n";
    for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
             {"10.0.0.1/24:7000", "a network of 8..30 bits and a port"},
             {"10.0.0.0/24", "a network of 8..30 bits and a port"},
             {"loopback:0", "a network of 8..30 bits and a port"},
             {"5=127.0.0.1", "'127.0.0.1' is no address"},
             {"5=127.0.0.1:70,6=127.0.0.1:70", "is there twice"},
             {"5=127.0.0.1:70,5=127.0.0.1:71", "destination id 5 is there twice"},
             {"255=127.0.0.1:70", "'255' must be a destination id"},
             {"no/such/file.toml", "no/such/file.toml"},
             {path, "must be a text ADDRESS:PORT"}}) {
        const auto directory = Directory::parse(text);
        ASSERT_FALSE(directory.ok()) << text;
        EXPECT_THAT(directory.error().message, HasSubstr(words));
        EXPECT_THAT(directory.error().message, HasSubstr("RIO_FABRIC=udp:"));
        EXPECT_EQ(directory.error().message.find('\n'), std::string::npos);
    }
}

/// One window of a page, in the middle of three.
class Own : public Target {
public:
    std::span<std::byte> window(std::uint32_t source, Direction direction, std::uint64_t address,
                                std::size_t bytes) override {
        if (forbidden.contains({source, direction})) return {};
        if (address < window_at || address - window_at > 0x1000 || bytes > 0x1000 - (address - window_at)) return {};
        return std::span(memory).subspan(0x1000 + (address - window_at), bytes);
    }
    wire::Status ring(std::uint32_t source, std::uint16_t info) override {
        rung.emplace_back(source, info);
        return wire::Status::done;
    }
    std::uint32_t read_register(std::uint32_t offset) override { return offset + 1; }
    wire::Status write_register(std::uint32_t, std::uint32_t) override { return wire::Status::error; }
    void take_message(std::uint32_t, std::span<const std::byte> message) override {
        messages.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
    }
    void take_letter(std::uint32_t source, std::uint8_t mailbox, std::span<const std::byte> message) override {
        if (mailbox != 0) letters.emplace_back(mailbox, std::string(message.size(), static_cast<char>(message.back())));
        Target::take_letter(source, mailbox, message);
    }
    void lose_peer(std::uint32_t, reliable::Loss) override { ++lost; }

    std::vector<std::byte> memory = std::vector<std::byte>(0x3000);
    std::set<std::pair<std::uint32_t, Direction>> forbidden;
    std::vector<std::pair<std::uint32_t, std::uint16_t>> rung;
    std::vector<std::string> messages;
    std::vector<std::pair<std::uint8_t, std::string>> letters;
    int lost = 0;
};

class Engines : public testing::Test {
protected:
    explicit Engines(bool small = false, const reliable::Settings& session = {})
        : directory_(*Directory::parse("1=127.0.0.1:1,2=127.0.0.2:1,3=127.0.0.3:1,4=127.0.0.4:1")),
          first_({first_id, small, session}, directory_, first_own_, [this] { return random_ += 0x1'0000; }),
          second_({second_id, small, session}, directory_, second_own_, [this] { return random_ += 0x1'0000; }) {}

    [[nodiscard]] Address address(std::uint32_t destid) const { return *directory_.find(destid); }

    void settle() {
        for (bool is_moving = true; is_moving;) {
            is_moving = false;
            for (auto [from, to, id] : {std::tuple{&first_, &second_, first_id}, {&second_, &first_, second_id}}) {
                std::vector<std::vector<std::byte>> all;
                from->collect(now_ns_, [&](const Engine::Output& output) {
                    all.emplace_back(output.bytes.begin(), output.bytes.end());
                });
                for (const auto& each : all) {
                    is_moving = true;
                    to->receive(now_ns_, address(id), each);
                    sent_ = each;
                }
            }
        }
    }

    int write(std::uint64_t address, std::vector<std::byte> data) {
        EXPECT_TRUE(first_.open(now_ns_, second_id));
        settle();
        Request request;
        wire::Packet packet;
        packet.operation = wire::Operation::nwrite_r;
        packet.address = address;
        packet.bytes = static_cast<std::uint16_t>(data.size());
        packet.data = data;
        EXPECT_TRUE(first_.begin(second_id, request, {}, packet.transaction));
        EXPECT_TRUE(first_.send(second_id, 1, packet));
        settle();
        EXPECT_TRUE(request.is_done());
        return request.error;
    }

    /// The second endpoint gets that from a peer whose session is real.
    void say(reliable::Connection& liar, const wire::Packet& packet) {
        std::vector<std::byte> bytes(wire::max_packet);
        bytes.resize(wire::encode(packet, bytes.data()));
        liar.body()[0] = static_cast<std::byte>(bytes.size() >> 8);
        liar.body()[1] = static_cast<std::byte>(bytes.size());
        std::ranges::copy(bytes, liar.body().begin() + 2);
        liar.add(1, bytes.size() + 2);
        move(liar);
    }
    void move(reliable::Connection& liar) {
        for (int round = 0; round < 3; ++round) {
            for (auto out = liar.next_datagram(now_ns_); !out.bytes.empty(); out = liar.next_datagram(now_ns_)) {
                sent_.assign(out.bytes.begin(), out.bytes.end());
                second_.receive(now_ns_, address(first_id), sent_);
            }
            second_.collect(now_ns_, [&](const Engine::Output& output) {
                (void)liar.receive(now_ns_, 0, *reliable::parse(output.bytes));
                while (liar.next_delivery()) {
                }
            });
        }
    }
    reliable::Connection make_liar(std::uint16_t id = first_id) {
        const std::array<std::uint16_t, 2> ids = {id, second_id};
        reliable::Connection liar({}, 0, std::as_bytes(std::span(ids)));
        liar.open(now_ns_, 0x9999'0000);
        move(liar);
        return liar;
    }
    static wire::Packet doorbell(std::uint16_t source) {
        wire::Packet packet;
        packet.operation = wire::Operation::doorbell;
        packet.destination = second_id;
        packet.source = source;
        packet.info = 7;
        return packet;
    }

    std::int64_t now_ns_ = 1'000'000'000;
    std::uint64_t random_ = 0x5555'0000'0000;
    Directory directory_;
    Own first_own_;
    Own second_own_;
    Engine first_;
    Engine second_;
    std::vector<std::byte> sent_;  // last
};

class SmallIds : public Engines {
protected:
    SmallIds() : Engines(true) {}
};

/// A datagram holds one packet.
class SmallDatagrams : public Engines {
protected:
    SmallDatagrams() : Engines(false, {.datagram_bytes = Engine::filled_bytes(548)}) {}
};

std::vector<std::byte> some(std::size_t bytes) {
    return std::vector<std::byte>(bytes, std::byte{0x5A});
}

TEST_F(Engines, WhoeverIsThereIsFound) {
    // By now the low bits of the probe's token are the place of another peer.
    ASSERT_TRUE(first_.open(now_ns_, second_id));
    ASSERT_TRUE(first_.open(now_ns_, 3));
    Own own;
    Engine fourth({4, false, {}}, directory_, own, [this] { return random_ += 0x1'0000; });
    fourth.begin_probes(0x1234'5678'0000'0000, {first_id});
    const Engine::Output probe = fourth.probe(first_id);
    first_.receive(now_ns_, address(4), probe.bytes);
    first_.collect(now_ns_, [&](const Engine::Output& output) {
        if (output.to == address(4)) fourth.receive(now_ns_, address(first_id), output.bytes);
    });
    EXPECT_EQ(fourth.alive(), std::vector<std::uint32_t>{first_id});
}

TEST_F(Engines, WritesLandInsideTheWindowAndNowhereElse) {
    EXPECT_EQ(write(window_at + 8, some(16)), 0);
    EXPECT_EQ(second_own_.memory[0x1008], std::byte{0x5A});
    for (const std::uint64_t at : {window_at - 8, window_at + 0x1000, std::uint64_t{0}, ~std::uint64_t{7}})
        EXPECT_EQ(write(at, some(8)), -EIO) << at;
    EXPECT_EQ(second_.counters().outside, 4U);
    EXPECT_EQ(std::ranges::count(second_own_.memory, std::byte{0x5A}), 16);
    EXPECT_EQ(write(window_at, some(8)), 0) << "what failed before is over";
}

TEST_F(Engines, TheTargetIsToldWhoWritesAndReads) {
    EXPECT_EQ(write(window_at, some(8)), 0);
    second_own_.forbidden = {{first_id, Direction::write}};
    EXPECT_EQ(write(window_at + 8, some(8)), -EIO);
    EXPECT_EQ(second_.counters().outside, 1U);
    wire::Packet packet;
    packet.operation = wire::Operation::nwrite;
    const wire::WriteRun run = first_.run_to(second_id, packet);
    const std::vector<std::byte> data(1024, std::byte{0x77});
    EXPECT_EQ(first_.send_run(second_id, 1, run, window_at + 256, data), data.size());
    settle();
    EXPECT_EQ(second_.counters().outside, 5U) << "packets of a run";
    EXPECT_EQ(std::ranges::count(second_own_.memory, std::byte{0x77}), 0);
    const auto read = [&] {
        Request request;
        std::array<std::byte, 8> got{};
        wire::Packet asks;
        asks.operation = wire::Operation::nread;
        asks.address = window_at;
        asks.bytes = got.size();
        EXPECT_TRUE(first_.begin(second_id, request, {got.data(), asks.address, asks.bytes}, asks.transaction));
        EXPECT_TRUE(first_.send(second_id, 1, asks));
        settle();
        EXPECT_TRUE(request.is_done());
        return request.error;
    };
    EXPECT_EQ(read(), 0);
    second_own_.forbidden = {{first_id, Direction::read}};
    EXPECT_EQ(read(), -EIO);
    EXPECT_EQ(write(window_at + 8, some(8)), 0);
}

TEST_F(SmallIds, WorkToo) {
    EXPECT_EQ(write(window_at, some(256)), 0);
    EXPECT_EQ(std::ranges::count(second_own_.memory, std::byte{0x5A}), 256);
}

TEST_F(Engines, ARunLandsInsideTheWindowAndNowhereElse) {
    ASSERT_TRUE(first_.open(now_ns_, second_id));
    settle();
    std::vector<std::byte> data(0x1400);
    for (std::size_t index = 0; index < data.size(); ++index)
        data[index] = static_cast<std::byte>(index % 251 + 1);
    // It begins three packets before the window and ends behind it, as nothing but its packets is judged.
    const std::uint64_t begin = window_at - 3 * wire::max_payload;
    const wire::WriteRun run = first_.run_to(second_id, {.operation = wire::Operation::nwrite, .data = {}});
    EXPECT_EQ(first_.send_run(second_id, 1, run, begin, data), data.size());
    settle();
    EXPECT_EQ(second_.counters().outside, 4U);
    EXPECT_EQ(second_.counters().bad_packets, 0U);
    std::vector<std::byte> expected(0x3000);
    std::copy_n(data.begin() + 3 * wire::max_payload, 0x1000, expected.begin() + 0x1000);
    EXPECT_TRUE(second_own_.memory == expected);
    // The same again where all of it is inside, and behind it what is no run.
    EXPECT_EQ(first_.send_run(second_id, 1, run, window_at, std::span(data).first(0x800)), 0x800U);
    EXPECT_EQ(write(window_at + 0x800, some(16)), 0);
    std::copy_n(data.begin(), 0x800, expected.begin() + 0x1000);
    std::fill_n(expected.begin() + 0x1800, 16, std::byte{0x5A});
    EXPECT_TRUE(second_own_.memory == expected);
}

TEST_F(Engines, MessagesOfAnySizeArriveWhole) {
    ASSERT_TRUE(first_.open(now_ns_, second_id));
    settle();
    const std::string text(4096, 'm');
    EXPECT_TRUE(first_.send_message(second_id, 1, std::as_bytes(std::span(text))));
    settle();
    EXPECT_EQ(second_own_.messages, std::vector<std::string>{text});
}

TEST_F(Engines, MessagesOfOtherMailboxesAreNoEndpointOfSoftwares) {
    ASSERT_TRUE(first_.open(now_ns_, second_id));
    settle();
    const std::string text(512, 'm');
    EXPECT_TRUE(first_.send_message(second_id, 1, std::as_bytes(std::span(text)), 1));
    settle();
    EXPECT_TRUE(second_own_.messages.empty());
    EXPECT_EQ(second_own_.letters, (std::vector<std::pair<std::uint8_t, std::string>>{{1, text}}));
}

TEST_F(SmallDatagrams, WritesLeaveRoomForMessages) {
    ASSERT_TRUE(first_.open(now_ns_, second_id));
    settle();
    const std::vector<std::byte> data(0x1000);
    const wire::WriteRun run = first_.run_to(second_id, {.operation = wire::Operation::nwrite, .data = {}});
    while (first_.send_run(second_id, 1, run, window_at, data) != 0) {
    }
    EXPECT_TRUE(first_.send_message(second_id, 1, data)) << "of the largest size";
    wire::Packet bell = doorbell(first_id);
    EXPECT_TRUE(first_.send(second_id, 1, bell));
}

TEST_F(Engines, ForgedSourceIdsAreDroppedAndCounted) {
    auto liar = make_liar();
    ASSERT_TRUE(liar.is_established());
    say(liar, doorbell(3));
    EXPECT_TRUE(second_own_.rung.empty());
    EXPECT_EQ(second_.counters().forged, 1U);
    say(liar, doorbell(first_id));
    EXPECT_EQ(second_own_.rung.size(), 1U);
    // A real datagram, from another address.
    second_.receive(now_ns_, address(3), sent_);
    EXPECT_EQ(second_.counters().forged, 2U);
    EXPECT_EQ(second_own_.rung.size(), 1U);
}

TEST_F(Engines, NobodyJoinsAsSomebodyElse) {
    auto liar = make_liar(3);  // from the address of 1
    EXPECT_FALSE(liar.is_established());
    EXPECT_GE(second_.counters().forged, 1U);
}

TEST_F(Engines, ReplaysRingOnce) {
    auto liar = make_liar();
    say(liar, doorbell(first_id));
    const auto replay = sent_;
    for (int count = 0; count < 5; ++count)
        second_.receive(now_ns_, address(first_id), replay);
    EXPECT_EQ(second_own_.rung.size(), 1U);
    // In another life of the session it has the wrong token.
    liar.close();
    move(liar);
    liar.open(now_ns_, 0x8888'0000);
    move(liar);
    ASSERT_TRUE(liar.is_established());
    const std::uint64_t before = second_.counters().bad_datagrams;
    second_.receive(now_ns_, address(first_id), replay);
    EXPECT_EQ(second_own_.rung.size(), 1U);
    EXPECT_GT(second_.counters().bad_datagrams, before);
}

TEST_F(Engines, DamagedAndMisroutedPacketsAreCounted) {
    auto liar = make_liar();
    auto packet = doorbell(first_id);
    packet.destination = 3;
    say(liar, packet);
    EXPECT_EQ(second_.counters().bad_packets, 1U);
    packet = {};
    packet.operation = wire::Operation::response;
    packet.destination = second_id;
    packet.source = first_id;
    packet.transaction = 9;
    say(liar, packet);
    EXPECT_EQ(second_.counters().bad_packets, 2U) << "nobody has asked";
    const std::string text("\x00\x09garbage..", 11);
    std::memcpy(liar.body().data(), text.data(), text.size());
    liar.add(1, text.size());
    move(liar);
    EXPECT_GE(second_.counters().bad_packets, 3U);
    EXPECT_TRUE(second_own_.rung.empty());
}

TEST_F(Engines, ADeadPeerEndsRequestsWithAnError) {
    ASSERT_TRUE(first_.open(now_ns_, second_id));
    settle();
    Request request;
    wire::Packet packet;
    packet.operation = wire::Operation::nread;
    packet.address = window_at;
    packet.bytes = 8;
    std::array<std::byte, 8> into{};
    ASSERT_TRUE(first_.begin(second_id, request, {into.data(), packet.address, 8}, packet.transaction));
    ASSERT_TRUE(first_.send(second_id, 1, packet));
    const std::int64_t until = now_ns_ + reliable::Settings{}.deadline_ns;
    while (!request.is_done() && now_ns_ <= until) {
        first_.collect(now_ns_, [](const Engine::Output&) {});
        now_ns_ = first_.next_deadline_ns();
        first_.advance(now_ns_);
    }
    EXPECT_TRUE(request.is_done());
    EXPECT_EQ(request.error, -ENODEV);
    EXPECT_LE(now_ns_, until);
    EXPECT_EQ(first_own_.lost, 1);
}

TEST_F(Engines, MoreThan255RequestsWait) {
    ASSERT_TRUE(first_.open(now_ns_, second_id));
    settle();
    Request request;
    std::uint8_t transaction = 0;
    for (int count = 0; count < 255; ++count)
        ASSERT_TRUE(first_.begin(second_id, request, {}, transaction));
    EXPECT_FALSE(first_.begin(second_id, request, {}, transaction));
    first_.close_all();
    EXPECT_TRUE(request.is_done());
}

}  // namespace
}  // namespace incast::softrio::udp
