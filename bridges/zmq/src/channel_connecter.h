// Opens a channel for one zmq_connect(), again and again until it is open.
#pragma once

#include "channel_loop.h"
#include "stream_connecter_base.hpp"

namespace zmq {

class ChannelConnecter : public stream_connecter_base_t, public ChannelUser {
public:
    /// `io_thread`: that of the session, whose engine will be there.
    ChannelConnecter(io_thread_t* io_thread, session_base_t* session, const options_t& options, address_t* address,
                     bool delayed_start);
    ~ChannelConnecter();

    void ready(uint32_t) {}
    void run();

private:
    enum { connect_timer_id = 2 };

    void process_term(int linger);
    void timer_event(int id);
    void start_connecting();
    void try_again();
    void forget(bool gives_up);

    io_thread_t* const io_thread_;
    incast_channel* channel_ = NULL;
    bool has_connect_timer_ = false;
};

}  // namespace zmq
