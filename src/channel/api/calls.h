// What every function of the C interface does: checks, takes the mutex, and turns what is thrown into an error.
#pragma once

#include <cerrno>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "channel/api/core.h"

namespace incast::channel::api {

inline std::string& last_message() {
    thread_local std::string line;
    return line;
}

inline int refuse(int error, std::string line) {
    last_message() = std::move(line);
    return -error;
}
inline int refuse(int error) {
    return refuse(error, std::generic_category().message(error));
}
inline int refuse_null() {
    return refuse(EINVAL, "a null pointer");
}
inline int refuse_child() {
    return refuse(ECHILD, to_string(Fault::forked));
}
inline int not_now() {
    return refuse(EAGAIN, "not now, or not in time");
}

/// What `act` answers, with the mutex; what it throws, as an error.
template <class Act>
auto with(Core& core, Act&& act) -> decltype(act(std::declval<std::unique_lock<std::mutex>&>())) {
    if (core.is_child()) return refuse_child();
    try {
        Core::Entry entry(core);
        return act(entry.lock());
    } catch (const Failure& failure) {
        return refuse(failure.error, failure.line);
    } catch (const std::bad_alloc&) {
        return refuse(ENOMEM);
    } catch (const std::system_error& error) {
        return refuse(error.code().value());
    }
}

/// Why nothing more can be read or written: the error of a channel.
inline int ended(const incast_channel& channel, int state) {
    return refuse(-state, channel.core.message(channel));
}

}  // namespace incast::channel::api
