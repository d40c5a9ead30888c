// Descriptors that go from process to process beside the bytes of a Unix socket.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include <sys/socket.h>
#include <sys/uio.h>

#include "os/descriptor.h"

namespace incast::os {

/// That go with one message, or come with it.
inline constexpr std::size_t most_handed = 4;

/// As sendmsg with `flags`, and MSG_NOSIGNAL, with these descriptors beside the bytes: `most_handed` at most. They stay
/// the caller's. Returns how many bytes it took, or -1 and errno. On a stream the descriptors are with the first byte.
inline ssize_t send_handing(int socket, std::span<const iovec> parts, std::span<const int> files, int flags) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());  // which the kernel leaves alone
    message.msg_iovlen = parts.size();
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(most_handed * sizeof(int))> control{};
    const std::size_t bytes = std::min(files.size(), most_handed) * sizeof(int);
    if (bytes > 0) {
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(bytes);
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(bytes);
        std::memcpy(CMSG_DATA(header), files.data(), bytes);
    }
    return ::sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

/// As recvmsg with `flags`; what comes is close-on-exec. Of `files`, as many as came are replaced, in their order; what
/// comes beyond them does not stay open. Returns how many bytes came, or -1 and errno. `came_flags`: the message's
/// (MSG_TRUNC, MSG_CTRUNC), unless it is null.
inline ssize_t receive_handed(int socket, std::span<const iovec> parts, std::span<Descriptor> files, int flags,
                              int* came_flags = nullptr) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(most_handed * sizeof(int))> control{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t count = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    if (count < 0) return count;
    if (came_flags != nullptr) *came_flags = message.msg_flags;
    // All are owned before anything is judged, or a stranger could use up those of this process.
    std::size_t used = 0;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t came = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t at = 0; at < came; ++at) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(header) + at * sizeof fd, sizeof fd);
            Descriptor one(fd);
            if (used < files.size()) files[used++] = std::move(one);
        }
    }
    return count;
}

}  // namespace incast::os
