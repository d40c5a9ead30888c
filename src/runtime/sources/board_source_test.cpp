#include "runtime/sources/board_source.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/fake_transport.h"
#include "wire/mfp.h"

namespace incast::sources {
namespace {

constexpr std::uint32_t packing = 4;

/// A readout unit with the sources 10 and 11, and a socket of their boards.
struct BoardBench {
    explicit BoardBench(BoardOptions with = {}, std::uint32_t retention = 8)
        : options([&] {
              with.packing = packing;
              return with;
          }()),
          source(options) {
        config.sources = {{10, Peer{0}, 4096}, {11, Peer{0}, 4096}};
        config.retention_meps = retention;
        EXPECT_TRUE(source.attach(transport, config, 0, 2));
        source.start(now, 0, 0);
        const std::string& at = source.address();
        to = *datagram::parse_ip(at.substr(0, at.rfind(':')));
        to.port = static_cast<std::uint16_t>(std::stoi(at.substr(at.rfind(':') + 1)));
        datagram::Address any = to;
        any.port = 0;
        EXPECT_EQ(boards.bind(any), 0);
    }
    void send(std::uint16_t id, std::uint64_t first, std::uint32_t events = packing) {
        std::vector<std::byte> packet(2048);
        wire::MutableBytes out(packet);
        wire::MfpWriter writer =
            wire::MfpWriter::begin(out, {.first_event = first, .n_fragments = events, .source = id}).value();
        for (std::uint32_t index = 0; index < events; ++index) {
            writer.add(1, std::vector<std::byte>(20, std::byte(first + index)));
        }
        const std::uint64_t size = writer.finish().value();
        boards.add(to, std::span(packet).first(size), false);
        boards.send();
    }
    [[nodiscard]] wire::SourceFlag flag(std::uint64_t mep, std::uint32_t index) {
        const protocol::Piece& piece = source.piece(mep, index);
        EXPECT_EQ(piece.first_event, mep * packing);
        const auto view = wire::MfpView::parse(transport.local(piece.body));
        EXPECT_TRUE(view);
        EXPECT_EQ(view->flag(), piece.flag);
        return piece.flag;
    }

    BoardOptions options;
    BoardSource source;
    sources::FakeTransport transport;
    protocol::Config config;
    datagram::Socket boards;
    datagram::Address to;
    Time now = ps_per_s;
};

using wire::SourceFlag;

TEST(BoardSource, EB_C9_AMepIsMadeOnceAllBoardsSentIt) {
    BoardBench bench;
    EXPECT_FALSE(bench.source.produce(bench.now, 0));
    bench.send(10, 0);
    EXPECT_FALSE(bench.source.produce(bench.now, 0));
    EXPECT_GT(bench.source.next_ready(), bench.now);
    bench.send(11, 0);
    ASSERT_TRUE(bench.source.produce(bench.now, 0));
    EXPECT_EQ(bench.flag(0, 0), SourceFlag::ok);
    EXPECT_EQ(bench.flag(0, 1), SourceFlag::ok);
    EXPECT_EQ(bench.source.stats(bench.now).boards.taken_events, 2 * packing);
    EXPECT_EQ(bench.source.stats(bench.now).accepted_events, packing);
}

TEST(BoardSource, EB_C9_WhatIsMissingIsGivenUpAfterPatience) {
    BoardBench bench({{.patience = ps_per_s}});
    bench.send(10, 0);
    EXPECT_FALSE(bench.source.produce(bench.now, 0));
    EXPECT_FALSE(bench.source.produce(bench.now + ps_per_s - 1, 0));
    ASSERT_TRUE(bench.source.produce(bench.now + ps_per_s, 0));
    EXPECT_EQ(bench.flag(0, 0), SourceFlag::ok);
    EXPECT_EQ(bench.flag(0, 1), SourceFlag::late);
    EXPECT_FALSE(bench.source.produce(bench.now + 100 * ps_per_s, 1));  // nobody was heard of it
    EXPECT_EQ(bench.source.counts_of_boards()[1].lost_events, packing);
}

TEST(BoardSource, EB_C9_WhatIsBeyondTheWindowMovesIt) {
    BoardBench bench({{.window_meps = 4, .patience = 1000 * ps_per_s}});
    for (std::uint64_t mep = 0; mep < 6; ++mep) {
        bench.send(10, mep * packing);
    }
    EXPECT_TRUE(bench.source.produce(bench.now, 0));
    EXPECT_TRUE(bench.source.produce(bench.now, 1));
    EXPECT_FALSE(bench.source.produce(bench.now, 2));
    bench.send(11, 2 * packing);
    EXPECT_TRUE(bench.source.produce(bench.now, 2));
    EXPECT_EQ(bench.flag(0, 1), SourceFlag::late);
    EXPECT_EQ(bench.flag(2, 1), SourceFlag::ok);
    EXPECT_EQ(bench.flag(2, 0), SourceFlag::ok);
}

TEST(BoardSource, EB_C9_AfterAPauseNothingThatCameIsGivenUp) {
    BoardBench bench({{.patience = ps_per_ms}});
    bench.send(10, 0);
    EXPECT_FALSE(bench.source.produce(bench.now, 0));
    bench.send(11, 0);
    ASSERT_TRUE(bench.source.produce(bench.now + 10 * ps_per_s, 0));
    EXPECT_EQ(bench.flag(0, 1), SourceFlag::ok);
}

TEST(BoardSource, EB_C9_StrangersAreRefusedAndTold) {
    BoardBench bench;
    EXPECT_EQ(bench.source.take_news(bench.now),
              std::vector{"the boards of sources 10 to 11 send to " + bench.source.address()});
    bench.send(12, 0);
    EXPECT_FALSE(bench.source.produce(bench.now, 0));
    EXPECT_EQ(bench.source.stats(bench.now).refused_datagrams, 1U);
    const auto news = bench.source.take_news(bench.now);
    ASSERT_EQ(news.size(), 1U);
    EXPECT_NE(news.front().find("source 12"), std::string::npos);
}

TEST(BoardSource, EB_C9_ASilentBoardIsToldOnceAndAgain) {
    BoardBench bench({{.patience = ps_per_ms}});
    std::vector<std::string> news;
    std::uint64_t mep = 0;
    const auto look = [&] {
        for (int step = 0; step < 2; ++step) {
            bench.now += ps_per_s;
            mep += bench.source.produce(bench.now, mep) ? 1 : 0;
        }
        news = bench.source.take_news(bench.now);
    };
    bench.send(10, 0);
    bench.send(11, 0);
    look();
    for (int round = 0; round < 2; ++round) {
        bench.send(10, mep * packing);
        look();
    }
    EXPECT_EQ(news, std::vector<std::string>{"source 11 is silent, while others send"});
    bench.send(10, mep * packing);
    bench.send(11, mep * packing);
    look();
    EXPECT_EQ(news, std::vector<std::string>{"source 11 sends again"});
}

TEST(BoardSource, EB_C9_WhoHasNothingAtAllAsksOthers) {
    BoardBench bench({{.patience = ps_per_ms}});
    EXPECT_FALSE(bench.source.produce(bench.now, 0));
    EXPECT_TRUE(bench.source.asks_others());
    EXPECT_EQ(bench.source.impatient_at(), bench.now + ps_per_ms);
    EXPECT_EQ(bench.source.open_events(bench.now), 0U);
    bench.source.give_up(bench.now, 0);
    ASSERT_TRUE(bench.source.produce(bench.now, 0));
    EXPECT_EQ(bench.flag(0, 0), SourceFlag::late);
    EXPECT_EQ(bench.flag(0, 1), SourceFlag::late);
    EXPECT_FALSE(bench.source.produce(bench.now, 1));
    EXPECT_LE(bench.source.impatient_at(), bench.now);  // as silent as before
    bench.send(10, packing);
    EXPECT_FALSE(bench.source.produce(bench.now, 1));
    EXPECT_FALSE(bench.source.asks_others());  // it waits for its other board
    EXPECT_EQ(bench.source.impatient_at(), time_never);
}

TEST(BoardSource, EB_C9_TheRunEndsWithItsEvents) {
    BoardBench bench({{.total_events = 6}});
    EXPECT_EQ(bench.source.total_meps(), 2U);
    for (const std::uint16_t id : {std::uint16_t{10}, std::uint16_t{11}}) {
        bench.send(id, 0);
        bench.send(id, 4);
    }
    EXPECT_TRUE(bench.source.produce(bench.now, 0));
    EXPECT_TRUE(bench.source.produce(bench.now, 1));
    EXPECT_EQ(bench.source.piece(1, 0).n_events, 2U);
    EXPECT_FALSE(bench.source.produce(bench.now, 2));
    EXPECT_EQ(bench.source.next_ready(), time_never);
}

TEST(BoardSource, RefusesWhatItCannotListenAt) {
    BoardOptions options;
    options.address = "192.0.2.1";
    BoardSource source(options);
    sources::FakeTransport transport;
    protocol::Config config;
    config.sources = {{0, Peer{0}, 4096}};
    const auto attached = source.attach(transport, config, 0, 1);
    ASSERT_FALSE(attached);
    EXPECT_NE(attached.error().message.find("192.0.2.1"), std::string::npos);
    FakeTransport phantom(true);
    EXPECT_FALSE(BoardSource({}).attach(phantom, config, 0, 1));
}

}  // namespace
}  // namespace incast::sources
