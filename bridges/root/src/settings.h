// Which connections of ROOT go by a channel, and how: the environment variables of docs/root.md.
#pragma once

#include <map>
#include <string>

#include <incast/channel.h>

namespace incast_root {

struct Settings {
    std::string transport = "shm";  // INCAST_ROOT; `tcp`: nothing is turned
    std::map<std::string, std::string>
        hosts;  // INCAST_ROOT_HOSTS: what stands for a host in addresses of the transport
    incast_channel_options ring = INCAST_CHANNEL_OPTIONS;  // INCAST_ROOT_RING

    [[nodiscard]] bool is_on() const { return transport != "tcp"; }
};

/// `shm`, `rio`, `cm`, `verbs`.
bool is_channel_transport(const std::string& name);

/// Reads the environment. A wrong value is said once, as an error of ROOT, and its default holds.
Settings read_settings();

}  // namespace incast_root
