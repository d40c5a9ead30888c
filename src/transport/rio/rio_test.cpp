// What is rio's own: records that lie, neighbours in its fabric that are killed, stopped or strangers, a doorbell queue
// that is full. The contract is tested by tests/conformance.
#include "transport/rio/rio.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "softrio/cpp/memory.h"
#include "support/rio_nodes.h"
#include "transport/rio/lane.h"

namespace incast::transport::rio {
namespace {

using testing::HasSubstr;

namespace api = incast::rio;

constexpr std::size_t capacity = 16384;
constexpr const char* neighbour_role = "--neighbour";

std::string error_of(const Settings& settings) {
    const auto made = make(settings);
    return made ? "" : made.error().message;
}

TEST(Lane, RecordsComeInOrderAcrossTheEnd) {
    LaneWriter writer(capacity);
    LaneReader reader;
    std::vector<std::byte> ring(capacity);
    const std::vector<std::byte> message(3000, std::byte{7});
    for (std::uint16_t number = 0; number < 50; ++number) {
        ASSERT_TRUE(writer.has_room(message.size(), reader.read()));
        writer.push({Record::Kind::message, 0, 3000}, message);
        writer.push({Record::Kind::notice, number, 0});
        while (writer.sent() != writer.written()) {
            const Bytes bytes = writer.bytes(writer.written());
            std::memcpy(ring.data() + writer.sent() % capacity, bytes.data(), bytes.size());
            writer.sent(writer.sent() + bytes.size());
        }
        Record record;
        Bytes got;
        ASSERT_EQ(reader.next(ring.data(), capacity, writer.written(), record, got), LaneReader::Got::record);
        EXPECT_EQ(got.size(), 3000U);
        EXPECT_EQ(got.back(), std::byte{7});
        ASSERT_EQ(reader.next(ring.data(), capacity, writer.written(), record, got), LaneReader::Got::record);
        EXPECT_EQ(record.value, number);
        EXPECT_EQ(reader.next(ring.data(), capacity, writer.written(), record, got), LaneReader::Got::nothing);
    }
    EXPECT_FALSE(writer.has_room(capacity - 7, writer.written())) << "larger than the ring";
}

TEST(Lane, LettersHoldWholeRecordsAndNoSkips) {
    LaneWriter writer(capacity);
    LaneReader reader;
    const std::vector<std::byte> message(1500, std::byte{9});
    std::uint64_t records = 0;
    std::uint64_t pushed = 0;
    for (int round = 0; round < 40; ++round) {
        while (writer.has_room(message.size(), reader.read())) {
            writer.push({Record::Kind::message, 0, 1500}, message);
            ++pushed;
        }
        while (writer.sent() != writer.written()) {
            std::uint64_t start = 0;
            const Bytes letter = writer.records(writer.written(), 4000, start);
            ASSERT_LE(letter.size(), 4000U);
            writer.sent(start + letter.size());
            ASSERT_TRUE(reader.take(start, letter, capacity));
            Record record;
            Bytes got;
            while (reader.next_taken(record, got) == LaneReader::Got::record) {
                EXPECT_EQ(got.size(), 1500U);
                ++records;
            }
        }
        EXPECT_EQ(reader.read(), writer.written());
    }
    EXPECT_EQ(records, pushed);
    EXPECT_GT(pushed, 100U);
}

TEST(Lane, LiesAreNonsense) {
    std::vector<std::byte> ring(capacity);
    const auto read = [&](const Record& lie, std::uint64_t written) {
        std::memcpy(ring.data(), &lie, sizeof lie);
        LaneReader reader;
        Record record;
        Bytes message;
        return reader.next(ring.data(), capacity, written, record, message);
    };
    using Kind = Record::Kind;
    using Got = LaneReader::Got;
    EXPECT_EQ(read({Kind::notice, 1, 0}, 8), Got::record);
    EXPECT_EQ(read({Kind::notice, 1, 0}, capacity + 8), Got::nonsense) << "more than the ring holds";
    EXPECT_EQ(read({Kind::notice, 1, 0}, 7), Got::nonsense);
    EXPECT_EQ(read({Kind::message, 0, 100}, 104), Got::nonsense) << "beyond what is written";
    EXPECT_EQ(read({Kind::message, 0, 0}, 8), Got::nonsense);
    EXPECT_EQ(read({Kind::message, 0, 5000}, capacity), Got::nonsense);
    EXPECT_EQ(read({Kind::message, 0, 0xFFFFFFF0}, capacity), Got::nonsense);
    EXPECT_EQ(read({Kind::skip, 0, 16}, capacity), Got::nonsense);
    EXPECT_EQ(read({static_cast<Kind>(9), 0, 0}, 8), Got::nonsense);
    LaneReader reader;
    EXPECT_FALSE(reader.take(8, Bytes(ring).first(8), capacity)) << "something is missing";
    EXPECT_FALSE(reader.take(capacity, Bytes(ring).first(8), capacity)) << "more than a ring is";
    EXPECT_FALSE(reader.take(0, {}, capacity));
}

TEST(Rio, BadSettingsAreOneLine) {
    EXPECT_THAT(error_of({{"order", "loose"}}),
                HasSubstr("transport.rio.order = loose: no such choice; allowed: strict | weak"));
    EXPECT_THAT(error_of({{"notice", "x"}}), HasSubstr("allowed: doorbell | memory | cm"));
    EXPECT_THAT(error_of({{"ring", "20000"}}), HasSubstr("power of two"));
    EXPECT_THAT(error_of({{"pool", "70000"}}), HasSubstr("multiple of 4 KiB"));
    EXPECT_THAT(error_of({{"windows", "9"}}), HasSubstr("unknown key 'transport.rio.windows'"));
}

TEST(Rio, OldLimitsAreTold) {
    const std::string fabric = fresh_fabric();
    {
        Node node(0, {{"limits", "old"}}, fabric);
        const auto region = node.endpoint->allocate(4096);
        ASSERT_TRUE(region);
        const auto key = node.endpoint->expose(*region);
        ASSERT_FALSE(key) << "the pool is larger than the limit";
        EXPECT_THAT(key.error().message, HasSubstr("67108864 bytes"));
    }
    Node node(0, {{"limits", "old"}, {"layout", "segments"}}, fabric);
    const auto region = node.endpoint->allocate(7 * 2097152);
    ASSERT_TRUE(region);
    node.endpoint->memory(*region)[5'000'000] = std::byte{42};
    ASSERT_TRUE(node.endpoint->expose(*region)) << "7 windows beside that of the slots";
    EXPECT_EQ(node.endpoint->memory(*region)[5'000'000], std::byte{42}) << "the bytes stay";
    const auto more = node.endpoint->allocate(4096);
    ASSERT_TRUE(more);
    EXPECT_FALSE(node.endpoint->expose(*more)) << "8 are all there are";
}

TEST(Rio, AFullDoorbellQueueLosesNothing) {
    const std::string fabric = fresh_fabric();
    Node a(0, {}, fabric);
    Node b(1, {}, fabric);
    join(a, 0, b, 1);
    // Every poll rings. b is silent until its queue of 512 has been full for long.
    constexpr std::uint32_t sent = 2000;
    for (std::uint32_t number = 0; number < sent; ++number) {
        ASSERT_EQ(a.endpoint->send(Peer{1}, std::as_bytes(std::span(&number, 1))), Post::done);
        (void)a.poll();
    }
    std::uint32_t received = 0;
    for (const Time until = now() + 20 * ps_per_s; received < sent && now() < until;) {
        (void)a.poll();
        for (const Event& event : b.poll()) {
            if (event.kind != Event::Kind::message) continue;
            std::uint32_t number = 0;
            std::memcpy(&number, event.data, sizeof number);
            ASSERT_EQ(number, received++);
        }
    }
    EXPECT_EQ(received, sent);
}

/// One that looks of itself only every 10 s: messages that come while it goes to sleep wake it. INCAST_TEST_ROUNDS: how
/// many.
TEST(Rio, WhoeverSleepsIsWoken) {
    const char* wanted = std::getenv("INCAST_TEST_ROUNDS");  // NOLINT(concurrency-mt-unsafe)
    const int rounds = wanted == nullptr ? 100 : std::atoi(wanted);
    for (const char* notice : {"doorbell", "cm"}) {
        const std::string fabric = fresh_fabric();
        const Settings settings{{"look_every", "10s"}, {"notice", notice}};
        Node a(0, settings, fabric);
        Node b(1, settings, fabric);
        join(a, 0, b, 1);
        std::atomic<int> received = 0;
        std::thread sleeper([&] {
            bool slept_long = false;
            while (received < rounds) {
                const std::vector<Event> events = b.poll();
                for (const Event& event : events) {
                    if (event.kind != Event::Kind::message) continue;
                    EXPECT_FALSE(slept_long) << notice << ": not woken for message " << received;
                    ++received;
                }
                slept_long = false;
                if (!events.empty() || !b.endpoint->prepare_wait()) continue;
                const Time until = b.endpoint->next_deadline() - now();
                pollfd wait{.fd = b.endpoint->wait_fd(), .events = POLLIN, .revents = 0};
                const int ready = ::poll(&wait, 1, until <= 0 ? 0 : static_cast<int>(until / ps_per_ms) + 1);
                slept_long = ready == 0 && until > ps_per_s;
            }
        });
        const std::array<std::byte, 8> message{};
        for (int round = 0; round < rounds; ++round) {
            EXPECT_EQ(a.endpoint->send(Peer{1}, message), Post::done);
            for (; received <= round; std::this_thread::yield())
                (void)a.poll();
        }
        sleeper.join();
    }
}

TEST(Rio, NonsenseInASlotCostsItsPeerAndNobodyElse) {
    const std::string fabric = fresh_fabric();
    Node a(0, {}, fabric);
    Node b(1, {}, fabric);
    Node c(2, {}, fabric);
    join(a, 0, b, 1);
    join(a, 0, c, 2);
    // Somebody else of this fabric writes into the slot of node 1: its position, far beyond its ring.
    auto stranger = api::MasterPort::join(fabric, O_NONBLOCK);
    ASSERT_TRUE(stranger);
    struct {
        std::uint32_t words[6];
        std::uint64_t slots;
    } address{};
    std::memcpy(&address, a.endpoint->address().bytes.data(), sizeof address);
    constexpr std::uint64_t slot = 320 + 32768;
    const std::uint64_t lie = std::uint64_t{1} << 40;
    ASSERT_FALSE(stranger->write(address.words[2], address.slots + slot + 128, std::as_bytes(std::span(&lie, 1)),
                                 api::Completion::placed));
    ASSERT_FALSE(stranger->ring(address.words[2], 0));
    ASSERT_TRUE(comes({&a, &b, &c}, Event::Kind::peer_down));
    EXPECT_THAT(a.said, testing::Contains(HasSubstr("node 1 wrote nonsense")));
    const std::byte byte{1};
    EXPECT_EQ(a.endpoint->send(Peer{2}, {&byte, 1}), Post::done);
    EXPECT_TRUE(comes({&c, &a}, Event::Kind::message));
}

/// An address on its way to another process.
struct FlatAddress {
    std::size_t size = 0;
    std::array<std::byte, 64> bytes{};
    FlatAddress() = default;
    explicit FlatAddress(const Blob& blob) : size(blob.bytes.size()) { std::ranges::copy(blob.bytes, bytes.begin()); }
    [[nodiscard]] Blob blob() const { return {{bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}}; }
};

/// What a process with a neighbour in it is told.
struct Orders {
    FlatAddress to;
    std::uint32_t incarnation = 1;
    std::array<char, 64> fabric{};
    std::array<char, 128> settings{};  // "notice=cm order=weak "
};

constexpr int line_fd = 3;  // to the process that started it

/// Connects as node 1, says its address, and lives until it is killed.
[[noreturn]] void be_a_neighbour() {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Orders orders;
    if (::read(line_fd, &orders, sizeof orders) != ssize_t{sizeof orders}) ::_exit(1);
    Settings settings;
    std::istringstream text(orders.settings.data());
    for (std::string name, value; std::getline(text, name, '=') && std::getline(text, value, ' ');)
        settings[name] = value;
    Node node(1, settings, orders.fabric.data(), orders.incarnation);
    const FlatAddress own(node.endpoint->address());
    (void)!::write(line_fd, &own, sizeof own);
    (void)node.endpoint->connect(Peer{0}, orders.to.blob(), 1);
    const std::byte byte{1};
    while (true) {
        (void)node.poll();
        (void)node.endpoint->send(Peer{0}, {&byte, 1});
    }
}

/// A peer in a process of its own. It is this program, begun anew: a fork of a process with threads has only one of
/// them, and whatever lock another one held, those of a sanitizer too, stays locked in it.
class Neighbour {
public:
    Neighbour(const Settings& settings, const std::string& fabric, const Blob& to, std::uint32_t incarnation = 1) {
        Orders orders{.to = FlatAddress(to), .incarnation = incarnation};
        const auto put = [](std::string_view text, std::span<char> into) {
            ASSERT_LT(text.size(), into.size());
            std::ranges::copy(text, into.begin());
        };
        std::string text;
        for (const auto& [name, value] : settings)
            text.append(name).append("=").append(value).append(" ");
        put(fabric, orders.fabric);
        put(text, orders.settings);
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], line_fd);
        std::string program = "rio_test";
        std::string role = neighbour_role;
        std::array<char*, 3> arguments{program.data(), role.data(), nullptr};
        EXPECT_EQ(::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ), 0);
        posix_spawn_file_actions_destroy(&actions);
        ::close(ends[1]);
        EXPECT_EQ(::write(ends[0], &orders, sizeof orders), ssize_t{sizeof orders});
        FlatAddress own;
        EXPECT_EQ(::read(ends[0], &own, sizeof own), ssize_t{sizeof own});
        address = own.blob();
        ::close(ends[0]);
    }
    Neighbour(const Neighbour&) = delete;
    Neighbour& operator=(const Neighbour&) = delete;
    ~Neighbour() {
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
    }
    void send(int signal) const { ::kill(process_, signal); }
    Blob address;

private:
    pid_t process_ = -1;
};

int kills() {
    const char* times = std::getenv("INCAST_KILL_TIMES");  // NOLINT(concurrency-mt-unsafe)
    return times == nullptr ? 3 : std::atoi(times);
}

void kill_at_any_moment(const Settings& settings) {
    const std::string fabric = fresh_fabric();
    std::mt19937 random(5);
    for (int round = 0; round < kills(); ++round) {
        // One after another: each gets the destination id of the one before.
        Node own(0, settings, fabric);
        const Neighbour neighbour(settings, fabric, own.endpoint->address());
        ASSERT_EQ(own.endpoint->connect(Peer{1}, neighbour.address, 1), Post::pending);
        const Time until = now() + static_cast<Time>(random() % 5000) * ps_per_us;
        while (now() < until)
            (void)own.poll();
        neighbour.send(SIGKILL);
        EXPECT_TRUE(comes({&own}, Event::Kind::peer_down)) << "round " << round;
    }
}

TEST(RioFaults, KilledWhileConnectingOrSending) {
    kill_at_any_moment({});
    kill_at_any_moment({{"notice", "memory"}, {"order", "weak"}});
}

TEST(RioFaults, KilledWhileConnectingByCm) {
    kill_at_any_moment({{"notice", "cm"}});
}

TEST(RioFaults, StoppedWhileConnectingByCmAndContinued) {
    const std::string fabric = fresh_fabric();
    const Settings settings{{"notice", "cm"}, {"connect_timeout", "300ms"}};
    Node own(0, settings, fabric);
    const Neighbour neighbour(settings, fabric, own.endpoint->address());
    neighbour.send(SIGSTOP);
    ASSERT_EQ(own.endpoint->connect(Peer{1}, neighbour.address, 1), Post::pending);
    Node other(2, settings, fabric);
    join(own, 0, other, 2);
    for (const Time until = now() + 20 * ps_per_s; own.said.empty() && now() < until;)
        (void)own.poll();
    EXPECT_THAT(own.said, testing::ElementsAre(HasSubstr("in time")));
    // If it had called before it was stopped, it may still write here, and its consent is waited for. Nobody else
    // waits.
    const std::byte byte{1};
    EXPECT_EQ(other.endpoint->send(Peer{0}, {&byte, 1}), Post::done);
    EXPECT_TRUE(comes({&own, &other}, Event::Kind::message));
    neighbour.send(SIGCONT);
    for (const Time until = now() + 20 * ps_per_s; own.downs == 0 && now() < until;) {
        (void)own.poll();
        (void)other.poll();
    }
    EXPECT_EQ(own.downs, 1);
}

void outlive_a_stopped_incarnation(const Settings& settings) {
    const std::string fabric = fresh_fabric();
    Node own(0, settings, fabric);
    const Neighbour first(settings, fabric, own.endpoint->address());
    ASSERT_EQ(own.endpoint->connect(Peer{1}, first.address, 1), Post::pending);
    ASSERT_TRUE(comes({&own}, Event::Kind::peer_up));
    first.send(SIGSTOP);
    const Neighbour second(settings, fabric, own.endpoint->address(), 2);
    const std::byte byte{1};
    for (const Time until = now() + 20 * ps_per_s; now() < until;) {
        (void)own.poll();
        if (own.endpoint->send(Peer{1}, {&byte, 1}) == Post::refused) break;
    }
    ASSERT_EQ(own.endpoint->send(Peer{1}, {&byte, 1}), Post::refused) << "it has heard the second one";
    for (const Time until = now() + 300 * ps_per_ms; now() < until;)
        (void)own.poll();
    EXPECT_EQ(own.downs, 0) << "the first one may go on, and write";
    EXPECT_EQ(own.endpoint->connect(Peer{1}, second.address, 2), Post::again);
    first.send(SIGKILL);
    EXPECT_TRUE(comes({&own}, Event::Kind::peer_down));
    ASSERT_EQ(own.endpoint->connect(Peer{1}, second.address, 2), Post::pending);
    EXPECT_TRUE(comes({&own}, Event::Kind::peer_up));
}

TEST(RioFaults, AStoppedIncarnationIsNotOverBeforeItsEnd) {
    outlive_a_stopped_incarnation({});
    outlive_a_stopped_incarnation({{"notice", "memory"}, {"order", "weak"}});
}

/// A writes to b over a fabric that holds transfers back for some milliseconds, each channel for itself.
class HeldBack : public ::testing::Test {
protected:
    static constexpr std::uint32_t bytes = 256 << 10;

    void SetUp() override {
        join(a_, 0, b_, 1);
        for (const Time until = now() + 20 * ps_per_s; now() < until && a_.endpoint->send(Peer{1}, one_) != Post::done;)
            (void)a_.poll();
        ASSERT_TRUE(comes({&b_, &a_}, Event::Kind::message)) << "up on both sides";
        from_ = a_.endpoint->allocate(bytes).value();
        into_ = b_.endpoint->allocate(bytes).value();
        target_ = a_.endpoint->import_key(Peer{1}, b_.endpoint->expose(into_).value()).value();
    }
    void write(std::byte value) {
        std::ranges::fill(a_.endpoint->memory(from_), value);
        ASSERT_EQ(a_.endpoint->write(Peer{1}, {}, {from_, bytes, 0}, {target_, 0}, Notice(1), 1), Post::pending);
    }
    [[nodiscard]] std::ptrdiff_t landed(std::byte value) {
        return std::ranges::count(b_.endpoint->memory(into_), value);
    }

    const std::string fabric_ = fresh_fabric() + "?hold_us=8000";
    const Settings settings_{{"order", "weak"}, {"dma_channels", "2"}, {"layout", "segments"}, {"segment", "64KiB"}};
    Node a_{0, settings_, fabric_};
    Node b_{1, settings_, fabric_};
    std::array<std::byte, 1> one_{};
    Local from_{};
    Local into_{};
    Remote target_{};
};

TEST_F(HeldBack, TC_O3_ANoticeWaitsForABodyOnAnotherChannel) {
    for (std::uint8_t value = 1; value < 6; ++value) {
        write(std::byte{value});
        ASSERT_TRUE(comes({&b_, &a_}, Event::Kind::notice));
        ASSERT_EQ(landed(std::byte{value}), bytes);
    }
}

TEST_F(HeldBack, TC_C2_AWriteIsDoneWhenItsLastPieceIs) {
    for (std::uint8_t value = 1; value < 6; ++value) {
        write(std::byte{value});
        ASSERT_TRUE(comes({&a_}, Event::Kind::completed));
        std::ranges::fill(a_.endpoint->memory(from_), std::byte{255});  // as whoever owns it may
        ASSERT_TRUE(comes({&b_, &a_}, Event::Kind::notice));
        ASSERT_EQ(landed(std::byte{value}), bytes);
    }
}

TEST(Rio, WhatAnIncarnationSaidIsHeardAfterTheNextOneHasCalled) {
    for (const char* notice : {"doorbell", "memory"}) {
        const std::string fabric = fresh_fabric();
        const Settings settings{{"notice", notice}};
        Node a(0, settings, fabric);
        const std::byte byte{1};
        {
            Node b(1, settings, fabric);
            join(a, 0, b, 1);
            for (const Time until = now() + 20 * ps_per_s; now() < until;) {
                if (b.endpoint->send(Peer{0}, {&byte, 1}) == Post::done) break;  // up there, too
                (void)b.poll();
            }
            for (int count = 1; count < 5; ++count)
                ASSERT_EQ(b.endpoint->send(Peer{0}, {&byte, 1}), Post::done);
            for (const Time until = now() + 20 * ps_per_s; !b.endpoint->drained() && now() < until;)
                (void)b.poll();
        }
        Node again(1, settings, fabric, 2);
        ASSERT_EQ(again.endpoint->connect(Peer{0}, a.endpoint->address(), 1), Post::pending);
        int messages = 0;
        for (const Time until = now() + 20 * ps_per_s; a.downs == 0 && now() < until;) {
            for (const Event& event : a.poll())
                messages += event.kind == Event::Kind::message ? 1 : 0;
            (void)again.poll();
        }
        EXPECT_EQ(messages, 5) << notice;
        EXPECT_EQ(a.downs, 1);
        ASSERT_EQ(a.endpoint->connect(Peer{1}, again.endpoint->address(), 2), Post::pending);
        EXPECT_TRUE(comes({&a, &again}, Event::Kind::peer_up));
    }
}

TEST(Rio, StrangersConnectByNumbersOfTheirOwn) {
    for (const char* notice : {"doorbell", "cm"}) {
        const std::string fabric = fresh_fabric();
        const Settings settings{{"notice", notice}};
        Node a(0, settings, fabric);
        Node b(0, settings, fabric);
        for (int time = 0; time < 2; ++time) {
            // Each is node 0 to itself, and 1 to the other: whatever tells them apart is none of these.
            const Blob for_b = a.endpoint->address_for(Peer{1});
            const Blob for_a = b.endpoint->address_for(Peer{1});
            ASSERT_EQ(a.endpoint->connect(Peer{1}, for_a, 1), Post::pending);
            ASSERT_EQ(b.endpoint->connect(Peer{1}, for_b, 1), Post::pending);
            EXPECT_TRUE(a.endpoint->address_for(Peer{1}).bytes.empty()) << "in use";
            ASSERT_TRUE(comes({&a, &b}, Event::Kind::peer_up)) << notice;
            const auto region = b.endpoint->allocate(4096);
            const auto key = b.endpoint->expose(*region, {.peer = Peer{1}});
            const auto there = a.endpoint->import_key(Peer{1}, *key);
            ASSERT_TRUE(there) << there.error().message;
            const std::byte byte{7};
            ASSERT_EQ(a.endpoint->write(Peer{1}, {&byte, 1}, {}, {*there, 9}, 5, 0), Post::done);
            bool has_come = false;
            for (const Time until = now() + 20 * ps_per_s; !has_come && now() < until;) {
                for (const Event& event : b.poll())
                    has_come = has_come || (event.kind == Event::Kind::notice && event.size_or_value == 5);
                (void)a.poll();
            }
            EXPECT_TRUE(has_come) << notice;
            EXPECT_EQ(b.endpoint->local({*region, 1, 9})[0], byte);
            a.endpoint->disconnect(Peer{1});
            for (const Time until = now() + 20 * ps_per_s; a.downs + b.downs < 2 * time + 2 && now() < until;) {
                (void)a.poll();
                (void)b.poll();
            }
            ASSERT_EQ(a.downs + b.downs, 2 * time + 2) << notice;
        }
    }
}

TEST(RioFaults, AnUnknownDestinationIdIsDown) {
    const std::string fabric = fresh_fabric();
    Node a(0, {}, fabric);
    Blob address = a.endpoint->address();
    const std::uint32_t node = 1;
    const std::uint32_t nobody = 3000;
    std::memcpy(address.bytes.data() + 4, &node, sizeof node);
    std::memcpy(address.bytes.data() + 8, &nobody, sizeof nobody);
    ASSERT_EQ(a.endpoint->connect(Peer{1}, address, 1), Post::pending);
    EXPECT_TRUE(comes({&a}, Event::Kind::peer_down));
    EXPECT_THAT(a.said, testing::ElementsAre(HasSubstr("nobody is there")));
}

}  // namespace

int run(int argc, char** argv) {
    if (argc == 2 && std::string_view(argv[1]) == neighbour_role) be_a_neighbour();
    testing::InitGoogleMock(&argc, argv);
    return RUN_ALL_TESTS();
}

}  // namespace incast::transport::rio

int main(int argc, char** argv) {
    return incast::transport::rio::run(argc, argv);
}
