#include "channel_connecter.h"

#include "address.hpp"
#include "channel_engine.h"
#include "io_thread.hpp"
#include "session_base.hpp"

namespace zmq {

ChannelConnecter::ChannelConnecter(io_thread_t* io_thread, session_base_t* session, const options_t& options,
                                   address_t* address, bool delayed_start)
    : stream_connecter_base_t(io_thread, session, options, address, delayed_start), io_thread_(io_thread) {}

ChannelConnecter::~ChannelConnecter() {
    zmq_assert(channel_ == NULL);
}

void ChannelConnecter::start_connecting() {
    ChannelLoop& loop = io_thread_->channels();
    incast_channel_hub* const hub = loop.hub(_addr->protocol);
    const incast_channel_options how = channel_options();
    if (hub == NULL || incast_channel_connect(hub, _endpoint.c_str(), &how, &channel_) < 0) {
        add_reconnect_timer();
        return;
    }
    _s = make_idle_fd();
    if (_s == retired_fd) {
        forget(true);
        add_reconnect_timer();
        return;
    }
    loop.plug();
    loop.add(*this, channel_);
    _socket->event_connect_delayed(make_unconnected_connect_endpoint_pair(_endpoint), EINPROGRESS);
    if (options.connect_timeout > 0) {
        add_timer(options.connect_timeout, connect_timer_id);
        has_connect_timer_ = true;
    }
}

void ChannelConnecter::run() {
    if (channel_ == NULL) return;
    const int state = incast_channel_state(channel_);
    if (state == 0) return;
    if (state < 0) {
        if (state == -ECONNREFUSED && (options.reconnect_stop & ZMQ_RECONNECT_STOP_CONN_REFUSED)) {
            forget(true);
            send_conn_failed(_session);
            close();
            terminate();
            return;
        }
        try_again();
        return;
    }
    const endpoint_uri_pair_t endpoints(_addr->protocol + "://", _endpoint, endpoint_type_connect);
    incast_channel* const channel = channel_;
    const fd_t fd = _s;
    forget(false);
    _s = retired_fd;
    send_attach(_session, make_channel_engine(fd, options, endpoints, io_thread_->channels(), channel));
    terminate();
    _socket->event_connected(endpoints, fd);
}

void ChannelConnecter::try_again() {
    forget(true);
    close();
    add_reconnect_timer();
}

/// The channel is no longer the connecter's.
void ChannelConnecter::forget(bool gives_up) {
    if (has_connect_timer_) cancel_timer(connect_timer_id);
    has_connect_timer_ = false;
    if (channel_ == NULL) return;
    io_thread_->channels().remove(*this);
    incast_channel_set_user(channel_, NULL);
    if (gives_up) incast_channel_abort(channel_);
    channel_ = NULL;
}

void ChannelConnecter::timer_event(int id) {
    if (id == connect_timer_id) {
        has_connect_timer_ = false;
        try_again();
    } else {
        stream_connecter_base_t::timer_event(id);
    }
}

void ChannelConnecter::process_term(int linger) {
    forget(true);
    stream_connecter_base_t::process_term(linger);
}

}  // namespace zmq
