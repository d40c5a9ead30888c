#include "privileges.h"

#include <array>
#include <cerrno>
#include <cstdint>

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "failure.h"

namespace incast::netdev {

namespace {

using Sets = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

/// glibc has no such function, and libcap would be one more library.
void call(long number, Sets& sets, const char* what) {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    if (::syscall(number, &header, sets.data()) != 0) throw system_failure(what, errno);
}

/// Of those that this process has.
void keep_only(std::uint32_t wanted) {
    Sets sets{};
    call(SYS_capget, sets, "to read capabilities");
    sets[0].effective = sets[0].permitted &= wanted;
    sets[0].inheritable = 0;
    sets[1] = {};
    call(SYS_capset, sets, "to give up capabilities");
}

}  // namespace

void keep_what_makes_devices(bool enters_namespaces) {
    // The bounding set is for those who may change it; whoever may not has no way to gain what is in it, see below.
    for (unsigned long each = 0; ::prctl(PR_CAPBSET_READ, each, 0, 0, 0) >= 0; ++each)
        (void)::prctl(PR_CAPBSET_DROP, each, 0, 0, 0);
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) throw system_failure("to take no new privileges", errno);
    (void)::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    keep_only(1U << CAP_NET_ADMIN | (enters_namespaces ? 1U << CAP_SYS_ADMIN : 0));
}

void keep_no_capability() {
    keep_only(0);
}

}  // namespace incast::netdev
