// What the kernel lets this process do (capabilities(7)).
#pragma once

namespace incast::netdev {

/// Gives up all capabilities but CAP_NET_ADMIN, which makes a device, for good, in children too; `enters_namespaces`:
/// and but CAP_SYS_ADMIN, without which nobody enters one. Before there are threads. Failure: it cannot.
void keep_what_makes_devices(bool enters_namespaces);
/// Gives these up as well. Threads that are made later have none, either.
void keep_no_capability();

}  // namespace incast::netdev
