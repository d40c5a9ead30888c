#include <cstdio>
#include <string_view>

#include <librsvdmem.h>

#include "softrio/reserved.h"

int get_rsvd_phys_mem(char* parm_name, uint64_t* start_addr, uint64_t* size) {
    if (parm_name == nullptr || start_addr == nullptr || size == nullptr) return -1;
    *start_addr = ~std::uint64_t{0};
    *size = 0;
    const auto reserved = incast::softrio::reserved_of_environment();
    if (!reserved) {
        std::fprintf(stderr, "SoftRIO: %s\n", reserved.error().message.c_str());
        return -1;
    }
    for (const auto& each : *reserved) {
        if (each.name != std::string_view(parm_name)) continue;
        *start_addr = each.start;
        *size = each.bytes;
        return 0;
    }
    return -1;
}
