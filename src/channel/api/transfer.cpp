// include/incast/channel.h: what is written and read, as bytes and as messages.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include <incast/channel.h>

#include "channel/api/calls.h"

namespace incast::channel::api {
namespace {

Bytes bytes_of(const void* data, std::size_t bytes) {
    return {static_cast<const std::byte*>(data), bytes};
}

/// 0, or why that channel takes nothing now or ever.
int cannot_write(incast_channel& channel, Kind kind) {
    if (channel.options.kind != kind) return refuse(EINVAL, "a channel of the other kind");
    if (channel.has_finished) return refuse(EPIPE, "this side has finished");
    const int state = channel.core.state(channel);
    if (state == -ECONNRESET && channel.has_id && channel.core.hub().has_ended(channel.id))
        return refuse(EPIPE, channel.peer_name + ": the other side has closed the channel");
    return state < 0 ? ended(channel, state) : 0;
}

std::size_t write_now(incast_channel& channel, Bytes bytes) {
    if (channel.state != incast_channel::State::open) return 0;
    const std::size_t done = channel.core.hub().write(channel.id, bytes);
    if (done < bytes.size()) channel.waits_for_room = true;
    return done;
}

/// More than a buffer leaves at once.
void leave(incast_channel& channel, std::size_t written) {
    if (written >= capacity(channel.options.shape)) channel.core.hub().flush(channel.id);
    channel.core.settle();
}

/// What comes while a caller waits for it is the caller's: no descriptor tells of it in between.
class DataHold {
public:
    explicit DataHold(incast_channel& channel) : channel_(channel) {
        if (channel_.has_id) channel_.core.hub().hold_data(channel_.id, true);
    }
    DataHold(const DataHold&) = delete;
    DataHold& operator=(const DataHold&) = delete;
    ~DataHold() {
        if (channel_.has_id) channel_.core.hub().hold_data(channel_.id, false);
    }

private:
    incast_channel& channel_;
};

/// Until there is something to read: the state of the channel, 1 for that.
template <class Is>
int wait_for_data(std::unique_lock<std::mutex>& lock, incast_channel& channel, int timeout_ms, Is&& is_there) {
    Core& core = channel.core;
    const DataHold hold(channel);
    int state = 0;
    const bool is_now = core.wait(lock, timeout_ms, [&] {
        if (is_there()) {
            state = 1;
            return true;
        }
        state = core.state(channel);
        return state < 0;
    });
    if (is_now) return state == 1 ? 1 : ended(channel, state);
    channel.waits_for_data = true;
    return not_now();
}

}  // namespace
}  // namespace incast::channel::api

using namespace incast;                // NOLINT(google-build-using-namespace)
using namespace incast::channel;       // NOLINT(google-build-using-namespace)
using namespace incast::channel::api;  // NOLINT(google-build-using-namespace)

// --- bytes

int64_t incast_channel_write(incast_channel* channel, const void* data, size_t bytes, int timeout_ms) {
    if (channel == nullptr || (data == nullptr && bytes > 0)) return refuse_null();
    return with(channel->core, [&](auto& lock) -> std::int64_t {
        std::size_t done = 0;
        int error = 0;
        const bool is_over = channel->core.wait(lock, timeout_ms, [&] {
            error = cannot_write(*channel, Kind::bytes);
            if (error == 0) done += write_now(*channel, bytes_of(data, bytes).subspan(done));
            return error != 0 || (done == bytes && channel->state == incast_channel::State::open);
        });
        if (done > 0) leave(*channel, done);
        if (done > 0 || (is_over && error == 0)) return static_cast<std::int64_t>(done);
        return error != 0 ? error : not_now();
    });
}

int64_t incast_channel_write_in_place(incast_channel* channel, const void* data, size_t bytes) {
    if (channel == nullptr || (data == nullptr && bytes > 0)) return refuse_null();
    return with(channel->core, [&](auto&) -> std::int64_t {
        if (const int error = cannot_write(*channel, Kind::bytes); error != 0) return error;
        const bool is_open = channel->state == incast_channel::State::open;
        const std::size_t done = is_open ? channel->core.hub().write_in_place(channel->id, bytes_of(data, bytes)) : 0;
        if (done < bytes) channel->waits_for_room = true;
        if (done > 0) leave(*channel, done);
        return done > 0 || (bytes == 0 && is_open) ? static_cast<std::int64_t>(done) : not_now();
    });
}

static uint64_t position(incast_channel* channel, std::uint64_t (Hub::*of_hub)(Id) const) {
    if (channel == nullptr || channel->core.is_child()) return 0;
    const Core::Entry entry(channel->core);
    return channel->has_id ? (channel->core.hub().*of_hub)(channel->id) : 0;
}

uint64_t incast_channel_written(incast_channel* channel) {
    return position(channel, &Hub::written);
}

uint64_t incast_channel_released(incast_channel* channel) {
    return position(channel, &Hub::released);
}

int incast_channel_flush(incast_channel* channel) {
    if (channel == nullptr) return refuse_null();
    return with(channel->core, [&](auto&) {
        if (channel->has_id) {
            (void)channel->core.push_rest(*channel);
            channel->core.hub().flush(channel->id);
            (void)channel->core.poll();  // the endpoint sends what was posted
        }
        channel->core.settle();
        return 0;
    });
}

int incast_channel_finish(incast_channel* channel) {
    if (channel == nullptr) return refuse_null();
    return with(channel->core, [&](auto&) {
        if (const int state = channel->core.state(*channel); state != 1)
            return state < 0 ? ended(*channel, state) : not_now();
        channel->has_finished = true;
        (void)channel->core.push_rest(*channel);
        (void)channel->core.poll();
        channel->core.settle();
        return 0;
    });
}

int64_t incast_channel_read(incast_channel* channel, void* into, size_t bytes, int timeout_ms) {
    if (channel == nullptr || (into == nullptr && bytes > 0)) return refuse_null();
    return with(channel->core, [&](auto& lock) -> std::int64_t {
        if (channel->options.kind != Kind::bytes) return refuse(EINVAL, "a channel of the other kind");
        if (bytes == 0) return 0;
        std::size_t done = 0;
        const int error = wait_for_data(lock, *channel, timeout_ms, [&] {
            if (!channel->has_id) return false;
            Hub& hub = channel->core.hub();
            done = hub.read(channel->id, {static_cast<std::byte*>(into), bytes});
            if (done < bytes) channel->waits_for_data = true;  // nothing more is there
            return done > 0 || hub.has_ended(channel->id);
        });
        if (done > 0) channel->core.settle();  // a credit may be due
        return error < 0 ? error : static_cast<std::int64_t>(done);
    });
}

int64_t incast_channel_peek(incast_channel* channel, const void** data, int timeout_ms) {
    if (channel == nullptr || data == nullptr) return refuse_null();
    *data = nullptr;
    return with(channel->core, [&](auto& lock) -> std::int64_t {
        if (channel->options.kind != Kind::bytes) return refuse(EINVAL, "a channel of the other kind");
        Bytes there;
        const int error = wait_for_data(lock, *channel, timeout_ms, [&] {
            if (!channel->has_id) return false;
            there = channel->core.hub().readable(channel->id);
            return !there.empty() || channel->core.hub().has_ended(channel->id);
        });
        if (error < 0) return error;
        *data = there.data();
        return static_cast<std::int64_t>(there.size());
    });
}

int incast_channel_consume(incast_channel* channel, size_t bytes) {
    if (channel == nullptr) return refuse_null();
    return with(channel->core, [&](auto&) {
        if (channel->options.kind != Kind::bytes) return refuse(EINVAL, "a channel of the other kind");
        if (!channel->has_id || channel->core.hub().readable(channel->id).size() < bytes)
            return refuse(EINVAL, "so many bytes are not there");
        channel->core.hub().consume(channel->id, bytes);
        channel->core.settle();
        return 0;
    });
}

// --- messages

int incast_channel_send(incast_channel* channel, const void* data, size_t bytes, int timeout_ms) {
    if (channel == nullptr || (data == nullptr && bytes > 0)) return refuse_null();
    if (bytes > max_message) return refuse(EMSGSIZE, "a message of " + std::to_string(bytes) + " bytes: at most 1 GiB");
    return with(channel->core, [&](auto& lock) {
        int error = 0;
        const bool is_taken = channel->core.wait(lock, timeout_ms, [&] {
            error = cannot_write(*channel, Kind::messages);
            if (error != 0) return true;
            if (channel->state != incast_channel::State::open || !channel->core.push_rest(*channel)) return false;
            return channel->writer->begin(static_cast<std::uint32_t>(bytes));
        });
        if (!is_taken) {
            channel->waits_for_room = true;
            return not_now();
        }
        if (error != 0) return error;
        const Bytes whole = bytes_of(data, bytes);
        const Bytes rest = whole.subspan(channel->writer->write(whole));
        channel->rest.assign(rest.begin(), rest.end());
        (void)channel->core.push_rest(*channel);
        leave(*channel, bytes);
        return 0;
    });
}

int64_t incast_channel_next_length(incast_channel* channel, int timeout_ms) {
    if (channel == nullptr) return refuse_null();
    return with(channel->core, [&](auto& lock) -> std::int64_t {
        if (channel->options.kind != Kind::messages) return refuse(EINVAL, "a channel of the other kind");
        std::optional<std::uint32_t> length;
        const int error = wait_for_data(lock, *channel, timeout_ms, [&] {
            if (!channel->reader) return false;
            length = channel->reader->length();
            return length || channel->reader->has_ended() || channel->reader->is_broken();
        });
        channel->core.settle();
        if (error < 0) return error;
        if (length) return *length;
        if (channel->reader->is_broken())
            return refuse(EPROTO, channel->peer_name + ": a message that is too long, or not whole");
        return refuse(ENODATA, channel->peer_name + ": the other side has finished");
    });
}

int64_t incast_channel_receive(incast_channel* channel, void* into, size_t bytes, int timeout_ms) {
    if (channel == nullptr || (into == nullptr && bytes > 0)) return refuse_null();
    const Time until = timeout_ms < 0 ? time_never : Core::now() + timeout_ms * ps_per_ms;
    const std::int64_t length = incast_channel_next_length(channel, timeout_ms);
    if (length < 0) return length;
    if (static_cast<std::uint64_t>(length) > bytes)
        return refuse(EMSGSIZE, "the next message has " + std::to_string(length) + " bytes");
    return with(channel->core, [&](auto& lock) -> std::int64_t {
        auto* const to = static_cast<std::byte*>(into);
        std::size_t done = channel->begun.size();
        std::ranges::copy(channel->begun, to);
        const auto left_ms = [&] {
            return static_cast<int>(std::max<Time>(until - Core::now() + ps_per_ms - 1, 0) / ps_per_ms);
        };
        const int error = wait_for_data(lock, *channel, timeout_ms < 0 ? -1 : left_ms(), [&] {
            done += channel->reader->read({to + done, channel->reader->left()});
            return channel->reader->left() == 0 || channel->reader->is_broken();
        });
        if (error == 1 && channel->reader->left() == 0) {
            channel->reader->done();
            channel->begun.clear();
        } else {
            channel->begun.assign(to, to + done);
        }
        channel->core.settle();
        if (error < 0) return error;
        if (channel->reader->is_broken()) return refuse(EPROTO, channel->peer_name + ": the last message is not whole");
        return length;
    });
}
