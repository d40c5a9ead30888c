#include "runtime/machine/seat.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace incast::runtime {
namespace {

constexpr std::uint32_t most_memory_nodes = 1024;

std::string first_line_of(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::optional<int> whole_number(std::string_view text) {
    int number = -1;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    return code == std::errc() && end == text.data() + text.size() && number >= 0 ? std::optional(number)
                                                                                  : std::nullopt;
}

Seat stays(std::string why) {
    return {{}, {}, std::move(why)};
}

}  // namespace

std::optional<std::vector<int>> cores_in(std::string_view list, int most) {
    std::vector<int> cores;
    while (!list.empty()) {
        const std::string_view part = list.substr(0, list.find(','));
        list.remove_prefix(std::min(part.size() + 1, list.size()));
        const std::size_t dash = part.find('-');
        const std::optional<int> first = whole_number(part.substr(0, dash));
        const std::optional<int> last = dash == std::string_view::npos ? first : whole_number(part.substr(dash + 1));
        if (!first || !last || *first > *last || *last > most) return std::nullopt;
        for (int core = *first; core <= *last; ++core)
            cores.push_back(core);
    }
    return cores;
}

std::string list_of(const std::vector<int>& cores) {
    std::string list;
    for (std::size_t begin = 0; begin < cores.size();) {
        std::size_t end = begin;
        while (end + 1 < cores.size() && cores[end + 1] == cores[end] + 1)
            ++end;
        list += list.empty() ? "" : ",";
        list += end == begin ? fmt::format("{}", cores[begin]) : fmt::format("{}-{}", cores[begin], cores[end]);
        begin = end + 1;
    }
    return list;
}

std::vector<int> allowed_cores() {
    cpu_set_t all{};
    std::vector<int> cores;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &all)) cores.push_back(core);
    }
    return cores;
}

Seat choose_seat(const std::string& sys, const SeatWish& wish) {
    const auto memory_nodes = cores_in(first_line_of(sys + "/devices/system/node/has_memory"), most_memory_nodes - 1);
    if (!memory_nodes || memory_nodes->size() < 2) return stays("this host has one memory node");
    const bool is_rdma = !wish.rdma_device.empty();
    const std::string& device = is_rdma ? wish.rdma_device : wish.interface;
    if (device.empty()) return stays("it uses no network interface");
    int node = -1;
    std::istringstream devices(device);
    for (std::string each; std::getline(devices, each, is_rdma ? ',' : '\0');) {
        const std::optional<int> its = whole_number(
            first_line_of(fmt::format("{}/class/{}/{}/device/numa_node", sys, is_rdma ? "infiniband" : "net", each)));
        if (!its || std::ranges::find(*memory_nodes, *its) == memory_nodes->end())
            return stays(fmt::format("{} does not say its memory node", each));
        if (node >= 0 && node != *its) return stays(fmt::format("{} lie beside several memory nodes", device));
        node = *its;
    }
    const auto there = cores_in(first_line_of(fmt::format("{}/devices/system/node/node{}/cpulist", sys, node)));
    std::vector<int> cores;
    if (there) {
        std::ranges::copy_if(*there, std::back_inserter(cores),
                             [&wish](int core) { return std::ranges::find(wish.allowed, core) != wish.allowed.end(); });
    }
    const auto memory_node = static_cast<std::uint32_t>(node);
    if (cores.empty()) return stays(fmt::format("it may use none of the cores beside {}", device));
    if (!wish.is_asked && cores.size() < wish.nodes_here) {
        return stays(
            fmt::format("{} nodes are more than the {} cores beside {}", wish.nodes_here, cores.size(), device));
    }
    return {std::move(cores), memory_node, fmt::format("beside {}", device)};
}

void take_seat(Seat& seat) {
    if (seat.cores.empty() || !seat.memory_node) return;
    cpu_set_t set{};
    for (const int core : seat.cores) {
        if (core < CPU_SETSIZE) CPU_SET(core, &set);
    }
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        seat = stays(
            fmt::format("{}, but its cores cannot be chosen: {}", seat.why, std::generic_category().message(errno)));
        return;
    }
    // Preferred, not bound: what does not fit there still has to go somewhere.
    constexpr std::size_t bits = 8 * sizeof(unsigned long);
    std::array<unsigned long, most_memory_nodes / bits> nodes{};
    nodes.at(*seat.memory_node / bits) |= 1UL << *seat.memory_node % bits;
    if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.data(), std::size_t{most_memory_nodes} + 1) != 0) {
        seat.memory_node.reset();
        seat.why += fmt::format(", but its memory cannot be chosen: {}", std::generic_category().message(errno));
    }
}

}  // namespace incast::runtime
