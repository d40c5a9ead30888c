// include/incast/channel.h: hubs, listeners, and channels as a whole. What is said there is checked here, and done in
// core.h.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>

#include <incast/channel.h>

#include "channel/api/calls.h"

struct incast_channel_hub {
    incast::channel::api::Core core;
};

namespace incast::channel::api {
namespace {

constexpr std::uint32_t least_hub_options = offsetof(incast_channel_hub_options, settings);
constexpr std::uint32_t least_options = sizeof(incast_channel_options);
constexpr std::uint32_t preset_connect_timeout_ms = 10'000;

/// As many bytes of the caller's as its version of the struct has.
template <class Given>
Given whole(const Given* options, std::uint32_t least) {
    Given made{};
    if (options == nullptr) return made;
    if (options->size < least) throw Failure{EINVAL, "options: begin with INCAST_CHANNEL_OPTIONS or _HUB_OPTIONS"};
    std::memcpy(&made, options, std::min<std::size_t>(options->size, sizeof made));
    return made;
}

HubChoices choices_of(const char* transport, const incast_channel_hub_options* given) {
    const incast_channel_hub_options options = whole(given, least_hub_options);
    HubChoices made{.scheme = parse_scheme(transport)};
    check_has(made.scheme);
    const auto text = [](const char* from) { return std::string(from == nullptr ? "" : from); };
    if ((options.flags & ~std::uint32_t{INCAST_CHANNEL_OWN_LOOP}) != 0)
        throw Failure{EINVAL, "flags " + std::to_string(options.flags) + ": allowed: INCAST_CHANNEL_OWN_LOOP"};
    made.is_own_loop = (options.flags & INCAST_CHANNEL_OWN_LOOP) != 0;
    if (options.max_channels > 0) made.max_channels = options.max_channels;
    if (options.max_peers > 0) made.max_peers = options.max_peers;
    if (made.max_channels > 1U << 15U)
        throw Failure{EINVAL, "max_channels " + std::to_string(made.max_channels) + ": at most 32768"};
    if (made.max_peers > 4095) throw Failure{EINVAL, "max_peers " + std::to_string(made.max_peers) + ": at most 4095"};
    if (options.longest_ring_bytes > 0) made.longest_ring_bytes = options.longest_ring_bytes;
    if (options.longest_spin_us != 0) made.longest_spin = std::max(options.longest_spin_us, 0) * ps_per_us;
    made.peer_timeout_ms = options.peer_timeout_ms;
    made.secret = options.secret;
    made.fabric = text(options.fabric);
    made.bind = text(options.bind);
    made.settings = parse_settings(text(options.settings));
    return made;
}

struct ChannelChoices {
    Options options;
    std::uint32_t longest_message = max_message;
    Time patience = 0;
    std::uint32_t backlog = 0;
};

ChannelChoices choices_of(const incast_channel_options* given, Scheme scheme) {
    const incast_channel_options options = whole(given, least_options);
    if (options.kind > INCAST_CHANNEL_MESSAGES || options.announce > INCAST_CHANNEL_MESSAGE ||
        options.acknowledge > INCAST_CHANNEL_MESSAGE)
        throw Failure{EINVAL, "options: no such kind, or way to announce or acknowledge"};
    if (options.longest_message > max_message) throw Failure{EINVAL, "longest_message: at most 1 GiB"};
    const auto way = [](std::uint32_t number) {
        return number == INCAST_CHANNEL_DOORBELL ? Way::doorbell
               : number == INCAST_CHANNEL_MEMORY ? Way::memory
                                                 : Way::message;
    };
    ChannelChoices made;
    made.options.shape = choose_shape(scheme, options.buffers, options.buffer_bytes, options.batch);
    made.options.kind = options.kind == INCAST_CHANNEL_MESSAGES ? Kind::messages : Kind::bytes;
    made.options.announce = way(options.announce);
    made.options.acknowledge = way(options.acknowledge);
    if (options.longest_message > 0) made.longest_message = options.longest_message;
    made.patience =
        (options.connect_timeout_ms > 0 ? options.connect_timeout_ms : preset_connect_timeout_ms) * ps_per_ms;
    made.backlog = options.backlog;
    return made;
}

std::uint32_t number_of(Way way) {
    return way == Way::doorbell ? INCAST_CHANNEL_DOORBELL
           : way == Way::memory ? INCAST_CHANNEL_MEMORY
                                : INCAST_CHANNEL_MESSAGE;
}

}  // namespace
}  // namespace incast::channel::api

using namespace incast;                // NOLINT(google-build-using-namespace)
using namespace incast::channel;       // NOLINT(google-build-using-namespace)
using namespace incast::channel::api;  // NOLINT(google-build-using-namespace)

const char* incast_channel_message() {
    return last_message().c_str();
}

// --- hubs

int incast_channel_hub_make(const char* transport, const incast_channel_hub_options* options,
                            incast_channel_hub** hub) {
    if (transport == nullptr || hub == nullptr) return refuse_null();
    *hub = nullptr;
    try {
        *hub = new incast_channel_hub{Core(choices_of(transport, options))};
        return 0;
    } catch (const Failure& failure) {
        return refuse(failure.error, failure.line);
    } catch (const std::bad_alloc&) {
        return refuse(ENOMEM);
    }
}

int incast_channel_hub_drain(incast_channel_hub* hub, int timeout_ms) {
    if (hub == nullptr) return refuse_null();
    // Nothing wakes whoever sleeps when a peer's kernel has acknowledged the last bytes (tcp): that is looked at.
    constexpr int look_every_ms = 5;
    return with(hub->core, [&](auto& lock) {
        for (int left = timeout_ms;;) {
            const int slice = left < 0 ? look_every_ms : std::min(left, look_every_ms);
            if (hub->core.wait(lock, slice, [&] { return hub->core.is_drained(); })) return 0;
            if (left < 0) continue;
            left -= slice;
            if (left == 0) return not_now();
        }
    });
}

void incast_channel_hub_free(incast_channel_hub* hub) {
    if (hub == nullptr || hub->core.is_child()) return;  // in a child all of it is the parent's
    delete hub;
}

int incast_channel_hub_get_info(incast_channel_hub* hub, incast_channel_hub_info* info) {
    if (hub == nullptr || info == nullptr) return refuse_null();
    return with(hub->core, [&](auto&) {
        const HubChoices& choices = hub->core.choices();
        const char* const name = to_string(choices.scheme).data();  // NOLINT(bugprone-suspicious-stringview-data-usage)
        *info = {.transport = name,
                 .max_channels = choices.max_channels,
                 .max_peers = choices.max_peers,
                 .sends_in_place = hub->core.sends_in_place() ? 1U : 0U,
                 .destid = hub->core.destid()};
        return 0;
    });
}

int incast_channel_hub_fd(incast_channel_hub* hub) {
    if (hub == nullptr) return refuse_null();
    return hub->core.is_child() ? refuse_child() : hub->core.fd();
}

int incast_channel_hub_poll(incast_channel_hub* hub) {
    if (hub == nullptr) return refuse_null();
    return with(hub->core, [&](auto&) { return hub->core.poll_awake() ? 1 : 0; });
}

int incast_channel_hub_poll_unwoken(incast_channel_hub* hub) {
    if (hub == nullptr) return refuse_null();
    return with(hub->core, [&](auto&) { return hub->core.poll_unwoken() ? 1 : 0; });
}

int incast_channel_hub_prepare_wait(incast_channel_hub* hub) {
    if (hub == nullptr) return refuse_null();
    return with(hub->core, [&](auto&) { return hub->core.prepare_wait() ? 1 : 0; });
}

int incast_channel_hub_next_ready(incast_channel_hub* hub, incast_channel** channel, uint32_t* what) {
    if (hub == nullptr || channel == nullptr || what == nullptr) return refuse_null();
    return with(hub->core, [&](auto&) {
        std::tie(*channel, *what) = hub->core.next_ready();
        return *channel == nullptr ? 0 : 1;
    });
}

// --- listening

int incast_channel_listen(incast_channel_hub* hub, const char* address, const incast_channel_options* options,
                          incast_channel_listener** listener) {
    if (hub == nullptr || address == nullptr || listener == nullptr) return refuse_null();
    *listener = nullptr;
    return with(hub->core, [&](auto&) {
        const Address where = parse_address(address, Use::listen, hub->core.choices().scheme);
        const ChannelChoices choices = choices_of(options, where.scheme);
        *listener = hub->core.listen(where, choices.options.kind, choices.longest_message, choices.backlog);
        return 0;
    });
}

const char* incast_channel_listener_address(const incast_channel_listener* listener) {
    return listener == nullptr ? "" : listener->address.c_str();
}

int incast_channel_listener_fd(incast_channel_listener* listener) {
    if (listener == nullptr) return refuse_null();
    return with(listener->core, [&](auto&) {
        if (!listener->news.open()) throw system_failure(errno, listener->address);
        listener->news.set(!listener->waiting.empty());
        return listener->news.fd();
    });
}

int incast_channel_accept(incast_channel_listener* listener, int timeout_ms, incast_channel** channel) {
    if (listener == nullptr || channel == nullptr) return refuse_null();
    *channel = nullptr;
    return with(listener->core, [&](auto& lock) {
        if (!listener->core.wait(lock, timeout_ms, [&] { return !listener->waiting.empty(); })) return not_now();
        *channel = listener->waiting.front();
        listener->waiting.pop_front();
        listener->news.set(!listener->waiting.empty());
        return 0;
    });
}

void incast_channel_listener_close(incast_channel_listener* listener) {
    if (listener == nullptr) return;
    (void)with(listener->core, [&](auto&) {
        listener->core.close(listener);
        return 0;
    });
}

// --- channels

int incast_channel_connect(incast_channel_hub* hub, const char* address, const incast_channel_options* options,
                           incast_channel** channel) {
    if (hub == nullptr || address == nullptr || channel == nullptr) return refuse_null();
    *channel = nullptr;
    return with(hub->core, [&](auto&) {
        const Address where = parse_address(address, Use::connect, hub->core.choices().scheme);
        const ChannelChoices choices = choices_of(options, where.scheme);
        *channel = hub->core.connect(where, choices.options, choices.longest_message, choices.patience);
        return 0;
    });
}

int incast_channel_state(incast_channel* channel) {
    if (channel == nullptr) return refuse_null();
    return with(channel->core, [&](auto&) {
        const int state = channel->core.state(*channel);
        return state < 0 ? ended(*channel, state) : state;
    });
}

int incast_channel_wait_open(incast_channel* channel, int timeout_ms) {
    if (channel == nullptr) return refuse_null();
    return with(channel->core, [&](auto& lock) {
        int state = 0;
        if (!channel->core.wait(lock, timeout_ms, [&] { return (state = channel->core.state(*channel)) != 0; }))
            return not_now();
        return state < 0 ? ended(*channel, state) : state;
    });
}

const char* incast_channel_state_message(incast_channel* channel) {
    thread_local std::string line;
    if (channel == nullptr) return "";
    if (channel->core.is_child()) return to_string(Fault::forked);
    const Core::Entry entry(channel->core);
    line = channel->core.message(*channel);
    return line.c_str();
}

const char* incast_channel_peer_name(incast_channel* channel) {
    return channel == nullptr ? "" : channel->peer_name.c_str();
}

int incast_channel_get_options(incast_channel* channel, incast_channel_options* options) {
    if (channel == nullptr || options == nullptr) return refuse_null();
    return with(channel->core, [&](auto&) {
        const Options& chosen = channel->options;
        *options = INCAST_CHANNEL_OPTIONS;
        options->kind = chosen.kind == Kind::messages ? INCAST_CHANNEL_MESSAGES : INCAST_CHANNEL_BYTES;
        options->buffers = chosen.shape.buffers;
        options->buffer_bytes = chosen.shape.buffer_bytes;
        options->batch = chosen.shape.batch;
        options->announce = number_of(chosen.announce);
        options->acknowledge = number_of(chosen.acknowledge);
        options->longest_message = channel->longest_message;
        return 0;
    });
}

void incast_channel_set_user(incast_channel* channel, void* user) {
    if (channel != nullptr) channel->user = user;
}

void* incast_channel_user(const incast_channel* channel) {
    return channel == nullptr ? nullptr : channel->user;
}

static void give_back(incast_channel* channel, bool is_aborted) {
    if (channel == nullptr) return;
    (void)with(channel->core, [&](auto&) {
        channel->core.close(channel, is_aborted);
        return 0;
    });
}

void incast_channel_close(incast_channel* channel) {
    give_back(channel, false);
}

int incast_channel_disconnect(incast_channel* channel) {
    if (channel == nullptr) return refuse_null();
    return with(channel->core, [&](auto&) {
        if (channel->has_id) channel->core.hub().disconnect(channel->id);
        channel->core.settle();
        return 0;
    });
}

void incast_channel_abort(incast_channel* channel) {
    give_back(channel, true);
}

/// Before there is a channel in the hub the descriptors are made here, and handed over then.
static int descriptor(incast_channel* channel, Level incast_channel::* level, Result<int> (Hub::*of_hub)(Id)) {
    if (channel == nullptr) return refuse_null();
    return with(channel->core, [&](auto&) {
        if (channel->has_id) {
            const Result<int> made = (channel->core.hub().*of_hub)(channel->id);
            if (!made) throw Failure{errno == ENFILE ? ENFILE : EMFILE, made.error().message};
            return *made;
        }
        Level& own = channel->*level;
        if (!own.open()) throw system_failure(errno, "a descriptor of a channel");
        own.set(channel->state == incast_channel::State::ended);
        return own.fd();
    });
}

int incast_channel_data_fd(incast_channel* channel) {
    return descriptor(channel, &incast_channel::data, &Hub::data_fd);
}

int incast_channel_room_fd(incast_channel* channel) {
    return descriptor(channel, &incast_channel::room, &Hub::room_fd);
}
