#include "softrio/shm/channels.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace incast::softrio::shm {

namespace {

/// A wait looks this often whether the other side still lives and the caller still wants it.
constexpr int slice_ms = 50;
constexpr std::uint64_t serial_mask = 0xFFFFFF;

constexpr std::uint64_t state_of(Channel::Kind kind, std::uint32_t channel, std::uint32_t destid,
                                 std::uint64_t serial) {
    return kind | std::uint64_t{channel & 0xFFFF} << 8 | std::uint64_t{destid & 0xFFFF} << 24 |
           (serial & serial_mask) << 40;
}
constexpr Channel::Kind kind_of(std::uint64_t state) {
    return static_cast<Channel::Kind>(state & 0xFF);
}
// The same in a state and in a request.
constexpr std::uint16_t channel_of(std::uint64_t word) {
    return static_cast<std::uint16_t>(word >> 8);
}
constexpr std::uint16_t destid_of(std::uint64_t word) {
    return static_cast<std::uint16_t>(word >> 24);
}
constexpr std::uint64_t serial_of(std::uint64_t word) {
    return word >> 40;
}
constexpr std::uint64_t request_of(std::uint32_t channel, std::uint32_t destid, std::uint64_t serial) {
    return state_of(static_cast<Channel::Kind>(1), channel, destid, serial);
}

std::atomic<std::uint64_t> serials = 0;

Channel* find_channel(Block& block, std::uint16_t id) {
    for (std::uint32_t number = 0; number < max_channels; ++number) {
        if (block.channel_ids[number].load() == id) return &block.channels[number];
    }
    return nullptr;
}

void wake(Channel& channel) {
    channel.wake.fetch_add(1);
    futex_wake(channel.wake);
}

/// What real messages begin with, in network order: source, target, mailboxes, type, operation, channels, length.
void write_header(std::byte* at, std::uint32_t source, std::uint32_t target, std::uint16_t from, std::uint16_t to,
                  std::uint32_t bytes) {
    const auto put = [&](std::uint32_t value, int count) {
        for (int shift = (count - 1) * 8; shift >= 0; shift -= 8)
            *at++ = static_cast<std::byte>(value >> shift);
    };
    constexpr std::uint32_t data_message = 1;
    put(source, 4);
    put(target, 4);
    put(0, 1);
    put(0, 1);
    put(data_message, 1);
    put(0, 1);
    put(to, 2);
    put(from, 2);
    put(bytes, 2);
    put(0, 2);
}

}  // namespace

Patience::Patience(std::uint32_t timeout_ms, const volatile int* stop) : stop_(stop) {
    const bool once = stop != nullptr && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0;
    if (once) stop_ = nullptr;
    if (timeout_ms != 0 && stop_ == nullptr) until_ = now_ms() + timeout_ms;
}

bool Patience::wait(std::atomic<std::uint32_t>& word, std::uint32_t value, int at_most_ms) {
    // Another thread writes it, as a volatile or, if it minds the rules of C++, as an atomic.
    if (stop_ != nullptr && __atomic_load_n(stop_, __ATOMIC_RELAXED) != 0) return false;
    std::int64_t wait_ms = at_most_ms;
    if (until_ != 0) {
        const std::int64_t left = until_ - now_ms();
        if (left <= 0) return false;
        wait_ms = std::min(wait_ms, left);
    }
    (void)futex_wait(word, value, static_cast<int>(wait_ms));
    return true;
}

Socket::~Socket() {
    if (port_->is_abandoned()) {
        memory_.file.close();
        return;
    }
    if (peer_ring_ != nullptr) {
        peer_ring_->writer_closed.store(1);
        futex_wake(peer_ring_->written);
    }
    if (ring_ != nullptr) {
        ring_->reader_closed.store(1);
        futex_wake(ring_->read);
    }
    give_up_channel();
}

void Socket::give_up_channel() {
    if (channel_ == nullptr) return;
    Block& block = port_->block();
    channel_->state.store(0);
    block.channel_ids[static_cast<std::size_t>(channel_ - block.channels.data())].store(0);
    channel_ = nullptr;
    id_ = 0;
}

int Socket::take_channel(std::uint16_t id) {
    Block& block = port_->block();
    const std::lock_guard lock(port_->channels_mutex());
    if (id != 0 && find_channel(block, id) != nullptr) return -EBUSY;
    if (id == 0) {
        const auto is_free = [&](std::uint32_t each) {
            return find_channel(block, static_cast<std::uint16_t>(each)) == nullptr;
        };
        std::uint32_t candidate = first_dynamic_channel;
        while (candidate <= UINT16_MAX && !is_free(candidate))
            ++candidate;
        if (candidate > UINT16_MAX) return -EBUSY;
        id = static_cast<std::uint16_t>(candidate);
    }
    Channel* free = find_channel(block, 0);
    if (free == nullptr) return -ENOMEM;
    free->state.store(state_of(Channel::bound, 0, 0, 0));
    for (auto& each : free->pending)
        each.store(0);
    block.channel_ids[static_cast<std::size_t>(free - block.channels.data())].store(id);
    channel_ = free;
    id_ = id;
    return 0;
}

int Socket::make_ring() {
    auto memory = make_memory(sizeof(Ring));
    if (!memory) return -ENOMEM;
    memory_ = std::move(*memory);
    mapping_ = map(memory_.file, memory_.bytes);
    if (mapping_ == nullptr) return -ENOMEM;
    ring_ = reinterpret_cast<Ring*>(mapping_->bytes().data());
    ring_->start();
    read_ = first_message;
    channel_->ring.number.store(static_cast<std::uint32_t>(memory_.file.fd()));
    channel_->ring.inode.store(memory_.inode);
    channel_->ring.bytes.store(memory_.bytes);
    return 0;
}

int Socket::bind(std::uint16_t channel) {
    return channel_ != nullptr ? -EINVAL : take_channel(channel);
}

int Socket::listen() {
    if (channel_ == nullptr || kind_of(channel_->state.load()) != Channel::bound) return -EINVAL;
    channel_->state.store(state_of(Channel::listening, 0, 0, 0));
    return 0;
}

int Socket::join(std::shared_ptr<Peer> peer, const Channel& theirs) {
    const std::uint32_t number = theirs.ring.number.load();
    const std::uint64_t inode = theirs.ring.inode.load();
    peer_mapping_ = map_of(peer->process(), number, inode, sizeof(Ring));
    if (peer_mapping_ == nullptr) return -ECONNRESET;
    peer_ring_ = reinterpret_cast<Ring*>(peer_mapping_->bytes().data());
    peer_ = std::move(peer);
    written_ = first_message;
    return 0;
}

int Socket::join_nobody() {
    auto memory = make_memory(sizeof(Ring));
    if (!memory) return -ENOMEM;
    peer_mapping_ = map(memory->file, memory->bytes);
    if (peer_mapping_ == nullptr) return -ENOMEM;
    peer_ring_ = reinterpret_cast<Ring*>(peer_mapping_->bytes().data());
    peer_ring_->start();
    written_ = first_message;
    peer_ring_->reader_closed.store(1);
    return 0;
}

bool Socket::find_request(std::uint64_t& request) {
    for (auto& each : channel_->pending) {
        request = each.exchange(0);
        if (request != 0) return true;
    }
    return false;
}

bool Socket::answer(std::uint64_t request, Socket& into) {
    auto peer = port_->peer(destid_of(request), true);
    if (peer == nullptr) return false;
    Channel* theirs = find_channel(peer->block(), channel_of(request));
    if (theirs == nullptr) return false;
    std::uint64_t state = state_of(Channel::connecting, id_, port_->destid(), serial_of(request));
    if (theirs->state.load() != state) return false;
    if (into.take_channel(0) != 0) return false;
    if (into.make_ring() == 0 && into.join(peer, *theirs) == 0) {
        into.remote_channel_ = channel_of(request);
        into.channel_->state.store(
            state_of(Channel::connected, channel_of(request), destid_of(request), serial_of(request)));
        const std::uint64_t accepted = state_of(Channel::connected, into.id_, port_->destid(), serial_of(request));
        if (theirs->state.compare_exchange_strong(state, accepted)) {
            wake(*theirs);
            return true;
        }
    }
    into.give_up_channel();
    into.peer_ring_ = into.ring_ = nullptr;
    into.peer_.reset();
    return false;
}

std::unique_ptr<softrio::Socket> Port::make_socket() {
    return std::make_unique<Socket>(shared_from_this());
}

int Socket::accept(softrio::Socket& connection, std::uint32_t timeout_ms, const volatile int* stop) {
    auto& into = static_cast<Socket&>(connection);  // of the same port
    if (channel_ == nullptr || kind_of(channel_->state.load()) != Channel::listening || into.channel_ != nullptr)
        return -EINVAL;
    Patience patience(timeout_ms, stop);
    while (true) {
        const std::uint32_t before = channel_->wake.load();
        std::uint64_t request = 0;
        while (find_request(request)) {
            if (answer(request, into)) return 0;
        }
        if (!patience.wait(channel_->wake, before, slice_ms)) return -ETIME;
    }
}

int Socket::wait_for_answer(std::uint32_t destid, std::uint16_t channel, std::uint64_t mine, Patience& patience) {
    const std::uint64_t request = request_of(id_, port_->destid(), serial_of(mine));
    std::atomic<std::uint64_t>* queued = nullptr;
    std::shared_ptr<Peer> asked;
    while (true) {
        const std::uint32_t before = channel_->wake.load();
        if (channel_->state.load() != mine) return 0;
        auto peer = port_->peer(destid, true);
        if (peer == nullptr) return -ENODEV;
        // Asked once, and again if that endpoint, or its socket, has begun anew.
        if (asked != peer || queued == nullptr || (queued->load() != request && channel_->state.load() == mine)) {
            asked = peer;
            queued = nullptr;
            Channel* listener = find_channel(peer->block(), channel);
            if (listener != nullptr && kind_of(listener->state.load()) == Channel::listening) {
                for (auto& each : listener->pending) {
                    std::uint64_t free = 0;
                    if (each.load() != request && !each.compare_exchange_strong(free, request)) continue;
                    queued = &each;
                    wake(*listener);
                    break;
                }
            }
        }
        if (!patience.wait(channel_->wake, before, slice_ms)) {
            std::uint64_t withdrawn = request;
            if (queued != nullptr) queued->compare_exchange_strong(withdrawn, 0);
            return -ETIME;
        }
    }
}

int Socket::connect(std::uint32_t destid, std::uint16_t channel, const volatile int* stop) {
    if (!is_destid(destid) || channel == 0) return -EINVAL;
    if (channel_ == nullptr) {
        if (const int error = take_channel(0)) return error;
    }
    const Channel::Kind kind = kind_of(channel_->state.load());
    if (kind == Channel::connected) return -EISCONN;
    if (kind != Channel::bound) return -EINVAL;
    if (const int error = make_ring()) return error;
    std::uint64_t mine = state_of(Channel::connecting, channel, destid, ++serials);
    channel_->state.store(mine);
    Patience patience(connect_ms, stop);
    int error = wait_for_answer(destid, channel, mine, patience);
    const std::uint64_t idle = state_of(Channel::bound, 0, 0, 0);
    // Not accepted by now: never.
    if (error != 0 && channel_->state.compare_exchange_strong(mine, idle)) return error;
    const std::uint64_t state = channel_->state.load();
    remote_channel_ = channel_of(state);
    auto peer = port_->peer(destid);
    Channel* theirs = peer == nullptr ? nullptr : find_channel(peer->block(), remote_channel_);
    const std::uint64_t expected = state_of(Channel::connected, id_, port_->destid(), serial_of(state));
    if (theirs != nullptr && theirs->state.load() == expected && join(std::move(peer), *theirs) == 0) return 0;
    // It was accepted, and the other side has ended since; what it sent before is here to be received.
    return join_nobody();
}

bool Socket::is_lost() const {
    return ring_->writer_closed.load() != 0 || peer_ring_->reader_closed.load() != 0 || peer_ == nullptr ||
           !peer_->is_there_now();
}

int Socket::send(std::span<const std::byte> message, const volatile int* stop) {
    if (message.size() < min_message || message.size() > max_message) return -EINVAL;
    const std::lock_guard lock(sending_);
    if (peer_ring_ == nullptr) return -ENOTCONN;
    Patience patience(stop == nullptr ? 0 : send_ms, stop);
    while (true) {
        if (peer_ring_->reader_closed.load() != 0 || peer_ == nullptr || !peer_->is_there()) return -ECONNRESET;
        const std::uint32_t read = peer_ring_->read.load(std::memory_order_acquire);
        if (written_ - read < ring_depth) break;
        if (written_ - read > ring_depth) return -ECONNRESET;  // what it says makes no sense
        peer_ring_->writer_sleeps.store(1);
        if (peer_ring_->read.load() != read) continue;
        if (is_lost()) return -ECONNRESET;
        if (!patience.wait(peer_ring_->read, read, slice_ms)) return -ETIME;
    }
    Message& place = peer_ring_->messages[written_ % ring_depth];
    place.bytes = static_cast<std::uint32_t>(message.size());
    std::memcpy(place.data.data() + min_message, message.data() + min_message, message.size() - min_message);
    write_header(place.data.data(), port_->destid(), peer_->destid(), id_, remote_channel_,
                 static_cast<std::uint32_t>(message.size()));
    ++written_;
    peer_ring_->written.store(written_, std::memory_order_seq_cst);
    if (peer_ring_->reader_sleeps.load(std::memory_order_seq_cst) != 0) {
        peer_ring_->reader_sleeps.store(0);
        futex_wake(peer_ring_->written);
    }
    return 0;
}

int Socket::receive(std::span<std::byte> into, std::uint32_t timeout_ms, const volatile int* stop) {
    const std::lock_guard lock(receiving_);
    if (ring_ == nullptr || peer_ring_ == nullptr) return -ENOTCONN;
    Patience patience(timeout_ms, stop);
    std::uint32_t written = 0;
    while ((written = ring_->written.load(std::memory_order_acquire)) == read_) {
        const bool lost = is_lost();
        ring_->reader_sleeps.store(1);
        if (ring_->written.load() != read_) continue;
        if (lost) return -ECONNRESET;
        if (!patience.wait(ring_->written, read_, slice_ms)) return -ETIME;
    }
    const Message& place = ring_->messages[read_ % ring_depth];
    // Looked at once: whoever wrote it may change it.
    const std::uint32_t bytes = reinterpret_cast<const std::atomic<std::uint32_t>&>(place.bytes).load();
    if (written - read_ > ring_depth || bytes < min_message || bytes > max_message) return -ECONNRESET;
    std::memcpy(into.data(), place.data.data(), bytes);
    ++read_;
    ring_->read.store(read_, std::memory_order_seq_cst);
    if (ring_->writer_sleeps.load(std::memory_order_seq_cst) != 0) {
        ring_->writer_sleeps.store(0);
        futex_wake(ring_->read);
    }
    return 0;
}

}  // namespace incast::softrio::shm
