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

bool read_answer(Bytes bytes, Answer& answer) {
    if (bytes.size() != sizeof answer) return false;
    std::memcpy(&answer, bytes.data(), sizeof answer);
    return answer.magic == Answer::expected_magic && answer.verdict <= Verdict::unfit;
}

bool is_nonsense(const Header& header, std::size_t bytes) {
    switch (header.kind) {
        case Header::Kind::message:
            return bytes == 0 || bytes > max_message_bytes;
        case Header::Kind::notice:
        case Header::Kind::credits:
            return bytes != 0;
        case Header::Kind::released:
        case Header::Kind::heard:
            return header.value == 0 || header.value > max_changes || bytes != header.value * sizeof(Change);
        case Header::Kind::welcome:
            break;
    }
    return true;
}

}  // namespace incast::transport::ofi
