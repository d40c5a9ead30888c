// Progress of an ofi endpoint: receives given back, operations handed to libfabric, completions.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include <rdma/fi_errno.h>

#include "transport/ofi/descriptor/descriptor.h"
#include "transport/ofi/endpoint.h"

namespace incast::transport::ofi {

namespace {

constexpr std::uint64_t remote = FI_REMOTE_WRITE | FI_REMOTE_READ;

}  // namespace

std::size_t Endpoint::poll(Time now, std::span<Event> events) {
    last_now_ = now;
    post_spent();
    flush();
    if (look_ || now >= next_look_) look(now);
    if (untimed_ > 0 || now >= next_deadline_) handle_deadlines(now);
    std::size_t count = take_own(events);
    if (own_events_.empty()) count += receive(events.subspan(count));
    if (ending_.any()) {
        finish_ended();
        wedge();
        count += take_own(events.subspan(count));
    }
    return count;
}

void Endpoint::flush() {
    for (std::size_t peer = stalled_.next(0); peer != base::Bitmap::none; peer = stalled_.next(peer + 1))
        busy_.set(peer);
    stalled_.clear();
    for (std::size_t peer = busy_.next(0); peer != base::Bitmap::none; peer = busy_.next(peer + 1))
        flush(Peer{static_cast<std::uint32_t>(peer)});
}

Time Endpoint::next_deadline() const {
    if (untimed_ > 0) return last_now_;
    return stalled_.any() ? std::min(next_deadline_, last_now_ + look_every) : next_deadline_;
}

bool Endpoint::prepare_wait() {
    if (!own_events_.empty() || held_at_ < held_end_ || !spent_.empty() || busy_.any() || untimed_ > 0) return false;
    look_ = true;
    if (known_ > 0) read_queue();
    if (!own_events_.empty() || held_end_ > 0 || busy_.any() || untimed_ > 0) return false;
    for (std::size_t peer = ending_.next(0); peer != base::Bitmap::none; peer = ending_.next(peer + 1))
        if (is_over(peers_[peer]) || seen_empty_ <= peers_[peer].ended_at) return false;
    if (!capabilities_.has_wait_fd) return true;
    std::array<fid*, 2> waits{&fabric_.completions->fid, fabric_.events != nullptr ? &fabric_.events->fid : nullptr};
    return fi_trywait(fabric_.fabric.get(), waits.data(), fabric_.events != nullptr ? 2 : 1) == 0;
}

void Endpoint::look(Time now) {
    look_ = false;
    next_look_ = now + look_every;
    std::array<epoll_event, 32> ready;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled in below
    for (const epoll_event& each : std::span(ready).first(poller_.ready(ready)))
        hear_socket(each.data.u64, now);
    if (fabric_.events != nullptr) hear_events();
}

// --- sending
// ------------------------------------------------------------------------------------------------------------

ssize_t Endpoint::hand_over(const PeerState& state, Outgoing::Operation& operation, std::uint64_t flags) const {
    fid_ep* const endpoint = fabric_.is_connected() ? state.endpoint.get() : fabric_.datagrams.get();
    void* const context = static_cast<Context*>(&operation);
    flags |= FI_COMPLETION;
    if (operation.is_record) {
        const fi_msg message{.msg_iov = operation.parts.data(),
                             .desc = operation.descriptors.data(),
                             .iov_count = operation.count,
                             .addr = state.at,
                             .context = context,
                             .data = 0};
        return fi_sendmsg(endpoint, &message, flags);
    }
    const fi_msg_rma message{
        .msg_iov = operation.parts.data(),
        .desc = operation.descriptors.data(),
        .iov_count = operation.count,
        .addr = state.at,
        .rma_iov = &operation.remote,
        .rma_iov_count = 1,
        .context = context,
        .data = to_data(operation.notice, static_cast<std::uint16_t>(index(options_.self)), state.attempt)};
    if (operation.is_read) return fi_readmsg(endpoint, &message, FI_COMPLETION);
    return fi_writemsg(endpoint, &message, flags | (operation.notifies ? FI_REMOTE_CQ_DATA : 0));
}

void Endpoint::flush(Peer peer) {
    busy_.reset(index(peer));
    PeerState& state = peers_[index(peer)];
    if (!state.has_connection()) return;
    Outgoing& out = *state.sending.out;
    push_untold(state);
    while (Outgoing::Operation* const next = out.next()) {
        // Where writes may overtake, each has to be known to be there; elsewhere the last one shows that all are.
        const bool is_last = fabric_.is_connected() && out.unposted() == 1;
        const bool is_watched = is_last || (!fabric_.is_ordered && !next->is_record);
        const ssize_t error = hand_over(state, *next, is_watched ? fabric_.delivery : 0);
        if (error == 0) {
            out.left(*next);
            continue;
        }
        if (error == -FI_EAGAIN) return stalled_.set(index(peer));
        return break_off(peer,
                         std::string(fabric_.provider()) + " does not take what is to be sent: " + meaning(error));
    }
}

void Endpoint::back(Outgoing::Operation& operation) {
    Outgoing& out = *operation.owner;
    const Peer peer{out.peer()};
    PeerState& state = peers_[index(peer)];
    if (state.sending.out.get() != &out) return;  // it was given up long ago
    const Status status = state.has_connection() ? Status::ok : state.lost_as;
    out.back(operation, [&](Token token) { completed(peer, token, status); });
    if (state.wants_room) give_room(peer);
    if (state.has_connection() && (has_untold(state) || out.unposted() > 0)) busy_.set(index(peer));
}

// --- receiving
// ----------------------------------------------------------------------------------------------------------

std::size_t Endpoint::receive(std::span<Event> events) {
    if (known_ == 0) return 0;
    if (events.empty()) (void)fi_cq_read(fabric_.completions.get(), nullptr, 0);  // drives what is under way
    std::size_t count = 0;
    bool is_short = false;
    while (count < events.size()) {
        if (held_at_ == held_end_) {
            if (is_short) {
                seen_empty_ = reads_;
                break;
            }
            read_queue();
            is_short = held_end_ < batch;
            if (held_end_ == 0) count += take_own(events.subspan(count));
            continue;
        }
        count += hear(held_[held_at_++], events[count]);
        if (!own_events_.empty()) count += take_own(events.subspan(count));
        if (!own_events_.empty()) break;
    }
    return count;
}

void Endpoint::read_queue() {
    held_at_ = held_end_ = 0;
    ++reads_;
    for (;;) {
        const ssize_t got = fi_cq_read(fabric_.completions.get(), held_.data(), held_.size());
        if (got > 0) {
            held_end_ = static_cast<std::size_t>(got);
            return;
        }
        if (got != -FI_EAVAIL || !hear_failure()) break;
    }
    seen_empty_ = reads_;
}

Receive* Endpoint::receive_of(const void* context) const {
    for (const PeerState& state : peers_) {
        Receive* const first = state.receives.get();
        Receive* const behind = first == nullptr ? first : first + settings_.receives + spare_receives;
        if (std::less_equal<const void*>()(first, context) && std::less<const void*>()(context, behind))
            return static_cast<Receive*>(static_cast<Context*>(const_cast<void*>(context)));
    }
    return nullptr;
}

Outgoing* Endpoint::outgoing_of(const void* context) const {
    for (const PeerState& state : peers_)
        if (state.sending.out != nullptr && state.sending.out->owns(context)) return state.sending.out.get();
    return nullptr;
}

bool Endpoint::hear_failure() {
    fi_cq_err_entry failure{};
    if (fi_cq_readerr(fabric_.completions.get(), &failure, 0) != 1) return false;
    void* const context = failure.op_context;
    if (Receive* const receive = receive_of(context)) {
        receive->is_posted = false;
        if (!fabric_.is_connected()) spent_.push_back(receive);
    } else if (const Outgoing* const out = outgoing_of(context)) {
        const Peer peer{out->peer()};
        // Accesses are checked before they are posted: one that is refused meets a process that ends.
        if (peers_[index(peer)].has_connection()) {
            if (failure.err != FI_ECANCELED)
                log(std::string(transport_name) + ": connection to " + place_of(peer) +
                    " lost: " + meaning(failure.err));
            lose(peer, Status::peer_lost);
        }
        back(*static_cast<Outgoing::Operation*>(static_cast<Context*>(context)));
    }
    return true;
}

std::size_t Endpoint::hear(const fi_cq_data_entry& completion, Event& event) {
    // Of a write by a peer, the context means something only where it used up a receive.
    const bool is_remote = (completion.flags & remote) != 0;
    if (!is_remote && (completion.flags & FI_RECV) == 0) {
        back(*static_cast<Outgoing::Operation*>(static_cast<Context*>(completion.op_context)));
        return 0;
    }
    if (!is_remote || fabric_.has_mode(FI_RX_CQ_DATA)) {
        auto& receive = *static_cast<Receive*>(static_cast<Context*>(completion.op_context));
        receive.is_posted = false;
        spent_.push_back(&receive);
        if (!is_remote) return hear_receive(receive, completion.len, event);
    }
    return (completion.flags & FI_REMOTE_CQ_DATA) != 0 ? hear_notice(completion.data, event) : 0;
}

std::size_t Endpoint::hear_notice(std::uint64_t data, Event& event) {
    const Peer peer{from_of(data)};
    if (index(peer) >= peers_.size()) return 0;
    PeerState& state = peers_[index(peer)];
    if (state.is_silent || (!state.has_connection() && state.state != PeerState::State::ending)) return 0;
    if (fabric_.info->domain_attr->cq_data_size == sizeof data && !is_of(data, state.attempt)) return 0;
    if (state.state == PeerState::State::greeting) {
        break_off(peer, "it wrote before its welcome");
        return 0;
    }
    count_back(peer);
    event = control_event(Event::Kind::notice, peer);
    event.size_or_value = notice_of(data);
    return 1;
}

std::size_t Endpoint::hear_receive(Receive& receive, std::size_t bytes, Event& event) {
    const Bytes whole = Bytes(receive.buffer, std::min(bytes, buffer_bytes));
    Frame frame;
    if (whole.size() >= sizeof frame) std::memcpy(&frame, whole.data(), sizeof frame);
    const std::uint32_t from = frame.header.from;
    const bool is_whole =
        whole.size() >= sizeof frame && from < peers_.size() && (!fabric_.is_connected() || from == receive.of);
    if (!is_whole || frame.attempt != peers_[from].attempt) {
        // Elsewhere it may be a late one of an earlier connection.
        if (fabric_.is_connected()) break_off(Peer{receive.of}, "it sent what is no message of this transport");
        return 0;
    }
    const PeerState& state = peers_[from];
    if (state.is_silent || (!state.has_connection() && state.state != PeerState::State::ending)) return 0;
    return hear_send(Peer{from}, frame.header, whole.subspan(sizeof frame), receive.counts_for, event);
}

}  // namespace incast::transport::ofi
