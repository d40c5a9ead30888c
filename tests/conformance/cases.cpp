// Which transports, settings, modes and decorations the suite is run for.
#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "conformance.h"
#include "sim/sim_medium.h"
#include "transport/ofi/descriptor/descriptor.h"
#include "transport/rio/descriptor/descriptor.h"
#include "transport/tcp/tcp.h"
#include "transport/ucx/descriptor/descriptor.h"
#include "transport/udp/udp.h"

namespace incast::conformance {

namespace {

/// Addresses of this host, a network for each process, so that no port has to be found that is free.
std::string private_network() {
    const auto pid = static_cast<unsigned>(::getpid());
    return "udp:127." + std::to_string(128 + (pid >> 8) % 127) + "." + std::to_string(pid & 0xFF) + ".0/24:7400";
}

/// What INCAST_CONFORMANCE_SETTINGS sets for that transport: "verbs.bind=10.0.0.1,10.0.0.2 verbs.device=mlx5_0".
transport::Settings given_settings(const std::string& transport) {
    const char* const given = std::getenv("INCAST_CONFORMANCE_SETTINGS");
    std::istringstream words(given != nullptr ? given : "");
    transport::Settings settings;
    for (std::string word; words >> word;) {
        const std::size_t dot = word.find('.');
        const std::size_t sign = word.find('=');
        if (dot == std::string::npos || sign == std::string::npos || sign < dot)
            give_up("INCAST_CONFORMANCE_SETTINGS: '" + word + "': expected TRANSPORT.SETTING=VALUE");
        if (word.substr(0, dot) == transport) settings[word.substr(dot + 1, sign - dot - 1)] = word.substr(sign + 1);
    }
    return settings;
}

}  // namespace

std::vector<Case> all_cases() {
    struct Variant {
        std::string transport;
        std::string name;
        transport::Settings settings;
        std::vector<Mode> modes = {Mode::one_thread, Mode::two_threads, Mode::two_processes};
    };
    // Enough where threads would do nothing else than in the plain transport.
    const std::vector<Mode> processes{Mode::two_processes};
    const std::string tcp(transport::tcp::transport_name);
    const std::string udp(transport::udp::transport_name);
    const std::string rio(transport::rio::transport_name);
    const std::string ofi(transport::ofi::transport_name);
    const std::string ucx(transport::ucx::transport_name);
    const std::string simulated(sim::transport_name);
    const std::vector<Variant> variants{
        {tcp, "streams", {{"streams", "3"}}},
        {tcp, "ipv6", {{"bind", "::1"}}},
        // Everything arrives in small pieces, and nothing fits twice.
        {tcp,
         "tight",
         {{"streams", "2"},
          {"staging", "8192"},
          {"send_buffer", "16384"},
          {"socket_buffer", "4608"},
          {"copy_below", "64"}}},
        // As for libraries that stand in for sockets.
        {tcp, "poll", {{"wait", "poll"}}, processes},
        // Everything the notices may be carried by, on the order that RapidIO promises; and pieces everywhere.
        {rio, "weak", {{"order", "weak"}, {"dma_channels", "4"}, {"look_every", "2ms"}}, processes},
        {rio, "memory", {{"notice", "memory"}, {"order", "weak"}, {"layout", "segments"}}, processes},
        {rio, "cm", {{"notice", "cm"}}},
        {rio, "weak_cm", {{"notice", "cm"}, {"order", "weak"}, {"look_every", "2ms"}}, processes},
        // Bodies are sent once. In small datagrams, of which a small receive buffer holds enough.
        {udp, "once", {{"repair", "none"}, {"mtu", "1500"}}, processes},
        // Between hosts: each node behind its own address and socket, in a network that no other process has.
        {rio, "udp", {{"fabric", private_network()}}, {Mode::one_thread, Mode::two_processes}},
        // The other kind of endpoints, with notices that their writes carry, and with such as wait at a gate.
        {ofi, "shm", {{"provider", "shm"}}, processes},
        {ofi, "shm_gate", {{"provider", "shm"}, {"order", "gate"}}, processes},
        // With all that UCX has it takes tcp. Its shared memory tells nobody of peers that fail.
        {ucx, "shm_posix", {{"tls", "posix,self"}}, processes},
        {ucx, "shm_sysv", {{"tls", "sysv,cma,self"}}, processes},
        {simulated, "packets", {{"fabric", "fabrics/ib-edr-36.toml"}}},
    };
    std::vector<Case> cases;
    for (const transport::Descriptor* each : tested_transports()) {
        const std::string name(each->name);
        (void)expected_outcomes(name);
        if (!missing_for(*each).empty()) continue;
        const transport::Settings given = given_settings(name);
        // Whose processes a launcher starts has others only where one has.
        const bool is_launched = each->launch != nullptr && each->launch->rank_here().has_value();
        for (const Mode mode : {Mode::one_thread, Mode::two_threads, Mode::two_processes}) {
            if (each->launch != nullptr && (mode == Mode::two_processes) != is_launched) continue;
            cases.push_back({name, Decoration::none, mode, "", given});
            for (const Variant& variant : variants) {
                if (variant.transport == name && std::ranges::find(variant.modes, mode) != variant.modes.end())
                    cases.push_back({name, Decoration::none, mode, variant.name, variant.settings});
            }
        }
        if (is_launched) continue;
        for (const Decoration decoration : {Decoration::trace, Decoration::count, Decoration::fault, Decoration::pad}) {
            cases.push_back({name, decoration, Mode::one_thread, "", given});
        }
    }
    return cases;
}

}  // namespace incast::conformance
