#include "channel_loop.h"

#include <algorithm>
#include <new>

#include <errno.h>
#include <stdlib.h>

#include "err.hpp"

namespace zmq {

namespace {

const int drain_ms = 10000;
/// Of a name of shm, in bytes.
const size_t longest_name = 90;
/// That a hub lets a peer ask for, in bytes.
const unsigned long longest_ring = 64UL << 20;
/// How often the loop moves data before it lets the poller look at everything else.
const int rounds = 8;

unsigned long setting(const char* name) {
    const char* text = getenv(name);
    return text == NULL ? 0 : strtoul(text, NULL, 10);
}

std::chrono::microseconds spin_time() {
    static const std::chrono::microseconds spin(setting("INCAST_ZMQ_SPIN_US"));
    return spin;
}

/// A whole number, written without sign, in that range.
bool is_number(const std::string& text, unsigned long least, unsigned long most) {
    if (text.empty() || text.size() > 10 || text.find_first_not_of("0123456789") != std::string::npos) return false;
    const unsigned long number = strtoul(text.c_str(), NULL, 10);
    return number >= least && number <= most;
}

/// Of an environment variable: it is not there, or such a number, or 0.
bool is_good_setting(const char* name, unsigned long least, unsigned long most) {
    const char* text = getenv(name);
    return text == NULL || text[0] == '\0' || is_number(text, 0, 0) || is_number(text, least, most);
}

/// A ring that no peer would allow is refused when it is asked for, not in every attempt to connect.
bool are_good_settings() {
    if (!is_good_setting("INCAST_ZMQ_BUFFERS", 1, 65536) ||
        !is_good_setting("INCAST_ZMQ_BUFFER_BYTES", 64, longest_ring) ||
        !is_good_setting("INCAST_ZMQ_BATCH", 1, 65536) || !is_good_setting("INCAST_ZMQ_SPIN_US", 0, 1000000))
        return false;
    const unsigned long buffers = setting("INCAST_ZMQ_BUFFERS");
    const unsigned long bytes = setting("INCAST_ZMQ_BUFFER_BYTES");
    return buffers == 0 || (setting("INCAST_ZMQ_BATCH") <= buffers && bytes <= longest_ring / buffers);
}

}  // namespace

bool is_channel_protocol(const std::string& protocol) {
    return protocol == "rio" || protocol == "shm" || protocol == "verbs";
}

bool has_channel_protocol(const std::string& protocol) {
    if (!is_channel_protocol(protocol)) return false;
    incast_channel_hub_options options = INCAST_CHANNEL_HUB_OPTIONS;
    options.flags = INCAST_CHANNEL_OWN_LOOP;
    incast_channel_hub* hub = NULL;
    if (incast_channel_hub_make(protocol.c_str(), &options, &hub) < 0) return false;
    incast_channel_hub_free(hub);
    return true;
}

bool is_name_with_number(const std::string& address, std::string* host, std::string* number) {
    const std::string::size_type colon = address.rfind(':');
    if (colon == std::string::npos) return false;
    *host = address.substr(0, colon);
    *number = address.substr(colon + 1);
    return !host->empty() && (*number == "*" || is_number(*number, 0, 65535));
}

bool check_channel_name(const std::string& protocol, const std::string& address) {
    if (protocol != "shm" || address.size() <= longest_name) return true;
    errno = ENAMETOOLONG;
    return false;
}

bool check_channel_address(const std::string& protocol, const std::string& address) {
    if (!check_channel_name(protocol, address)) return false;
    std::string host;
    std::string number;
    const bool has_number = is_name_with_number(address, &host, &number);
    bool is_good = has_number && is_number(number, 1, 65535);
    if (protocol == "shm")
        is_good = address != "*" && (!has_number || (is_good && host != "*"));
    else if (protocol == "rio")
        is_good = is_good && is_number(host, 0, 65534);
    else
        is_good = is_good && host != "*";
    if (!is_good) errno = EINVAL;
    return is_good;
}

incast_channel_options channel_options() {
    incast_channel_options options = INCAST_CHANNEL_OPTIONS;
    options.buffers = static_cast<uint32_t>(setting("INCAST_ZMQ_BUFFERS"));
    options.buffer_bytes = static_cast<uint32_t>(setting("INCAST_ZMQ_BUFFER_BYTES"));
    options.batch = static_cast<uint32_t>(setting("INCAST_ZMQ_BATCH"));
    return options;
}

int wait_for_signal(const signaler_t& signaler, int timeout_ms) {
    if (timeout_ms == 0 || spin_time().count() == 0) return signaler.wait(timeout_ms);
    const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    std::chrono::steady_clock::duration longest = spin_time();
    if (timeout_ms > 0)
        longest = std::min<std::chrono::steady_clock::duration>(longest, std::chrono::milliseconds(timeout_ms));
    std::chrono::steady_clock::duration spun(0);
    do {
        if (signaler.wait(0) == 0) return 0;
        if (errno != EAGAIN) return -1;
        spun = std::chrono::steady_clock::now() - begin;
    } while (spun < longest);
    if (timeout_ms < 0) return signaler.wait(timeout_ms);
    const std::chrono::milliseconds rest =
        std::chrono::milliseconds(timeout_ms) - std::chrono::duration_cast<std::chrono::milliseconds>(spun);
    return signaler.wait(static_cast<int>(rest.count()));
}

int channel_error(int64_t error) {
    errno = static_cast<int>(-error);
    return -1;
}

/// What a channel that was given back still has to send.
class ChannelLoop::Rest : public ChannelUser {
public:
    Rest(ChannelLoop& loop, incast_channel* channel, const char* bytes, size_t size)
        : loop_(loop), channel_(channel), bytes_(bytes, bytes + size) {
        loop_.rests_.insert(this);
        loop_.add(*this, channel_);
    }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;
    ~Rest() {
        loop_.remove(*this);
        loop_.rests_.erase(this);
        incast_channel_close(channel_);
    }

    void ready(uint32_t) {}
    /// Sends what there is room for; ends itself with the last byte, or with the channel.
    void run() {
        if (send(0)) delete this;
    }
    /// Whether there is nothing left to do.
    bool send(int timeout_ms) {
        const int64_t count = incast_channel_write(channel_, &bytes_[0], bytes_.size(), timeout_ms);
        if (count > 0) bytes_.erase(bytes_.begin(), bytes_.begin() + count);
        return bytes_.empty() || (count < 0 && count != -EAGAIN);
    }

private:
    ChannelLoop& loop_;
    incast_channel* const channel_;
    std::vector<char> bytes_;
};

void ChannelLoop::close(incast_channel* channel, const void* bytes, size_t size) {
    if (size == 0) return incast_channel_close(channel);
    Rest* const rest = new (std::nothrow) Rest(*this, channel, static_cast<const char*>(bytes), size);
    alloc_assert(rest);
}

ChannelLoop::~ChannelLoop() {
    const std::chrono::steady_clock::time_point end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(drain_ms);
    while (!rests_.empty()) {
        const std::chrono::milliseconds left =
            std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        Rest* const rest = *rests_.begin();
        (void)rest->send(static_cast<int>(std::max<int64_t>(0, left.count())));
        delete rest;
    }
    for (std::map<std::string, Hub>::iterator it = hubs_.begin(); it != hubs_.end(); ++it) {
        zmq_assert(!it->second.is_plugged);
        incast_channel_hub_drain(it->second.hub, drain_ms);
        incast_channel_hub_free(it->second.hub);
    }
}

incast_channel_hub* ChannelLoop::hub(const std::string& protocol) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::map<std::string, Hub>::iterator found = hubs_.find(protocol);
    if (found != hubs_.end()) return found->second.hub;
    if (!are_good_settings()) {
        errno = EINVAL;
        return NULL;
    }
    incast_channel_hub_options options = INCAST_CHANNEL_HUB_OPTIONS;
    options.flags = INCAST_CHANNEL_OWN_LOOP;
    options.max_channels = 4096;
    options.longest_ring_bytes = longest_ring;
    // Over RDMA each is a queue pair and half a MiB of receives, and soft-RoCE completes those of 127 at most.
    options.max_peers = protocol == "verbs" ? 100 : 255;
    Hub hub = Hub();
    const int error = incast_channel_hub_make(protocol.c_str(), &options, &hub.hub);
    if (error < 0) {
        channel_error(error);
        return NULL;
    }
    hubs_[protocol] = hub;
    return hub.hub;
}

void ChannelLoop::plug() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::map<std::string, Hub>::iterator it = hubs_.begin(); it != hubs_.end(); ++it) {
        Hub& hub = it->second;
        if (hub.is_plugged) continue;
        hub.handle = poller_.add_fd(incast_channel_hub_fd(hub.hub), this);
        poller_.set_pollin(hub.handle);
        hub.is_plugged = true;
        plugged_.push_back(hub.hub);
        poller_.set_channels(this);
    }
}

void ChannelLoop::stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::map<std::string, Hub>::iterator it = hubs_.begin(); it != hubs_.end(); ++it) {
        if (it->second.is_plugged) poller_.rm_fd(it->second.handle);
        it->second.is_plugged = false;
    }
    plugged_.clear();
    poller_.set_channels(NULL);
}

void ChannelLoop::add(ChannelUser& user, incast_channel* channel) {
    incast_channel_set_user(channel, &user);
    queue(user);
}

void ChannelLoop::remove(ChannelUser& user) {
    std::replace(running_.begin(), running_.end(), &user, static_cast<ChannelUser*>(NULL));
    if (!user.is_queued) return;
    std::replace(queued_.begin(), queued_.end(), &user, static_cast<ChannelUser*>(NULL));
    user.is_queued = false;
}

void ChannelLoop::queue(ChannelUser& user) {
    if (user.is_queued) return;
    user.is_queued = true;
    queued_.push_back(&user);
}

bool ChannelLoop::take() {
    const InStage in_stage(stages(), stage_post);
    bool has_happened = false;
    const bool is_woken = is_woken_;
    is_woken_ = false;
    for (size_t i = 0; i < plugged_.size(); ++i) {
        incast_channel_hub* const hub = plugged_[i];
        if ((is_woken ? incast_channel_hub_poll(hub) : incast_channel_hub_poll_unwoken(hub)) == 1) has_happened = true;
        incast_channel* channel = NULL;
        uint32_t what = 0;
        while (incast_channel_hub_next_ready(plugged_[i], &channel, &what) == 1) {
            ChannelUser* const user = static_cast<ChannelUser*>(incast_channel_user(channel));
            if (user == NULL) continue;  // it is not plugged yet, and will look for itself
            user->ready(what);
            queue(*user);
        }
    }
    return has_happened;
}

void ChannelLoop::run() {
    running_.swap(queued_);
    for (size_t i = 0; i < running_.size(); ++i) {
        if (running_[i] != NULL) running_[i]->is_queued = false;
    }
    for (size_t i = 0; i < running_.size(); ++i) {
        if (running_[i] != NULL) running_[i]->run();
    }
    running_.clear();
}

bool ChannelLoop::may_sleep() {
    const InStage in_stage(stages(), stage_arm);
    if (!queued_.empty()) return false;
    for (size_t i = 0; i < plugged_.size(); ++i) {
        if (incast_channel_hub_prepare_wait(plugged_[i]) == 0) return false;
    }
    return true;
}

bool ChannelLoop::before_wait() {
    if (stages_ != NULL) stages_->enter(stage_loop);
    const bool is_busy = move();
    if (stages_ != NULL) stages_->begin_wait();
    return is_busy;
}

bool ChannelLoop::move() {
    for (int round = 0; round < rounds; ++round) {
        const bool has_happened = take();
        run();
        if (!spins(has_happened || !queued_.empty()) && may_sleep()) return false;
    }
    return true;
}

/// While it spins nobody has to wake it.
bool ChannelLoop::spins(bool has_happened) {
    if (spin_time().count() == 0) return false;
    const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    if (has_happened) happened_ = now;
    return now - happened_ < spin_time();
}

}  // namespace zmq
