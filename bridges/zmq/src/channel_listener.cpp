#include "channel_listener.h"

#include <stdio.h>
#include <stdlib.h>

#include "channel_engine.h"
#include "io_thread.hpp"
#include "random.hpp"
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
    std::string host;
    std::string number;
    const bool has_number = protocol == "shm" && is_name_with_number(address, &host, &number);
    const int error = has_number ? listen_at_number(hub, host == "*" ? "localhost" : host, number)
                                 : listen(hub, protocol + "://" + address);
    if (error < 0) return channel_error(error);
    const int fd = incast_channel_listener_fd(listener_);
    if (fd < 0) return channel_error(fd);
    fd_ = fd;
    endpoint_ = incast_channel_listener_address(listener_);
    socket_->event_listening(make_unconnected_bind_endpoint_pair(endpoint_), fd_);
    return 0;
}

int ChannelListener::listen(incast_channel_hub* hub, const std::string& address) {
    incast_channel_options how = channel_options();
    how.backlog = static_cast<uint32_t>(options.backlog);
    return incast_channel_listen(hub, address.c_str(), &how, &listener_);
}

/// A name of shm in the form of an address of tcp. `*` and 0 mean a number that is free.
int ChannelListener::listen_at_number(incast_channel_hub* hub, const std::string& host, const std::string& number) {
    const std::string name = "shm://" + host + ":";
    if (number != "*" && strtoul(number.c_str(), NULL, 10) != 0) return listen(hub, name + number);
    const unsigned first = 49152;
    const unsigned count = 65536 - first;
    const unsigned begin = generate_random() % count;
    int error = -EADDRINUSE;
    for (unsigned i = 0; i < count && error == -EADDRINUSE; ++i) {
        char text[8];
        snprintf(text, sizeof text, "%u", first + (begin + i) % count);
        error = listen(hub, name + text);
    }
    return error;
}

void ChannelListener::process_plug() {
    io_thread_->channels().plug();
    handle_ = add_fd(fd_);
    set_pollin(handle_);
}

void ChannelListener::process_term(int linger) {
    rm_fd(handle_);
    incast_channel_listener_close(listener_);
    listener_ = NULL;
    socket_->event_closed(make_unconnected_bind_endpoint_pair(endpoint_), fd_);
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
