#include "transport/builtin/builtin.h"

#include <algorithm>
#include <array>

#include "sim/sim_medium.h"
#include "transport/inproc/inproc.h"
#include "transport/modules/modules.h"
#include "transport/mpi/descriptor/descriptor.h"
#include "transport/ofi/descriptor/descriptor.h"
#include "transport/rds/rds.h"
#include "transport/rio/descriptor/descriptor.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "transport/ucx/descriptor/descriptor.h"
#include "transport/udp/udp.h"
#include "transport/verbs/descriptor/descriptor.h"

namespace incast::transport {

std::span<const Descriptor> builtin_transports() {
    static const std::array list{
        Descriptor{inproc::transport_name,
                   "all nodes in one thread: memory copies, no network",
                   {.nature = inproc::nature, .in_process = true},
                   inproc::settings(),
                   {},
                   inproc::make},
        Descriptor{shm::transport_name,
                   "shared memory between processes of one host",
                   {.nature = shm::nature, .most_credits = 256, .rank_here = 2},
                   shm::settings(),
                   shm::former_names(),
                   shm::make},
        Descriptor{tcp::transport_name,
                   "TCP connections between processes, IPv4 or IPv6",
                   {.nature = tcp::nature, .rank_here = 1, .rank_across = 1, .bind = "bind"},
                   tcp::settings(),
                   tcp::former_names(),
                   tcp::make},
        rio::describe(),  // a module
        Descriptor{udp::transport_name,
                   "reliable datagrams between processes, IPv4 or IPv6",
                   {.nature = udp::nature, .bind = "bind"},
                   udp::settings(),
                   {},
                   udp::make},
        verbs::describe(),  // a module
        ofi::describe(),    // a module
        ucx::describe(),    // a module
        mpi::describe(),    // two modules
        Descriptor{.name = rds::transport_name,
                   .summary = "RDS: the kernel's reliable datagrams, over TCP or RDMA",
                   .traits = {.nature = rds::nature, .bind = "bind"},
                   .settings = rds::settings(),
                   .former_names = {},
                   .make = rds::make,
                   .untested = "InfiniBand, and RDMA devices other than soft-RoCE",
                   .missing_here = rds::missing_here},
        Descriptor{sim::transport_name,
                   "a simulated network in virtual time: the ideal model",
                   {.nature = sim::nature, .in_process = true, .simulated = true},
                   sim::settings(),
                   {},
                   sim::make_sim_medium},
    };
    return list;
}

const Descriptor* find_transport(std::string_view name) {
    const auto list = builtin_transports();
    const auto found = std::ranges::find(list, name, &Descriptor::name);
    if (found != list.end()) return &*found;
    const std::span<const std::string> outside = outside_transports();
    if (std::ranges::find(outside, name) == outside.end()) return nullptr;
    const Result<const Descriptor*> module = load_outside(name);
    return module ? *module : nullptr;
}

std::span<const std::string> outside_transports() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> there = modules_there();
        std::erase_if(there, [](const std::string& name) {
            return std::ranges::any_of(builtin_transports(), [&](const Descriptor& builtin) {
                return builtin.name == name ||
                       (builtin.launch != nullptr &&
                        std::ranges::find(builtin.launch->modules, name) != builtin.launch->modules.end());
            });
        });
        return there;
    }();
    return names;
}

Result<const Descriptor*> load_outside(std::string_view name) {
    return load_module(name, {});
}

std::vector<const Descriptor*> known_transports() {
    std::vector<const Descriptor*> known;
    for (const Descriptor& each : builtin_transports())
        known.push_back(&each);
    for (const std::string& name : outside_transports()) {
        if (const Result<const Descriptor*> found = load_outside(name); found) known.push_back(*found);
    }
    return known;
}

const Descriptor& chosen_transport(bool across_hosts) {
    const auto rank = [across_hosts](const Descriptor& builtin) {
        return across_hosts ? builtin.traits.rank_across : builtin.traits.rank_here;
    };
    return *std::ranges::max_element(builtin_transports(), {}, rank);
}

std::optional<Rank> launched_rank() {
    for (const Descriptor& each : builtin_transports()) {
        if (each.launch == nullptr) continue;
        if (const std::optional<Rank> rank = each.launch->rank_here(); rank) return rank;
    }
    return std::nullopt;
}

Result<std::unique_ptr<Medium>> make_medium(const Descriptor& transport, const Settings& settings) {
    if (transport.make != nullptr) return transport.make(settings);
    std::string name(transport.name);
    if (transport.launch != nullptr) {
        Result<std::string> fitting = transport.launch->module_for(settings);
        if (!fitting) return fitting.error();
        name = std::move(*fitting);
    }
    const Result<const Descriptor*> module = load_module(name, transport.package);
    return module ? (*module)->make(settings) : Result<std::unique_ptr<Medium>>(module.error());
}

}  // namespace incast::transport
