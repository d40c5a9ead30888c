// Channels between two processes, of which one is killed or stopped while both carry bytes. Who is killed is lost, with
// all that it had announced still there; who is stopped for a while goes on. INCAST_CHANNEL_TIMES says how often
// each is done, once if it is not set.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pause_watch.h"
#include "channel/hub/waiter.h"
#include "os/descriptor.h"
#include "pair.h"
#include "transport/rio/descriptor/descriptor.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace incast::channel {
namespace {

constexpr std::uint64_t stream_bytes = 3'000'000;
constexpr Time turn = 10 * ps_per_ms;

/// For what a test waits for, a turn at a time. A turn in which this process waits for a processor counts once, however
/// long it is: on a busy host the other process waits for one, too.
class Patience {
public:
    [[nodiscard]] bool is_over() {
        end_ += pauses_.look(now(), turn);
        return now() > end_;
    }

private:
    Time end_ = now() + 30 * ps_per_s;
    base::PauseWatch pauses_{now(), turn};
};

std::byte byte_at(std::uint64_t position) {
    return static_cast<std::byte>(base::mix64(position / 64) >> (position % 8));
}

/// Addresses of this host, a network for each process that is not one of another test. Its deadline is longer than a
/// process waits for a processor on a busy host.
std::string private_fabric() {
    const auto pid = static_cast<unsigned>(::getpid());
    return "udp:127." + std::to_string(1 + (pid >> 8U) % 127) + "." + std::to_string(pid & 0xFFU) +
           ".0/24:7402?deadline_ms=15000";
}

std::vector<Recipe> all_recipes() {
    const std::string rio(transport::rio::transport_name);
    const std::string here = "shm:channels-" + std::to_string(::getpid());
    return {{"shm", std::string(transport::shm::transport_name), {}},
            {"tcp", std::string(transport::tcp::transport_name), {}},
            {"rio_shm", rio, {{"fabric", here}}},
            {"rio_udp", rio, {{"fabric", private_fabric()}}}};
}

bool tell(const os::Descriptor& to, Bytes bytes) {
    return ::send(to.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}
std::vector<std::byte> hear(const os::Descriptor& from) {
    std::vector<std::byte> bytes(max_address_bytes);
    pollfd entry{.fd = from.fd(), .events = POLLIN, .revents = 0};
    for (Patience patience; ::poll(&entry, 1, static_cast<int>(turn / ps_per_ms)) == 0 && !patience.is_over();) {
    }
    const ssize_t count = ::recv(from.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return bytes;
}

/// One of the two processes: it writes the stream and reads that of the other.
class Actor {
public:
    Actor(const Recipe& recipe, std::uint32_t self, const os::Descriptor& other)
        : medium_(make_medium(recipe)), side(make_side(*medium_, self)), waiter_(*side.hub) {
        (void)tell(other, side.endpoint->address().view());
        (void)side.endpoint->connect(Peer{1 - self}, Blob{hear(other)}, 1);
        (void)side.hub->listen(port, Kind::bytes);
        (void)until([&] { return side.saw(Event::Kind::peer_up); });
        if (self == 0)
            id = *side.hub->connect(Peer{1}, port, {.shape = {.buffers = 8, .buffer_bytes = 4096, .batch = 2}});
        (void)until([&] {
            if (self == 1 && !id) id = side.hub->accept(port);
            return id && side.hub->is_open(*id);
        });
    }

    template <class Is>
    bool until(Is&& is) {
        for (Patience patience; !is();) {
            if (patience.is_over()) return false;
            (void)waiter_.wait(turn);
            while (const auto event = side.hub->next_peer_event())
                side.peers.push_back(event->event);
        }
        return true;
    }

    /// False: something that was read is wrong.
    bool step() {
        std::array<std::byte, 5000> bytes{};
        const auto want = std::min<std::uint64_t>(bytes.size(), stream_bytes - written);
        for (std::uint64_t at = 0; at < want; ++at)
            bytes[at] = byte_at(written + at);
        written += side.hub->write(*id, Bytes(bytes).first(want));
        if (written == stream_bytes) side.hub->finish(*id);
        const std::size_t count = side.hub->read(*id, bytes);
        for (std::size_t at = 0; at < count; ++at)
            if (bytes[at] != byte_at(has_read + at)) return false;
        has_read += count;
        return true;
    }
    /// How far it came, for a test that fails.
    [[nodiscard]] std::string state() const {
        std::string text = side.saw(Event::Kind::peer_up) ? "" : "the peers never met; ";
        if (side.saw(Event::Kind::peer_down)) text += "the peer is down; ";
        if (!id) return text + "no channel";
        return text + to_string(side.hub->fault(*id)) + (side.hub->is_open(*id) ? "" : ", not open") + "; wrote " +
               std::to_string(written) + ", read " + std::to_string(has_read) + " of " + std::to_string(stream_bytes);
    }
    [[nodiscard]] bool is_done() const { return side.hub->has_ended(*id) && side.hub->is_finished(*id); }

private:
    std::unique_ptr<transport::Medium> medium_;

public:
    Side side;
    std::optional<Id> id;
    std::uint64_t written = 0;
    std::uint64_t has_read = 0;

private:
    Waiter waiter_;
};

class Processes : public testing::TestWithParam<Recipe> {
protected:
    /// A child that carries the stream to its end, or to its own.
    void begin() {
        std::array<int, 2> ends{};
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
        ::setenv("RIO_DEBUG", "1", 1);  // SoftRIO says why it loses a peer. NOLINT(concurrency-mt-unsafe): one thread
        other_ = os::Descriptor(ends[0]);
        child_ = ::fork();
        ASSERT_GE(child_, 0);
        if (child_ == 0) {
            other_.close();
            const os::Descriptor parent(ends[1]);
            Actor actor(GetParam(), 1, parent);
            const bool is_right = actor.id && actor.until([&] { return !actor.step() || actor.is_done(); });
            const bool is_whole = is_right && actor.has_read == stream_bytes;
            if (is_whole) actor.side.hub->close(*actor.id);
            ::_exit(is_whole && actor.until([&] { return actor.side.hub->channels() == 0; }) ? 0 : 1);
        }
        ::close(ends[1]);
        actor_.emplace(GetParam(), 0, other_);
        ASSERT_TRUE(actor_->id && actor_->side.hub->is_open(*actor_->id)) << actor_->state();
    }
    int end() {
        int status = -1;
        while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
        }
        child_ = 0;
        return status;
    }
    void TearDown() override {
        if (child_ <= 0) return;
        ::kill(child_, SIGKILL);
        (void)end();
    }
    static int times() {
        const char* given = std::getenv("INCAST_CHANNEL_TIMES");
        return given != nullptr ? std::atoi(given) : 1;
    }

    pid_t child_ = 0;
    os::Descriptor other_;
    std::optional<Actor> actor_;
};

TEST_P(Processes, CH_E2_WhoIsKilledIsLost) {
    for (int time = 0; time < times(); ++time) {
        begin();
        const std::uint64_t until = 100'000 * static_cast<std::uint64_t>(1 + time % 20);
        bool is_right = true;
        ASSERT_TRUE(actor_->until([&] { return !(is_right = actor_->step()) || actor_->has_read > until; }))
            << actor_->state();
        ASSERT_EQ(::kill(child_, SIGKILL), 0);
        (void)end();
        Hub& hub = *actor_->side.hub;
        ASSERT_TRUE(actor_->until([&] {
            return !(is_right = actor_->step()) || hub.fault(*actor_->id) == Fault::lost;
        })) << actor_->state();
        while (is_right && !hub.readable(*actor_->id).empty())
            is_right = actor_->step();
        EXPECT_TRUE(is_right) << "what it had announced is not what it wrote";
        EXPECT_FALSE(hub.has_ended(*actor_->id));
        hub.close(*actor_->id);
        EXPECT_TRUE(actor_->until([&] { return hub.channels() == 0; })) << actor_->state();
        actor_.reset();
    }
}

TEST_P(Processes, CH_C1_WhoIsStoppedGoesOn) {
    for (int time = 0; time < times(); ++time) {
        begin();
        bool is_right = true;
        ASSERT_TRUE(actor_->until([&] { return !(is_right = actor_->step()) || actor_->has_read > 100'000; }))
            << actor_->state();
        ASSERT_EQ(::kill(child_, SIGSTOP), 0);
        // By another thread: rio on the udp fabric waits in a write for a peer that is silent, up to its deadline.
        std::thread later([child = child_] {
            pollfd none{.fd = -1, .events = 0, .revents = 0};
            (void)::poll(&none, 1, 300);
            ::kill(child, SIGCONT);
        });
        const bool is_done =
            actor_->until([&] { return !(is_right = is_right && actor_->step()) || actor_->is_done(); });
        later.join();
        ASSERT_TRUE(is_done) << actor_->state();
        EXPECT_TRUE(is_right && actor_->has_read == stream_bytes) << actor_->state();
        actor_->side.hub->close(*actor_->id);
        EXPECT_TRUE(
            actor_->until([&] { return actor_->side.hub->channels() == 0 && actor_->side.endpoint->drained(); }));
        EXPECT_EQ(end(), 0) << "the other one saw something else";
        actor_.reset();
    }
}

INSTANTIATE_TEST_SUITE_P(Every, Processes, testing::ValuesIn(all_recipes()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace incast::channel
