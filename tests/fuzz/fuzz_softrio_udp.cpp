// A lying peer of a udp endpoint of SoftRIO: the whole way in, from datagrams to windows, doorbells, registers,
// messages and responses. The input is a script: datagrams as they are, replays, forged headers and addresses, and
// RapidIO packets of any content within a session that is real. Whatever comes: nothing outside the window is written,
// nothing is taken for somebody else's, and the endpoint goes on.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "softrio/udp/channels.h"
#include "softrio/udp/engine.h"

using namespace incast::softrio;
using namespace incast::softrio::udp;
namespace reliable = incast::reliable;

namespace {

constexpr std::uint64_t window_at = 0x1000;
constexpr std::size_t page = 0x1000;
constexpr std::uint32_t own_id = 1;
constexpr std::uint32_t peer_id = 2;

void insist(bool good) {
    if (!good) std::abort();
}

class Script {
public:
    Script(const std::uint8_t* data, std::size_t size) : data_(data, size) {}
    [[nodiscard]] bool is_over() const { return data_.empty(); }
    std::uint8_t byte() {
        if (data_.empty()) return 0;
        const std::uint8_t value = data_[0];
        data_ = data_.subspan(1);
        return value;
    }
    std::uint64_t number(int bytes) {
        std::uint64_t value = 0;
        for (int index = 0; index < bytes; ++index)
            value = value << 8 | byte();
        return value;
    }
    std::span<const std::byte> bytes(std::size_t most) {
        const auto taken = data_.first(std::min(data_.size(), most));
        data_ = data_.subspan(taken.size());
        return std::as_bytes(taken);
    }

private:
    std::span<const std::uint8_t> data_;
};

/// A page of memory that is a window, between two that are not.
class Own : public Target {
public:
    std::span<std::byte> window(std::uint32_t source, Direction, std::uint64_t address, std::size_t bytes) override {
        insist(source == peer_id);
        if (address < window_at || address - window_at > page || bytes > page - (address - window_at)) return {};
        return std::span(memory_).subspan(page + (address - window_at), bytes);
    }
    wire::Status ring(std::uint32_t source, std::uint16_t info) override {
        insist(source == peer_id);
        return info % 3 == 0 ? wire::Status::retry : wire::Status::done;
    }
    std::uint32_t read_register(std::uint32_t offset) override {
        insist(offset % 4 == 0 && offset < 1U << 24);
        return offset;
    }
    wire::Status write_register(std::uint32_t offset, std::uint32_t) override {
        insist(offset % 4 == 0 && offset < 1U << 24);
        return wire::Status::done;
    }
    void take_message(std::uint32_t source, std::span<const std::byte> message) override {
        insist(source == peer_id && message.size() <= max_message);
        channels->take_message(source, message);
    }
    void lose_peer(std::uint32_t destid, reliable::Loss) override { channels->lose_peer(destid); }

    void check() const {
        const auto is_zero = [](std::byte each) { return each == std::byte{0}; };
        insist(std::all_of(memory_.begin(), memory_.begin() + page, is_zero));
        insist(std::all_of(memory_.end() - page, memory_.end(), is_zero));
    }

    Channels* channels = nullptr;

private:
    std::array<std::byte, 3 * page> memory_{};
};

class Play {
public:
    Play()
        : directory_(*Directory::parse("1=127.0.0.1:1,2=127.0.0.2:1,3=127.0.0.3:1")),
          engine_({.destid = own_id, .has_small_ids = false, .session = settings()}, directory_, own_,
                  [this] { return random_ += 0x1234'5678'9ABC'0000; }),
          channels_(engine_),
          peer_(settings(), 0, greeting()) {
        own_.channels = &channels_;
        int error = 0;
        channels_.take(70, error)->state = Channel::State::listening;
        peer_.open(now_ns_, 0x7777'0000);
        exchange();
        insist(peer_.is_established());
    }

    void run(Script script) {
        while (!script.is_over())
            step(script);
        // It goes on: a new life of the peer writes where it may.
        peer_ = reliable::Connection(settings(), 0, greeting());
        peer_.open(now_ns_, 0x8888'0000);
        exchange();
        exchange();
        insist(peer_.is_established());
        std::array<std::byte, 8> data{std::byte{42}};
        wire::Packet packet;
        packet.operation = wire::Operation::nwrite;
        packet.destination = own_id;
        packet.source = peer_id;
        packet.address = window_at;
        packet.bytes = 8;
        packet.data = data;
        say(packet);
        exchange();
        insist(own_.window(peer_id, Direction::read, window_at, 1)[0] == std::byte{42});
        own_.check();
        insist(request_.outstanding <= 255);
    }

private:
    static reliable::Settings settings() { return {.datagram_bytes = 1472, .window_packets = 512}; }
    static std::span<const std::byte> greeting() {
        static constexpr std::array<std::uint16_t, 2> ids = {peer_id, own_id};
        return std::as_bytes(std::span(ids));
    }
    [[nodiscard]] Address address_of(std::uint32_t destid) const {
        const auto found = directory_.find(destid);
        if (!found) std::abort();
        return *found;
    }
    [[nodiscard]] Address peer_address() const { return address_of(peer_id); }

    void say(const wire::Packet& packet) {
        if (peer_.room() == 0) return;
        const auto body = peer_.body();
        const std::size_t bytes = wire::encode(packet, body.data() + 2);
        body[0] = static_cast<std::byte>(bytes >> 8);
        body[1] = static_cast<std::byte>(bytes);
        peer_.add(1, bytes + 2);
    }

    /// What both have to say goes over, until they are silent.
    void exchange() {
        for (int round = 0; round < 4; ++round) {
            while (true) {
                const auto out = peer_.next_datagram(now_ns_);
                if (out.bytes.empty()) break;
                last_.assign(out.bytes.begin(), out.bytes.end());
                engine_.receive(now_ns_, peer_address(), last_);
            }
            engine_.collect(now_ns_, [&](const Engine::Output& output) {
                const auto packet = reliable::parse(output.bytes);
                insist(packet.has_value());
                if (output.to != peer_address()) return;
                (void)peer_.receive(now_ns_, 0x6666'0000, *packet);
                while (peer_.next_delivery()) {
                }
                (void)peer_.take_loss();
            });
        }
    }

    void step(Script& script) {
        switch (script.byte() % 9) {
            case 0:  // any datagram, from anybody
                engine_.receive(now_ns_, address_of(1 + script.byte() % 3), script.bytes(script.byte()));
                break;
            case 1: {  // any body within the session
                const auto bytes = script.bytes(script.byte());
                if (peer_.room() == 0) break;
                std::copy(bytes.begin(), bytes.end(), peer_.body().begin());
                peer_.add(script.byte() % reliable::max_lanes, bytes.size());
                break;
            }
            case 2:
                say(any_packet(script));
                break;
            case 3: {  // a replay, of which some bytes are others
                std::vector<std::byte> bytes = last_;
                for (int count = script.byte() % 4; count > 0 && !bytes.empty(); --count) {
                    const std::size_t at = script.byte() % std::min<std::size_t>(bytes.size(), 64);
                    bytes[at] = std::byte{script.byte()};
                }
                engine_.receive(now_ns_, address_of(script.byte() % 4 == 0 ? 3 : peer_id), bytes);
                break;
            }
            case 4:
                now_ns_ += static_cast<std::int64_t>(script.number(2)) * 10'000;
                peer_.advance(now_ns_);
                (void)peer_.take_loss();
                engine_.advance(now_ns_);
                break;
            case 5: {  // a request of this endpoint's, which the peer may answer as it likes
                std::uint8_t transaction = 0;
                if (!engine_.open(now_ns_, peer_id)) break;
                const Landing landing{landing_.data(), script.number(1), static_cast<std::uint16_t>(1 + script.byte())};
                (void)engine_.begin(peer_id, request_, landing, transaction);
                break;
            }
            case 6:
                engine_.refuse(peer_address(), script.bytes(64));
                break;
            case 7: {  // a channel message: any header
                std::array<std::byte, 32> message{};
                const auto bytes = script.bytes(message.size());
                std::copy(bytes.begin(), bytes.end(), message.begin());
                message[3] = std::byte{peer_id};
                message[10] = std::byte{0x55};
                wire::Packet packet;
                packet.operation = wire::Operation::message;
                packet.destination = own_id;
                packet.source = peer_id;
                packet.data = message;
                say(packet);
                break;
            }
            default:
                exchange();
                own_.check();
        }
    }

    wire::Packet any_packet(Script& script) {
        wire::Packet packet;
        packet.operation = static_cast<wire::Operation>(script.byte() % 12);
        packet.has_small_ids = script.byte() % 4 == 0;
        packet.destination = script.byte() % 8 == 0 ? script.byte() : own_id;
        packet.source = script.byte() % 8 == 0 ? script.byte() : peer_id;
        packet.transaction = script.byte();
        packet.status = static_cast<wire::Status>(script.byte() & 15);
        // Mostly near the ends of the window.
        packet.address = script.byte() % 4 == 0 ? script.number(8) : window_at - 16 + script.number(2) % (page + 32);
        const bool is_read = packet.operation == wire::Operation::nread;
        std::size_t bytes = wire::piece(packet.address, 1 + script.number(2) % 300, is_read);
        packet.info = static_cast<std::uint16_t>(script.number(2));
        packet.segment = script.byte() & 15;
        packet.last_segment = script.byte() & 15;
        if (packet.operation > wire::Operation::swrite) bytes = std::min<std::size_t>(bytes, 256);
        if (packet.operation == wire::Operation::maintenance_read ||
            packet.operation == wire::Operation::maintenance_write ||
            packet.operation == wire::Operation::maintenance_read_response) {
            packet.address = packet.address % (1U << 24) & ~std::uint64_t{3};
            bytes = 4;
        }
        packet.bytes = static_cast<std::uint16_t>(bytes);
        const bool has_data =
            packet.operation != wire::Operation::nread && packet.operation != wire::Operation::maintenance_read &&
            packet.operation != wire::Operation::maintenance_write_response &&
            packet.operation != wire::Operation::doorbell && packet.operation != wire::Operation::response;
        if (has_data) packet.data = std::span(data_).first(bytes);
        return packet;
    }

    std::uint64_t random_ = 1;
    std::int64_t now_ns_ = 1'000'000'000;
    Own own_;
    Directory directory_;
    Engine engine_;
    Channels channels_;
    reliable::Connection peer_;
    Request request_;
    std::array<std::byte, 256> landing_{};
    std::array<std::byte, 256> data_ = [] {
        std::array<std::byte, 256> bytes;
        bytes.fill(std::byte{0xA5});
        return bytes;
    }();
    std::vector<std::byte> last_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Play play;
    play.run(Script(data, size));
    return 0;
}
