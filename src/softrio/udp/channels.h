// Channelised messages over RapidIO MESSAGE packets. A message begins with 20 bytes in network order, laid out as
// Linux's rio_cm does: source id, destination id (u32), two mailboxes, type, operation (u8), destination channel,
// source channel, length, and a word that Linux reserves (u16): the number of a request to connect, or how many
// messages were read.
//
// A side may send 128 messages more than the other has said that it has read: nothing is refused, nothing overflows.
// All calls are made under the lock of the port.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "softrio/limits.h"
#include "softrio/port.h"

namespace incast::softrio::udp {

class Engine;
class Port;

enum class ChannelOperation : std::uint8_t { request = 0, accept = 1, close = 2, data = 3, credit = 4 };

struct CmHeader {
    std::uint32_t source = 0;
    std::uint32_t target = 0;
    ChannelOperation operation = ChannelOperation::data;
    std::uint16_t target_channel = 0;
    std::uint16_t source_channel = 0;
    std::uint16_t bytes = 0;
    std::uint16_t word = 0;
};

/// False: the message does not begin with one.
bool read_header(std::span<const std::byte> message, CmHeader& header);
/// 20 bytes.
void write_header(const CmHeader& header, std::byte* at);
/// The other side is told of so many messages read at once, if it does not wait for the first.
inline constexpr std::uint32_t credit_step = 32;

struct Asked {
    std::uint32_t destid = 0;
    std::uint16_t channel = 0;
    std::uint16_t serial = 0;
    bool operator==(const Asked&) const = default;
};

struct Channel {
    enum class State : std::uint8_t { bound, listening, connecting, connected, lost };
    State state = State::bound;
    std::uint16_t id = 0;
    Asked remote;
    std::deque<Asked> pending;  // listening
    // Messages that were received and not read, from number read on.
    std::unique_ptr<std::array<std::array<std::byte, max_message>, ring_depth>> ring;
    std::uint32_t received = 0;
    std::uint32_t read = 0;
    std::uint32_t told = 0;  // the other side knows of so many read
    std::uint32_t sent = 0;
    std::uint32_t freed = 0;  // of these the other side has read so many

    void connect(const Asked& to);
    [[nodiscard]] bool may_send() const { return sent - freed < ring_depth; }
};

class Channels {
public:
    explicit Channels(Engine& engine) : engine_(&engine) {}

    Channel* find(std::uint16_t id);
    /// `id` 0: a free one. nullptr, with `error`: -EBUSY, -ENOMEM.
    Channel* take(std::uint16_t id, int& error);
    void give_up(std::uint16_t id) { channels_.erase(id); }

    void take_message(std::uint32_t source, std::span<const std::byte> message);
    void lose_peer(std::uint32_t destid);
    /// Says `operation` to the remote side of a channel. False: no room now.
    bool say(const Channel& channel, ChannelOperation operation, std::uint16_t word);
    bool send_data(Channel& channel, std::span<const std::byte> message);

private:
    void take_request(const CmHeader& header);
    void answer_close(const CmHeader& header);

    Engine* engine_;
    std::map<std::uint16_t, Channel> channels_;
};

/// One socket of a udp port.
class CmSocket final : public softrio::Socket {
public:
    explicit CmSocket(std::shared_ptr<Port> port) : port_(std::move(port)) {}
    ~CmSocket() override;
    CmSocket(const CmSocket&) = delete;
    CmSocket& operator=(const CmSocket&) = delete;

    [[nodiscard]] bool is_usable() const override;
    int bind(std::uint16_t channel) override;
    int listen() override;
    int accept(Socket& into, std::uint32_t timeout_ms, const volatile int* stop) override;
    int connect(std::uint32_t destid, std::uint16_t channel, const volatile int* stop) override;
    int send(std::span<const std::byte> message, const volatile int* stop) override;
    int receive(std::span<std::byte> into, std::uint32_t timeout_ms, const volatile int* stop) override;

private:
    int ask(std::unique_lock<std::mutex>& lock, const volatile int* stop);
    /// Credits for what was read, once they are worth a message, or the sender waits for them.
    void tell_read(Channel& channel);

    std::shared_ptr<Port> port_;
    std::uint16_t id_ = 0;  // 0: it has no channel
};

}  // namespace incast::softrio::udp
