// Listeners on RapidIO: channelised messages (CM) in place of sockets. The functions for them wait, and have no
// descriptor, so threads call them, and pass what is said to and from a Unix socket, which the directory takes for any
// other. A message holds the number of its bytes, 2 bytes, and these.
#pragma once

#include <memory>
#include <string>

#include "channel/api/address.h"
#include "channel/api/directory.h"
#include "os/descriptor.h"

namespace incast::channel::api {

/// The CM of a fabric, one for each process: its destination id, which the listeners of all hubs share.
class CmPort;
/// Throws Failure: no such fabric, or no room in it.
std::shared_ptr<CmPort> cm_port(const std::string& fabric);
std::uint16_t destid_of(const CmPort& port);

/// Throws EADDRINUSE, EADDRNOTAVAIL.
Door open_door_of_cm(const std::shared_ptr<CmPort>& port, const Address& address);
/// A socket that becomes a connection with that listener, or says why not (Card::What::failed). The thread behind it
/// ends with the socket, or after some seconds.
os::Descriptor call_by_cm(const std::shared_ptr<CmPort>& port, const Address& address);

}  // namespace incast::channel::api
