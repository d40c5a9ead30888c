// A small network for the tests of this folder.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "sim/fabric/fabric.h"

namespace incast::sim::flows::testing {

/// Four hosts on a lossless switch, 100 Gb/s, 100 ns a cable; `flow` stands in its [flow].
inline fabric::Fabric four_hosts(const std::string& flow = "ack_packets = 1",
                                 const std::string& pfc = "pfc = { classes = [0], headroom = \"100KiB\" }") {
    const std::string text = R"(
[fabric]
name = "four"
[hosts.nic]
mtu = "4096B"
header = "82B"
[switches.sw]
kind = "shared-buffer"
buffer = "1MiB"
)" + pfc + R"(
[links.c]
rate = "100Gb/s"
delay = "100ns"
[flow]
)" + flow + R"(
[topology]
kind = "explicit"
hosts = [{ name = "h", count = 4 }]
switches = [{ name = "s" }]
cables = [{ from = "h", to = "s" }]
)";
    Result<fabric::Fabric> fabric = fabric::parse(text, "four.toml");
    if (!fabric) {
        ADD_FAILURE() << fabric.error().message;
        std::abort();
    }
    return std::move(*fabric);
}

}  // namespace incast::sim::flows::testing
