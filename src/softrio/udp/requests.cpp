// What a port asks of peers: transfers, doorbells, registers.
#include <algorithm>
#include <cerrno>

#include "softrio/udp/port.h"

namespace incast::softrio::udp {

namespace {

using wire::Operation;
using wire::Packet;

constexpr std::uint8_t ordered_lane = 1;
constexpr std::uint8_t first_dma_lane = 2;
constexpr std::size_t driven_bytes = 65'536;  // a transfer of that size is worth it

}  // namespace

template <class Attempt>
bool Port::persist(Lock& lock, std::uint32_t destid, std::uint32_t losses, Attempt&& attempt) {
    while (engine_->losses(destid) == losses) {
        if (attempt()) return true;
        wait(lock);
    }
    return false;
}

int Port::finish(Lock& lock, const Request& request) {
    while (!request.is_done())
        wait(lock);
    return request.error;
}

int Port::transfer(const Transfer& transfer) {
    auto held = lock();
    if (const int error = connect(held, transfer.destid)) return error;
    const std::uint32_t losses = engine_->losses(transfer.destid);
    const bool becomes_driver = transfer.bytes.size() >= driven_bytes && driver_ == std::thread::id();
    if (becomes_driver) begin_driving();
    const int error =
        transfer.direction == Direction::write ? write(held, transfer, losses) : read(held, transfer, losses);
    if (becomes_driver) end_driving();
    return error;
}

int Port::write(Lock& lock, const Transfer& transfer, std::uint32_t losses) {
    const bool is_strict = options_.order == Options::Order::strict;
    const auto lane = static_cast<std::uint8_t>(is_strict ? ordered_lane : first_dma_lane + transfer.channel);
    Request request;
    Packet packet;
    const auto begin = [&] { return engine_->begin(transfer.destid, request, {}, packet.transaction); };
    // All packets of a transfer carry the transaction of its response: that one says if any of them fell outside.
    if (transfer.has_response && !transfer.answers_each && !persist(lock, transfer.destid, losses, begin))
        return -ENODEV;
    packet.address = transfer.address;
    const Operation unanswered =
        transfer.is_streaming && !transfer.has_response ? Operation::swrite : Operation::nwrite;
    packet.operation = unanswered;
    const wire::WriteRun run = engine_->run_to(transfer.destid, packet);
    // What one call of the socket takes.
    const std::size_t burst_bytes =
        engine_->run_bytes_per_datagram() * datagram::Socket::datagrams_per_piece(engine_->datagram_bytes());
    auto left = std::span<const std::byte>(transfer.bytes);
    bool is_lost = false;
    for (std::size_t filled = 0; !left.empty() && !is_lost;) {
        std::size_t bytes = 0;
        // All but the last packet are alike, from a double word on.
        const bool is_run = !transfer.answers_each && packet.address % wire::double_word == 0;
        if (const std::size_t alike = (left.size() - 1) / wire::max_payload * wire::max_payload; is_run && alike != 0) {
            const auto part = left.first(std::min(alike, burst_bytes));
            is_lost = !persist(lock, transfer.destid, losses, [&] {
                bytes = engine_->send_run(transfer.destid, lane, run, packet.address, part);
                return bytes != 0;
            });
        } else {
            bytes = wire::piece(packet.address, left.size(), false);
            const bool is_answered = transfer.has_response && (transfer.answers_each || bytes == left.size());
            packet.operation = is_answered ? Operation::nwrite_r : unanswered;
            packet.bytes = static_cast<std::uint16_t>(bytes);
            packet.data = left.first(bytes);
            if (transfer.answers_each) is_lost = !persist(lock, transfer.destid, losses, begin);
            const auto send = [&] { return engine_->send(transfer.destid, lane, packet); };
            is_lost = is_lost || !persist(lock, transfer.destid, losses, send);
        }
        left = left.subspan(bytes);
        packet.address += bytes;
        filled += bytes;
        if (filled < burst_bytes) continue;
        filled = 0;
        pump();
        breathe(lock);
    }
    pump();
    const int error = finish(lock, request);
    return is_lost ? -ENODEV : error;
}

int Port::read(Lock& lock, const Transfer& transfer, std::uint32_t losses) {
    const bool is_strict = options_.order == Options::Order::strict;
    const auto lane = static_cast<std::uint8_t>(is_strict ? ordered_lane : first_dma_lane + transfer.channel);
    Request request;
    Packet packet;
    packet.operation = Operation::nread;
    packet.address = transfer.address;
    bool is_lost = false;
    for (auto left = transfer.bytes; !left.empty() && !is_lost && request.error == 0;) {
        const std::size_t bytes = wire::piece(packet.address, left.size(), true);
        packet.bytes = static_cast<std::uint16_t>(bytes);
        is_lost = !persist(lock, transfer.destid, losses, [&] {
            return engine_->begin(transfer.destid, request, {left.data(), packet.address, packet.bytes},
                                  packet.transaction);
        }) || !persist(lock, transfer.destid, losses, [&] { return engine_->send(transfer.destid, lane, packet); });
        left = left.subspan(bytes);
        packet.address += bytes;
    }
    pump();
    const int error = finish(lock, request);
    return is_lost ? -ENODEV : error;
}

int Port::map_outbound(std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t&) {
    return -EOPNOTSUPP;
}

int Port::send_doorbell(const Doorbell& doorbell, bool wait) {
    const std::int64_t until = shm::now_ms() + options_.retry_ms;
    while (true) {
        auto held = lock();
        if (const int error = connect(held, doorbell.destid)) return error;
        const std::uint32_t losses = engine_->losses(doorbell.destid);
        Request request;
        Packet packet;
        packet.operation = Operation::doorbell;
        packet.info = doorbell.payload;
        const bool is_sent =
            persist(held, doorbell.destid, losses,
                    [&] { return engine_->begin(doorbell.destid, request, {}, packet.transaction); }) &&
            persist(held, doorbell.destid, losses,
                    [&] { return engine_->send(doorbell.destid, ordered_lane, packet); });
        pump();
        const int error = finish(held, request);
        if (!is_sent) return -ENODEV;
        // The answer is RETRY: the sender tries again.
        if (error != -EAGAIN || !wait || shm::now_ms() >= until) return error;
        held.unlock();
        const timespec moment{0, 200'000};
        ::nanosleep(&moment, nullptr);
    }
}

int Port::access_registers(std::uint32_t destid, wire::Operation operation, std::uint32_t offset,
                           std::span<std::uint32_t> values) {
    auto held = lock();
    if (const int error = connect(held, destid)) return error;
    const std::uint32_t losses = engine_->losses(destid);
    const bool is_read = operation == Operation::maintenance_read;
    Request request;
    Packet packet;
    packet.operation = operation;
    packet.hop_count = 0xFF;
    packet.bytes = sizeof(std::uint32_t);
    bool is_lost = false;
    for (std::size_t index = 0; index < values.size() && !is_lost; ++index) {
        const auto bytes = std::as_writable_bytes(values.subspan(index, 1));
        packet.address = offset + index * sizeof(std::uint32_t);
        if (!is_read) packet.data = bytes;
        const Landing landing = is_read ? Landing{bytes.data(), packet.address, packet.bytes} : Landing{};
        is_lost = !persist(held, destid, losses, [&] {
            return engine_->begin(destid, request, landing, packet.transaction);
        }) || !persist(held, destid, losses, [&] { return engine_->send(destid, ordered_lane, packet); });
    }
    pump();
    const int error = finish(held, request);
    return is_lost ? -ENODEV : error;
}

int Port::read_registers(std::uint32_t destid, std::uint32_t offset, std::span<std::uint32_t> values) {
    if (destid == this->destid()) return own_->read_registers(destid, offset, values);
    const int error = access_registers(destid, Operation::maintenance_read, offset, values);
    for (std::uint32_t& value : values)
        value = __builtin_bswap32(value);
    return error;
}

int Port::write_register(std::uint32_t destid, std::uint32_t offset, std::uint32_t value) {
    if (destid == this->destid()) {
        return offset == base_device_id_register ? set_destid(value & 0xFFFF)
                                                 : own_->write_register(destid, offset, value);
    }
    std::uint32_t big_endian = __builtin_bswap32(value);
    const int error = access_registers(destid, Operation::maintenance_write, offset, {&big_endian, 1});
    return error == -EIO ? -EPERM : error;
}

int Port::send_letter(std::uint32_t destid, std::uint8_t mailbox, std::span<const std::byte> message) {
    auto held = lock();
    if (const int error = connect(held, destid)) return error;
    const bool is_sent = persist(held, destid, engine_->losses(destid),
                                 [&] { return engine_->send_message(destid, ordered_lane, message, mailbox); });
    pump();
    return is_sent ? 0 : -ENODEV;
}

std::unique_ptr<softrio::Socket> Port::make_socket() {
    return std::make_unique<CmSocket>(shared_from_this());
}

}  // namespace incast::softrio::udp
