// A connection that waits at a listener for which no descriptor is left. It would stay there, and the listener would be
// readable for ever.
#pragma once

#include <cerrno>

#include <fcntl.h>
#include <sys/socket.h>

#include "os/descriptor.h"

namespace incast::os {

/// A descriptor that is kept for this case, and given up for a moment.
class Spare {
public:
    /// That is why accept failed.
    static bool is_needed_for(int error) { return error == EMFILE || error == ENFILE; }

    /// Takes the connection that waits, shows it if there is one, and closes it.
    template <class Show>
    void turn_away(const Descriptor& listener, Show&& show) {
        descriptor_.close();
        Descriptor caller(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (caller.is_open()) show(caller);
        caller.close();
        descriptor_ = open();
    }
    void turn_away(const Descriptor& listener) {
        turn_away(listener, [](const Descriptor&) {});
    }

private:
    static Descriptor open() { return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

    Descriptor descriptor_ = open();
};

}  // namespace incast::os
