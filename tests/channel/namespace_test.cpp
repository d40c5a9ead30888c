// Channels between network namespaces, as containers have them: a path is what they share.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <incast/channel.h>

namespace incast::channel::api {
namespace {

constexpr int patience_ms = 20'000;
constexpr int cannot = 77;

/// In a network namespace of its own: gives back what comes by two channels.
int echo_elsewhere(const std::string& name) {
    if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return cannot;
    incast_channel_hub* hub = nullptr;
    incast_channel_listener* listener = nullptr;
    if (incast_channel_hub_make("shm", nullptr, &hub) != 0 ||
        incast_channel_listen(hub, name.c_str(), nullptr, &listener) != 0)
        return 1;
    for (int each = 0; each < 2; ++each) {
        incast_channel* channel = nullptr;
        char text[5];
        if (incast_channel_accept(listener, patience_ms, &channel) != 0 ||
            incast_channel_read(channel, text, sizeof text, patience_ms) != sizeof text ||
            incast_channel_write(channel, text, sizeof text, patience_ms) != sizeof text)
            return 1;
        incast_channel_close(channel);
    }
    incast_channel_listener_close(listener);
    const int error = incast_channel_hub_drain(hub, patience_ms);
    incast_channel_hub_free(hub);
    return error == 0 ? 0 : 1;
}

TEST(ChannelApi, APathLeadsIntoAnotherNetworkNamespace) {
    const std::string path = testing::TempDir() + "elsewhere-" + std::to_string(::getpid());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(echo_elsewhere("shm://" + path));
    int status = 0;
    incast_channel_hub* hub = nullptr;
    ASSERT_EQ(incast_channel_hub_make("shm", nullptr, &hub), 0) << incast_channel_message();
    const auto connect = [&] {
        incast_channel* channel = nullptr;
        EXPECT_EQ(incast_channel_connect(hub, ("shm://" + path).c_str(), nullptr, &channel), 0);
        return channel;
    };
    for (int each = 0; each < 2; ++each) {
        incast_channel* channel = connect();
        while (incast_channel_wait_open(channel, patience_ms) == -ECONNREFUSED) {  // it does not listen yet
            if (::waitpid(child, &status, WNOHANG) == child) {
                if (WIFEXITED(status) && WEXITSTATUS(status) == cannot)
                    GTEST_SKIP() << "no network namespace can be made";
                FAIL() << "it has ended: " << status;
            }
            incast_channel_close(channel);
            channel = connect();
        }
        ASSERT_EQ(incast_channel_state(channel), 1) << incast_channel_state_message(channel);
        ASSERT_EQ(incast_channel_write(channel, "there", 5, patience_ms), 5);
        ASSERT_EQ(incast_channel_flush(channel), 0);
        char back[5];
        ASSERT_EQ(incast_channel_read(channel, back, sizeof back, patience_ms), 5) << incast_channel_message();
        EXPECT_EQ(std::memcmp(back, "there", 5), 0);
        EXPECT_EQ(incast_channel_read(channel, back, sizeof back, patience_ms), 0) << "the end";
        incast_channel_close(channel);
    }
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(std::filesystem::exists(path));
    incast_channel_hub_free(hub);
}

}  // namespace
}  // namespace incast::channel::api
