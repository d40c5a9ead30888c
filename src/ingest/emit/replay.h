// The datagrams of a capture, sent again.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include <incast/result.h>

#include "datagram/address.h"

namespace incast::ingest {

struct ReplaySettings {
    std::string file;                  // pcap or pcapng
    std::vector<std::uint16_t> ports;  // that datagrams were sent to; none: all
    double pace = 1;                   // times as fast as they were captured; 0: as fast as can be
    std::vector<datagram::Address>
        to;  // one for all, or one for each address of the capture, in the order of IP and port
};

struct Replayed {
    std::string json;   // what was sent
    std::string error;  // not empty: the file is damaged; what comes before that was sent
};

/// Sends until the file ends, or `stop` is not 0. Errors: a file that cannot be read or has no such datagrams, another
/// number of addresses than the capture has, addresses of two kinds, a system call that fails.
Result<Replayed> replay(const ReplaySettings& settings, const volatile std::sig_atomic_t& stop);

}  // namespace incast::ingest
