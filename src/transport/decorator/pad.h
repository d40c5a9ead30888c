// Makes addresses and keys as long as some interconnect may need them, so that whatever carries them is used in full.
#pragma once

#include <memory>

#include <incast/transport.h>

namespace incast::transport::decorator {

/// Addresses take max_address_bytes; keys 215 bytes (UCX with two interfaces) and max_key_bytes, in turn by region.
/// Both sides of a connection must be padded.
std::unique_ptr<Transport> make_pad(std::unique_ptr<Transport> inner);

}  // namespace incast::transport::decorator
