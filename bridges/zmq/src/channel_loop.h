// The channels of one I/O thread of libzmq: a hub for each transport, driven by the thread's own loop.
#pragma once

// clang-format off: first comes what the host has
#include "precompiled.hpp"
// clang-format on

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <incast/channel.h>

#include "i_poll_events.hpp"
#include "poller.hpp"
#include "signaler.hpp"
#include "stages.h"

namespace zmq {

/// Is that one of the transports that go by channels: rio, shm, verbs?
bool is_channel_protocol(const std::string& protocol);
/// Is it one, and has this host what it needs? For zmq_has().
bool has_channel_protocol(const std::string& protocol);
/// Is it HOST:NUMBER, as addresses of tcp are? NUMBER is 0 to 65535, or `*`.
bool is_name_with_number(const std::string& address, std::string* host, std::string* number);
/// Can that be the address of a socket? If not, errno is EINVAL, or ENAMETOOLONG for a name.
bool check_channel_name(const std::string& protocol, const std::string& address);
/// Can a socket connect to it, too?
bool check_channel_address(const std::string& protocol, const std::string& address);
/// What new channels are made with: the environment variables INCAST_ZMQ_... (README.md).
incast_channel_options channel_options();
/// Instead of the signaler's wait(): looks for INCAST_ZMQ_SPIN_US before it sleeps.
int wait_for_signal(const signaler_t& signaler, int timeout_ms);
/// Turns what a function of incast/channel.h returned into what libzmq's return: -1 and errno.
int channel_error(int64_t error);

/// Who uses a channel: an engine or a connecter. All of it in the I/O thread.
class ChannelUser {
public:
    virtual ~ChannelUser() {}
    /// The channel has data or room (INCAST_CHANNEL_HAS_...) again.
    virtual void ready(uint32_t what) = 0;
    /// Does what there is to do; may delete itself.
    virtual void run() = 0;

    bool is_queued = false;  // the loop's own
};

class ChannelLoop : public i_poll_events {
public:
    explicit ChannelLoop(poller_t& poller) : poller_(poller), stages_(Stages::make()) {}
    ChannelLoop(const ChannelLoop&) = delete;
    ChannelLoop& operator=(const ChannelLoop&) = delete;
    /// The I/O thread has ended. What was written to channels that were closed still goes, for ten seconds at most.
    ~ChannelLoop();

    /// Any thread: the hub of a transport, made when it is first asked for. Null: errno says why.
    incast_channel_hub* hub(const std::string& protocol);

    // --- in the I/O thread

    /// The poller watches all hubs from now on.
    void plug();
    /// It watches none any more.
    void stop();
    /// Before each wait of the poller: moves what there is to move. True: the poller must not sleep.
    bool before_wait();
    /// After it.
    void after_wait() {
        if (stages_ != NULL) stages_->end_wait();
    }
    /// Where the time goes; null unless that is asked for.
    Stages* stages() { return stages_.get(); }
    /// Says ready() and run() to that user when its channel is ready; and run() soon, in any case.
    void add(ChannelUser& user, incast_channel* channel);
    void remove(ChannelUser& user);
    /// run() before the next wait.
    void queue(ChannelUser& user);
    /// Gives a channel back. The bytes were encoded and found no room yet: they are copied, and leave first. libzmq
    /// ends a session when its last message is encoded, and trusts that there is room.
    void close(incast_channel* channel, const void* bytes, size_t size);

    /// The descriptor of a hub is readable: before_wait() does the work.
    void in_event() { is_woken_ = true; }
    void out_event() {}
    void timer_event(int) {}

private:
    class Rest;
    struct Hub {
        incast_channel_hub* hub;
        poller_t::handle_t handle;
        bool is_plugged;
    };

    bool take();
    void run();
    bool may_sleep();
    bool move();
    bool spins(bool has_happened);

    poller_t& poller_;
    const std::unique_ptr<Stages> stages_;
    std::mutex mutex_;  // of hubs_: zmq_bind() and zmq_connect() ask in the application's thread
    std::map<std::string, Hub> hubs_;
    std::vector<incast_channel_hub*> plugged_;
    std::vector<ChannelUser*> queued_;
    std::vector<ChannelUser*> running_;
    std::set<Rest*> rests_;
    bool is_woken_ = true;  // by the descriptor of a hub
    std::chrono::steady_clock::time_point happened_;
};

}  // namespace zmq
