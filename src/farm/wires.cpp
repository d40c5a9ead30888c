#include "farm/wires.h"

namespace incast::farm {

namespace {

constexpr Time give_up_time = ps_per_s;

const char* or_null(const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
}

}  // namespace

Result<Wires> Wires::make(const std::string& address, const WireSettings& settings) {
    incast_channel_hub_options options = INCAST_CHANNEL_HUB_OPTIONS;
    options.flags = INCAST_CHANNEL_OWN_LOOP;
    options.max_peers = settings.most_peers;
    options.max_channels = 2 * settings.most_peers;  // those that still close count
    options.secret = settings.secret;
    options.fabric = or_null(settings.fabric);
    options.bind = or_null(settings.bind);
    options.settings = or_null(settings.settings);
    incast_channel_hub* hub = nullptr;
    if (incast_channel_hub_make(address.c_str(), &options, &hub) < 0) {
        return Error{incast_channel_message()};
    }
    return Wires(hub);
}

Wires::~Wires() {
    incast_channel_hub_free(hub_);  // and all that is of it
}

bool Wires::give_up(incast_channel* channel) {
    (void)incast_channel_disconnect(channel);
    const auto is_back = [channel] { return incast_channel_released(channel) == incast_channel_written(channel); };
    // It is the endpoint's next poll that lets go, whatever the peer does.
    for (const Time until = steady_now() + give_up_time; !is_back() && steady_now() < until;) {
        poll(false);
    }
    const bool was_back = is_back();
    incast_channel_abort(channel);
    return was_back;
}

Result<std::string> Wires::listen(const std::string& address) {
    if (incast_channel_listen(hub_, address.c_str(), nullptr, &listener_) < 0) {
        return Error{incast_channel_message()};
    }
    return std::string(incast_channel_listener_address(listener_));
}

incast_channel* Wires::accept() {
    incast_channel* channel = nullptr;
    return incast_channel_accept(listener_, 0, &channel) == 0 ? channel : nullptr;
}

Result<incast_channel*> Wires::connect(const std::string& address) {
    incast_channel* channel = nullptr;
    if (incast_channel_connect(hub_, address.c_str(), nullptr, &channel) < 0) {
        return Error{incast_channel_message()};
    }
    return channel;
}

incast_channel* Wires::next_ready() {
    incast_channel* channel = nullptr;
    std::uint32_t what = 0;
    return incast_channel_hub_next_ready(hub_, &channel, &what) == 1 ? channel : nullptr;
}

}  // namespace incast::farm
