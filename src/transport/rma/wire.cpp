#include "transport/rma/wire.h"

namespace incast::transport::rma {

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

}  // namespace incast::transport::rma
