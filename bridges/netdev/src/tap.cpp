#include "tap.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "failure.h"

namespace incast::netdev {

namespace {

ifreq request_for(const std::string& name) {
    ifreq request{};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    return request;
}

/// Arguments of ioctl are pointers or numbers.
template <class Argument>
void control(int fd, unsigned long what, Argument argument, const std::string& failed) {
    if (::ioctl(fd, what, argument) != 0) throw system_failure(failed, errno);
}

Descriptor make_queue(const std::string& name, bool is_first, bool is_one_of_many) {
    Descriptor queue(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!queue.is_open()) throw system_failure("/dev/net/tun", errno);
    ifreq request = request_for(name);
    int flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if (is_first) flags |= IFF_TUN_EXCL;  // not a device that is there
    if (is_one_of_many) flags |= IFF_MULTI_QUEUE;
    request.ifr_flags = static_cast<short>(flags);
    if (::ioctl(queue.fd(), TUNSETIFF, &request) != 0) {
        if (errno == EBUSY || errno == EINVAL) throw Failure(name + ": there is a device of that name already");
        if (errno == EPERM) throw Failure(name + ": a device needs CAP_NET_ADMIN; allowed: root, or that capability");
        throw system_failure(name, errno);
    }
    int header_bytes = offload_bytes;
    int is_little = 1;
    control(queue.fd(), TUNSETVNETHDRSZ, &header_bytes, name + ": headers of 12 bytes");
    control(queue.fd(), TUNSETVNETLE, &is_little, name + ": little-endian headers");
    return queue;
}

/// Datagrams in segments (UDP GSO) are newer than segments of TCP: Linux 6.2.
void set_offloads(int fd, const std::string& name) {
    constexpr unsigned long always = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    constexpr unsigned long datagrams = 0x20 | 0x40;  // TUN_F_USO4 and TUN_F_USO6, which older headers do not have
    if (::ioctl(fd, TUNSETOFFLOAD, always | datagrams) == 0) return;
    control(fd, TUNSETOFFLOAD, always, name + ": offloads");
}

/// RTM_NEWADDR, as `ip address add` does it.
void add_address(const Cidr& cidr, unsigned index, const std::string& name) {
    const Descriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!socket.is_open()) throw system_failure("netlink", errno);
    struct {
        nlmsghdr header;
        ifaddrmsg message;
        std::byte attributes[2 * RTA_SPACE(sizeof(in6_addr))];
    } request{};
    std::size_t used = 0;
    const auto add = [&](std::uint16_t type) {
        const rtattr attribute{.rta_len = static_cast<std::uint16_t>(RTA_LENGTH(cidr.address.size())),
                               .rta_type = type};
        std::memcpy(request.attributes + used, &attribute, sizeof attribute);
        std::memcpy(request.attributes + used + RTA_LENGTH(0), cidr.address.data(), cidr.address.size());
        used += RTA_SPACE(cidr.address.size());
    };
    const bool is_v4 = cidr.address.size() == sizeof(in_addr);
    if (is_v4) add(IFA_LOCAL);
    add(IFA_ADDRESS);
    request.header.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(sizeof request.message) + used);
    request.header.nlmsg_type = RTM_NEWADDR;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    request.message.ifa_family = is_v4 ? AF_INET : AF_INET6;
    request.message.ifa_prefixlen = cidr.prefix_bits;
    request.message.ifa_index = index;
    struct {
        nlmsghdr header;
        nlmsgerr error;
        std::byte more[512];
    } answer{};
    if (::send(socket.fd(), &request, request.header.nlmsg_len, 0) < 0 ||
        ::recv(socket.fd(), &answer, sizeof answer, 0) < static_cast<ssize_t>(NLMSG_LENGTH(sizeof answer.error)))
        throw system_failure(name + ": an address", errno);
    if (answer.error.error != 0) throw system_failure(name + ": an address", -answer.error.error);
}

}  // namespace

std::optional<Cidr> parse_cidr(std::string_view text) {
    const std::size_t slash = text.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const std::string address(text.substr(0, slash));
    const bool is_v6 = address.find(':') != std::string::npos;
    Cidr made;
    made.address.resize(is_v6 ? sizeof(in6_addr) : sizeof(in_addr));
    if (::inet_pton(is_v6 ? AF_INET6 : AF_INET, address.c_str(), made.address.data()) != 1) return std::nullopt;
    const std::string_view bits = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), made.prefix_bits);
    if (error != std::errc{} || end != bits.data() + bits.size() || made.prefix_bits > made.address.size() * 8)
        return std::nullopt;
    return made;
}

bool is_device_name(std::string_view name) {
    if (name.empty() || name.size() >= IFNAMSIZ || name == "." || name == "..") return false;
    return std::all_of(name.begin(), name.end(), [](char each) {
        return each > ' ' && each < 0x7F && each != '/' && each != ':' && each != '%';
    });
}

std::vector<Descriptor> make_tap(const TapChoices& choices) {
    std::vector<Descriptor> queues;
    queues.reserve(choices.queues);
    for (std::uint32_t queue = 0; queue < choices.queues; ++queue)
        queues.push_back(make_queue(choices.name, queue == 0, choices.queues > 1));
    set_offloads(queues.front().fd(), choices.name);
    const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) throw system_failure("a socket", errno);
    ifreq request = request_for(choices.name);
    request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    std::memcpy(request.ifr_hwaddr.sa_data, choices.mac.data(), choices.mac.size());
    control(socket.fd(), SIOCSIFHWADDR, &request, choices.name + ": its hardware address");
    request = request_for(choices.name);
    request.ifr_mtu = static_cast<int>(choices.mtu);
    control(socket.fd(), SIOCSIFMTU, &request, choices.name + ": an MTU of " + std::to_string(choices.mtu));
    const unsigned index = ::if_nametoindex(choices.name.c_str());
    for (const Cidr& cidr : choices.addresses)
        add_address(cidr, index, choices.name);
    request = request_for(choices.name);
    request.ifr_flags = IFF_UP | IFF_BROADCAST | IFF_MULTICAST;
    control(socket.fd(), SIOCSIFFLAGS, &request, choices.name + ": to set it up");
    return queues;
}

InNamespace::InNamespace(const std::string& name) {
    if (name.empty()) return;
    if (name.find('/') != std::string::npos) throw Failure("--netns " + name + ": allowed: a name of `ip netns`");
    const Descriptor other(::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!other.is_open()) throw system_failure("the network namespace " + name, errno);
    own_ = Descriptor(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!own_.is_open()) throw system_failure("the own network namespace", errno);
    if (::setns(other.fd(), CLONE_NEWNET) != 0) throw system_failure("to enter the network namespace " + name, errno);
}

InNamespace::~InNamespace() {
    // Whoever may enter another one may come back; to go on elsewhere would be worse than to end.
    if (own_.is_open() && ::setns(own_.fd(), CLONE_NEWNET) != 0) ::_exit(1);
}

}  // namespace incast::netdev
