#include "runtime/sources/stream_source.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "os/socket.h"
#include "support/fake_transport.h"
#include "wire/mfp.h"

namespace incast::sources {
namespace {

constexpr std::uint32_t stream_packing = 4;

std::vector<std::byte> stream_packet(std::uint16_t id, std::uint64_t first, std::uint32_t events = stream_packing) {
    std::vector<std::byte> packet(2048);
    wire::MfpWriter writer =
        wire::MfpWriter::begin(packet, {.first_event = first, .n_fragments = events, .source = id}).value();
    for (std::uint32_t index = 0; index < events; ++index) {
        writer.add(1, std::vector<std::byte>(20, std::byte(first + index)));
    }
    packet.resize(writer.finish().value());
    return packet;
}

/// A readout unit with the sources 10 and 11.
struct StreamBench {
    explicit StreamBench(BoardOptions with = {})
        : source([&] {
              with.packing = stream_packing;
              return with;
          }()) {
        config.sources = {{10, Peer{0}, 4096}, {11, Peer{0}, 4096}};
        config.retention_meps = 8;
        EXPECT_TRUE(source.attach(transport, config, 0, 2));
        source.start(now, 0, 0);
        (void)source.take_news(now);
    }
    [[nodiscard]] os::Descriptor connect() { return os::connect_to(source.address(), 5000).value(); }
    static void send(const os::Descriptor& to, const std::vector<std::byte>& bytes) {
        EXPECT_EQ(::send(to.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    }
    /// Time goes on in steps of a millisecond until then; loopback needs some of the real one. False: it never was.
    bool until(const std::function<bool()>& is_so) {
        for (int step = 0; step < 5000; ++step) {
            now += ps_per_ms;
            while (source.produce(now, made)) {
                ++made;
            }
            for (std::string& line : source.take_news(now)) {
                told += line + "\n";
            }
            if (is_so()) return true;
        }
        return false;
    }
    bool until_made(std::uint64_t meps) {
        return until([&] { return made >= meps; });
    }
    bool until_told(const std::string& what) {
        return until([&] { return told.find(what) != std::string::npos; });
    }
    [[nodiscard]] wire::SourceFlag flag(std::uint64_t mep, std::uint32_t index) {
        return source.piece(mep, index).flag;
    }
    [[nodiscard]] std::uint64_t refused() { return source.stats(now).refused_datagrams; }

    StreamSource source;
    FakeTransport transport;
    protocol::Config config;
    Time now = ps_per_s;
    std::uint64_t made = 0;
    std::string told;
};

using wire::SourceFlag;
constexpr Time for_ever = 1000 * ps_per_s;

TEST(StreamSource, EB_C9_PacketsComeOverOneConnectionOrOneEach) {
    StreamBench bench({{.patience = for_ever}});
    const os::Descriptor both = bench.connect();
    for (std::uint64_t mep = 0; mep < 3; ++mep) {
        StreamBench::send(both, stream_packet(10, mep * stream_packing));
        StreamBench::send(both, stream_packet(11, mep * stream_packing));
    }
    ASSERT_TRUE(bench.until_made(3));
    StreamBench apart({{.patience = for_ever}});
    const os::Descriptor one = apart.connect();
    const os::Descriptor other = apart.connect();
    for (std::uint64_t mep = 0; mep < 3; ++mep) {
        StreamBench::send(one, stream_packet(10, mep * stream_packing));
        StreamBench::send(other, stream_packet(11, mep * stream_packing));
    }
    ASSERT_TRUE(apart.until_made(3));
    for (std::uint64_t mep = 0; mep < 3; ++mep) {
        for (const std::uint32_t index : {0U, 1U}) {
            EXPECT_EQ(bench.flag(mep, index), SourceFlag::ok);
            EXPECT_EQ(apart.flag(mep, index), SourceFlag::ok);
        }
    }
    EXPECT_EQ(apart.refused(), 0U);
    EXPECT_EQ(apart.told, "");
}

TEST(StreamSource, EB_C9_WhatIsAheadWaitsAndNothingIsLost) {
    StreamBench bench({{.window_meps = 2, .patience = for_ever}});
    const os::Descriptor one = bench.connect();
    const os::Descriptor other = bench.connect();
    for (std::uint64_t mep = 0; mep < 50; ++mep) {
        StreamBench::send(one, stream_packet(10, mep * stream_packing));
    }
    ASSERT_TRUE(bench.until([&] { return bench.source.counts_of_boards()[0].packets == 2; }));
    EXPECT_EQ(bench.made, 0U);
    for (std::uint64_t mep = 0; mep < 50; ++mep) {
        StreamBench::send(other, stream_packet(11, mep * stream_packing));
    }
    ASSERT_TRUE(bench.until_made(50));
    EXPECT_EQ(bench.source.stats(bench.now).boards.lost_events, 0U);
    EXPECT_EQ(bench.source.stats(bench.now).boards.taken_events, 2 * 50 * stream_packing);
}

TEST(StreamSource, EB_C9_APacketThatIsCutOffIsNeverBuilt) {
    StreamBench bench({{.patience = 100 * ps_per_ms}});
    const os::Descriptor other = bench.connect();
    {
        const os::Descriptor one = bench.connect();
        StreamBench::send(one, stream_packet(10, 0));
        std::vector<std::byte> half = stream_packet(10, stream_packing);
        half.resize(half.size() - 1);
        StreamBench::send(one, half);
        StreamBench::send(other, stream_packet(11, 0));
        ASSERT_TRUE(bench.until_made(1));
    }
    StreamBench::send(other, stream_packet(11, stream_packing));
    ASSERT_TRUE(bench.until_told("within a packet"));
    EXPECT_NE(bench.told.find("(source 10)"), std::string::npos) << bench.told;
    ASSERT_TRUE(bench.until_made(2));
    EXPECT_EQ(bench.flag(0, 0), SourceFlag::ok);
    EXPECT_EQ(bench.flag(1, 0), SourceFlag::late);
    EXPECT_EQ(bench.flag(1, 1), SourceFlag::ok);
    // Nobody waits for it any more, until it is back.
    const Time then = bench.now;
    StreamBench::send(other, stream_packet(11, 2 * stream_packing));
    ASSERT_TRUE(bench.until_made(3));
    EXPECT_LT(bench.now - then, 100 * ps_per_ms);
    const os::Descriptor again = bench.connect();
    StreamBench::send(again, stream_packet(10, 3 * stream_packing));
    ASSERT_TRUE(bench.until_told("source 10 is back"));
    StreamBench::send(other, stream_packet(11, 3 * stream_packing));
    ASSERT_TRUE(bench.until_made(4));
    EXPECT_EQ(bench.flag(2, 0), SourceFlag::late);
    EXPECT_EQ(bench.flag(3, 0), SourceFlag::ok);
}

TEST(StreamSource, EB_C9_WhoSendsSomethingElseIsClosed) {
    StreamBench bench({{.patience = 100 * ps_per_ms}});
    const os::Descriptor one = bench.connect();
    const os::Descriptor other = bench.connect();
    StreamBench::send(one, stream_packet(10, 0));
    StreamBench::send(one, std::vector<std::byte>(100, std::byte{0x20}));
    StreamBench::send(other, stream_packet(11, 0));
    StreamBench::send(other, stream_packet(11, stream_packing));
    ASSERT_TRUE(bench.until_told("no MFP"));
    EXPECT_EQ(bench.refused(), 1U);
    ASSERT_TRUE(bench.until_made(2));
    EXPECT_EQ(bench.flag(0, 0), SourceFlag::ok);
    EXPECT_EQ(bench.flag(1, 0), SourceFlag::late);
    std::byte end{};
    EXPECT_TRUE(bench.until([&] { return ::recv(one.fd(), &end, 1, MSG_DONTWAIT) == 0; }));
}

TEST(StreamSource, EB_C9_SourcesOfOthersAreRefusedOneByOne) {
    StreamBench bench({{.patience = for_ever}});
    const os::Descriptor both = bench.connect();
    StreamBench::send(both, stream_packet(12, 0));
    StreamBench::send(both, stream_packet(10, 0));
    StreamBench::send(both, stream_packet(11, 0));
    ASSERT_TRUE(bench.until_made(1));
    EXPECT_EQ(bench.refused(), 1U);
    ASSERT_TRUE(bench.until_told("source 12, which another readout unit has"));
}

TEST(StreamSource, EB_C9_ASourceBelongsToWhoSendsIt) {
    StreamBench bench({{.patience = for_ever}});
    const os::Descriptor one = bench.connect();
    const os::Descriptor other = bench.connect();
    StreamBench::send(one, stream_packet(10, 0));
    StreamBench::send(other, stream_packet(11, 0));
    ASSERT_TRUE(bench.until_made(1));
    const os::Descriptor liar = bench.connect();
    StreamBench::send(liar, stream_packet(10, stream_packing));
    std::uint64_t mep = 1;
    const Time begin = bench.now;
    // The true one goes on meanwhile.
    while (bench.refused() == 0 && bench.now - begin < 2 * StreamSource::contested_for) {
        StreamBench::send(one, stream_packet(10, mep * stream_packing));
        StreamBench::send(other, stream_packet(11, mep * stream_packing));
        ASSERT_TRUE(bench.until_made(++mep));
        const Time later = bench.now + 100 * ps_per_ms;
        ASSERT_TRUE(bench.until([&] { return bench.now >= later; }));
    }
    EXPECT_EQ(bench.refused(), 1U);
    EXPECT_NE(bench.told.find("source 10 comes from"), std::string::npos) << bench.told;
    EXPECT_EQ(bench.source.stats(bench.now).boards.duplicate_events, 0U);
    EXPECT_EQ(bench.source.stats(bench.now).boards.lost_events, 0U);
}

TEST(StreamSource, EB_C9_WhoComesBackGetsItsSourceFromAConnectionThatIsDead) {
    StreamBench bench({{.patience = for_ever}});
    const os::Descriptor dead = bench.connect();  // never closed: its host is gone
    const os::Descriptor other = bench.connect();
    StreamBench::send(dead, stream_packet(10, 0));
    StreamBench::send(other, stream_packet(11, 0));
    ASSERT_TRUE(bench.until_made(1));
    const os::Descriptor back = bench.connect();
    StreamBench::send(back, stream_packet(10, stream_packing));
    StreamBench::send(other, stream_packet(11, stream_packing));
    const Time begin = bench.now;
    const auto has_passed = [&] { return bench.now - begin > StreamSource::contested_for / 2; };
    ASSERT_TRUE(bench.until(has_passed));
    EXPECT_EQ(bench.made, 1U);
    ASSERT_TRUE(bench.until_told("as nothing comes from"));
    ASSERT_TRUE(bench.until_made(2));
    EXPECT_EQ(bench.flag(1, 0), SourceFlag::ok);
    EXPECT_EQ(bench.refused(), 0U);
}

TEST(StreamSource, EB_C9_SourcesOfOneConnectionThatAreTooFarApartHoldUpNobody) {
    StreamBench bench({{.window_meps = 2, .patience = for_ever}});
    const os::Descriptor both = bench.connect();
    StreamBench::send(both, stream_packet(11, 0));
    for (std::uint64_t mep = 0; mep < 6; ++mep) {
        StreamBench::send(both, stream_packet(10, mep * stream_packing));
    }
    StreamBench::send(both, stream_packet(11, stream_packing));
    ASSERT_TRUE(bench.until_made(6));
    EXPECT_EQ(bench.flag(0, 1), SourceFlag::ok);
    EXPECT_EQ(bench.flag(1, 0), SourceFlag::ok);
    EXPECT_EQ(bench.flag(1, 1), SourceFlag::late);
    EXPECT_EQ(bench.source.counts_of_boards()[1].late_events, stream_packing);
}

TEST(StreamSource, EB_C9_StrangersWhoSayNothingLeaveRoomForBoards) {
    StreamBench bench({{.patience = for_ever}});
    std::vector<os::Descriptor> strangers;
    for (int count = 0; count < 30; ++count) {
        strangers.push_back(bench.connect());
    }
    const Time later = bench.now + StreamSource::contested_for + ps_per_ms;
    ASSERT_TRUE(bench.until([&] { return bench.now >= later; }));
    EXPECT_NE(bench.told.find("turned away"), std::string::npos) << bench.told;
    const os::Descriptor one = bench.connect();
    const os::Descriptor other = bench.connect();
    StreamBench::send(one, stream_packet(10, 0));
    StreamBench::send(other, stream_packet(11, 0));
    EXPECT_TRUE(bench.until_made(1));
}

TEST(StreamSource, RefusesWhatItCannotListenAt) {
    BoardOptions options;
    options.address = "192.0.2.1";
    FakeTransport transport;
    protocol::Config config;
    config.sources = {{0, Peer{0}, 4096}};
    const auto attached = StreamSource(options).attach(transport, config, 0, 1);
    ASSERT_FALSE(attached);
    EXPECT_NE(attached.error().message.find("192.0.2.1"), std::string::npos);
    FakeTransport phantom(true);
    EXPECT_FALSE(StreamSource({}).attach(phantom, config, 0, 1));
}

}  // namespace
}  // namespace incast::sources
