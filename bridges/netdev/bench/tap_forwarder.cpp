// The reference of netdev_vs_tap.py: one process that hands the frames of a TAP device to another one, with nothing in
// between: no ring, no second process, no queue.
//
//     tap_forwarder NAMESPACE NAMESPACE MTU     the first device has 10.9.0.1/24, the second 10.9.0.2/24
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include "frame.h"
#include "tap.h"

namespace netdev = incast::netdev;

namespace {

netdev::Descriptor make(const char* place, std::uint16_t number, std::uint32_t mtu) {
    const netdev::InNamespace within(place);
    netdev::TapChoices choices{
        .name = "bare0", .mac = netdev::mac_of(number), .mtu = mtu, .queues = 1, .addresses = {}};
    choices.addresses.push_back(*netdev::parse_cidr("10.9.0." + std::to_string(number) + "/24"));
    return std::move(netdev::make_tap(choices).front());
}

void forward(int from, int to) {
    std::vector<std::byte> frame(netdev::most_message_bytes);
    for (pollfd watched{.fd = from, .events = POLLIN, .revents = 0};; (void)::poll(&watched, 1, -1)) {
        ssize_t bytes = 0;
        while ((bytes = ::read(from, frame.data(), frame.size())) > 0)
            (void)!::write(to, frame.data(), static_cast<std::size_t>(bytes));
        if (bytes < 0 && errno != EAGAIN) return;
    }
}

}  // namespace

int main(int count, char** words) {
    if (count != 4) return 2;
    const auto mtu = static_cast<std::uint32_t>(std::strtoul(words[3], nullptr, 10));
    const std::array devices{make(words[1], 1, mtu), make(words[2], 2, mtu)};
    std::printf("forwarding\n");
    std::fflush(stdout);
    std::thread back(forward, devices[1].fd(), devices[0].fd());
    forward(devices[0].fd(), devices[1].fd());
    back.join();
    return 0;
}
