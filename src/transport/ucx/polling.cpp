// Progress of a ucx endpoint: flushes, active messages out and in.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "transport/ucx/descriptor/descriptor.h"
#include "transport/ucx/endpoint.h"

namespace incast::transport::ucx {

std::size_t Endpoint::poll(Time now, std::span<Event> events) {
    last_now_ = now;
    give_back_spent();
    flush();
    if (look_ || now >= next_look_) look(now);
    if (untimed_ > 0 || now >= next_deadline_) handle_deadlines(now);
    std::size_t count = take_own(events);
    if (own_events_.empty()) count += receive(events.subspan(count));
    if (has_broken_) hear_broken();
    if (ending_.any()) {
        close_ended();
        finish_ended();
    }
    count += take_own(events.subspan(count));
    if (count == 0) settle();
    return count;
}

void Endpoint::flush() {
    for (std::size_t peer = busy_.next(0); peer != base::Bitmap::none; peer = busy_.next(peer + 1))
        flush(Peer{static_cast<std::uint32_t>(peer)});
}

void Endpoint::settle() {
    for (std::size_t peer = unsettled_.next(0); peer != base::Bitmap::none; peer = unsettled_.next(peer + 1)) {
        PeerState& state = peers_[peer];
        unsettled_.reset(peer);
        if (state.has_connection() && !state.is_broken) flush(state, true);
    }
}

void Endpoint::flush(PeerState& state, bool also_for_records) {
    if (Outgoing::Operation* const made = state.out->make_flush(also_for_records)) {
        const ucp_request_param_t param = param_of(*made);
        started(*made, ucp_ep_flush_nbx(state.endpoint, &param));
    }
}

void Endpoint::flush(Peer peer) {
    busy_.reset(index(peer));
    PeerState& state = peers_[index(peer)];
    if (!state.has_connection() || state.is_broken) return;
    push_untold(state);
    Outgoing& out = *state.out;
    flush(state, false);
    while (Outgoing::Operation* const record = out.next_record()) {
        unsettled_.set(index(peer));
        ucp_request_param_t param = param_of(*record);
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_AM_SEND_FLAG_EAGER;
        const std::byte* const memory = out.memory(*record);
        started(*record, ucp_am_send_nbx(state.endpoint, message_id, memory, sizeof(Frame), memory + sizeof(Frame),
                                         record->bytes, &param));
    }
}

bool Endpoint::prepare_wait() {
    if (!own_events_.empty() || !held_.empty() || !spent_.empty() || busy_.any() || untimed_ > 0) return false;
    look_ = true;
    settle();
    for (std::uint32_t left = most_looks; progress(); --left)
        if (left == 0) return false;
    if (!own_events_.empty() || !held_.empty() || busy_.any() || has_broken_) return false;
    for (std::size_t peer = ending_.next(0); peer != base::Bitmap::none; peer = ending_.next(peer + 1)) {
        const PeerState& state = peers_[peer];
        const bool is_closing = state.closing != nullptr && ucp_request_check_status(state.closing) == UCS_INPROGRESS;
        const bool has_said_all = is_quiet(state) ? state.has_said_bye : is_closing;
        if (is_over(state) || !has_said_all) return false;
    }
    return ucp_worker_arm(library_.worker.get()) == UCS_OK;
}

void Endpoint::look(Time now) {
    look_ = false;
    next_look_ = now + look_every;
    std::array<epoll_event, 32> ready;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled in below
    for (const epoll_event& each : std::span(ready).first(poller_.ready(ready)))
        hear_socket(each.data.u64, now);
}

bool Endpoint::progress() {
    ++looks_;
    if (ucp_worker_progress(library_.worker.get()) > 0) return true;
    if (held_.empty()) seen_empty_ = looks_;
    return false;
}

std::size_t Endpoint::receive(std::span<Event> events) {
    if (known_ == 0) return 0;
    if (events.empty()) (void)progress();
    std::size_t count = 0;
    std::uint32_t left = most_looks;  // writes of peers give no event
    while (count < events.size()) {
        if (held_.empty()) {
            if (left-- == 0) break;
            const bool moved = progress();
            if (!own_events_.empty()) count += take_own(events.subspan(count));
            if (!moved && held_.empty()) break;
            if (busy_.any()) flush();
            continue;
        }
        const Held held = held_.front();
        held_.pop_front();
        count += hear(held, events[count]);
        if (!own_events_.empty()) count += take_own(events.subspan(count));
    }
    return count;
}

ucs_status_t Endpoint::hear_message(void* endpoint, const void* header, std::size_t header_bytes, void* data,
                                    std::size_t bytes, const ucp_am_recv_param_t* param) {
    Endpoint& self = *static_cast<Endpoint*>(endpoint);
    Held held{.frame = {}, .bytes = bytes};
    if (header_bytes != sizeof held.frame || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
    std::memcpy(&held.frame, header, sizeof held.frame);
    const std::uint32_t from = held.frame.header.from;
    // A late one of an earlier connection counts for nothing.
    if (from >= self.peers_.size() || !is_of_now(held.frame, self.peers_[from])) return UCS_OK;
    ++self.peers_[from].in_hand;
    const bool keeps = bytes > 0 && (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
    if (keeps) held.data = static_cast<std::byte*>(data);
    self.held_.push_back(held);
    return keeps ? UCS_INPROGRESS : UCS_OK;
}

std::size_t Endpoint::hear(const Held& held, Event& event) {
    const std::uint32_t from = held.frame.header.from;
    PeerState& state = peers_[from];
    const bool is_current = is_of_now(held.frame, state);
    const bool is_heard =
        is_current && !state.is_silent && (state.has_connection() || state.state == PeerState::State::ending);
    Spent spent{.data = held.data};
    std::size_t count = 0;
    if (is_heard && state.in_hand > settings_.receives + spare_receives) {
        break_off(Peer{from}, "it sent more than it may");
    } else if (is_heard && held.frame.number != state.heard++) {
        break_off(Peer{from}, "UCX brought what it sent in another order");
    } else if (is_heard) {
        const std::size_t bytes = held.data != nullptr ? std::min(held.bytes, rma::buffer_bytes) : 0;
        count = hear_send(Peer{from}, held.frame.header, Bytes(held.data, bytes), spent.counts_for, event);
    }
    if (is_current && state.in_hand > 0) --state.in_hand;
    spent_.push_back(spent);
    return count;
}

void Endpoint::give_back_spent() {
    for (const Spent& each : spent_) {
        if (each.counts_for != rma::nobody) count_back(Peer{each.counts_for});
        if (each.data != nullptr) ucp_am_data_release(library_.worker.get(), each.data);
    }
    spent_.clear();
}

}  // namespace incast::transport::ucx
