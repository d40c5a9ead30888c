#include "runtime/machine/port_counters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace incast::runtime {
namespace {

namespace fs = std::filesystem;

// Of one folder, and of one host: a device with virtual functions has hundreds.
constexpr std::size_t most_counters = 256;
constexpr std::size_t most_ports = 64;

/// One read, of a file that holds one line.
std::optional<std::string> line_of(const fs::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return std::nullopt;
    }
    std::array<char, 256> text{};
    const ssize_t n = ::read(fd, text.data(), text.size());
    ::close(fd);
    if (n < 0) {
        return std::nullopt;
    }
    const std::string_view line(text.data(), static_cast<std::size_t>(n));
    return std::string(line.substr(0, line.find('\n')));
}

std::optional<std::uint64_t> number_in(const fs::path& file) {
    const std::optional<std::string> line = line_of(file);
    std::uint64_t value = 0;
    if (!line || line->empty()) {
        return std::nullopt;
    }
    const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), value);
    return error == std::errc{} && end == line->data() + line->size() ? std::optional(value) : std::nullopt;
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code none;
    for (fs::directory_iterator entry(folder, none), end; !none && entry != end; entry.increment(none)) {
        names.push_back(entry->path().filename().string());
    }
    std::ranges::sort(names);
    return names;
}

std::string interface_of(const fs::path& device, const fs::path& port) {
    if (std::optional<std::string> name = line_of(port / "gid_attrs/ndevs/0"); name && !name->empty()) {
        return *name;
    }
    return line_of(device / "parent").value_or("");  // soft-RoCE
}

std::string interface_with(std::string_view address) {
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) {
        return "";
    }
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &freeifaddrs);
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr == nullptr) {
            continue;
        }
        const int family = each->ifa_addr->sa_family;
        const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
        std::array<char, NI_MAXHOST> text{};
        if (size != 0 && getnameinfo(each->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0 &&
            std::string_view(text.data()) == address) {
            return each->ifa_name;
        }
    }
    return "";
}

}  // namespace

WatchedPorts watched_ports(std::string_view addresses, std::string_view devices, bool rdma) {
    WatchedPorts watched;
    while (!devices.empty()) {
        const std::string_view one = devices.substr(0, devices.find(','));
        watched.devices.emplace_back(one);
        devices.remove_prefix(std::min(devices.size(), one.size() + 1));
    }
    while (!addresses.empty()) {
        std::string_view one = addresses.substr(0, addresses.find_first_of(",+"));
        addresses.remove_prefix(std::min(addresses.size(), one.size() + 1));
        while (one.starts_with(' ')) {
            one.remove_prefix(1);
        }
        if (std::string name = interface_with(one);
            !name.empty() && std::ranges::find(watched.interfaces, name) == watched.interfaces.end()) {
            watched.interfaces.push_back(std::move(name));
        }
    }
    watched.all_devices =
        rdma && watched.devices.empty() && (watched.interfaces.empty() || watched.interfaces.front() == "lo");
    return watched;
}

PortCounters::PortCounters(const fs::path& sys, const WatchedPorts& watched) {
    const fs::path devices = sys / "class/infiniband";
    std::vector<std::string> left = watched.interfaces;
    for (const std::string& device : names_in(devices)) {
        for (const std::string& number : names_in(devices / device / "ports")) {
            const fs::path folder = devices / device / "ports" / number;
            Port port;
            port.names.device = device;
            port.names.interface = interface_of(devices / device, folder);
            std::from_chars(number.data(), number.data() + number.size(), port.names.port);
            const auto own = std::ranges::find(watched.interfaces, port.names.interface);
            const bool wanted =
                watched.devices.empty()
                    ? own != watched.interfaces.end() ||
                          (watched.all_devices && line_of(folder / "state").value_or("").ends_with("ACTIVE"))
                    : std::ranges::find(watched.devices, device) != watched.devices.end();
            if (!wanted || ports_.size() == most_ports) {
                continue;
            }
            add_folder(port, folder / "counters");
            add_folder(port, folder / "hw_counters");
            add_interface(sys, port);
            std::erase(left, port.names.interface);
            ports_.push_back(std::move(port));
        }
    }
    // With a device of the run, or where one has to be, other interfaces carry nothing of its data.
    if (!watched.devices.empty() || watched.all_devices) {
        left.clear();
    }
    for (const std::string& interface : left) {
        Port port;
        port.names.interface = interface;
        add_interface(sys, port);
        if (!port.counters.empty() && ports_.size() < most_ports) {
            ports_.push_back(std::move(port));
        }
    }
    begin();
}

void PortCounters::add_interface(const fs::path& sys, Port& port) {
    if (!port.names.interface.empty()) {
        add_folder(port, sys / "class/net" / port.names.interface / "statistics");
    }
}

void PortCounters::add_folder(Port& port, const fs::path& folder) {
    std::size_t taken = 0;
    for (const std::string& name : names_in(folder)) {
        const bool known = std::ranges::find(port.counters, name, &Counter::name) != port.counters.end();
        // How long a device keeps what it says is no counter.
        if (!known && name != "lifespan" && taken < most_counters && number_in(folder / name)) {
            port.counters.push_back({name, folder / name, 0});
            ++taken;
        }
    }
}

void PortCounters::begin() {
    for (Port& port : ports_) {
        for (Counter& counter : port.counters) {
            counter.before = number_in(counter.file).value_or(counter.before);
        }
    }
}

std::vector<PortChange> PortCounters::grown() const {
    std::vector<PortChange> changes;
    for (const Port& port : ports_) {
        PortChange& change = changes.emplace_back(port.names);
        for (const Counter& counter : port.counters) {
            if (const std::uint64_t now = number_in(counter.file).value_or(0); now > counter.before) {
                change.grown[counter.name] = now - counter.before;
            }
        }
    }
    return changes;
}

}  // namespace incast::runtime
