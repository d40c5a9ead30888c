// An engine of libzmq over a channel: what ZMTP, or a raw socket, reads and writes goes through rings. No descriptor is
// on the way: the loop of channels says when there is data or room.
#pragma once

#include <limits>
#include <string>

#include <sys/socket.h>

#include "channel_loop.h"
#include "err.hpp"
#include "options.hpp"
#include "raw_engine.hpp"
#include "zmtp_engine.hpp"

namespace zmq {

/// Engines own a descriptor, which monitors show and the poller has. Nothing ever happens on this one.
inline fd_t make_idle_fd() {
    const fd_t fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd == -1 ? static_cast<fd_t>(retired_fd) : fd;
}

template <typename Base>
class ChannelEngine : public Base, public ChannelUser {
public:
    /// Takes the descriptor and the channel, which is open.
    ChannelEngine(fd_t fd, const options_t& options, const endpoint_uri_pair_t& endpoints, ChannelLoop& loop,
                  incast_channel* channel)
        : Base(fd, options, endpoints), loop_(loop), channel_(channel) {
        this->_peer_address = incast_channel_peer_name(channel);
    }
    ~ChannelEngine() {
        loop_.remove(*this);
        // More than a batch is one large message, after which the session would have waited: it was given up.
        const bool is_last = this->_outsize <= static_cast<size_t>(this->_options.out_batch_size);
        loop_.close(channel_, this->_outpos, is_last ? this->_outsize : 0);
        if (is_gone_ != NULL) *is_gone_ = true;
    }

    void ready(uint32_t what) {
        if ((what & INCAST_CHANNEL_HAS_DATA) != 0) has_data_ = true;
        if ((what & INCAST_CHANNEL_HAS_ROOM) != 0) has_room_ = true;
    }

    void run() {
        bool is_gone = false;
        is_gone_ = &is_gone;
        for (int turn = 0; turn < turns; ++turn) {
            const bool can_write = has_room_ && wants_out_;
            if (can_write) this->out_event();
            if (is_gone) return;
            const bool can_read = has_data_ && !this->_input_stopped;
            if (can_read) take_in();
            if (is_gone) return;
            if (!can_write && !can_read) break;
        }
        is_gone_ = NULL;
        if ((has_room_ && wants_out_) || (has_data_ && !this->_input_stopped)) loop_.queue(*this);
    }

    void out_event() {
        const InStage in_stage(loop_.stages(), stage_encode);
        Base::out_event();
    }

protected:
    void plug_internal() {
        loop_.add(*this, channel_);
        Base::plug_internal();
    }

    int read(void* data, size_t size) {
        const InStage in_stage(loop_.stages(), stage_copy_out);
        const int64_t count = incast_channel_read(channel_, data, limited(size), 0);
        if (count <= 0) has_data_ = false;
        if (count > 0) return static_cast<int>(count);
        return channel_error(count == 0 ? -EPIPE : count);
    }

    int write(const void* data, size_t size) {
        const InStage in_stage(loop_.stages(), stage_copy_in);
        const int64_t count = incast_channel_write(channel_, data, limited(size), 0);
        if (count < static_cast<int64_t>(size)) has_room_ = false;
        if (count >= 0) return static_cast<int>(count);
        return count == -EAGAIN ? 0 : channel_error(count);
    }

    void set_pollin() { loop_.queue(*this); }
    void set_pollout() {
        wants_out_ = true;
        loop_.queue(*this);
    }
    void reset_pollout() { wants_out_ = false; }

private:
    /// How often one engine reads and writes before it is another one's turn.
    static const int turns = 16;

    void take_in() {
        const InStage in_stage(loop_.stages(), stage_decode);
        this->in_event();
    }

    static size_t limited(size_t size) { return std::min(size, static_cast<size_t>(std::numeric_limits<int>::max())); }

    ChannelLoop& loop_;
    incast_channel* channel_;
    bool has_data_ = true;  // until the channel says that there is none
    bool has_room_ = true;
    bool wants_out_ = false;
    bool* is_gone_ = NULL;
};

inline i_engine* make_channel_engine(fd_t fd, const options_t& options, const endpoint_uri_pair_t& endpoints,
                                     ChannelLoop& loop, incast_channel* channel) {
    i_engine* engine = NULL;
    if (options.raw_socket)
        engine = new (std::nothrow) ChannelEngine<raw_engine_t>(fd, options, endpoints, loop, channel);
    else
        engine = new (std::nothrow) ChannelEngine<zmtp_engine_t>(fd, options, endpoints, loop, channel);
    alloc_assert(engine);
    return engine;
}

}  // namespace zmq
