// Counters of the ports that a node's traffic goes through: of RDMA devices and of network interfaces, from sysfs. What
// they grew by in a window says what no transport sees: packets that were marked, paused, discarded or sent again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace incast::runtime {

/// What one port grew by.
struct PortChange {
    std::string device;                          // RDMA; empty: the interface alone
    std::uint32_t port = 0;                      // of the device
    std::string interface;                       // empty: it has none
    std::map<std::string, std::uint64_t> grown;  // by the names of sysfs; those that moved
};

/// Which ports. A device's name goes before interfaces; with neither there are none.
struct WatchedPorts {
    std::vector<std::string> interfaces;  // and the ports of RDMA devices that use them
    std::vector<std::string> devices;     // of these RDMA devices, and their interfaces
    bool all_devices = false;             // of all of them that are up, if there is no other sign of which
};

/// What the transport of a node listens at, and what its settings name. `addresses`: numeric, with commas between,
/// or + between those of one node; `devices`: with commas between.
[[nodiscard]] WatchedPorts watched_ports(std::string_view addresses, std::string_view devices, bool rdma);

class PortCounters {
public:
    PortCounters() = default;
    /// `sys`: where sysfs is. Looks for the files once.
    PortCounters(const std::filesystem::path& sys, const WatchedPorts& watched);

    /// Growth counts from now.
    void begin();
    /// Since begin(). A counter that went back was reset and is left out.
    [[nodiscard]] std::vector<PortChange> grown() const;
    [[nodiscard]] bool empty() const { return ports_.empty(); }

private:
    struct Counter {
        std::string name;
        std::filesystem::path file;
        std::uint64_t before = 0;
    };
    struct Port {
        PortChange names;
        std::vector<Counter> counters;
    };

    static void add_interface(const std::filesystem::path& sys, Port& port);
    static void add_folder(Port& port, const std::filesystem::path& folder);

    std::vector<Port> ports_;
};

}  // namespace incast::runtime
