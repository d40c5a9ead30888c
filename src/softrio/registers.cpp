#include "softrio/registers.h"

namespace incast::softrio {

namespace {

// Offsets.
constexpr std::uint32_t device_identity = 0x00;
constexpr std::uint32_t assembly_information = 0x0C;
constexpr std::uint32_t features = 0x10;
constexpr std::uint32_t switch_ports = 0x14;
constexpr std::uint32_t source_operations = 0x18;
constexpr std::uint32_t target_operations = 0x1C;
constexpr std::uint32_t addressing = 0x4C;
constexpr std::uint32_t serial_block = 0x100;
constexpr std::uint32_t port_general = serial_block + 0x3C;
constexpr std::uint32_t port_status = serial_block + 0x58;
constexpr std::uint32_t port_control = serial_block + 0x5C;

// Values. Device and vendor numbers that no vendor has: programs must not take this for a chip that they know.
constexpr std::uint32_t endpoint_identity = 0x5F01'FFFF;
constexpr std::uint32_t switch_identity = 0x5F02'FFFF;
constexpr std::uint32_t feature_memory = 0x4000'0000;
constexpr std::uint32_t feature_processor = 0x2000'0000;
constexpr std::uint32_t feature_switch = 0x1000'0000;
constexpr std::uint32_t feature_large_ids = 0x10;
constexpr std::uint32_t feature_extended_block = 0x08;
constexpr std::uint32_t feature_34_and_66_bits = 0x05;
constexpr std::uint32_t operations = 0xFC00;                // NREAD, NWRITE, SWRITE, NWRITE_R, messages, doorbells
constexpr std::uint32_t serial_block_header = 0x0000'0001;  // the last block; endpoint, no software recovery
constexpr std::uint32_t port_is_ok = 0x2;
constexpr std::uint32_t port_enabled_4x = 0x5060'0001;
constexpr std::uint32_t discovered_and_master = 0x6000'0000;

}  // namespace

std::uint32_t read_register(const RegisterState& state, std::uint32_t offset) {
    switch (offset) {
        case device_identity:
            return endpoint_identity;
        case assembly_information:
            return serial_block;
        case features:
            return feature_memory | feature_processor | feature_large_ids | feature_extended_block |
                   feature_34_and_66_bits;
        case source_operations:
        case target_operations:
            return operations;
        case addressing:
            return 4;  // 66-bit addresses
        case base_device_id_register:
            return (state.destid & 0xFF) << 16 | state.destid;
        case host_lock_register:
            return state.host_lock;
        case component_tag_register:
            return state.component_tag;
        case serial_block:
            return serial_block_header;
        case port_general:
            return discovered_and_master;
        case port_status:
            return port_is_ok;
        case port_control:
            return port_enabled_4x;
        default:
            return 0;
    }
}

std::uint32_t read_switch_register(std::uint32_t offset) {
    switch (offset) {
        case device_identity:
            return switch_identity;
        case features:
            return feature_switch | feature_large_ids;
        case switch_ports:
            return 0xFF00;  // as many as the register can say; the port asked through does not matter
        case host_lock_register:
            return no_host;
        default:
            return 0;
    }
}

}  // namespace incast::softrio
