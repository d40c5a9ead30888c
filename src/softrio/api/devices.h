// Device objects that riomp_mgmt_device_add makes. As those of the kernel they outlive their process: each is a folder
// of files, as under /sys/bus/rapidio/devices. RIO_SYS names what stands for /sys; else they are of this user's,
// fabric's and endpoint's, in softrio-UID among the temporary files.
#pragma once

#include <cstdint>
#include <string>

#include "softrio/port.h"

namespace incast::softrio::api {

struct Device {
    std::uint32_t mport = 0;
    std::uint32_t destid = 0;
    std::uint32_t hops = 0;
    std::uint32_t component_tag = 0;
    std::string name;  // empty: made of port and component tag
};

/// 0 or a negative errno: -EEXIST, -EIO (nothing answers there).
int add_device(Port& port, Device device);
/// By its name, or by all else. -ENODEV.
int remove_device(Port& port, const Device& device);
/// With RIO_SYS: class/rapidio_port/rapidioN and class/rio_mport/rio_mportN of that port.
void show_port(Port& port, std::uint32_t mport);

}  // namespace incast::softrio::api
