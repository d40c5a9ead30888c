// A hub by its C interface, closed with its owner, and a socket that knows nothing of hubs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <incast/channel.h>

#include "os/descriptor.h"

namespace incast::channel::api {

inline constexpr int patience_ms = 20'000;

inline std::string some_name(const std::string& what) {
    return "shm://test-" + std::to_string(::getpid()) + "-" + what;
}

inline bool is_readable(int fd, int timeout_ms = 0) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
}

/// A hub, of a thread of its own unless it says OWN_LOOP.
class Handle {
public:
    explicit Handle(const char* transport = "shm", std::uint32_t flags = 0, std::uint32_t max_channels = 0,
                    const char* fabric = nullptr, const char* settings = nullptr) {
        incast_channel_hub_options options = INCAST_CHANNEL_HUB_OPTIONS;
        options.flags = flags;
        options.max_channels = max_channels;
        options.fabric = fabric;
        options.settings = settings;
        EXPECT_EQ(incast_channel_hub_make(transport, &options, &hub), 0) << incast_channel_message();
    }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() { incast_channel_hub_free(hub); }

    incast_channel_listener* listen(const std::string& address, const incast_channel_options* options = nullptr) {
        incast_channel_listener* listener = nullptr;
        EXPECT_EQ(incast_channel_listen(hub, address.c_str(), options, &listener), 0) << incast_channel_message();
        return listener;
    }
    incast_channel* connect(const std::string& address, const incast_channel_options* options = nullptr) {
        incast_channel* channel = nullptr;
        EXPECT_EQ(incast_channel_connect(hub, address.c_str(), options, &channel), 0) << incast_channel_message();
        return channel;
    }
    /// As an event loop does, until nothing is left to do.
    void turn() const {
        do
            (void)incast_channel_hub_poll(hub);
        while (incast_channel_hub_prepare_wait(hub) == 0);
    }
    incast_channel_hub* hub = nullptr;
};

/// A Unix socket, connected to what listens at that path, or that abstract name if it begins with a zero; `listens`: it
/// does so itself. Not open: it cannot.
inline os::Descriptor socket_at(const std::string& place, bool listens = false) {
    os::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, place.data(), place.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + place.size());
    const auto* const name = reinterpret_cast<const sockaddr*>(&address);
    const bool is_there = listens ? ::bind(socket.fd(), name, size) == 0 && ::listen(socket.fd(), 5) == 0
                                  : ::connect(socket.fd(), name, size) == 0;
    if (!is_there) socket.close();
    return socket;
}
inline os::Descriptor raw_socket(const std::string& address, bool listens = false) {
    return socket_at(std::string("\0incast-channel/", 16) + address.substr(6), listens);
}

}  // namespace incast::channel::api
