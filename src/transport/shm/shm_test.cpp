// The parts of the shm transport that conformance cannot reach: rings at their limits, peers that lie, memory that is
// none.
#include "transport/shm/shm.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/blob.h"
#include "transport/shm/channel.h"
#include "transport/shm/endpoint.h"
#include "transport/shm/inbox.h"
#include "transport/shm/memory.h"

namespace incast::transport::shm {
namespace {

constexpr std::size_t ring_bytes = 16384;

class Lane : public testing::Test {
protected:
    LaneHeader header_;
    alignas(64) std::array<std::byte, ring_bytes> ring_{};
    LaneWriter writer_{&header_, ring_.data(), ring_bytes};
    LaneReader reader_{&header_, ring_.data(), ring_bytes};

    static std::vector<std::byte> message(std::size_t size, std::size_t seed) {
        std::vector<std::byte> bytes(size);
        for (std::size_t index = 0; index < size; ++index)
            bytes[index] = static_cast<std::byte>(seed + index);
        return bytes;
    }
    void push_message(const std::vector<std::byte>& bytes) {
        writer_.push({Record::Kind::message, 0, static_cast<std::uint32_t>(bytes.size())}, bytes);
    }
    LaneReader::Got read_raw(Record record, std::uint64_t written) {
        std::memcpy(ring_.data(), &record, sizeof record);
        header_.written = written;
        Record got;
        Bytes bytes;
        return reader_.next(got, bytes);
    }
};

TEST_F(Lane, NothingIsSeenBeforeItIsPublished) {
    ASSERT_TRUE(writer_.has_room(0));
    writer_.push({Record::Kind::notice, 7, 0});
    Record record;
    Bytes bytes;
    EXPECT_EQ(reader_.next(record, bytes), LaneReader::Got::nothing);
    EXPECT_TRUE(writer_.unpublished());
    writer_.publish();
    EXPECT_FALSE(writer_.unpublished());
    ASSERT_EQ(reader_.next(record, bytes), LaneReader::Got::record);
    EXPECT_EQ(record.value, 7);
}

TEST_F(Lane, EverySizeSurvivesManyTurnsOfTheRing) {
    std::size_t sent = 0;
    std::size_t got = 0;
    const auto size_of = [](std::size_t number) { return 1 + number * 37 % max_message_bytes; };
    while (got < 20'000) {
        while (sent < 20'000 && writer_.has_room(size_of(sent)))
            push_message(message(size_of(sent), sent)), ++sent;
        writer_.publish();
        Record record;
        Bytes bytes;
        while (reader_.next(record, bytes) == LaneReader::Got::record) {
            ASSERT_EQ(record.kind, Record::Kind::message);
            const auto expected = message(size_of(got), got);
            ASSERT_TRUE(std::ranges::equal(bytes, expected)) << got;
            ++got;
        }
        reader_.release();
    }
}

TEST_F(Lane, AFullRingIsToldOfRoomOnce) {
    while (writer_.has_room(1000))
        push_message(message(1000, 1));
    writer_.publish();
    Record record;
    Bytes bytes;
    std::size_t told = 0;
    while (reader_.next(record, bytes) == LaneReader::Got::record)
        told += reader_.release() ? 1 : 0;
    EXPECT_EQ(told, 1U);
    EXPECT_TRUE(writer_.has_room(1000));
}

TEST_F(Lane, TwoThreadsLoseNothing) {
    constexpr std::uint32_t count = 300'000;
    std::thread other([&] {
        for (std::uint32_t number = 0; number < count; ++number) {
            while (!writer_.has_room(0))
                std::this_thread::yield();
            writer_.push({Record::Kind::notice, static_cast<std::uint16_t>(number), 0});
            if (number % 5 == 0 || number + 1 == count || !writer_.has_room(0)) writer_.publish();
        }
    });
    std::uint32_t wrong = 0;
    for (std::uint32_t number = 0; number < count;) {
        Record record;
        Bytes bytes;
        if (reader_.next(record, bytes) == LaneReader::Got::record) {
            wrong += record.value == static_cast<std::uint16_t>(number) ? 0 : 1;
            ++number;
        } else {
            std::this_thread::yield();
        }
        reader_.release();
    }
    other.join();
    EXPECT_EQ(wrong, 0U);
}

TEST_F(Lane, AWriterThatLiesIsNoticed) {
    using Got = LaneReader::Got;
    EXPECT_EQ(read_raw({Record::Kind::message, 0, 0}, 64), Got::nonsense) << "a message of nothing";
    EXPECT_EQ(read_raw({Record::Kind::message, 0, 5000}, 8192), Got::nonsense) << "too long for a message";
    EXPECT_EQ(read_raw({Record::Kind::message, 0, 100}, 64), Got::nonsense) << "longer than what is there";
    EXPECT_EQ(read_raw({Record::Kind::skip, 0, 0}, 64), Got::nonsense) << "would never get on";
    EXPECT_EQ(read_raw({Record::Kind::skip, 0, 64}, 64), Got::nonsense) << "skips to where the end is not";
    EXPECT_EQ(read_raw({static_cast<Record::Kind>(9), 0, 8}, 64), Got::nonsense) << "no such kind";
}

TEST_F(Lane, APositionBeyondTheRingIsNoticed) {
    EXPECT_EQ(read_raw({Record::Kind::notice, 0, 0}, 10 * ring_bytes), LaneReader::Got::nonsense);
}

TEST(SharedMemory, IsZeroedSealedAndMappedOnce) {
    auto memory = make_memory(10'000);
    ASSERT_TRUE(memory.ok()) << memory.error().message;
    EXPECT_EQ(memory->bytes().size(), 10'000U);
    for (const std::byte each : memory->bytes())
        ASSERT_EQ(each, std::byte{0});
    EXPECT_NE(ftruncate(memory->fd.fd(), 100), 0) << "a peer must not be able to take pages away";
    auto again = map_memory(memory->fd, 10'000, Access::write);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ((*again)->bytes().data(), memory->bytes().data());
}

TEST(SharedMemory, RefusesWhatCouldFault) {
    const os::Descriptor unsealed(memfd_create("test", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(unsealed.fd(), 4096), 0);
    EXPECT_FALSE(map_memory(unsealed, 4096, Access::write).ok());
    auto memory = make_memory(4096);
    ASSERT_TRUE(memory.ok());
    EXPECT_FALSE(map_memory(memory->fd, 8192, Access::write).ok()) << "another size than announced";
    EXPECT_FALSE(map_memory(os::Descriptor(), 4096, Access::read).ok());
}

TEST(SharedMemory, WhatIsForReadingIsNotWrittenTo) {
    const auto file = os::make_memory_file(4096);
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto to_read = os::open_for_reading(*file);
    ASSERT_TRUE(to_read.ok()) << to_read.error().message;
    EXPECT_FALSE(map_memory(*to_read, 4096, Access::write).ok());
    const auto reader = map_memory(*to_read, 4096, Access::read);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    const auto writer = map_memory(*file, 4096, Access::write);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    EXPECT_NE((*writer)->bytes().data(), (*reader)->bytes().data());
    (*writer)->bytes()[7] = std::byte{9};
    EXPECT_EQ((*reader)->bytes()[7], std::byte{9});
}

/// Polls both, in turn, until `done` says so of an event of the first; nothing if it never came.
template <class Done>
bool poll_until(Transport& one, Transport& other, Done&& done) {
    std::array<Event, 16> events;
    const auto begin = std::chrono::steady_clock::now();
    for (Time now = 0; std::chrono::steady_clock::now() - begin < std::chrono::seconds(20); now += ps_per_ms) {
        const std::size_t count = one.poll(now, events);
        for (std::size_t index = 0; index < count; ++index) {
            if (done(events[index])) return true;
        }
        (void)other.poll(now, events);
        std::this_thread::yield();
    }
    return false;
}

/// Nodes 0 and 1, which are up at each other.
struct Pair {
    explicit Pair(const Settings& settings = {}) : medium(make(settings).value()) {
        for (std::uint32_t index = 0; index < ends.size(); ++index) {
            EndpointOptions options;
            options.self = Peer{index};
            options.max_peers = 2;
            ends[index] = medium->endpoint(options).value();
        }
        const auto up = [](const Event& event) { return event.kind == Event::Kind::peer_up; };
        EXPECT_EQ(ends[0]->connect(Peer{1}, ends[1]->address(), 1), Post::pending);
        EXPECT_EQ(ends[1]->connect(Peer{0}, ends[0]->address(), 1), Post::pending);
        EXPECT_TRUE(poll_until(*ends[0], *ends[1], up));
    }
    std::unique_ptr<Medium> medium;
    std::array<std::unique_ptr<Transport>, 2> ends;
};

TEST(Waiting, TC_W3_RoomIsSomethingToPollFor) {
    const Pair pair;
    Transport& sender = *pair.ends[0];
    Transport& receiver = *pair.ends[1];
    const std::array<std::byte, max_message_bytes> message{};
    while (sender.send(Peer{1}, message) == Post::done) {
    }
    std::array<Event, 16> events;
    for (int polls = 0; polls < 10 && sender.poll(0, events) > 0; ++polls) {
    }
    ASSERT_TRUE(sender.prepare_wait()) << "nobody has read anything";
    (void)sender.poll(0, events);  // awake
    for (int polls = 0; polls < 1000; ++polls)
        (void)receiver.poll(0, events);
    EXPECT_FALSE(sender.prepare_wait()) << "who made the room found nobody asleep, and woke nobody";
    const auto room = [](const Event& event) { return event.kind == Event::Kind::room; };
    EXPECT_TRUE(poll_until(sender, receiver, room));
}

class Stores : public testing::TestWithParam<const char*> {};

TEST_P(Stores, MoveEveryByteAndNoOther) {
    const Pair pair(Settings{{"stores", GetParam()}});
    const auto& ends = pair.ends;
    constexpr std::size_t room = 16384;
    const Local from = ends[0]->allocate(room).value();
    const Local into = ends[1]->allocate(room).value();
    const Remote target = ends[0]->import_key(Peer{1}, ends[1]->expose(into).value()).value();
    const std::span<std::byte> source = ends[0]->memory(from);
    const std::span<std::byte> place = ends[1]->memory(into);
    for (std::size_t index = 0; index < room; ++index)
        source[index] = static_cast<std::byte>(index * 7 + index / 251);
    // Around the lengths from which stores stream, whole lines and not.
    for (const std::uint32_t length : {64U, 1023U, 1024U, 1087U, 1300U, 3908U, 4096U, 5000U}) {
        std::ranges::fill(place, std::byte{0xA5});
        const std::uint64_t offset = length % 3 * 64 + length % 5;
        Post posted = Post::again;
        const auto arrived = [&](const Event& event) { return event.kind == Event::Kind::notice; };
        for (int tries = 0; posted == Post::again && tries < 1000; ++tries) {  // the region's descriptor is under way
            posted = ends[0]->write(Peer{1}, {}, {from, length, 3}, {target, offset}, Notice(1), 0);
            if (posted == Post::again) (void)poll_until(*ends[0], *ends[1], [](const Event&) { return true; });
        }
        ASSERT_EQ(posted, Post::done) << length;
        ASSERT_TRUE(poll_until(*ends[1], *ends[0], arrived)) << length;
        EXPECT_TRUE(std::ranges::equal(place.subspan(offset, length), source.subspan(3, length))) << length;
        EXPECT_EQ(std::ranges::count(place.first(offset), std::byte{0xA5}), static_cast<std::ptrdiff_t>(offset));
        EXPECT_EQ(place[offset + length], std::byte{0xA5}) << length;
    }
}

TEST(Grants, WhoForgesAKeyReachesNothing) {
    const auto medium = make({}).value();
    std::array<std::unique_ptr<Transport>, 3> ends;
    for (std::uint32_t index = 0; index < ends.size(); ++index) {
        EndpointOptions options;
        options.self = Peer{index};
        options.max_peers = 3;
        ends[index] = medium->endpoint(options).value();
    }
    Transport& owner = *ends[0];
    for (const std::uint32_t peer : {1U, 2U}) {
        ASSERT_EQ(owner.connect(Peer{peer}, ends[peer]->address(), 1), Post::pending);
        ASSERT_EQ(ends[peer]->connect(Peer{0}, owner.address(), 1), Post::pending);
        const auto up = [](const Event& event) { return event.kind == Event::Kind::peer_up; };
        ASSERT_TRUE(poll_until(*ends[peer], owner, up));
    }
    const Local region = owner.allocate(4096).value();
    const Blob key = owner.expose(region, {.peer = Peer{1}, .read = false}).value();
    const auto write = [&](std::uint32_t from, Remote target, std::byte value) {
        const std::array<std::byte, 64> head{value};
        return ends[from]->write(Peer{0}, head, {}, {target, 0}, Notice(1), 5);
    };
    Key forged;
    ASSERT_TRUE(from_blob(key, forged));
    EXPECT_FALSE(ends[2]->import_key(Peer{0}, key).ok()) << "it is not for that node";
    forged.peer = 2;
    const Remote stolen = ends[2]->import_key(Peer{0}, to_blob(forged)).value();
    const Remote granted = ends[1]->import_key(Peer{0}, key).value();
    Post posted = Post::again;
    for (int tries = 0; posted == Post::again && tries < 100'000; ++tries) {
        EXPECT_EQ(write(2, stolen, std::byte{2}), Post::again) << "it has no memory to write to, and gets none";
        posted = write(1, granted, std::byte{1});
        std::array<Event, 16> events;
        for (const auto& end : ends)
            (void)end->poll(0, events);
        std::this_thread::yield();
    }
    EXPECT_EQ(posted, Post::done);
    EXPECT_EQ(write(2, stolen, std::byte{2}), Post::again);
    EXPECT_EQ(owner.local({region, 1, 0})[0], std::byte{1});
}

TEST(Fence, AProofThatThePeerIsGoneEndsTheWait) {
    const Pair pair;
    const auto& ends = pair.ends;
    ends[0]->disconnect(Peer{1});
    std::array<Event, 4> events;
    for (Time now = 0; now < 100 * ps_per_ms; now += ps_per_ms)
        EXPECT_EQ(ends[0]->poll(now, events), 0U) << "the peer may still write";
    ends[0]->ended(Peer{1}, 2);
    EXPECT_EQ(ends[0]->poll(200 * ps_per_ms, events), 0U) << "that is another one";
    ends[0]->ended(Peer{1}, 1);
    ASSERT_EQ(ends[0]->poll(300 * ps_per_ms, events), 1U);
    EXPECT_EQ(events[0].kind, Event::Kind::peer_down);
}

INSTANTIATE_TEST_SUITE_P(Shm, Stores, testing::Values("plain", "streaming"));

TEST(ShmSettings, AreChecked) {
    EXPECT_TRUE(make({}).ok());
    for (const auto& [name, value] :
         {std::pair{"ring", "20000"}, std::pair{"ring", "1KiB"}, std::pair{"stores", "fast"}}) {
        const auto made = make({{name, value}});
        ASSERT_FALSE(made.ok()) << name;
        EXPECT_NE(made.error().message.find(name), std::string::npos) << made.error().message;
        EXPECT_NE(made.error().message.find(value), std::string::npos) << made.error().message;
    }
}

}  // namespace
}  // namespace incast::transport::shm
