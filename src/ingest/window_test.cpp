#include "ingest/window.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace incast::ingest {
namespace {

constexpr std::uint32_t cap = 512;
constexpr std::uint32_t fragment_size = 20;

/// A window of source 7 with its memory.
struct Bench {
    explicit Bench(std::uint32_t packing, std::uint32_t open = 4, std::uint64_t total = 0, std::uint32_t kept = 8)
        : memory(std::size_t{open + kept} * cap),
          window({.source = 7,
                  .packing = packing,
                  .total_events = total,
                  .open_meps = open,
                  .places = open + kept,
                  .cap_bytes = cap,
                  .stride_bytes = cap},
                 memory),
          places(open + kept),
          packing(packing) {}

    Window::Answer send(std::uint64_t first, std::uint32_t events, std::uint32_t bytes = fragment_size) {
        std::vector<std::byte> packet(4096);
        wire::MutableBytes out(packet);
        wire::MfpWriter writer =
            wire::MfpWriter::begin(out, {.first_event = first, .n_fragments = events, .source = 7}).value();
        for (std::uint32_t index = 0; index < events; ++index) {
            writer.add(1, std::vector<std::byte>(bytes, std::byte(first + index)));
        }
        const std::uint64_t size = writer.finish().value();
        return window.take(wire::MfpView::parse(Bytes(packet).first(size)).value());
    }
    /// Makes the next MEP: a letter for each event, its flag's where it is missing.
    std::string made() {
        const std::uint64_t mep = next++;
        const Made made = window.make(wire::SourceFlag::late);
        flag = made.flag;
        const auto view = wire::MfpView::parse(Bytes(memory).subspan(mep % places * cap, made.bytes));
        EXPECT_TRUE(view) << view.error().message;
        EXPECT_EQ(view->header().first_event, mep * packing);
        EXPECT_EQ(view->payload_bytes(), made.goodput_bytes);
        EXPECT_EQ(view->flag(), made.flag);
        std::string letters;
        for (const wire::Fragment& fragment : *view) {
            if (const auto missing = fragment.missing()) {
                letters += to_string(*missing).front();
            } else {
                const bool is_right = std::ranges::all_of(
                    fragment.data, [&](std::byte each) { return each == std::byte(fragment.event); });
                letters += is_right ? '.' : '!';
            }
        }
        return letters;
    }

    std::vector<std::byte> memory;
    Window window;
    std::uint32_t places;
    std::uint32_t packing;
    std::uint64_t next = 0;
    wire::SourceFlag flag = wire::SourceFlag::ok;
};

TEST(Window, EB_C9_WhatComesInOrderIsHandedOnAsItCame) {
    Bench bench(2);
    for (std::uint64_t mep = 0; mep < 40; ++mep) {
        ASSERT_EQ(bench.send(2 * mep, 2), Window::Answer::used);
        EXPECT_TRUE(bench.window.is_complete(mep));
        EXPECT_EQ(bench.made(), "..");
        EXPECT_EQ(bench.flag, wire::SourceFlag::ok);
    }
    EXPECT_EQ(bench.window.counts().taken_events, 80U);
    EXPECT_EQ(bench.window.counts().lost_events, 0U);
}

TEST(Window, EB_C9_PacketsOfOtherSizesAreCutAndPutTogether) {
    Bench bench(4);
    bench.send(0, 3);
    EXPECT_FALSE(bench.window.is_complete(0));
    bench.send(3, 3);
    EXPECT_TRUE(bench.window.is_complete(0));
    bench.send(6, 6);
    EXPECT_EQ(bench.made(), "....");
    EXPECT_EQ(bench.made(), "....");
    EXPECT_EQ(bench.made(), "....");
    EXPECT_EQ(bench.window.counts().size_changes, 0U);
    bench.send(12, 6);
    EXPECT_EQ(bench.window.counts().size_changes, 1U);
    EXPECT_EQ(bench.window.events_per_packet(), 6U);
}

TEST(Window, EB_C9_AnyOrderGivesTheSame) {
    Bench bench(4);
    for (const std::uint64_t event : {7U, 2U, 0U, 6U, 3U, 4U, 1U, 5U}) {
        bench.send(event, 1);
    }
    EXPECT_EQ(bench.made(), "....");
    EXPECT_EQ(bench.made(), "....");
    EXPECT_EQ(bench.window.counts().taken_events, 8U);
}

TEST(Window, EB_C9_WhatIsMissingIsFlaggedLate) {
    Bench bench(3);
    bench.send(0, 1);
    bench.send(2, 1);
    bench.send(6, 3);
    EXPECT_EQ(bench.made(), ".l.");
    EXPECT_EQ(bench.flag, wire::SourceFlag::late);
    EXPECT_EQ(bench.made(), "lll");
    EXPECT_EQ(bench.made(), "...");
    EXPECT_EQ(bench.window.counts().lost_events, 4U);
}

TEST(Window, EB_C9_DuplicatesAndLatecomersAreToldApart) {
    Bench bench(2);
    bench.send(0, 2);
    bench.send(0, 2);  // while it is open
    bench.send(2, 1);
    bench.made();
    bench.made();
    bench.send(4, 2);
    bench.made();
    bench.send(1, 1);  // after it was made
    bench.send(2, 2);  // of which one came, and one did not
    EXPECT_EQ(bench.window.counts().duplicate_events, 4U);
    EXPECT_EQ(bench.window.counts().late_events, 1U);
    EXPECT_EQ(bench.window.counts().taken_events, 5U);
    EXPECT_EQ(bench.window.counts().lost_events, 1U);
}

TEST(Window, EB_C9_WhatIsAheadWaitsForTheWindow) {
    Bench bench(2);
    bench.send(0, 2);
    EXPECT_EQ(bench.send(12, 2), Window::Answer::ahead);
    EXPECT_EQ(bench.window.wants_next(), 3U);
    EXPECT_EQ(bench.window.counts().packets, 1U);
    while (bench.next < 3) {
        bench.made();
    }
    EXPECT_EQ(bench.send(12, 2), Window::Answer::used);
    EXPECT_EQ(bench.window.counts().taken_events, 4U);
}

TEST(Window, EB_C9_OneWrongIdMovesNothing) {
    Bench bench(2);
    bench.send(0, 2);
    EXPECT_EQ(bench.send(1'000'000, 2), Window::Answer::used);
    bench.send(2, 2);
    EXPECT_EQ(bench.made(), "..");
    EXPECT_EQ(bench.made(), "..");
    EXPECT_EQ(bench.window.counts().stray_events, 2U);
}

TEST(Window, EB_C9_AJumpIsBelievedAfterSome) {
    Bench bench(2);
    bench.send(0, 2);
    for (std::uint64_t packet = 0; packet + 1 < Window::believed_after; ++packet) {
        EXPECT_EQ(bench.send(1000 + 2 * packet, 2), Window::Answer::used);
    }
    EXPECT_EQ(bench.send(1006, 2), Window::Answer::ahead);
    EXPECT_EQ(bench.window.wants_next(), 500U);
    while (bench.next < 500) {
        bench.made();
    }
    EXPECT_EQ(bench.send(1006, 2), Window::Answer::used);
    EXPECT_EQ(bench.window.counts().jumps, 1U);
    EXPECT_EQ(bench.window.counts().stray_events, 6U);
}

TEST(Window, EB_C9_IdsOfAnotherRunAreNotFollowed) {
    Bench bench(1);
    for (std::uint64_t packet = 0; packet < 10; ++packet) {
        EXPECT_EQ(bench.send((std::uint64_t{1} << 60U) + packet, 1), Window::Answer::used);
    }
    EXPECT_FALSE(bench.window.is_in_step());
    EXPECT_EQ(bench.made(), "d");
    EXPECT_EQ(bench.window.counts().stray_events, 10U);
}

TEST(Window, EB_C9_ARestartIsToldAndFlaggedDesync) {
    Bench bench(2);
    for (std::uint64_t mep = 0; mep < 30; ++mep) {
        bench.send(2 * mep, 2);
        EXPECT_EQ(bench.made(), "..");
    }
    for (std::uint64_t packet = 0; packet < 20; ++packet) {
        bench.send(2 * packet, 2);
    }
    EXPECT_EQ(bench.window.counts().restarts, 1U);
    EXPECT_FALSE(bench.window.is_in_step());
    EXPECT_EQ(bench.made(), "dd");
    EXPECT_EQ(bench.flag, wire::SourceFlag::desync);
    while (bench.next < 60) {
        bench.made();
    }
    for (std::uint64_t packet = 0; packet < Window::believed_after; ++packet) {  // the run's ids again
        bench.send(120 + 2 * packet, 2);
    }
    EXPECT_TRUE(bench.window.is_in_step());
    const Counts& counts = bench.window.counts();
    EXPECT_EQ(counts.taken_events + counts.duplicate_events + counts.late_events + counts.stray_events,
              2 * (30 + 20 + Window::believed_after));
}

TEST(Window, EB_C9_APacketTwiceIsNoRestart) {
    Bench bench(2);
    for (std::uint64_t mep = 0; mep < 20; ++mep) {
        bench.send(2 * mep, 2);
        bench.send(2 * mep, 2);
        bench.made();
    }
    EXPECT_EQ(bench.window.counts().restarts, 0U);
    EXPECT_EQ(bench.window.counts().duplicate_events, 40U);
}

TEST(Window, EB_C9_TheLastMepIsAsShortAsTheRun) {
    Bench bench(4, 4, 6);
    bench.send(0, 4);
    bench.send(4, 4);  // the board goes on, the run does not
    EXPECT_TRUE(bench.window.is_complete(1));
    EXPECT_EQ(bench.made(), "....");
    EXPECT_EQ(bench.made(), "..");
    EXPECT_EQ(bench.window.counts().stray_events, 2U);
}

TEST(Window, EB_S4_WhatHasNoRoomIsFlaggedTruncated) {
    Bench bench(2);
    bench.send(0, 1, 300);
    bench.send(1, 1, 300);
    EXPECT_EQ(bench.made(), ".t");
    EXPECT_EQ(bench.flag, wire::SourceFlag::truncated);
    EXPECT_EQ(bench.window.counts().truncated_events, 1U);
    bench.send(2, 2, 300);  // as one packet
    EXPECT_EQ(bench.made(), ".t");
}

/// Whatever comes: every event of every packet is counted once, and what is made is valid.
TEST(Window, EB_C9_EveryEventIsCountedOnce) {
    base::Prng random(3);
    for (int round = 0; round < 200; ++round) {
        const auto packing = static_cast<std::uint32_t>(1 + random.below(5));
        Bench bench(packing, 3);
        std::uint64_t sent = 0;
        std::uint64_t event = 0;
        for (int step = 0; step < 200; ++step) {
            const auto events = static_cast<std::uint32_t>(1 + random.below(6));
            if (random.chance(20'000)) event = random.below(2) == 0 ? 0 : random.below(100'000);
            const std::uint64_t first = event - std::min(event, random.below(4) == 0 ? random.below(20) : 0);
            event += events;
            if (bench.send(first, events) == Window::Answer::used) sent += events;
            if (random.chance(300'000)) bench.made();
            if (bench.window.is_complete(bench.next)) bench.made();
        }
        const Counts& counts = bench.window.counts();
        EXPECT_EQ(counts.taken_events + counts.duplicate_events + counts.late_events + counts.stray_events, sent);
    }
}

}  // namespace
}  // namespace incast::ingest
