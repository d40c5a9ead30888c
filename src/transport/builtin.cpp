#include <algorithm>
#include <array>

#include "sim/sim_medium.h"
#include "transport/inproc/inproc.h"
#include "transport/medium.h"
#include "transport/rio/rio.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace incast::transport {

std::span<const Builtin> builtin_transports() {
    static const std::array list{
        Builtin{"inproc", "all nodes in one thread: memory copies, no network", false, inproc::parameters(),
                inproc::make},
        Builtin{"shm", "shared memory between processes of one host", false, shm::parameters(), shm::make},
        Builtin{"tcp", "TCP connections between processes, IPv4 or IPv6", true, tcp::parameters(), tcp::make},
        Builtin{"rio", "RapidIO: rDMA, doorbells and messages, over SoftRIO", false, rio::parameters(), rio::make},
        Builtin{"sim", "a simulated network in virtual time: the ideal model", false, sim::parameters(),
                sim::make_sim_medium},
    };
    return list;
}

const Builtin* find_transport(std::string_view name) {
    const auto list = builtin_transports();
    const auto found = std::ranges::find(list, name, &Builtin::name);
    return found == list.end() ? nullptr : &*found;
}

}  // namespace incast::transport
