#include "channel_listener.h"

#include "channel_engine.h"
#include "io_thread.hpp"
#include "session_base.hpp"
#include "socket_base.hpp"

namespace zmq {

ChannelListener::ChannelListener(io_thread_t* io_thread, socket_base_t* socket, const options_t& options)
    : own_t(io_thread, options), io_object_t(io_thread), io_thread_(io_thread), socket_(socket) {}

ChannelListener::~ChannelListener() {
    incast_channel_listener_close(listener_);
}

int ChannelListener::set_local_address(const std::string& protocol, const std::string& address) {
    incast_channel_hub* hub = NULL;
    if (!check_channel_name(protocol, address) || (hub = io_thread_->channels().hub(protocol)) == NULL) return -1;
    incast_channel_options how = channel_options();
    how.backlog = static_cast<uint32_t>(options.backlog);
    const int error = incast_channel_listen(hub, (protocol + "://" + address).c_str(), &how, &listener_);
    if (error < 0) return channel_error(error);
    endpoint_ = incast_channel_listener_address(listener_);
    socket_->event_listening(make_unconnected_bind_endpoint_pair(endpoint_), incast_channel_listener_fd(listener_));
    return 0;
}

void ChannelListener::process_plug() {
    io_thread_->channels().plug();
    handle_ = add_fd(incast_channel_listener_fd(listener_));
    set_pollin(handle_);
}

void ChannelListener::process_term(int linger) {
    const fd_t fd = incast_channel_listener_fd(listener_);
    rm_fd(handle_);
    incast_channel_listener_close(listener_);
    listener_ = NULL;
    socket_->event_closed(make_unconnected_bind_endpoint_pair(endpoint_), fd);
    own_t::process_term(linger);
}

void ChannelListener::in_event() {
    incast_channel* channel = NULL;
    while (incast_channel_accept(listener_, 0, &channel) == 0)
        attach(channel);
}

void ChannelListener::attach(incast_channel* channel) {
    const fd_t fd = make_idle_fd();
    if (fd == retired_fd) {
        socket_->event_accept_failed(make_unconnected_bind_endpoint_pair(endpoint_), errno);
        incast_channel_abort(channel);
        return;
    }
    const endpoint_uri_pair_t endpoints(endpoint_, incast_channel_peer_name(channel), endpoint_type_bind);
    i_engine* const engine = make_channel_engine(fd, options, endpoints, io_thread_->channels(), channel);
    // The session is in this I/O thread, whose loop drives the channel.
    session_base_t* const session = session_base_t::create(io_thread_, false, socket_, options, NULL);
    errno_assert(session);
    session->inc_seqnum();
    launch_child(session);
    send_attach(session, engine, false);
    socket_->event_accepted(endpoints, fd);
}

}  // namespace zmq
