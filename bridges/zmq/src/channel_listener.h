// Listens for channels, for one zmq_bind().
#pragma once

#include <string>

#include "channel_loop.h"
#include "io_object.hpp"
#include "own.hpp"

namespace zmq {

class io_thread_t;
class socket_base_t;

class ChannelListener : public own_t, public io_object_t {
public:
    ChannelListener(io_thread_t* io_thread, socket_base_t* socket, const options_t& options);
    ~ChannelListener();

    /// In the application's thread. -1: errno says why.
    int set_local_address(const std::string& protocol, const std::string& address);
    const std::string& endpoint() const { return endpoint_; }

private:
    int listen(incast_channel_hub* hub, const std::string& address);
    int listen_at_number(incast_channel_hub* hub, const std::string& host, const std::string& number);
    void process_plug();
    void process_term(int linger);
    void in_event();
    void attach(incast_channel* channel);

    io_thread_t* const io_thread_;
    socket_base_t* const socket_;
    incast_channel_listener* listener_ = NULL;
    fd_t fd_ = retired_fd;  // the listener's own
    handle_t handle_ = NULL;
    std::string endpoint_;
};

}  // namespace zmq
