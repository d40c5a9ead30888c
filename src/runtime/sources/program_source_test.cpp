#include "runtime/sources/program_source.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <incast/source.h>

#include "support/fake_transport.h"
#include "wire/mfp.h"

namespace incast::sources {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using wire::SourceFlag;

constexpr std::uint32_t events_of_mep = 4;

struct Handle {
    explicit Handle(incast_source* raw_in) : raw(raw_in) {}
    Handle(Handle&& other) noexcept : raw(std::exchange(other.raw, nullptr)) {}
    Handle(const Handle&) = delete;
    ~Handle() { incast_source_free(raw); }
    incast_source* raw;
};

/// A readout unit with the sources 10 and 11 in this thread; what waits for it is in another.
struct ProgramBench {
    explicit ProgramBench(ProgramOptions with = {}, std::uint32_t packing = events_of_mep, std::uint32_t cap = 4096) {
        static int benches = 0;
        with.name = "test-" + std::to_string(::getpid()) + "-" + std::to_string(++benches);
        with.packing = packing;
        name = with.name;
        source.emplace(with);
        config.sources = {{10, Peer{2}, cap}, {11, Peer{2}, cap}};
        config.retention_meps = 8;
        config.run = 77;
        attached = source->attach(transport, config, 0, 2).ok();
        source->start(now, 0, 0);
    }
    /// While the readout unit goes on, with an idea of the time.
    template <class Call>
    auto meanwhile(Call&& call) {
        auto done = std::async(std::launch::async, std::forward<Call>(call));
        while (done.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
            look();
        }
        return done.get();
    }
    void look() {
        now += 2 * ps_per_ms;
        std::ranges::move(source->take_news(now), std::back_inserter(news));
    }
    int status_of_attach(std::uint16_t number, int timeout_ms, incast_source** raw) {
        return meanwhile([&] { return incast_source_attach(name.c_str(), number, timeout_ms, raw); });
    }
    Handle attach(std::uint16_t number) {
        incast_source* raw = nullptr;
        EXPECT_EQ(status_of_attach(number, 5000, &raw), INCAST_SOURCE_OK);
        return Handle(raw);
    }
    static int send(const Handle& handle, std::uint64_t event, std::uint64_t bytes = 20) {
        void* space = nullptr;
        if (const int status = incast_source_space(handle.raw, bytes, 0, &space); status <= 0) return status;
        std::memset(space, static_cast<int>(event), bytes);
        return incast_source_commit(handle.raw, event, INCAST_SOURCE_OK_TYPE, INCAST_SOURCE_THERE, bytes) == 0 ? 1
                                                                                                               : -100;
    }
    static void send_mep(const Handle& handle, std::uint64_t mep) {
        for (std::uint64_t event = mep * events_of_mep; event < (mep + 1) * events_of_mep; ++event) {
            EXPECT_EQ(send(handle, event), 1);
        }
    }
    bool produce(std::uint64_t mep) {
        now += 2 * ps_per_ms;
        return source->produce(now, mep);
    }
    SourceFlag flag(std::uint64_t mep, std::uint32_t index) {
        const protocol::Piece& piece = source->piece(mep, index);
        const auto view = wire::MfpView::parse(transport.local(piece.body));
        EXPECT_TRUE(view);
        EXPECT_EQ(view->flag(), piece.flag);
        EXPECT_EQ(view->header().source, 10 + index);
        for (const wire::Fragment& fragment : *view) {
            EXPECT_TRUE(
                std::ranges::all_of(fragment.data, [&](std::byte each) { return each == std::byte(fragment.event); }));
        }
        return piece.flag;
    }
    [[nodiscard]] ingest::Counts counts(std::uint32_t index) const { return source->counts_of_boards()[index]; }

    std::string name;
    sources::FakeTransport transport;
    protocol::Config config;
    std::optional<ProgramSource> source;
    std::vector<std::string> news;
    Time now = ps_per_s;
    bool attached = false;
};

TEST(ProgramSource, EB_C9_FragmentsOfProgramsBecomeMeps) {
    ProgramBench bench;
    const Handle first = bench.attach(10);
    const Handle second = bench.attach(11);
    incast_source_info info;
    ASSERT_EQ(incast_source_get_info(second.raw, &info), INCAST_SOURCE_OK);
    EXPECT_EQ(info.source, 11);
    EXPECT_EQ(info.node, 2U);
    EXPECT_EQ(info.run, 77U);
    EXPECT_EQ(info.packing, events_of_mep);
    EXPECT_FALSE(bench.produce(0));
    ProgramBench::send_mep(first, 0);
    EXPECT_FALSE(bench.produce(0));
    ProgramBench::send_mep(second, 0);
    ASSERT_TRUE(bench.produce(0));
    EXPECT_EQ(bench.flag(0, 0), SourceFlag::ok);
    EXPECT_EQ(bench.flag(0, 1), SourceFlag::ok);
    EXPECT_EQ(bench.source->stats(bench.now).goodput_bytes, 2 * 20 * events_of_mep);
    EXPECT_FALSE(bench.produce(1));
    EXPECT_EQ(incast_source_next_event(first.raw), events_of_mep);
    EXPECT_EQ(incast_source_flush(first.raw, 0), 1);
}

TEST(ProgramSource, EB_C9_APacketOfAWholeMepAndALargeFragmentAreTakenAsTheyAre) {
    constexpr std::uint32_t large = 100'000;
    ProgramBench bench({}, 1, 200'000);
    const Handle first = bench.attach(10);
    const Handle second = bench.attach(11);
    EXPECT_EQ(ProgramBench::send(first, 0, large), 1);
    void* space = nullptr;
    ASSERT_EQ(incast_source_space(second.raw, 4096, 0, &space), 1);
    const std::span<std::byte> out(static_cast<std::byte*>(space), 4096);
    wire::MfpWriter writer = wire::MfpWriter::begin(out, {.first_event = 0, .n_fragments = 1, .source = 11}).value();
    ASSERT_TRUE(writer.add(3, std::vector<std::byte>(40)));
    ASSERT_EQ(incast_source_commit_mfp(second.raw, writer.finish().value()), INCAST_SOURCE_OK);
    ASSERT_TRUE(bench.produce(0));
    EXPECT_EQ(bench.flag(0, 0), SourceFlag::ok);
    EXPECT_EQ(bench.source->piece(0, 0).goodput_bytes, large);
    EXPECT_EQ(bench.source->piece(0, 1).goodput_bytes, 40U);
}

TEST(ProgramSource, EB_C9_WhatAProgramSaysIsMissingIsFlaggedSo) {
    ProgramBench bench({}, 1);
    const Handle first = bench.attach(10);
    const Handle second = bench.attach(11);
    void* space = nullptr;
    ASSERT_EQ(incast_source_space(first.raw, 0, 0, &space), 1);
    EXPECT_EQ(incast_source_commit(first.raw, 0, 0, INCAST_SOURCE_BAD_CHECKSUM, 0), INCAST_SOURCE_OK);
    EXPECT_EQ(ProgramBench::send(second, 0), 1);
    ASSERT_TRUE(bench.produce(0));
    EXPECT_EQ(bench.flag(0, 0), SourceFlag::bad_checksum);
    EXPECT_EQ(bench.flag(0, 1), SourceFlag::ok);
}

TEST(ProgramSource, EB_C9_AProgramThatIsAheadWaitsAndNothingIsGivenUpForIt) {
    ProgramBench bench({{.window_meps = 4, .patience = 1000 * ps_per_s}});
    const Handle first = bench.attach(10);
    const Handle second = bench.attach(11);
    incast_source_info info;
    incast_source_get_info(first.raw, &info);
    std::uint64_t event = 0;
    int status = 1;
    while (status == 1) {
        status = ProgramBench::send(first, event, 10'000 / (1 + event % 3));  // 4096 is the place: cut, not lost
        event += status == 1 ? 1 : 0;
        EXPECT_FALSE(bench.produce(0));
    }
    EXPECT_EQ(status, 0);
    EXPECT_GT(event, 4U * events_of_mep);
    EXPECT_EQ(incast_source_flush(first.raw, 10), 0);
    for (std::uint64_t mep = 0; mep * events_of_mep + events_of_mep <= event; ++mep) {
        EXPECT_FALSE(bench.produce(mep));
        ProgramBench::send_mep(second, mep);
        ASSERT_TRUE(bench.produce(mep));
        EXPECT_EQ(bench.flag(mep, 0), SourceFlag::truncated);
        EXPECT_EQ(bench.flag(mep, 1), SourceFlag::ok);
    }
    EXPECT_EQ(bench.counts(0).lost_events, 0U);
}

TEST(ProgramSource, EB_C9_AfterPatienceNothingWaitsForAProgramUntilItSends) {
    ProgramBench bench({{.patience = 100 * ps_per_ms}});
    const Handle first = bench.attach(10);
    const Handle second = bench.attach(11);
    for (std::uint64_t mep = 0; mep < 4; ++mep)
        ProgramBench::send_mep(first, mep);
    EXPECT_FALSE(bench.produce(0));
    bench.now += 100 * ps_per_ms;
    for (std::uint64_t mep = 0; mep < 4; ++mep) {
        ASSERT_TRUE(bench.produce(mep)) << mep;
        EXPECT_EQ(bench.flag(mep, 1), SourceFlag::late);
    }
    EXPECT_FALSE(bench.produce(4));
    ProgramBench::send_mep(first, 4);
    ASSERT_TRUE(bench.produce(4));
    // What it sends too late is counted; with something in time it is waited for again.
    ProgramBench::send_mep(second, 4);
    EXPECT_EQ(incast_source_next_event(second.raw), 4U * events_of_mep);
    ProgramBench::send_mep(second, 6);
    ProgramBench::send_mep(first, 5);
    EXPECT_FALSE(bench.produce(5));
    ProgramBench::send_mep(second, 5);
    ASSERT_TRUE(bench.produce(5));
    EXPECT_EQ(bench.flag(5, 1), SourceFlag::ok);
    EXPECT_EQ(bench.counts(1).late_events, events_of_mep);
    EXPECT_EQ(bench.counts(1).lost_events, 5U * events_of_mep);
}

TEST(ProgramSource, EB_C9_WhatOneThatDiedHadCommittedIsTakenAndAnotherMayCome) {
    ProgramBench bench({{.patience = 1000 * ps_per_s}});
    const Handle first = bench.attach(10);
    {
        const Handle second = bench.attach(11);
        ProgramBench::send_mep(second, 0);
        // As if it died: nobody says that it leaves, and the connection ends.
        incast_source* other = nullptr;
        EXPECT_EQ(bench.status_of_attach(11, 30, &other), INCAST_SOURCE_TAKEN);
    }
    ProgramBench::send_mep(first, 0);
    bench.look();
    ASSERT_TRUE(bench.produce(0));
    EXPECT_EQ(bench.flag(0, 1), SourceFlag::ok);
    ProgramBench::send_mep(first, 1);
    ASSERT_TRUE(bench.produce(1)) << "it left in order: nothing waits for it";
    EXPECT_EQ(bench.flag(1, 1), SourceFlag::late);
    const Handle third = bench.attach(11);
    ProgramBench::send_mep(third, 3);
    EXPECT_FALSE(bench.produce(2));
    ProgramBench::send_mep(first, 2);
    ProgramBench::send_mep(third, 2);
    ASSERT_TRUE(bench.produce(2));
    EXPECT_EQ(bench.flag(2, 1), SourceFlag::ok);
    bench.look();
    ASSERT_GE(bench.news.size(), 3U);
    EXPECT_EQ(bench.news[0], "the programs of sources 10 to 11 attach to " + bench.name);
    EXPECT_THAT(bench.news, ::testing::Contains(HasSubstr("the program of source 11")));
    EXPECT_THAT(bench.news, ::testing::Contains(HasSubstr("has left; later events")));
    EXPECT_THAT(bench.news, ::testing::Contains(HasSubstr("source 11 has a program again: process")));
}

TEST(ProgramSource, PacketsThatAreNoneAreRefusedAndTold) {
    ProgramBench bench;
    const Handle first = bench.attach(10);
    const auto commit = [&](auto&& write) {
        void* space = nullptr;
        ASSERT_EQ(incast_source_space(first.raw, 256, 0, &space), 1);
        ASSERT_EQ(incast_source_commit_mfp(first.raw, write(std::span(static_cast<std::byte*>(space), 256))), 0);
        EXPECT_FALSE(bench.produce(0));
    };
    const auto packet = [](std::uint16_t source, std::span<std::byte> out) {
        wire::MfpWriter writer = wire::MfpWriter::begin(out, {.n_fragments = 1, .source = source}).value();
        writer.add(3, std::vector<std::byte>(8));
        return writer.finish().value();
    };
    commit([](std::span<std::byte> out) { return std::ranges::fill(out, std::byte{7}), out.size(); });
    commit([](std::span<std::byte>) { return std::uint64_t{3}; });
    commit([&](std::span<std::byte> out) { return packet(10, out) + 8; });
    commit([&](std::span<std::byte> out) { return packet(11, out); });
    commit([&](std::span<std::byte> out) {  // sizes that do not add up, of a whole MEP
        const std::uint64_t bytes = packet(10, out);
        wire::store(out, 24, std::uint16_t{60000});
        return bytes;
    });
    EXPECT_EQ(bench.source->stats(bench.now).refused_datagrams, 5U);
    bench.look();
    EXPECT_EQ(std::ranges::count_if(bench.news, [](const auto& each) { return each.find("refused") != each.npos; }), 1);
    commit([&](std::span<std::byte> out) { return packet(10, out); });
    EXPECT_EQ(bench.counts(0).taken_events, 1U);
}

TEST(ProgramSource, WhatMakesNoSenseEndsAProgramAndNotTheUnit) {
    ProgramBench bench;
    incast_source* raw = nullptr;
    ASSERT_EQ(bench.status_of_attach(10, 5000, &raw), INCAST_SOURCE_OK);
    const Handle liar(raw);
    // Its counts, by the way it writes them: a record that is larger than the ring.
    void* space = nullptr;
    ASSERT_EQ(incast_source_space(liar.raw, 64, 0, &space), 1);
    std::memset(static_cast<std::byte*>(space) - 64, 0xFF, 64);
    // commit() writes the head anew, so the next record's is what lies.
    ASSERT_EQ(ProgramBench::send(liar, 0), 1);
    std::uint64_t lie = ~0ULL;
    void* mine = nullptr;
    ASSERT_EQ(incast_source_space(liar.raw, 64, 0, &mine), 1);
    ASSERT_EQ(incast_source_commit(liar.raw, 1, 1, INCAST_SOURCE_THERE, 64), 0);
    std::memcpy(static_cast<std::byte*>(mine) - 64, &lie, sizeof lie);
    EXPECT_FALSE(bench.produce(0));
    void* more = nullptr;
    EXPECT_EQ(incast_source_space(liar.raw, 64, 0, &more), INCAST_SOURCE_EJECTED);
    bench.look();
    EXPECT_THAT(bench.news, ::testing::Contains(HasSubstr("makes no sense: it is dropped")));
    const Handle honest = bench.attach(10);
    EXPECT_EQ(ProgramBench::send(honest, 1), 1);
    EXPECT_FALSE(bench.produce(0));
    EXPECT_EQ(bench.counts(0).taken_events, 2U);
}

TEST(ProgramSource, AWaitingProgramIsWokenAndSeesTheEnd) {
    ProgramBench bench;
    const Handle first = bench.attach(10);
    while (ProgramBench::send(first, 0, 4000) == 1) {  // over and over: duplicates, which are taken
    }
    EXPECT_EQ(bench.meanwhile([&] {
        void* space = nullptr;
        return incast_source_space(first.raw, 100, 20, &space);
    }),
              0);
    auto waits = std::async(std::launch::async, [&] {
        void* space = nullptr;
        return incast_source_space(first.raw, 100'000, 10'000, &space);
    });
    while (waits.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
        EXPECT_FALSE(bench.produce(0));
    }
    EXPECT_EQ(waits.get(), 1);
    bench.source.reset();
    void* space = nullptr;
    EXPECT_EQ(incast_source_space(first.raw, 10, 1000, &space), INCAST_SOURCE_ENDED);
    EXPECT_EQ(incast_source_flush(first.raw, 0), INCAST_SOURCE_ENDED);
}

TEST(ProgramSource, ArgumentsAreLookedAt) {
    ProgramBench bench;
    incast_source* raw = nullptr;
    EXPECT_EQ(incast_source_attach("a name", 10, 0, &raw), INCAST_SOURCE_ARGUMENT);
    EXPECT_EQ(incast_source_attach("nobody-is-called-so", 10, 0, &raw), INCAST_SOURCE_NOBODY);
    EXPECT_EQ(raw, nullptr);
    const Handle first = bench.attach(10);
    void* space = nullptr;
    EXPECT_EQ(incast_source_commit(first.raw, 0, 1, INCAST_SOURCE_THERE, 0), INCAST_SOURCE_ARGUMENT);
    EXPECT_EQ(incast_source_space(first.raw, std::uint64_t{1} << 40U, 0, &space), INCAST_SOURCE_TOO_LARGE);
    ASSERT_EQ(incast_source_space(first.raw, 10, 0, &space), 1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(space) % 64, 0U);
    EXPECT_EQ(incast_source_commit(first.raw, 0, 1, INCAST_SOURCE_THERE, 11), INCAST_SOURCE_ARGUMENT);
    EXPECT_EQ(incast_source_commit(first.raw, 0, 0xF4, INCAST_SOURCE_THERE, 10), INCAST_SOURCE_ARGUMENT);
    EXPECT_EQ(incast_source_commit(first.raw, 0, 1, INCAST_SOURCE_LATE, 10), INCAST_SOURCE_ARGUMENT);
    EXPECT_EQ(incast_source_commit(first.raw, 0, 1, 2, 0), INCAST_SOURCE_ARGUMENT);
    EXPECT_EQ(incast_source_commit(first.raw, ~0ULL, 1, INCAST_SOURCE_THERE, 10), INCAST_SOURCE_ARGUMENT);
    EXPECT_EQ(incast_source_commit(first.raw, 0, 1, INCAST_SOURCE_THERE, 10), INCAST_SOURCE_OK);
    ProgramOptions same;
    same.name = bench.name;
    ProgramSource second(same);
    const auto taken = second.attach(bench.transport, bench.config, 0, 1);
    ASSERT_FALSE(taken);
    EXPECT_THAT(taken.error().message, HasSubstr("source.name = " + bench.name));
    EXPECT_STREQ(incast_source_text(INCAST_SOURCE_TAKEN), "another program is that source");
}

}  // namespace
}  // namespace incast::sources
