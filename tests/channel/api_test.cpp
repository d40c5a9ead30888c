// The C interface of ring channels, within one process unless somebody has to be killed or forked.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <incast/channel.h>

#include "base/prng.h"
#include "channel/api/address.h"
#include "channel/api/card.h"
#include "handle.h"
#include "os/descriptor.h"
#include "transport/verbs/descriptor/descriptor.h"

namespace incast::channel::api {
namespace {

struct Ends {
    incast_channel* here = nullptr;
    incast_channel* there = nullptr;
};

Ends join(Handle& one, Handle& other, const std::string& address, const incast_channel_options* options = nullptr) {
    Ends ends;
    incast_channel_listener* listener = other.listen(address, options);
    ends.here = one.connect(incast_channel_listener_address(listener), options);
    EXPECT_EQ(incast_channel_accept(listener, patience_ms, &ends.there), 0) << incast_channel_message();
    EXPECT_EQ(incast_channel_wait_open(ends.here, patience_ms), 1) << incast_channel_message();
    incast_channel_listener_close(listener);
    return ends;
}

int connect_error(const std::string& address) {
    Handle handle(address.substr(0, address.find(':')).c_str());
    incast_channel* channel = handle.connect(address);
    const int error = incast_channel_wait_open(channel, patience_ms);
    incast_channel_close(channel);
    return error;
}

TEST(ChannelApi, ErrorsAreThoseOfSockets) {
    Handle handle;
    const std::string name = some_name("taken");
    incast_channel_listener* first = handle.listen(name);
    Handle second;
    incast_channel_listener* none = nullptr;
    EXPECT_EQ(incast_channel_listen(second.hub, name.c_str(), nullptr, &none), -EADDRINUSE);
    EXPECT_EQ(none, nullptr);
    EXPECT_NE(std::string(incast_channel_message()).find(name), std::string::npos) << incast_channel_message();
    incast_channel_listener_close(first);
    incast_channel_listener_close(second.listen(name));

    EXPECT_EQ(connect_error(some_name("nobody")), -ECONNREFUSED);
    EXPECT_EQ(connect_error("shm://" + testing::TempDir() + "no-such-socket"), -ECONNREFUSED);
    EXPECT_EQ(connect_error("tcp://127.0.0.1:1"), -ECONNREFUSED);
    incast_channel* channel = nullptr;
    EXPECT_EQ(incast_channel_connect(handle.hub, "tcp://127.0.0.1:1", nullptr, &channel), -EPROTONOSUPPORT);
    EXPECT_EQ(incast_channel_connect(handle.hub, "nonsense", nullptr, &channel), -EINVAL);
    EXPECT_EQ(incast_channel_connect(handle.hub, nullptr, nullptr, &channel), -EINVAL);
    Handle tcp("tcp");
    EXPECT_EQ(incast_channel_listen(tcp.hub, "tcp://192.0.2.1:0", nullptr, &none), -EADDRNOTAVAIL);
    incast_channel_hub* hub = nullptr;
    EXPECT_EQ(incast_channel_hub_make("ipc", nullptr, &hub), -EPROTONOSUPPORT);
    incast_channel_hub_options wrong = INCAST_CHANNEL_HUB_OPTIONS;
    wrong.max_channels = 40'000;
    EXPECT_EQ(incast_channel_hub_make("shm", &wrong, &hub), -EINVAL);
    wrong = INCAST_CHANNEL_HUB_OPTIONS;
    wrong.settings = "no-such=1";
    EXPECT_EQ(incast_channel_hub_make("shm", &wrong, &hub), 0);
    EXPECT_EQ(incast_channel_listen(hub, some_name("x").c_str(), nullptr, &none), -EINVAL) << "no such setting";
    incast_channel_hub_free(hub);
}

TEST(ChannelApi, AHostWithoutAnRdmaDeviceIsOneError) {
    incast_channel_hub* hub = nullptr;
    if (incast_channel_hub_make("verbs", nullptr, &hub) == -EPROTONOSUPPORT) {
        EXPECT_THAT(incast_channel_message(), testing::HasSubstr("transport verbs: ")) << "its module is missing";
        return;
    }
    if (transport::verbs::missing_here().empty()) GTEST_SKIP() << "this host has one";
    incast_channel_listener* none = nullptr;
    EXPECT_EQ(incast_channel_listen(hub, "verbs://127.0.0.1:*", nullptr, &none), -ENODEV);
    EXPECT_THAT(incast_channel_message(), testing::HasSubstr("this host has no RDMA device"));
    incast_channel* channel = nullptr;
    EXPECT_EQ(incast_channel_connect(hub, "verbs://127.0.0.1:1", nullptr, &channel), -ENODEV);
    EXPECT_EQ(incast_channel_listen(hub, "verbs://*:*", nullptr, &none), -EINVAL) << "an address of a device";
    EXPECT_EQ(incast_channel_listen(hub, "verbs://192.0.2.1:0", nullptr, &none), -EADDRNOTAVAIL);
    incast_channel_hub_free(hub);
}

TEST(ChannelApi, ErrorsOfRapidIo) {
    const std::string fabric = "shm:api-errors-" + std::to_string(::getpid());
    incast_channel_hub_options options = INCAST_CHANNEL_HUB_OPTIONS;
    options.fabric = fabric.c_str();
    incast_channel_hub* hub = nullptr;
    incast_channel_listener* listener = nullptr;
    incast_channel_listener* none = nullptr;
    ASSERT_EQ(incast_channel_hub_make("rio", &options, &hub), 0) << incast_channel_message();
    incast_channel_hub_info info;
    ASSERT_EQ(incast_channel_hub_get_info(hub, &info), 0);
    const std::string here = "rio://" + std::to_string(info.destid) + ":";
    ASSERT_EQ(incast_channel_listen(hub, (here + "77").c_str(), nullptr, &listener), 0) << incast_channel_message();
    EXPECT_EQ(incast_channel_listener_address(listener), here + "77");
    EXPECT_EQ(incast_channel_listen(hub, (here + "77").c_str(), nullptr, &none), -EADDRINUSE);
    EXPECT_EQ(incast_channel_listen(hub, "rio://40000:78", nullptr, &none), -EADDRNOTAVAIL);
    incast_channel* channel = nullptr;
    ASSERT_EQ(incast_channel_connect(hub, "rio://40000:77", nullptr, &channel), 0);
    EXPECT_EQ(incast_channel_wait_open(channel, patience_ms), -EHOSTUNREACH) << incast_channel_message();
    incast_channel_listener_close(listener);
    ASSERT_EQ(incast_channel_listen(hub, (here + "77").c_str(), nullptr, &listener), 0) << "it is free again";
    incast_channel_hub_free(hub);
    options.fabric = "no-such-fabric";
    EXPECT_EQ(incast_channel_hub_make("rio", &options, &hub), -ENODEV);
}

TEST(ChannelApi, ShapesAreChosenAndChecked) {
    Handle one;
    Handle other;
    incast_channel_options options = INCAST_CHANNEL_OPTIONS;
    Ends ends = join(one, other, some_name("shape"));
    incast_channel_options chosen;
    ASSERT_EQ(incast_channel_get_options(ends.there, &chosen), 0);
    EXPECT_EQ(std::uint64_t{chosen.buffers} * chosen.buffer_bytes, 512U << 10U);
    incast_channel* channel = nullptr;
    options.buffers = 70'000;
    EXPECT_EQ(incast_channel_connect(one.hub, some_name("shape").c_str(), &options, &channel), -EINVAL);
    options.buffers = 1;
    options.buffer_bytes = 1;  // rounded up: 48 bytes of a stream at a time
    ends = join(one, other, some_name("small"), &options);
    ASSERT_EQ(incast_channel_get_options(ends.there, &chosen), 0);
    EXPECT_EQ(chosen.buffers, 1U);
    EXPECT_EQ(chosen.buffer_bytes, 64U);
    const std::string text(1000, 'x');
    ASSERT_EQ(incast_channel_write(ends.here, text.data(), 48, patience_ms), 48);
    ASSERT_EQ(incast_channel_flush(ends.here), 0);
    char into[100];
    EXPECT_EQ(incast_channel_read(ends.there, into, sizeof into, patience_ms), 48);
}

/// An address of an RDMA device that tests may use; null: none.
const char* rdma_host() {
    return std::getenv("INCAST_CHANNEL_RDMA_HOST");  // NOLINT(concurrency-mt-unsafe): nobody sets it
}

std::vector<const char*> transports() {
    std::vector<const char*> all{"shm", "tcp", "udp", "rio"};
    if (rdma_host() != nullptr) all.push_back("verbs");
    return all;
}

class Transports : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        const std::string fabric = "shm:api-" + std::to_string(::getpid());
        ::setenv("RIO_FABRIC", fabric.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no hub is there
    }
    static std::string address(const std::string& name) {
        const Scheme scheme = parse_scheme(GetParam());
        if (scheme == Scheme::shm) return some_name(name);
        if (scheme == Scheme::rio) return "rio://*:*";
        return std::string(GetParam()) + "://" + (scheme == Scheme::verbs ? rdma_host() : "127.0.0.1") + ":*";
    }
};

TEST_P(Transports, ManyChannelsShareOneConnection) {
    Handle one(GetParam());
    Handle other(GetParam());
    incast_channel_listener* listener = other.listen(address("many"));
    incast_channel_options options = INCAST_CHANNEL_OPTIONS;
    options.buffers = 2;
    options.buffer_bytes = 4096;
    std::vector<Ends> all(60);
    for (Ends& ends : all)
        ends.here = one.connect(incast_channel_listener_address(listener), &options);
    for (Ends& ends : all)
        ASSERT_EQ(incast_channel_accept(listener, patience_ms, &ends.there), 0) << incast_channel_message();
    // They come in the order in which they were asked for: which is which is said on them.
    for (std::uint32_t each = 0; each < all.size(); ++each) {
        ASSERT_EQ(incast_channel_write(all[each].here, &each, sizeof each, patience_ms), 4) << incast_channel_message();
        ASSERT_EQ(incast_channel_finish(all[each].here), 0);
    }
    for (std::uint32_t each = 0; each < all.size(); ++each) {
        std::uint32_t number = 0;
        incast_channel* const there = all[each].there;
        ASSERT_EQ(incast_channel_read(there, &number, sizeof number, patience_ms), 4) << incast_channel_message();
        EXPECT_EQ(number, each);
        EXPECT_EQ(incast_channel_read(there, &number, sizeof number, patience_ms), 0) << "the end";
    }
    for (const Ends& ends : all) {
        incast_channel_close(ends.here);
        incast_channel_close(ends.there);
    }
    EXPECT_EQ(incast_channel_hub_drain(one.hub, patience_ms), 0);
    EXPECT_EQ(incast_channel_hub_drain(other.hub, patience_ms), 0);
}

TEST_P(Transports, MessagesOfAnySizeArriveWhole) {
    Handle one(GetParam());
    Handle other(GetParam());
    incast_channel_options options = INCAST_CHANNEL_OPTIONS;
    options.kind = INCAST_CHANNEL_MESSAGES;
    options.buffers = 4;
    options.buffer_bytes = 1024;
    const Ends ends = join(one, other, address("messages"), &options);
    base::Prng random(7);
    std::vector<char> text(100'000);
    for (char& each : text)
        each = static_cast<char>(random.below(256));
    std::vector<char> into(text.size());
    // Longer than the ring: taken whole, and the rest leaves by itself, also behind a close.
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{1000}, text.size(), std::size_t{0}, std::size_t{3}}) {
        ASSERT_EQ(incast_channel_send(ends.here, text.data(), size, patience_ms), 0) << incast_channel_message();
        ASSERT_EQ(incast_channel_flush(ends.here), 0);
        EXPECT_EQ(incast_channel_next_length(ends.there, patience_ms), static_cast<std::int64_t>(size));
        if (size > 0) {
            EXPECT_EQ(incast_channel_receive(ends.there, into.data(), size - 1, patience_ms), -EMSGSIZE);
        }
        EXPECT_EQ(incast_channel_receive(ends.there, into.data(), into.size(), patience_ms),
                  static_cast<std::int64_t>(size));
        EXPECT_EQ(std::memcmp(into.data(), text.data(), size), 0);
    }
    EXPECT_EQ(incast_channel_receive(ends.there, into.data(), into.size(), 0), -EAGAIN);
    EXPECT_EQ(incast_channel_write(ends.here, "x", 1, 0), -EINVAL) << "bytes are another kind";
    ASSERT_EQ(incast_channel_send(ends.here, text.data(), text.size(), patience_ms), 0);
    EXPECT_EQ(incast_channel_send(ends.here, "x", 1, 0), -EAGAIN) << "the one before has still to leave";
    incast_channel_close(ends.here);
    EXPECT_EQ(incast_channel_receive(ends.there, into.data(), into.size(), patience_ms),
              static_cast<std::int64_t>(text.size()));
    EXPECT_EQ(into, text);
    EXPECT_EQ(incast_channel_receive(ends.there, into.data(), into.size(), patience_ms), -ENODATA);
    incast_channel_close(ends.there);
    EXPECT_EQ(incast_channel_hub_drain(one.hub, patience_ms), 0);
}

TEST_P(Transports, AnOwnLoopIsWokenForEverythingAndOtherwiseSleeps) {
    Handle server(GetParam(), INCAST_CHANNEL_OWN_LOOP);
    Handle client(GetParam());
    incast_channel_listener* listener = server.listen(address("loop"));
    server.turn();
    incast_channel* here = client.connect(incast_channel_listener_address(listener));
    incast_channel* there = nullptr;
    const auto until = [&](const std::function<bool()>& is_so) {
        while (!is_so()) {
            if (!is_readable(incast_channel_hub_fd(server.hub), patience_ms)) return false;
            server.turn();
        }
        return true;
    };
    ASSERT_TRUE(until([&] { return incast_channel_accept(listener, 0, &there) == 0; }));
    ASSERT_EQ(incast_channel_wait_open(here, patience_ms), 1);
    char into[10];
    std::string heard;
    for (const char letter : std::string("sleeping and waking")) {
        ASSERT_EQ(incast_channel_write(here, &letter, 1, patience_ms), 1);
        ASSERT_EQ(incast_channel_flush(here), 0);
        ASSERT_TRUE(until([&] { return incast_channel_read(there, into, sizeof into, 0) == 1; }))
            << incast_channel_message();
        heard += into[0];
    }
    EXPECT_EQ(heard, "sleeping and waking");
    // What a call leaves to do is done, or wakes the loop: the answer comes without another turn.
    ASSERT_EQ(incast_channel_write(there, "answer", 6, 0), 6);
    ASSERT_EQ(incast_channel_flush(there), 0);
    EXPECT_EQ(incast_channel_read(here, into, 6, patience_ms), 6);
    // Nothing happens any more: after some last acknowledgements nobody is woken. Counted, not timed: a loop that spins
    // comes to thousands.
    int wakes = 0;
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200))
        if (is_readable(incast_channel_hub_fd(server.hub), 50)) {
            ++wakes;
            server.turn();
        }
    EXPECT_LE(wakes, 20);
}

TEST(ChannelApi, WhoClosesAListenerOfRioWaitsForNoCaller) {
    const std::string fabric = "shm:closing-" + std::to_string(::getpid());
    Handle deaf("rio", INCAST_CHANNEL_OWN_LOOP, 0, fabric.c_str());
    Handle caller("rio", 0, 0, fabric.c_str());
    incast_channel_listener* listener = deaf.listen("rio://*:*");
    incast_channel* channel = caller.connect(incast_channel_listener_address(listener));
    ASSERT_TRUE(is_readable(incast_channel_hub_fd(deaf.hub), patience_ms)) << "nobody has called";
    const auto begin = std::chrono::steady_clock::now();
    incast_channel_listener_close(listener);  // a caller that gets no answer goes on for five seconds
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
    incast_channel_abort(channel);
}

INSTANTIATE_TEST_SUITE_P(Every, Transports, testing::ValuesIn(transports()),
                         [](const auto& each) { return std::string(each.param); });

/// Of all threads of this process: how often they went to sleep.
std::uint64_t sleeps() {
    std::uint64_t sum = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream file(task.path() / "status");
        for (std::string line; std::getline(file, line);)
            if (line.starts_with("voluntary_ctxt_switches:")) sum += std::stoull(line.substr(24));
    }
    return sum;
}

TEST(ChannelApi, TheOwnThreadsSleepWhileNothingHappens) {
    Handle one;
    Handle other;
    const Ends ends = join(one, other, some_name("idle"));
    char into = 0;
    EXPECT_EQ(incast_channel_read(ends.there, &into, 1, 10), -EAGAIN);
    const std::uint64_t before = sleeps();
    EXPECT_EQ(incast_channel_read(ends.there, &into, 1, 200), -EAGAIN);
    EXPECT_LE(sleeps() - before, 20U) << "a thread that looks every millisecond comes to hundreds";
    EXPECT_EQ(incast_channel_state(ends.here), 1);
}

TEST(ChannelApi, ReadyChannelsAreSaidOnce) {
    Handle server("shm", INCAST_CHANNEL_OWN_LOOP);
    Handle client;
    incast_channel_listener* listener = server.listen(some_name("ready"));
    server.turn();
    incast_channel* here = client.connect(some_name("ready"));
    incast_channel* there = nullptr;
    while (incast_channel_accept(listener, 0, &there) != 0) {
        ASSERT_TRUE(is_readable(incast_channel_hub_fd(server.hub), patience_ms));
        server.turn();
    }
    ASSERT_EQ(incast_channel_wait_open(here, patience_ms), 1);
    incast_channel_set_user(there, &server);
    incast_channel* which = nullptr;
    std::uint32_t what = 0;
    ASSERT_EQ(incast_channel_hub_next_ready(server.hub, &which, &what), 1);
    EXPECT_EQ(which, there);
    EXPECT_EQ(incast_channel_user(which), &server);
    EXPECT_EQ(what, static_cast<std::uint32_t>(INCAST_CHANNEL_HAS_ROOM));
    EXPECT_EQ(incast_channel_hub_next_ready(server.hub, &which, &what), 0);
    ASSERT_EQ(incast_channel_write(here, "abc", 3, patience_ms), 3);
    ASSERT_EQ(incast_channel_flush(here), 0);
    do {
        ASSERT_TRUE(is_readable(incast_channel_hub_fd(server.hub), patience_ms));
        server.turn();
    } while (incast_channel_hub_next_ready(server.hub, &which, &what) == 0);
    EXPECT_EQ(what, static_cast<std::uint32_t>(INCAST_CHANNEL_HAS_DATA));
    EXPECT_EQ(incast_channel_hub_next_ready(server.hub, &which, &what), 0) << "once";
    const void* data = nullptr;
    ASSERT_EQ(incast_channel_peek(there, &data, 0), 3);
    EXPECT_EQ(std::memcmp(data, "abc", 3), 0);
    EXPECT_EQ(incast_channel_consume(there, 4), -EINVAL);
    EXPECT_EQ(incast_channel_consume(there, 3), 0);
    EXPECT_EQ(incast_channel_peek(there, &data, 0), -EAGAIN);
}

TEST(ChannelApi, DescriptorsAreThereBeforeTheChannelIs) {
    Handle one;
    Handle other;
    incast_channel_listener* listener = other.listen(some_name("early"));
    incast_channel* here = one.connect(some_name("early"));
    const int data = incast_channel_data_fd(here);
    const int room = incast_channel_room_fd(here);
    EXPECT_TRUE(is_readable(room, patience_ms)) << "open, with room";
    EXPECT_FALSE(is_readable(data));
    EXPECT_TRUE(is_readable(incast_channel_listener_fd(listener), patience_ms));
    incast_channel* there = nullptr;
    ASSERT_EQ(incast_channel_accept(listener, 0, &there), 0);
    EXPECT_FALSE(is_readable(incast_channel_listener_fd(listener)));
    incast_channel_abort(there);
    EXPECT_TRUE(is_readable(data, patience_ms)) << "the reset";
    EXPECT_EQ(incast_channel_state(here), -ECONNRESET);
    incast_channel* failing = one.connect(some_name("early-nobody"));
    EXPECT_TRUE(is_readable(incast_channel_room_fd(failing), patience_ms));
    EXPECT_TRUE(is_readable(incast_channel_data_fd(failing)));
    EXPECT_EQ(incast_channel_state(failing), -ECONNREFUSED);
}

TEST(ChannelApi, AHubConnectsToItself) {
    Handle handle;
    const Ends ends = join(handle, handle, some_name("self"));
    ASSERT_EQ(incast_channel_write(ends.here, "me", 2, patience_ms), 2);
    ASSERT_EQ(incast_channel_flush(ends.here), 0);
    char into[2];
    EXPECT_EQ(incast_channel_read(ends.there, into, 2, patience_ms), 2);
    incast_channel_options messages = INCAST_CHANNEL_OPTIONS;
    messages.kind = INCAST_CHANNEL_MESSAGES;
    (void)handle.listen(some_name("self-bytes"));
    incast_channel* wrong = handle.connect(some_name("self-bytes"), &messages);
    EXPECT_EQ(incast_channel_wait_open(wrong, patience_ms), -EPROTO) << "another kind";
}

TEST(ChannelApi, WhoeverIsNotDrivenInTimeIsGivenUp) {
    Handle server("shm", INCAST_CHANNEL_OWN_LOOP);  // and no loop
    (void)server.listen(some_name("asleep"));
    Handle client;
    incast_channel_options options = INCAST_CHANNEL_OPTIONS;
    options.connect_timeout_ms = 50;
    incast_channel* channel = client.connect(some_name("asleep"), &options);
    EXPECT_EQ(incast_channel_wait_open(channel, patience_ms), -ETIMEDOUT);
    EXPECT_EQ(incast_channel_write(channel, "x", 1, 0), -ETIMEDOUT);
}

TEST(ChannelApi, GarbageAtAListenerHarmsNobody) {
    Handle one;
    Handle other;
    const Ends before = join(one, other, some_name("before"));
    incast_channel_listener* listener = other.listen(some_name("garbage"));
    base::Prng random(3);
    for (int each = 0; each < 200; ++each) {
        const os::Descriptor socket = raw_socket(some_name("garbage"));
        ASSERT_TRUE(socket.is_open());
        std::vector<char> nonsense(random.below(2000));
        for (char& byte : nonsense)
            byte = static_cast<char>(random.below(256));
        (void)::send(socket.fd(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
    }
    incast_channel* here = one.connect(some_name("garbage"));
    incast_channel* there = nullptr;
    EXPECT_EQ(incast_channel_accept(listener, patience_ms, &there), 0);
    EXPECT_EQ(incast_channel_wait_open(here, patience_ms), 1);
    EXPECT_EQ(incast_channel_state(before.here), 1) << "nobody else has heard of it";
}

TEST(ChannelApi, WhoAnswersGarbageIsNoListener) {
    const std::string name = some_name("liar");
    const os::Descriptor liar = raw_socket(name, true);
    ASSERT_TRUE(liar.is_open());
    Handle handle;
    std::vector<std::vector<std::byte>> lies = {{}, {std::byte{1}}, std::vector<std::byte>(40'000, std::byte{'C'})};
    const Card good{.what = Card::What::offer, .scheme = 0, .port = 1};
    lies.push_back(to_bytes(good, Blob{std::vector<std::byte>(50)}));  // an address of nobody
    lies.back().resize(lies.back().size() - 1);
    lies.push_back(to_bytes({.what = Card::What::reply}, Blob{std::vector<std::byte>(50)}));
    for (const std::vector<std::byte>& lie : lies) {
        incast_channel* channel = handle.connect(name);
        const os::Descriptor caller(::accept4(liar.fd(), nullptr, nullptr, SOCK_CLOEXEC));
        (void)::send(caller.fd(), lie.data(), lie.size(), MSG_NOSIGNAL);
        (void)::shutdown(caller.fd(), SHUT_WR);
        EXPECT_EQ(incast_channel_wait_open(channel, patience_ms), -EPROTO) << lie.size();
        incast_channel_close(channel);
    }
}

TEST(ChannelApi, AfterAForkEverythingSaysSo) {
    Handle one;
    Handle other;
    const Ends ends = join(one, other, some_name("fork"));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        incast_channel* none = nullptr;
        char byte = 0;
        const bool is_right = incast_channel_write(ends.here, "x", 1, 0) == -ECHILD &&
                              incast_channel_read(ends.there, &byte, 1, -1) == -ECHILD &&
                              incast_channel_state(ends.here) == -ECHILD &&
                              incast_channel_connect(one.hub, "shm://x", nullptr, &none) == -ECHILD &&
                              incast_channel_hub_poll(one.hub) == -ECHILD;
        incast_channel_close(ends.here);
        incast_channel_hub_free(one.hub);
        ::_exit(is_right ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(incast_channel_write(ends.here, "x", 1, patience_ms), 1);
    EXPECT_EQ(incast_channel_flush(ends.here), 0);
    char into = 0;
    EXPECT_EQ(incast_channel_read(ends.there, &into, 1, patience_ms), 1) << "the parent goes on";
}

TEST(ChannelApi, AKilledPeerIsADefinedErrorAndItsNameIsFree) {
    const std::string name = some_name("killed");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        Handle server;
        incast_channel_listener* listener = server.listen(name);
        incast_channel* channel = nullptr;
        if (incast_channel_accept(listener, patience_ms, &channel) != 0) ::_exit(1);
        (void)incast_channel_write(channel, "last words", 10, patience_ms);
        (void)incast_channel_flush(channel);
        for (;;)
            ::pause();
    }
    Handle client;
    incast_channel* channel = client.connect(name);
    while (incast_channel_wait_open(channel, patience_ms) == -ECONNREFUSED) {  // it does not listen yet
        incast_channel_close(channel);
        channel = client.connect(name);
    }
    const void* data = nullptr;
    ASSERT_EQ(incast_channel_peek(channel, &data, patience_ms), 10) << incast_channel_message();
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    char into[20];
    EXPECT_EQ(incast_channel_read(channel, into, sizeof into, patience_ms), 10) << "what it had sent is still there";
    EXPECT_EQ(incast_channel_read(channel, into, sizeof into, patience_ms), -ECONNRESET);
    EXPECT_EQ(incast_channel_write(channel, "x", 1, patience_ms), -ECONNRESET);
    incast_channel_close(channel);
    incast_channel_listener_close(client.listen(name));
}

TEST(ChannelApi, WriteInPlaceSaysWhenTheMemoryIsBack) {
    Handle one;
    Handle other;
    const Ends ends = join(one, other, some_name("place"));
    const std::string text(100'000, 'p');
    EXPECT_EQ(incast_channel_write_in_place(ends.here, text.data(), text.size()), 100'000);
    EXPECT_EQ(incast_channel_written(ends.here), 100'000U);
    ASSERT_EQ(incast_channel_flush(ends.here), 0);
    std::string into(text.size(), ' ');
    std::size_t has_read = 0;
    while (has_read < into.size()) {
        const auto count = incast_channel_read(ends.there, into.data() + has_read, into.size() - has_read, patience_ms);
        ASSERT_GT(count, 0) << incast_channel_message();
        has_read += static_cast<std::size_t>(count);
    }
    EXPECT_EQ(into, text);
    EXPECT_EQ(incast_channel_released(ends.here), 100'000U);
}

TEST(ChannelApi, WhoDisconnectsEndsTheConnection) {
    Handle one;
    Handle other;
    const Ends ends = join(one, other, some_name("disconnect"));
    EXPECT_EQ(incast_channel_disconnect(ends.here), 0);
    EXPECT_EQ(incast_channel_state(ends.here), -ECONNRESET);
    char into = 0;
    EXPECT_EQ(incast_channel_read(ends.there, &into, 1, patience_ms), -ECONNRESET);
    EXPECT_EQ(incast_channel_released(ends.here), incast_channel_written(ends.here));
    EXPECT_EQ(incast_channel_disconnect(nullptr), -EINVAL);
}

}  // namespace
}  // namespace incast::channel::api
