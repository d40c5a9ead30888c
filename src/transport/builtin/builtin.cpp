#include "transport/builtin/builtin.h"

#include <algorithm>
#include <array>

#include "sim/sim_medium.h"
#include "transport/inproc/inproc.h"
#include "transport/rio/rio.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace incast::transport {

std::span<const Builtin> builtin_transports() {
    static const std::array list{
        Builtin{inproc::transport_name,
                "all nodes in one thread: memory copies, no network",
                {.in_process = true},
                inproc::settings(),
                inproc::make},
        Builtin{shm::transport_name,
                "shared memory between processes of one host",
                {.shares_memory = true, .most_credits = 256, .rank_here = 2},
                shm::settings(),
                shm::make},
        Builtin{tcp::transport_name,
                "TCP connections between processes, IPv4 or IPv6",
                {.bounds_writes = true, .rank_here = 1, .rank_across = 1, .bind = "bind"},
                tcp::settings(),
                tcp::make},
        Builtin{
            rio::transport_name, "RapidIO: rDMA, doorbells and messages, over SoftRIO", {}, rio::settings(), rio::make},
        Builtin{sim::transport_name,
                "a simulated network in virtual time: the ideal model",
                {.in_process = true, .simulated = true},
                sim::settings(),
                sim::make_sim_medium},
    };
    return list;
}

const Builtin* find_transport(std::string_view name) {
    const auto list = builtin_transports();
    const auto found = std::ranges::find(list, name, &Builtin::name);
    return found == list.end() ? nullptr : &*found;
}

const Builtin& chosen_transport(bool across_hosts) {
    const auto rank = [across_hosts](const Builtin& builtin) {
        return across_hosts ? builtin.traits.rank_across : builtin.traits.rank_here;
    };
    return *std::ranges::max_element(builtin_transports(), {}, rank);
}

}  // namespace incast::transport
