// Configuration registers: the architectural ones of the RapidIO specification, part 1 (3.4: capability and command and
// status registers) and part 6 (LP-Serial register block).
#pragma once

#include <cstdint>

namespace incast::softrio {

/// Offsets of those that hold something.
inline constexpr std::uint32_t base_device_id_register = 0x60;
inline constexpr std::uint32_t host_lock_register = 0x68;
inline constexpr std::uint32_t component_tag_register = 0x6C;
/// In the host lock: nobody has it.
inline constexpr std::uint32_t no_host = 0xFFFF;

struct RegisterState {
    std::uint32_t destid = 0;
    std::uint32_t host_lock = no_host;
    std::uint32_t component_tag = 0;
};

/// Those that do not exist are 0.
std::uint32_t read_register(const RegisterState& state, std::uint32_t offset);
/// Of the switch that is between any two endpoints.
std::uint32_t read_switch_register(std::uint32_t offset);

}  // namespace incast::softrio
