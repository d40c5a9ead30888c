// The cores and the memory beside a node's network: where it is put on a host with several memory nodes, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace incast::runtime {

/// The cores of a list of the kernel ("0-3,8"); nothing: it is none, or names one beyond `most`.
[[nodiscard]] std::optional<std::vector<int>> cores_in(std::string_view list, int most = 4095);
/// As such a list.
[[nodiscard]] std::string list_of(const std::vector<int>& cores);

/// What a node asks for.
struct SeatWish {
    std::string interface = {};     // "eth0": of its address; empty: none is known
    std::string rdma_device = {};   // "mlx5_0", or several with commas between: they win; empty: none
    std::uint32_t nodes_here = 1;   // of the run, on this host
    bool is_asked = false;          // even where the cores there are fewer than the nodes
    std::vector<int> allowed = {};  // cores that this process may use
};

struct Seat {
    std::vector<int> cores;                    // empty: it stays where the kernel places it
    std::optional<std::uint32_t> memory_node;  // of its memory; nothing: that beside whichever core uses it first
    std::string why;                           // "beside eth0", "eth0 does not say its memory node"
};

/// Reads `sys` ("/sys"). Pure but for that.
[[nodiscard]] Seat choose_seat(const std::string& sys, const SeatWish& wish);
/// Of this process, from here on; what could not be done is added to `why`.
void take_seat(Seat& seat);
/// Cores that this process may use.
[[nodiscard]] std::vector<int> allowed_cores();

}  // namespace incast::runtime
