#include "softrio/udp/channels.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softrio/shm/channels.h"
#include "softrio/udp/port.h"

namespace incast::softrio::udp {

namespace {

constexpr std::uint8_t channel_message = 0x55;
/// Messages are ordered with everything else that goes to the peer.
constexpr std::uint8_t lane = 1;
/// Nobody listens, perhaps not yet: that often it is asked.
constexpr std::int64_t ask_again_ms = 50;
constexpr std::int64_t settle_ms = 1000;

}  // namespace

void write_header(const CmHeader& header, std::byte* at) {
    const auto put = [&](std::uint32_t value, int bytes) {
        for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8)
            *at++ = static_cast<std::byte>(value >> shift);
    };
    put(header.source, 4);
    put(header.target, 4);
    put(0, 2);
    put(channel_message, 1);
    put(static_cast<std::uint8_t>(header.operation), 1);
    put(header.target_channel, 2);
    put(header.source_channel, 2);
    put(header.bytes, 2);
    put(header.word, 2);
}

bool read_header(std::span<const std::byte> message, CmHeader& header) {
    if (message.size() < min_message) return false;
    const auto get = [&](std::size_t at, std::size_t bytes) {
        std::uint32_t value = 0;
        for (std::size_t index = 0; index < bytes; ++index)
            value = value << 8 | static_cast<std::uint32_t>(message[at + index]);
        return value;
    };
    header.source = get(0, 4);
    header.target = get(4, 4);
    header.operation = static_cast<ChannelOperation>(get(11, 1));
    header.target_channel = static_cast<std::uint16_t>(get(12, 2));
    header.source_channel = static_cast<std::uint16_t>(get(14, 2));
    header.bytes = static_cast<std::uint16_t>(get(16, 2));
    header.word = static_cast<std::uint16_t>(get(18, 2));
    return get(10, 1) == channel_message && header.bytes >= min_message && header.bytes <= message.size();
}

void Channel::connect(const Asked& to) {
    remote = to;
    ring = std::make_unique_for_overwrite<std::array<std::array<std::byte, max_message>, ring_depth>>();
    received = this->read = told = sent = freed = 0;
}

Channel* Channels::find(std::uint16_t id) {
    const auto found = channels_.find(id);
    return id == 0 || found == channels_.end() ? nullptr : &found->second;
}

Channel* Channels::take(std::uint16_t id, int& error) {
    error = -EBUSY;
    if (id != 0 && channels_.contains(id)) return nullptr;
    if (id == 0) {
        std::uint32_t candidate = first_dynamic_channel;
        while (candidate <= UINT16_MAX && channels_.contains(static_cast<std::uint16_t>(candidate)))
            ++candidate;
        if (candidate > UINT16_MAX) return nullptr;
        id = static_cast<std::uint16_t>(candidate);
    }
    error = -ENOMEM;
    if (channels_.size() == max_channels) return nullptr;
    Channel& made = channels_[id];
    made.id = id;
    return &made;
}

bool Channels::say(const Channel& channel, ChannelOperation operation, std::uint16_t word) {
    std::array<std::byte, min_message> message;
    write_header(
        {engine_->destid(), channel.remote.destid, operation, channel.remote.channel, channel.id, min_message, word},
        message.data());
    return engine_->send_message(channel.remote.destid, lane, message);
}

bool Channels::send_data(Channel& channel, std::span<const std::byte> message) {
    std::array<std::byte, max_message> whole;
    std::memcpy(whole.data(), message.data(), message.size());
    write_header({engine_->destid(), channel.remote.destid, ChannelOperation::data, channel.remote.channel, channel.id,
                  static_cast<std::uint16_t>(message.size()), 0},
                 whole.data());
    if (!engine_->send_message(channel.remote.destid, lane, std::span(whole).first(message.size()))) return false;
    ++channel.sent;
    return true;
}

void Channels::take_request(const CmHeader& header) {
    Channel* listener = find(header.target_channel);
    const Asked asked{header.source, header.source_channel, header.word};
    // Asked again, or already accepted; nobody listens: the asker goes on until its time is over.
    if (listener == nullptr || listener->state != Channel::State::listening ||
        listener->pending.size() == accept_depth ||
        std::ranges::find(listener->pending, asked) != listener->pending.end() ||
        std::ranges::any_of(channels_, [&](const auto& each) {
            return each.second.state == Channel::State::connected && each.second.remote == asked;
        })) {
        return;
    }
    listener->pending.push_back(asked);
}

void Channels::answer_close(const CmHeader& header) {
    Channel unknown;
    unknown.id = header.target_channel;
    unknown.remote = {header.source, header.source_channel, 0};
    (void)say(unknown, ChannelOperation::close, 0);
}

void Channels::take_message(std::uint32_t source, std::span<const std::byte> message) {
    CmHeader header;
    if (!read_header(message, header) || header.source != source) return;
    if (header.operation == ChannelOperation::request) {
        take_request(header);
        return;
    }
    Channel* channel = find(header.target_channel);
    const bool is_remote = channel != nullptr && channel->remote.destid == source;
    if (header.operation == ChannelOperation::accept) {
        if (is_remote && channel->state == Channel::State::connecting && channel->remote.serial == header.word) {
            channel->connect({source, header.source_channel, header.word});
            channel->state = Channel::State::connected;
        } else {
            answer_close(header);
        }
        return;
    }
    if (header.operation == ChannelOperation::close && channel != nullptr &&
        channel->state == Channel::State::listening) {
        std::erase_if(channel->pending, [&](const Asked& each) {
            return each.destid == source && each.channel == header.source_channel;
        });
        return;
    }
    if (!is_remote || channel->state != Channel::State::connected || channel->remote.channel != header.source_channel) {
        if (header.operation == ChannelOperation::data) answer_close(header);
        return;
    }
    if (header.operation == ChannelOperation::close) {
        channel->state = Channel::State::lost;
    } else if (header.operation == ChannelOperation::credit) {
        const auto more = static_cast<std::uint16_t>(header.word - static_cast<std::uint16_t>(channel->freed));
        if (more <= channel->sent - channel->freed) channel->freed += more;
    } else if (header.operation == ChannelOperation::data) {
        if (channel->received - channel->read == ring_depth) {
            channel->state = Channel::State::lost;  // it sends more than it may
            answer_close(header);
            return;
        }
        std::memcpy((*channel->ring)[channel->received++ % ring_depth].data(), message.data(), header.bytes);
    }
}

void Channels::lose_peer(std::uint32_t destid) {
    for (auto& [id, channel] : channels_) {
        std::erase_if(channel.pending, [&](const Asked& each) { return each.destid == destid; });
        if (channel.remote.destid == destid && channel.state == Channel::State::connected)
            channel.state = Channel::State::lost;
    }
}

CmSocket::~CmSocket() {
    if (id_ == 0 || port_->is_abandoned()) return;
    auto lock = port_->lock();
    const Channel* channel = port_->channels().find(id_);
    shm::Patience patience(settle_ms, nullptr);
    while (channel->state == Channel::State::connected &&
           !port_->channels().say(*channel, ChannelOperation::close, 0)) {
        if (!port_->wait(lock, patience)) break;
    }
    port_->pump();
    port_->channels().give_up(id_);
}

bool CmSocket::is_usable() const {
    return !port_->is_abandoned();
}

int CmSocket::bind(std::uint16_t channel) {
    const auto lock = port_->lock();
    if (id_ != 0) return -EINVAL;
    int error = 0;
    const Channel* made = port_->channels().take(channel, error);
    if (made == nullptr) return error;
    id_ = made->id;
    return 0;
}

int CmSocket::listen() {
    const auto lock = port_->lock();
    Channel* channel = port_->channels().find(id_);
    if (channel == nullptr || channel->state != Channel::State::bound) return -EINVAL;
    channel->state = Channel::State::listening;
    return 0;
}

int CmSocket::accept(Socket& connection, std::uint32_t timeout_ms, const volatile int* stop) {
    auto& into = static_cast<CmSocket&>(connection);  // of the same port
    auto lock = port_->lock();
    Channel* channel = port_->channels().find(id_);
    if (channel == nullptr || channel->state != Channel::State::listening || into.id_ != 0) return -EINVAL;
    shm::Patience patience(timeout_ms, stop);
    while (true) {
        if (!channel->pending.empty()) {
            int error = 0;
            Channel* made = port_->channels().take(0, error);
            if (made == nullptr) return error;
            made->connect(channel->pending.front());
            made->state = Channel::State::connected;
            if (port_->channels().say(*made, ChannelOperation::accept, made->remote.serial)) {
                channel->pending.pop_front();
                into.id_ = made->id;
                port_->pump();
                return 0;
            }
            port_->channels().give_up(made->id);
        }
        if (!port_->wait(lock, patience)) return -ETIME;
    }
}

int CmSocket::ask(std::unique_lock<std::mutex>& lock, const volatile int* stop) {
    shm::Patience patience(connect_ms, stop);
    std::int64_t next_ms = 0;
    Channel& channel = *port_->channels().find(id_);
    const std::uint32_t destid = channel.remote.destid;
    while (channel.state == Channel::State::connecting) {
        // Another life of that endpoint is asked as well.
        if (const int error = port_->connect(lock, destid)) return error;
        if (shm::now_ms() >= next_ms &&
            port_->channels().say(channel, ChannelOperation::request, channel.remote.serial)) {
            next_ms = shm::now_ms() + ask_again_ms;
        }
        if (channel.state == Channel::State::connecting && !port_->wait(lock, patience)) {
            // Taken back, before anybody accepts it.
            (void)port_->channels().say(channel, ChannelOperation::close, 0);
            port_->settle(lock, destid, settle_ms);
            return -ETIME;
        }
    }
    return 0;
}

int CmSocket::connect(std::uint32_t destid, std::uint16_t remote, const volatile int* stop) {
    if (!is_destid(destid) || remote == 0) return -EINVAL;
    auto lock = port_->lock();
    if (id_ == 0) {
        int error = 0;
        const Channel* made = port_->channels().take(0, error);
        if (made == nullptr) return error;
        id_ = made->id;
    }
    Channel& channel = *port_->channels().find(id_);
    if (channel.state == Channel::State::connected || channel.state == Channel::State::lost) return -EISCONN;
    if (channel.state != Channel::State::bound) return -EINVAL;
    channel.remote = {destid, remote, static_cast<std::uint16_t>(port_->next_serial())};
    channel.state = Channel::State::connecting;
    const int error = ask(lock, stop);
    // Accepted at the last moment is accepted.
    if (channel.state != Channel::State::connecting) return 0;
    channel.state = Channel::State::bound;
    channel.remote = {};
    return error;
}

int CmSocket::send(std::span<const std::byte> message, const volatile int* stop) {
    if (message.size() < min_message || message.size() > max_message) return -EINVAL;
    auto lock = port_->lock();
    Channel* channel = port_->channels().find(id_);
    if (channel == nullptr || channel->ring == nullptr) return -ENOTCONN;
    shm::Patience patience(stop == nullptr ? 0 : send_ms, stop);
    while (true) {
        if (channel->state != Channel::State::connected) return -ECONNRESET;
        if (channel->may_send() && port_->channels().send_data(*channel, message)) break;
        if (!port_->wait(lock, patience)) return -ETIME;
    }
    port_->pump();
    return 0;
}

int CmSocket::receive(std::span<std::byte> into, std::uint32_t timeout_ms, const volatile int* stop) {
    auto lock = port_->lock();
    Channel* channel = port_->channels().find(id_);
    if (channel == nullptr || channel->ring == nullptr) return -ENOTCONN;
    shm::Patience patience(timeout_ms, stop);
    while (channel->received == channel->read) {
        if (channel->state != Channel::State::connected) return -ECONNRESET;
        tell_read(*channel);  // there may have been no room for it when it was read
        if (!port_->wait(lock, patience)) return -ETIME;
    }
    const auto& message = (*channel->ring)[channel->read++ % ring_depth];
    CmHeader header;
    (void)read_header(message, header);  // it was one when it came
    std::memcpy(into.data(), message.data(), header.bytes);
    tell_read(*channel);
    return 0;
}

void CmSocket::tell_read(Channel& channel) {
    const std::uint32_t untold = channel.read - channel.told;
    const bool is_waited_for = untold > 0 && channel.received - channel.told == ring_depth;
    if (channel.state == Channel::State::connected && (untold >= credit_step || is_waited_for) &&
        port_->channels().say(channel, ChannelOperation::credit, static_cast<std::uint16_t>(channel.read))) {
        channel.told = channel.read;
        port_->pump();
    }
}

}  // namespace incast::softrio::udp
