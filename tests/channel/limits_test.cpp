// The C interface of ring channels where something is short: time, memory, descriptors, places for callers.
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <incast/channel.h>

#include "channel/api/card.h"
#include "handle.h"
#include "os/descriptor.h"

namespace incast::channel::api {
namespace {

std::string some_path(const std::string& what) {
    return testing::TempDir() + "limits-" + std::to_string(::getpid()) + "-" + what;
}

/// Both are driven by this thread, until the channel is no longer being opened.
int drive(const Handle& one, const Handle& other, incast_channel* channel) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
    while (incast_channel_state(channel) == 0 && std::chrono::steady_clock::now() < end) {
        one.turn();
        other.turn();
        pollfd entry{.fd = incast_channel_hub_fd(one.hub), .events = POLLIN, .revents = 0};
        (void)::poll(&entry, 1, 5);
    }
    return incast_channel_state(channel);
}

/// What a listener has said to that socket.
Card::What heard_by(const os::Descriptor& socket) {
    std::array<std::byte, 4096> bytes{};
    const ssize_t count = ::recv(socket.fd(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (count <= 0) return Card::What{};
    const Read read = read_card(Bytes(bytes).first(static_cast<std::size_t>(count)));
    return read.whole ? read.whole->card.what : Card::What{};
}

TEST(ChannelLimits, WhoDidNotDriveItsHubHasTimeLeftForTheAnswer) {
    const Handle server("shm", INCAST_CHANNEL_OWN_LOOP);
    Handle client("shm", INCAST_CHANNEL_OWN_LOOP);
    const std::string name = some_name("pause");
    incast_channel_listener* listener = nullptr;
    ASSERT_EQ(incast_channel_listen(server.hub, name.c_str(), nullptr, &listener), 0) << incast_channel_message();
    incast_channel_options options = INCAST_CHANNEL_OPTIONS;
    options.connect_timeout_ms = 500;
    incast_channel* channel = client.connect(name, &options);
    client.turn();
    // The program computes, or is stopped.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1000);
    while (std::chrono::steady_clock::now() < end)
        (void)::poll(nullptr, 0, 10);
    EXPECT_EQ(drive(client, server, channel), 1) << incast_channel_state_message(channel);
}

TEST(ChannelLimits, ATimeBecomesTwiceAsLongAtMost) {
    const Handle server("shm", INCAST_CHANNEL_OWN_LOOP);
    Handle client("shm", INCAST_CHANNEL_OWN_LOOP);
    const std::string name = some_name("pauses");
    incast_channel_listener* listener = nullptr;
    ASSERT_EQ(incast_channel_listen(server.hub, name.c_str(), nullptr, &listener), 0) << incast_channel_message();
    incast_channel_options options = INCAST_CHANNEL_OPTIONS;
    options.connect_timeout_ms = 100;
    incast_channel* channel = client.connect(name, &options);
    int turns = 0;
    for (; turns < 5 && incast_channel_state(channel) == 0; ++turns) {
        client.turn();
        (void)::poll(nullptr, 0, 250);
    }
    EXPECT_EQ(incast_channel_state(channel), -ETIMEDOUT);
    EXPECT_LT(turns, 5);
}

TEST(ChannelLimits, PastTheLimitOfHandedEndsACallerWaitsForItsTurn) {
    const std::string path = some_path("handed");
    Handle server("shm", INCAST_CHANNEL_OWN_LOOP);
    Handle client("shm", INCAST_CHANNEL_OWN_LOOP);
    (void)server.listen("shm://" + path);
    // Each is handed an end, and does not call by it. More than that many wait for nobody.
    std::vector<os::Descriptor> silent;
    while (silent.size() < 300 && (silent.empty() || heard_by(silent.back()) != Card::What::again)) {
        silent.push_back(socket_at(path));
        ASSERT_TRUE(silent.back().is_open());
        server.turn();
    }
    EXPECT_EQ(silent.size(), 257U);
    incast_channel* channel = client.connect("shm://" + path);
    for (int turn = 0; turn < 3; ++turn) {
        client.turn();
        server.turn();
    }
    EXPECT_EQ(incast_channel_state(channel), 0) << incast_channel_state_message(channel);
    silent.clear();
    EXPECT_EQ(drive(client, server, channel), 1) << incast_channel_state_message(channel);
}

TEST(ChannelLimits, AnOfferThatWaitsForItsTurnKeepsNoSocket) {
    const std::string path = some_path("turn");
    Handle client("shm", INCAST_CHANNEL_OWN_LOOP);
    os::Descriptor deaf = socket_at(path, true);  // takes the first call, and says nothing
    ASSERT_TRUE(deaf.is_open());
    incast_channel* first = client.connect("shm://" + path);
    client.turn();
    const os::Descriptor call(::accept4(deaf.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(call.is_open());
    deaf.close();
    Handle server("shm", INCAST_CHANNEL_OWN_LOOP, 0, nullptr, "hello_timeout=250ms");
    (void)server.listen("shm://" + path);
    incast_channel* second = client.connect("shm://" + path);
    // It is made an offer, which is not its turn, and the server waits for it no longer than it was told.
    const auto begin = std::chrono::steady_clock::now();
    do {
        server.turn();
        client.turn();
    } while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(500));
    EXPECT_EQ(incast_channel_state(second), 0) << incast_channel_state_message(second);
    incast_channel_abort(first);
    EXPECT_EQ(drive(client, server, second), 1) << incast_channel_state_message(second);
}

/// Runs it in a child, where limits can be set.
template <class Act>
int in_child(Act&& act) {
    const pid_t child = ::fork();
    if (child == 0) {
        act();
        ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    (void)::waitpid(child, &status, 0);
    return status;
}

void limit(int resource, rlim_t most) {
    rlimit now{};
    ASSERT_EQ(::getrlimit(static_cast<__rlimit_resource>(resource), &now), 0);
    now.rlim_cur = std::min(most, now.rlim_max);
    ASSERT_EQ(::setrlimit(static_cast<__rlimit_resource>(resource), &now), 0);
}

/// No descriptor is left, but for so many.
class Shortage {
public:
    explicit Shortage(rlim_t left) {
        limit(RLIMIT_NOFILE, 256);
        for (os::Descriptor one(::dup(0)); one.is_open(); one = os::Descriptor(::dup(0)))
            taken_.push_back(std::move(one));
        taken_.resize(taken_.size() - left);
    }

private:
    std::vector<os::Descriptor> taken_;
};

TEST(ChannelLimits, WithoutDescriptorsItIsEmfile) {
    EXPECT_EQ(in_child([] {
                  Handle ready("shm", INCAST_CHANNEL_OWN_LOOP);
                  incast_channel_hub* hub = nullptr;
                  incast_channel_listener* listener = nullptr;
                  {
                      const Shortage all(0);
                      EXPECT_EQ(incast_channel_hub_make("shm", nullptr, &hub), -EMFILE);
                      EXPECT_EQ(incast_channel_listen(ready.hub, some_name("few").c_str(), nullptr, &listener),
                                -EMFILE);
                      EXPECT_EQ(listener, nullptr);
                  }
                  for (rlim_t left = 1; listener == nullptr && left < 20; ++left) {
                      const Shortage some(left);
                      const int error = incast_channel_listen(ready.hub, some_name("few").c_str(), nullptr, &listener);
                      EXPECT_TRUE(error == 0 || error == -EMFILE) << left << ": " << incast_channel_message();
                  }
                  EXPECT_NE(listener, nullptr);
              }),
              0);
}

TEST(ChannelLimits, AListenerWithoutDescriptorsSendsCallersAwayAndSleeps) {
    EXPECT_EQ(in_child([] {
                  Handle server("shm", INCAST_CHANNEL_OWN_LOOP);
                  Handle client("shm", INCAST_CHANNEL_OWN_LOOP);
                  const std::string name = some_name("none-left");
                  (void)server.listen(name);
                  const os::Descriptor caller = raw_socket(name);
                  incast_channel* channel = client.connect(name);
                  client.turn();
                  {
                      const Shortage all(0);
                      do
                          server.turn();
                      while (is_readable(incast_channel_hub_fd(server.hub)));
                      EXPECT_EQ(heard_by(caller), Card::What::again);
                  }
                  EXPECT_EQ(drive(client, server, channel), 1) << incast_channel_state_message(channel);
              }),
              0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INCAST_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INCAST_TEST_SANITIZED
#endif
#endif

TEST(ChannelLimits, WithoutMemoryItIsEnomem) {
#if defined(INCAST_TEST_SANITIZED)
    GTEST_SKIP() << "a sanitizer needs the address space for itself";
#else
    EXPECT_EQ(in_child([] {
                  Handle early("shm", INCAST_CHANNEL_OWN_LOOP);
                  Handle client("shm", INCAST_CHANNEL_OWN_LOOP);
                  Handle server("shm", INCAST_CHANNEL_OWN_LOOP);
                  const std::string name = some_name("memory");
                  (void)server.listen(name);
                  EXPECT_EQ(drive(client, server, client.connect(name)), 1) << incast_channel_message();
                  limit(RLIMIT_AS, 1);
                  incast_channel_listener* listener = nullptr;
                  EXPECT_EQ(incast_channel_listen(early.hub, some_name("more").c_str(), nullptr, &listener), -ENOMEM)
                      << incast_channel_message();
                  incast_channel_options large = INCAST_CHANNEL_OPTIONS;
                  large.buffers = 4;
                  large.buffer_bytes = 8 << 20;
                  incast_channel* channel = nullptr;
                  ASSERT_EQ(incast_channel_connect(client.hub, name.c_str(), &large, &channel), 0);
                  EXPECT_EQ(drive(client, server, channel), -ENOMEM) << incast_channel_state_message(channel);
              }),
              0);
#endif
}

}  // namespace
}  // namespace incast::channel::api
