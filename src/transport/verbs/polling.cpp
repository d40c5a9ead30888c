// Progress of a verbs endpoint: receives given back, requests handed to the device, completions of both queues.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <arpa/inet.h>

#include "transport/verbs/descriptor/descriptor.h"
#include "transport/verbs/endpoint.h"

namespace incast::transport::verbs {

std::size_t Endpoint::poll(Time now, std::span<Event> events) {
    last_now_ = now;
    post_receives();
    flush();
    if (look_ || now >= next_look_) look(now);
    if (connected_.any() || ending_.any()) poll_sent();
    if (untimed_ > 0 || now >= next_deadline_) handle_deadlines(now);
    if (now >= next_beat_) beat(now);
    std::size_t count = take_own(events);
    if (own_events_.empty()) count += receive(events.subspan(count));
    if (ending_.any()) {
        finish_ended();
        count += take_own(events.subspan(count));
    }
    return count;
}

void Endpoint::flush() {
    for (std::size_t peer = busy_.next(0); peer != base::Bitmap::none; peer = busy_.next(peer + 1))
        flush(Peer{static_cast<std::uint32_t>(peer)});
}

Time Endpoint::next_deadline() const {
    if (untimed_ > 0) return last_now_;
    return connected_.any() ? std::min(next_deadline_, next_beat_) : next_deadline_;
}

bool Endpoint::prepare_wait() {
    if (!own_events_.empty() || held_at_ < held_end_ || !spent_.empty() || busy_.any() || untimed_ > 0) return false;
    if (!is_armed_ && !device_is_gone_) {
        if (ibv_req_notify_cq(device_.received.get(), 0) != 0 || ibv_req_notify_cq(device_.sent.get(), 0) != 0)
            return false;
        is_armed_ = true;
    }
    // What was there before that wakes nobody.
    poll_sent();
    held_at_ = 0;
    held_end_ = static_cast<std::size_t>(std::max(ibv_poll_cq(device_.received.get(), batch, held_.data()), 0));
    look_ = true;
    for (std::size_t peer = ending_.next(0); peer != base::Bitmap::none; peer = ending_.next(peer + 1)) {
        const PeerState& state = peers_[peer];
        if (seen_empty_ <= state.ended_at || state.share.out == nullptr || state.share.out->is_quiet()) return false;
    }
    return own_events_.empty() && held_end_ == 0 && !busy_.any() && untimed_ == 0;
}

void Endpoint::look(Time now) {
    look_ = false;
    next_look_ = now + look_every;
    std::array<epoll_event, 32> ready;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled in below
    const std::size_t count = poller_.ready(ready);
    if (count == 0) return;
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(device_.completions.get(), &queue, &context) == 0) {
        ibv_ack_cq_events(queue, 1);
        is_armed_ = false;
    }
    if (exchanges()) {
        for (const epoll_event& each : std::span(ready).first(count))
            each.data.u64 == device_id ? hear_device() : hear_socket(each.data.u64, now);
        return;
    }
    rdma_cm_event* event = nullptr;
    while (rdma_get_cm_event(device_.events.get(), &event) == 0) {
        // Acknowledged first: an id with an event that is not cannot be given back.
        rdma_cm_event copy = *event;
        std::array<std::byte, 256> said{};
        const std::size_t bytes = std::min<std::size_t>(copy.param.conn.private_data_len, said.size());
        if (copy.event != RDMA_CM_EVENT_CONNECT_REQUEST && copy.event != RDMA_CM_EVENT_REJECTED) {
            copy.param.conn.private_data = nullptr;
            copy.param.conn.private_data_len = 0;
        } else if (copy.param.conn.private_data != nullptr) {
            std::memcpy(said.data(), copy.param.conn.private_data, bytes);
            copy.param.conn.private_data = said.data();
            copy.param.conn.private_data_len = static_cast<std::uint8_t>(bytes);
        }
        rdma_ack_cm_event(event);
        hear_event(copy);
    }
}

// --- sending
// ------------------------------------------------------------------------------------------------------------

void Endpoint::push_welcome(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (settings_.rate_limit != 0) {
        ibv_qp_rate_limit_attr limit{};
        limit.rate_limit = settings_.rate_limit;
        if (const int error = ibv_modify_qp_rate_limit(state.pair, &limit); error != 0) {
            return fail(peer, device_.name() + " does not limit its rate to " + rate_text(settings_.rate_limit) + ": " +
                                  reason(error));
        }
    }
    Base::push_welcome(peer);
}

void Endpoint::flush(Peer peer) {
    busy_.reset(index(peer));
    PeerState& state = peers_[index(peer)];
    if (!state.has_connection()) return;
    SendQueue& out = *state.share.out;
    push_untold(state);
    if (!out.has_unposted()) return;
    if (const int error = out.post(state.pair); error != 0)
        break_off(peer, device_.name() + " does not take what is to be sent: " + reason(error));
}

void Endpoint::poll_sent() {
    std::array<ibv_wc, batch> completions;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled in below
    int count = batch;
    while (count == batch) {
        count = ibv_poll_cq(device_.sent.get(), batch, completions.data());
        for (int at = 0; at < count; ++at)
            sent(completions[static_cast<std::size_t>(at)]);
    }
}

void Endpoint::sent(const ibv_wc& completion) {
    const Peer peer{SendQueue::peer_of(completion.wr_id)};
    if (index(peer) >= peers_.size() || peers_[index(peer)].share.out == nullptr) return;
    PeerState& state = peers_[index(peer)];
    SendQueue& out = *state.share.out;
    if (completion.status == IBV_WC_SUCCESS) [[likely]] {
        out.end(completion.wr_id, [&](Token token, bool) { completed(peer, token, Status::ok); });
        if (state.wants_room) give_room(peer);
        if (has_untold(state) || out.has_unposted()) [[unlikely]]
            busy_.set(index(peer));
        return;
    }
    const bool is_first = state.has_connection();
    // Accesses are checked before they are posted: one that the device refuses meets a process that ends, whose memory
    // goes before its connections.
    const Status status = is_first ? Status::peer_lost : state.lost_as;
    out.end(completion.wr_id,
            [&](Token token, bool is_last) { completed(peer, token, is_last ? status : Status::ok); });
    if (!is_first) return;
    if (completion.status == IBV_WC_WR_FLUSH_ERR) return lose(peer, Status::peer_lost);
    log(std::string(transport_name) + ": connection to " + node_name(peer) + " at " + state.address.to_string() +
        " lost: " + ibv_wc_status_str(completion.status));
    lose(peer, Status::peer_lost);
}

// --- receiving
// ----------------------------------------------------------------------------------------------------------

std::size_t Endpoint::receive(std::span<Event> events) {
    std::size_t count = 0;
    bool is_short = false;
    std::uint64_t polled = receive_polls_;
    while (count < events.size()) {
        if (held_at_ == held_end_) {
            if (is_short) {
                seen_empty_ = polled;
                break;
            }
            if (!connected_.any() && !ending_.any()) break;
            polled = ++receive_polls_;
            held_at_ = 0;
            held_end_ = static_cast<std::size_t>(std::max(ibv_poll_cq(device_.received.get(), batch, held_.data()), 0));
            is_short = held_end_ < batch;
            continue;
        }
        count += hear(held_[held_at_++], events[count]);
        if (!own_events_.empty()) count += take_own(events.subspan(count));
        if (!own_events_.empty()) break;
    }
    return count;
}

std::size_t Endpoint::hear(const ibv_wc& completion, Event& event) {
    const auto number = static_cast<std::uint32_t>(completion.wr_id);
    spent_.push_back(number);
    const std::uint32_t of = pairs_.find(completion.qp_num);
    if (of == PairTable::none || completion.status != IBV_WC_SUCCESS) return 0;
    const Peer peer{of};
    PeerState& state = peers_[of];
    if (state.is_silent) return 0;
    if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) return hear_receive(peer, number, completion.byte_len, event);
    if (state.state == PeerState::State::greeting) [[unlikely]] {
        break_off(peer, "it wrote before its welcome");
        return 0;
    }
    const std::uint32_t immediate = ::ntohl(completion.imm_data);
    receives_[number].counts_for = of;
    hear_credits(peer, credits_of(immediate));
    event.kind = Event::Kind::notice;
    event.status = Status::ok;
    event.size_or_value = notice_of(immediate);
    event.peer = peer;
    event.incarnation = state.incarnation;
    event.token = 0;
    return 1;
}

std::size_t Endpoint::hear_receive(Peer peer, std::uint32_t number, std::size_t bytes, Event& event) {
    const Bytes whole = Bytes(buffer(number)).first(std::min(bytes, buffer_bytes));
    Header header;
    if (whole.size() < sizeof header) {
        break_off(peer, "it sent " + std::to_string(bytes) + " bytes, which is no message of this transport");
        return 0;
    }
    std::memcpy(&header, whole.data(), sizeof header);
    return hear_send(peer, header, whole.subspan(sizeof header), receives_[number].counts_for, event);
}

void Endpoint::beat(Time now) {
    next_beat_ = now + settings_.heartbeat;
    for (std::size_t number = connected_.next(0); number != base::Bitmap::none; number = connected_.next(number + 1)) {
        PeerState& state = peers_[number];
        SendQueue& out = *state.share.out;
        // From its welcome on: soft-iWARP may notice what came behind its answer to a call only when more comes.
        if (!state.was_welcomed) continue;
        const bool moves = std::exchange(state.ended_then, out.ended()) != out.ended();
        if (out.under_way() == 0) {
            state.is_wedged = false;
            if (moves) continue;
            out.make(IBV_WR_RDMA_WRITE).wr.wr.rdma = {0, 0};
            busy_.set(number);
        } else if (moves || !std::exchange(state.is_wedged, true)) {
            state.stuck_since = now;
        } else if (now - state.stuck_since >= settings_.ack_deadline) {
            const Peer peer{static_cast<std::uint32_t>(number)};
            log(std::string(transport_name) + ": connection to " + node_name(peer) + " at " +
                state.address.to_string() + " lost: nothing was acknowledged for " +
                std::to_string((now - state.stuck_since) / ps_per_ms) + " ms");
            lose(peer, Status::peer_lost);
        }
    }
}

}  // namespace incast::transport::verbs
