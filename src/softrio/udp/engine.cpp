#include "softrio/udp/engine.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/prefetch.h"
#include "softrio/limits.h"
#include "softrio/options.h"

namespace incast::softrio::udp {

namespace {

using wire::Operation;
using wire::Packet;
using wire::Status;

constexpr std::size_t length_bytes = 2;
constexpr std::uint32_t slot_bytes = length_bytes + wire::max_packet;
/// The most datagrams that the answers to one datagram take. With less room nothing is taken in.
constexpr std::uint32_t answers_to_one = 20;
/// Of a session's window, for responses alone: 255 requests of the peer can be without one, each in a datagram of its
/// own. With them all there is still room to take in what this side waits for: else two that wait for room, both full
/// of answers for the other, would wait for each other.
constexpr std::uint32_t reserve_for_responses = 255 + answers_to_one + 1;
/// And for messages, doorbells and registers, however much is being written and read: the largest message has 16
/// packets, which may need a datagram each.
constexpr std::uint32_t reserve_for_messages = 20;
/// What is packed comes from memory, and what the CPU fetches by itself ends with each page.
constexpr std::size_t fetch_ahead_bytes = 4096;
constexpr std::uint64_t nonce_mask = 0xFFFF;

/// What others keep free, of a packet of a request.
std::uint32_t reserve_of(Operation operation) {
    switch (operation) {
        case Operation::nread:
        case Operation::nwrite:
        case Operation::nwrite_r:
        case Operation::swrite:
            return reserve_for_responses + reserve_for_messages;
        default:
            return reserve_for_responses;
    }
}

int error_of(Status status) {
    return status == Status::done ? 0 : status == Status::retry ? -EAGAIN : -EIO;
}

void put_length(std::size_t bytes, std::byte* at) {
    at[0] = static_cast<std::byte>(bytes >> 8);
    at[1] = static_cast<std::byte>(bytes);
}

/// What the packet at the begin of `body` has, or more than there is.
std::size_t length_of(std::span<const std::byte> body) {
    return static_cast<std::size_t>(body[0]) << 8 | static_cast<std::size_t>(body[1]);
}

}  // namespace

Engine::Engine(const Settings& settings, const Directory& directory, Target& target,
               std::function<std::uint64_t()> random)
    : settings_(settings), directory_(&directory), target_(&target), random_(std::move(random)) {
    answers_.reserve(max_answers);
}

Engine::Peer* Engine::find(std::uint32_t destid) const {
    if (last_ != nullptr && last_->destid == destid) return last_;
    const auto found = peers_.find(destid);
    if (found == peers_.end()) return nullptr;
    last_ = found->second.get();
    return last_;
}

Engine::Peer* Engine::find_or_make(std::uint32_t destid) {
    Peer* known = find(destid);
    if (known != nullptr && !known->connection.is_idle()) return known;
    const auto address = directory_->find(destid);
    if (known != nullptr) {
        known->address = address.value_or(Address{});
        return address ? known : nullptr;
    }
    const bool fits = !settings_.has_small_ids || destid < small_any_destid;
    if (!address || !fits || by_index_.size() > UINT16_MAX) return nullptr;
    std::array<std::byte, 2 * sizeof(std::uint16_t)> greeting;
    const std::array<std::uint16_t, 2> ids = {static_cast<std::uint16_t>(settings_.destid),
                                              static_cast<std::uint16_t>(destid)};
    std::memcpy(greeting.data(), ids.data(), greeting.size());
    auto made = std::make_unique<Peer>(settings_.session, static_cast<std::uint16_t>(by_index_.size()), greeting,
                                       destid, *address);
    made->message.reserve(max_message);
    Peer* peer = made.get();
    by_index_.push_back(peer);
    peers_.emplace(destid, std::move(made));
    return peer;
}

reliable::SendCounters Engine::send_counters() const {
    reliable::SendCounters sum;
    for (const auto& [destid, peer] : peers_) {
        const auto& one = peer->connection.send_counters();
        sum.sent += one.sent;
        sum.repeated += one.repeated;
        sum.timeouts += one.timeouts;
    }
    return sum;
}

bool Engine::open(std::int64_t now_ns, std::uint32_t destid) {
    Peer* peer = find_or_make(destid);
    if (peer == nullptr) return false;
    if (peer->connection.is_idle()) peer->connection.open(now_ns, random_());
    return true;
}

void Engine::relocate(std::uint32_t destid) {
    Peer* peer = find(destid);
    if (peer == nullptr || directory_->find(destid) == peer->address) return;
    peer->connection.give_up();
    look_for_loss(*peer);
}

std::uint32_t Engine::losses(std::uint32_t destid) const {
    const Peer* peer = find(destid);
    return restarts_ + (peer == nullptr ? 0 : peer->losses);
}

bool Engine::is_settled(std::uint32_t destid) const {
    const Peer* peer = find(destid);
    return peer == nullptr || (peer->used == 0 && peer->connection.is_settled());
}

void Engine::close_all() {
    for (auto& [destid, peer] : peers_) {
        peer->connection.close();
        drop_session(*peer, reliable::Loss::closed);
    }
}

void Engine::restart(std::uint32_t destid) {
    last_ = nullptr;
    by_index_.clear();
    peers_.clear();
    settings_.destid = destid;
    restarts_ += 1U << 16;
}

void Engine::begin_probes(std::uint64_t random, std::vector<std::uint32_t> candidates) {
    nonce_ = random & ~nonce_mask;
    unanswered_ = std::move(candidates);
    alive_.clear();
}

std::optional<std::uint32_t> Engine::probed(std::uint64_t token) const {
    if (nonce_ == 0 || (token & ~nonce_mask) != nonce_) return std::nullopt;
    return static_cast<std::uint32_t>(token & nonce_mask);
}

Engine::Output Engine::probe(std::uint32_t destid) {
    reliable::Packet packet;
    packet.kind = reliable::Kind::ping;
    packet.token = nonce_ | destid;
    write_header(packet, probe_.data());
    return {directory_->find(destid).value_or(Address{}), probe_, false};
}

std::vector<std::uint32_t> Engine::alive() const {
    auto ids = alive_;
    std::ranges::sort(ids);
    return ids;
}

void Engine::close_datagram(Peer& peer) {
    if (peer.used == 0) return;
    peer.connection.add(peer.lane, std::exchange(peer.used, 0));
}

std::byte* Engine::room_for(Peer& peer, std::uint8_t lane, std::size_t reserve) {
    if (peer.used != 0 && (peer.lane != lane || peer.connection.body().size() - peer.used < slot_bytes)) {
        close_datagram(peer);
    }
    if (peer.connection.room() <= reserve) return nullptr;
    peer.lane = lane;
    return peer.connection.body().data() + peer.used;
}

void Engine::address(Packet& packet, std::uint32_t destid) const {
    packet.has_small_ids = settings_.has_small_ids;
    packet.destination = static_cast<std::uint16_t>(destid);
    packet.source = static_cast<std::uint16_t>(settings_.destid);
}

void Engine::pack(Peer& peer, const Packet& packet, std::byte* at) {
    const std::size_t bytes = wire::encode(packet, at + length_bytes);
    put_length(bytes, at);
    peer.used += length_bytes + bytes;
}

bool Engine::begin(std::uint32_t destid, Request& request, const Landing& landing, std::uint8_t& transaction) {
    Peer* peer = find(destid);
    if (peer == nullptr) return false;
    // 0 is for writes that nobody answers.
    for (int tries = 0; tries < 255; ++tries) {
        peer->last_transaction = peer->last_transaction == 255 ? 1 : peer->last_transaction + 1;
        Waiting& one = peer->waiting[peer->last_transaction];
        if (one.request != nullptr) continue;
        one = {&request, landing};
        ++request.outstanding;
        transaction = peer->last_transaction;
        return true;
    }
    return false;
}

bool Engine::send(std::uint32_t destid, std::uint8_t lane, Packet& packet) {
    Peer* peer = find(destid);
    std::byte* at = peer == nullptr ? nullptr : room_for(*peer, lane, reserve_of(packet.operation));
    if (at == nullptr) return false;
    address(packet, destid);
    pack(*peer, packet, at);
    return true;
}

std::size_t Engine::send_run(std::uint32_t destid, std::uint8_t lane, const wire::WriteRun& run, std::uint64_t address,
                             std::span<const std::byte> data) {
    Peer* peer = find(destid);
    const std::size_t each = length_bytes + run.packet_bytes();
    std::size_t packed = 0;
    while (peer != nullptr && data.size() - packed >= wire::max_payload) {
        std::byte* at = room_for(*peer, lane, reserve_of(Operation::nwrite));
        if (at == nullptr) break;
        const std::size_t fit = (peer->connection.body().size() - peer->used) / each;
        const std::size_t count = std::min(fit, (data.size() - packed) / wire::max_payload);
        for (std::size_t index = 0; index < count; ++index, at += each, packed += wire::max_payload) {
            base::prefetch(data.data() + packed + fetch_ahead_bytes, wire::max_payload);
            base::prefetch(at + settings_.session.datagram_bytes, each);  // its place in the next datagram
            put_length(run.packet_bytes(), at);
            run.encode(address + packed, data.data() + packed, at + length_bytes);
        }
        peer->used += count * each;
    }
    return packed;
}

wire::WriteRun Engine::run_to(std::uint32_t destid, Packet packet) const {
    address(packet, destid);
    return wire::WriteRun(packet);
}

std::size_t Engine::run_bytes_per_datagram() const {
    return (settings_.session.datagram_bytes - reliable::header_bytes) / slot_bytes * wire::max_payload;
}

std::uint32_t Engine::filled_bytes(std::uint32_t datagram_bytes) {
    const auto header = static_cast<std::uint32_t>(reliable::header_bytes);
    return header + (datagram_bytes - header) / slot_bytes * slot_bytes;
}

bool Engine::send_message(std::uint32_t destid, std::uint8_t lane, std::span<const std::byte> message,
                          std::uint8_t mailbox) {
    Peer* peer = find(destid);
    const std::size_t segments = (message.size() + wire::max_payload - 1) / wire::max_payload;
    // All of it or nothing: segments of two messages are never mixed. Each might need a datagram of its own.
    if (peer == nullptr || peer->connection.room() <= reserve_for_responses + segments + 1) return false;
    for (std::size_t segment = 0; segment < segments; ++segment) {
        const auto data = message.subspan(segment * wire::max_payload);
        Packet packet;
        packet.operation = Operation::message;
        packet.mailbox = mailbox;
        packet.segment = static_cast<std::uint8_t>(segment);
        packet.last_segment = static_cast<std::uint8_t>(segments - 1);
        packet.data = data.first(std::min(data.size(), wire::max_payload));
        (void)send(destid, lane, packet);
    }
    return true;
}

void Engine::respond(Peer& peer, std::uint8_t lane, Packet& packet) {
    address(packet, peer.destid);
    if (std::byte* at = room_for(peer, lane, 0)) pack(peer, packet, at);
}

Engine::Peer* Engine::peer_of(const Address& from, const reliable::Packet& packet) {
    if (const auto greeting = parse_greeting(packet)) {
        std::array<std::uint16_t, 2> ids{};
        if (greeting->text.size() != sizeof ids) return nullptr;
        std::memcpy(ids.data(), greeting->text.data(), sizeof ids);
        const auto address = directory_->find(ids[0]);
        if (ids[1] != settings_.destid || !address) return nullptr;
        if (*address != from) {
            ++counters_.forged;
            return nullptr;
        }
        return find_or_make(ids[0]);
    }
    // Those of sessions that nobody here knows are told so by the token that they took for one.
    if (packet.kind == reliable::Kind::unknown) {
        const auto found = std::ranges::find_if(by_index_, [&](const Peer* each) { return each->address == from; });
        return found == by_index_.end() ? nullptr : *found;
    }
    const std::uint16_t index = reliable::Connection::index_of(packet.token);
    return index < by_index_.size() ? by_index_[index] : nullptr;
}

void Engine::answer_unknown(const Address& to, const reliable::Packet& packet) {
    if (answers_.size() == max_answers) return;
    auto& bytes = answer_bytes_[answers_used_];
    const std::size_t size = reliable::Connection::answer_unknown(packet, bytes);
    if (size == 0) return;
    ++answers_used_;
    answers_.push_back({to, std::span(bytes).first(size), false});
}

void Engine::receive(std::int64_t now_ns, const Address& from, std::span<const std::byte> datagram) {
    const auto packet = reliable::parse(datagram);
    if (!packet) {
        ++counters_.bad_datagrams;
        return;
    }
    if (const auto destid = probed(packet->token); destid && packet->kind == reliable::Kind::unknown) {
        if (directory_->find(*destid) == from && std::erase(unanswered_, *destid) != 0) alive_.push_back(*destid);
        return;
    }
    Peer* peer = peer_of(from, *packet);
    if (peer == nullptr) {
        ++counters_.bad_datagrams;
        if (packet->kind != reliable::Kind::hello) answer_unknown(from, *packet);
        return;
    }
    if (peer->address != from) {
        // A forger; or one that asks who is there, or goes on with a session of a former life here, and by chance names
        // the place of somebody else. It hears that its session is unknown, with nothing but its own token.
        ++counters_.forged;
        answer_unknown(from, *packet);
        return;
    }
    const bool takes_data = !peer->is_paused && peer->connection.room() > answers_to_one;
    if (packet->kind == reliable::Kind::data && !takes_data) ++counters_.postponed;
    const std::uint64_t strangers = peer->connection.strangers();
    const std::uint64_t random = packet->kind == reliable::Kind::hello ? random_() : 0;
    if (!peer->connection.receive(now_ns, random, *packet, takes_data)) {
        ++counters_.bad_datagrams;
        if (peer->connection.strangers() != strangers) answer_unknown(from, *packet);
    }
    look_for_loss(*peer);
    deliver(*peer);
}

void Engine::deliver(Peer& peer) {
    while (true) {
        peer.is_paused = !peer.connection.is_idle() && peer.connection.room() <= answers_to_one;
        if (peer.is_paused) return;
        const auto delivery = peer.connection.next_delivery();
        if (!delivery) return;
        unpack(peer, *delivery);
    }
}

void Engine::unpack(Peer& peer, const reliable::Delivery& delivery) {
    auto body = delivery.body;
    while (true) {
        body = body.subspan(continue_run(peer, body));
        if (body.size() < length_bytes) break;
        const std::size_t bytes = length_of(body);
        body = body.subspan(length_bytes);
        if (bytes > body.size()) break;
        const auto raw = body.first(bytes);
        Packet packet;
        const bool is_packet = wire::decode(raw, packet);
        body = body.subspan(bytes);
        if (!is_packet) {
            ++counters_.bad_packets;
            continue;
        }
        const std::uint32_t mask = packet.has_small_ids ? 0xFF : 0xFFFF;
        if (packet.source != (peer.destid & mask) || (packet.has_small_ids && peer.destid > mask)) {
            ++counters_.forged;
        } else if (packet.destination != (settings_.destid & mask)) {
            ++counters_.bad_packets;
        } else {
            apply(peer, delivery.lane, packet);
            const bool is_unanswered = packet.operation == Operation::nwrite || packet.operation == Operation::swrite;
            if (is_unanswered && packet.data.size() == wire::max_payload) peer.run.begin(raw, packet);
        }
    }
    if (!body.empty()) ++counters_.bad_packets;
}

void Engine::apply(Peer& peer, std::uint8_t lane, const Packet& packet) {
    switch (packet.operation) {
        case Operation::nwrite:
        case Operation::nwrite_r:
        case Operation::swrite:
            write(peer, lane, packet);
            break;
        case Operation::nread:
            read(peer, lane, packet);
            break;
        case Operation::doorbell: {
            Packet answer;
            answer.operation = Operation::response;
            answer.transaction = packet.transaction;
            answer.status = target_->ring(peer.destid, packet.info);
            respond(peer, lane, answer);
            break;
        }
        case Operation::maintenance_read:
        case Operation::maintenance_write:
            maintain(peer, lane, packet);
            break;
        case Operation::message:
            take_segment(peer, packet);
            break;
        case Operation::response:
        case Operation::response_with_data:
        case Operation::maintenance_read_response:
        case Operation::maintenance_write_response:
            complete(peer, packet);
            break;
    }
}

std::size_t Engine::continue_run(Peer& peer, std::span<const std::byte> body) {
    const std::size_t bytes = peer.run.packet_bytes();
    const std::size_t each = length_bytes + bytes;
    if (bytes == 0 || body.size() < each) return 0;
    // One place for all of them, or each is judged alone.
    std::uint64_t address = peer.run.next_address();
    const auto place = target_->window(peer.destid, Direction::write, address, body.size() / each * wire::max_payload);
    std::byte* at = place.data();
    // Most runs go on in the next datagram: its place comes from memory while the packets of this one are checked.
    if (at != nullptr) base::prefetch(at + place.size(), place.size());
    auto left = body;
    for (; left.size() >= each && length_of(left) == bytes; left = left.subspan(each), address += wire::max_payload) {
        const auto packet = left.subspan(length_bytes, bytes);
        if (!peer.run.take(packet.data(), at)) break;
        if (at != nullptr) {
            at += wire::max_payload;
        } else {
            write_one(peer, address, packet.subspan(peer.run.head_bytes(), wire::max_payload), peer.run.transaction());
        }
    }
    return body.size() - left.size();
}

void Engine::write_one(Peer& peer, std::uint64_t address, std::span<const std::byte> data, std::uint8_t transaction) {
    const auto at = target_->window(peer.destid, Direction::write, address, data.size());
    if (at.empty()) {
        ++counters_.outside;
        peer.failed.set(transaction);
    } else {
        std::memcpy(at.data(), data.data(), data.size());
    }
}

void Engine::write(Peer& peer, std::uint8_t lane, const Packet& packet) {
    write_one(peer, packet.address, packet.data, packet.transaction);
    if (packet.operation != Operation::nwrite_r) return;
    Packet answer;
    answer.operation = Operation::response;
    answer.transaction = packet.transaction;
    answer.status = peer.failed.test(packet.transaction) ? Status::error : Status::done;
    peer.failed.reset(packet.transaction);
    respond(peer, lane, answer);
}

void Engine::read(Peer& peer, std::uint8_t lane, const Packet& packet) {
    Packet answer;
    answer.transaction = packet.transaction;
    const auto at = target_->window(peer.destid, Direction::read, packet.address, packet.bytes);
    std::array<std::byte, wire::double_word> lanes{};
    if (at.empty()) {
        ++counters_.outside;
        answer.operation = Operation::response;
        answer.status = Status::error;
    } else {
        answer.operation = Operation::response_with_data;
        answer.data = at;
        if (at.size() < wire::double_word) {
            std::memcpy(lanes.data() + packet.address % wire::double_word, at.data(), at.size());
            answer.data = lanes;
        }
    }
    respond(peer, lane, answer);
}

void Engine::maintain(Peer& peer, std::uint8_t lane, const Packet& packet) {
    const auto offset = static_cast<std::uint32_t>(packet.address);
    Packet answer;
    answer.transaction = packet.transaction;
    answer.address = offset;
    std::array<std::byte, sizeof(std::uint32_t)> value{};
    if (packet.operation == Operation::maintenance_read) {
        const std::uint32_t read = target_->read_register(offset);
        for (unsigned byte = 0; byte < value.size(); ++byte)
            value[byte] = static_cast<std::byte>(read >> (24 - 8 * byte));
        answer.operation = Operation::maintenance_read_response;
        answer.data = value;
    } else {
        std::uint32_t written = 0;
        for (const std::byte each : packet.data)
            written = written << 8 | static_cast<std::uint32_t>(each);
        answer.operation = Operation::maintenance_write_response;
        answer.status = target_->write_register(offset, written);
    }
    respond(peer, lane, answer);
}

void Engine::take_segment(Peer& peer, const Packet& packet) {
    if (packet.segment == 0) peer.message.clear();
    if (peer.message.size() != packet.segment * wire::max_payload) {
        ++counters_.bad_packets;
        return;
    }
    peer.message.insert(peer.message.end(), packet.data.begin(), packet.data.end());
    if (packet.segment == packet.last_segment) target_->take_letter(peer.destid, packet.mailbox, peer.message);
}

void Engine::complete(Peer& peer, const Packet& packet) {
    const Waiting one = std::exchange(peer.waiting[packet.transaction], {});
    if (one.request == nullptr) {
        ++counters_.bad_packets;
        return;
    }
    int error = error_of(packet.status);
    if (error == 0 && one.landing.into != nullptr) {
        // Fewer than 8 bytes come in their lanes of a double word.
        const std::size_t skipped = one.landing.bytes < wire::double_word ? one.landing.address % wire::double_word : 0;
        if (packet.data.size() < skipped + one.landing.bytes) {
            ++counters_.bad_packets;
            error = -EIO;
        } else {
            std::memcpy(one.landing.into, packet.data.data() + skipped, one.landing.bytes);
        }
    }
    if (one.request->error == 0) one.request->error = error;
    --one.request->outstanding;
}

void Engine::drop_session(Peer& peer, reliable::Loss why) {
    peer.used = 0;
    peer.is_paused = false;
    peer.failed.reset();
    peer.message.clear();
    peer.run.end();
    ++peer.losses;
    for (Waiting& each : peer.waiting) {
        if (each.request == nullptr) continue;
        if (each.request->error == 0) each.request->error = -ENODEV;
        --each.request->outstanding;
        each = {};
    }
    target_->lose_peer(peer.destid, why);
}

void Engine::look_for_loss(Peer& peer) {
    if (const auto why = peer.connection.take_loss()) drop_session(peer, *why);
}

void Engine::refuse(const Address& at, std::span<const std::byte> datagram) {
    // What comes back may be cut short.
    std::array<std::byte, reliable::header_bytes> header{};
    if (datagram.size() < header.size()) return;
    std::copy_n(datagram.begin(), header.size(), header.begin());
    header[header.size() - 2] = header[header.size() - 1] = std::byte{0};
    const auto packet = reliable::parse(header);
    if (!packet) return;
    if (const auto destid = probed(packet->token)) {
        std::erase(unanswered_, *destid);
        return;
    }
    for (Peer* peer : by_index_) {
        if (peer->address != at) continue;
        peer->connection.refuse(packet->token);
        look_for_loss(*peer);
    }
}

std::int64_t Engine::next_deadline_ns() const {
    std::int64_t next = reliable::never_ns;
    for (const auto& [destid, peer] : peers_)
        next = std::min(next, peer->connection.next_deadline_ns());
    return next;
}

void Engine::advance(std::int64_t now_ns) {
    for (auto& [destid, peer] : peers_) {
        peer->connection.advance(now_ns);
        look_for_loss(*peer);
        deliver(*peer);
    }
}

}  // namespace incast::softrio::udp
