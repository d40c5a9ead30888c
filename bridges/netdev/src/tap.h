// TAP devices: Ethernet interfaces whose frames a program carries (Linux, Documentation/networking/tuntap.rst).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "descriptor.h"
#include "frame.h"

namespace incast::netdev {

/// An address with the length of its prefix, as 10.9.0.1/24 or fd00::1/64.
struct Cidr {
    std::vector<std::byte> address;  // 4 or 16
    std::uint8_t prefix_bits = 0;
};
[[nodiscard]] std::optional<Cidr> parse_cidr(std::string_view text);

/// 1 to 15 characters, no white space, none of / and :, and not . or .. : what the kernel takes for a name.
[[nodiscard]] bool is_device_name(std::string_view name);

struct TapChoices {
    std::string name;
    Mac mac{};
    std::uint32_t mtu = 1500;
    std::uint32_t queues = 1;
    std::vector<Cidr> addresses;
};

/// A descriptor for each queue of a new device, in this thread's network namespace: up, and without blocking. Frames
/// have an offload header (frame.h): checksums and segments are left to whoever needs them. The device is gone with the
/// last of these descriptors. Failure: why not.
[[nodiscard]] std::vector<Descriptor> make_tap(const TapChoices& choices);

/// Within, this thread is in the network namespace of that name (`ip netns`), or in its own if that is empty.
class InNamespace {
public:
    explicit InNamespace(const std::string& name);
    InNamespace(const InNamespace&) = delete;
    InNamespace& operator=(const InNamespace&) = delete;
    ~InNamespace();

private:
    Descriptor own_;
};

}  // namespace incast::netdev
