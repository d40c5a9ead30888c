#include "runtime/sources/program_ring.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace incast::sources {
namespace {

constexpr std::uint64_t ring_bytes = 16 * source::line_bytes;

/// The memory, and the program's side of it.
struct Shared {
    struct alignas(64) Line {
        std::byte bytes[64] = {};
    };
    source::RingHeader& header() { return *reinterpret_cast<source::RingHeader*>(lines.data()); }
    std::byte* at(std::uint64_t place) {
        return reinterpret_cast<std::byte*>(lines.data()) + sizeof(source::RingHeader) + place % ring_bytes;
    }
    void write(std::uint64_t packet_bytes, std::uint32_t start, std::uint64_t record, char fill = 'x') {
        const source::RecordHead head{packet_bytes, start, 0};
        std::memcpy(at(committed), &head, sizeof head);
        if (packet_bytes > 0 && packet_bytes < record) std::memset(at(committed) + start, fill, packet_bytes);
        header().committed = committed += record;
    }
    void send(const std::string& text) {
        const std::uint64_t record = source::record_bytes(64, text.size());
        const std::uint64_t to_end = ring_bytes - committed % ring_bytes;
        if (to_end < record) write(0, 0, to_end);
        const std::uint64_t place = committed;
        write(text.size(), 64, record);
        std::memcpy(at(place) + 64, text.data(), text.size());
    }
    std::string next() {
        const auto packet = ring.peek();
        if (!packet) return ring.is_broken() ? "broken" : "none";
        std::string text(reinterpret_cast<const char*>(packet->data()), packet->size());
        ring.pop();
        return text;
    }

    std::vector<Line> lines = std::vector<Line>(source::file_bytes(ring_bytes) / 64);
    ProgramRing ring{std::as_writable_bytes(std::span(lines)), ring_bytes};
    std::uint64_t committed = 0;
};

TEST(ProgramRing, PacketsComeInOrderRoundTheEnd) {
    Shared shared;
    EXPECT_EQ(shared.next(), "none");
    for (std::uint32_t turn = 0; turn < 50; ++turn) {
        const std::string text(1 + turn * 7 % 200, static_cast<char>('a' + turn % 26));
        shared.send(text);
        shared.send("b");
        EXPECT_EQ(shared.next(), text);
        EXPECT_EQ(shared.next(), "b");
        EXPECT_EQ(shared.next(), "none");
        shared.ring.tell(turn);
        EXPECT_EQ(shared.header().taken, shared.committed);
        EXPECT_EQ(shared.header().next_event, turn);
    }
}

TEST(ProgramRing, APacketStaysUntilItIsPopped) {
    Shared shared;
    shared.send("one");
    EXPECT_EQ(shared.ring.peek()->size(), 3U);
    EXPECT_EQ(shared.ring.peek()->size(), 3U);
    shared.ring.tell(0);
    EXPECT_EQ(shared.header().taken, 0U);
    shared.ring.pop();
    shared.ring.pop();  // there is nothing to pop
    EXPECT_FALSE(shared.ring.peek());
}

TEST(ProgramRing, WhoSleepsIsWokenOnceSomethingWasTaken) {
    Shared shared;
    shared.header().asleep = 1;
    shared.ring.tell(5);
    EXPECT_EQ(shared.header().news, 0U);
    shared.send("one");
    EXPECT_EQ(shared.next(), "one");
    shared.ring.tell(5);
    EXPECT_EQ(shared.header().news, 1U);
    EXPECT_EQ(shared.header().asleep, 0U);
}

TEST(ProgramRing, WhatMakesNoSenseIsReadNoMore) {
    const auto breaks = [](auto&& lie) {
        Shared shared;
        shared.send("one");
        EXPECT_EQ(shared.next(), "one");
        lie(shared);
        EXPECT_EQ(shared.next(), "broken");
        shared.send("more");
        return shared.next() == "broken";
    };
    EXPECT_TRUE(breaks([](Shared& s) { s.header().committed = 0; }));
    EXPECT_TRUE(breaks([](Shared& s) { s.header().committed = 1000 * ring_bytes; }));
    EXPECT_TRUE(breaks([](Shared& s) { s.header().committed += 17; }));
    EXPECT_TRUE(breaks([](Shared& s) { s.write(~0ULL, 64, 64); }));
    EXPECT_TRUE(breaks([](Shared& s) { s.write(~0ULL - 64, 64, 64); }));
    EXPECT_TRUE(breaks([](Shared& s) { s.write(100, 64, 64); }));
    EXPECT_TRUE(breaks([](Shared& s) { s.write(10, 65, 128); }));
    EXPECT_TRUE(breaks([](Shared& s) { s.write(10, 0, 64); }));
    EXPECT_TRUE(breaks([](Shared& s) { s.write(ring_bytes - 64, 64, ring_bytes - 64); }));  // over the end
    EXPECT_TRUE(breaks([](Shared& s) { s.write(0, 0, 64); }));                              // fills less than is left
}

TEST(ProgramRing, TheProgramSeesAnEndAndItsOwn) {
    Shared shared;
    EXPECT_FALSE(shared.ring.is_closed());
    shared.header().closed = 1;
    EXPECT_TRUE(shared.ring.is_closed());
    shared.ring.end(source::State::ejected);
    EXPECT_EQ(shared.header().state.load(), source::State::ejected);
    EXPECT_EQ(shared.header().news, 1U);
}

}  // namespace
}  // namespace incast::sources
