#include "transport/ofi/wire.h"

#include <algorithm>
#include <cstring>

namespace incast::transport::ofi {

std::optional<Address> address_in(const Blob& blob) {
    Address made;
    if (!from_blob(blob, made)) return std::nullopt;
    const int family = made.calls.storage.ss_family;
    const bool is_sane = (family == AF_INET || family == AF_INET6) && made.provider.back() == '\0' &&
                         made.name_bytes > 0 && made.name_bytes <= max_name_bytes;
    return is_sane ? std::optional(made) : std::nullopt;
}

}  // namespace incast::transport::ofi
