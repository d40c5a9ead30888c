// Connecting and losing peers, once they have called each other (rma/calling.h): each makes an endpoint of UCX to the
// other one's worker, and closes it when the peer is given up and all that it sent was heard.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "transport/ucx/descriptor/descriptor.h"
#include "transport/ucx/endpoint.h"

namespace incast::transport::ucx {

namespace {

/// Copies that processors make of each byte on the way, by the transports that UCX chose.
std::uint64_t copies_of(ucp_ep_h endpoint) {
    const std::string all = lanes_of(endpoint);
    const auto has = [&](std::string_view name) { return all.find(name) != std::string_view::npos; };
    std::uint64_t copies = has("tcp/") ? 2 : 0;
    if (has("posix/") || has("sysv/") || has("cma/") || has("xpmem/") || has("self/")) copies = 1;
    return copies;
}

}  // namespace

Blob Endpoint::address() const {
    return to_blob(Address{index(options_.self), library_.address, library_.name});
}

Post Endpoint::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    std::optional<Address> address = address_in(blob);
    if (index(peer) >= peers_.size() || peer == options_.self || !address || address->node != index(peer))
        return Post::refused;
    PeerState& state = peers_[index(peer)];
    if (const auto answer =
            answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
        return *answer;
    }
    begin_connecting(state, incarnation, index(options_.self) < index(peer));
    state.address = std::move(*address);
    ++known_;
    start_connecting(peer);
    return Post::pending;
}

bool Endpoint::begin(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.out == nullptr) state.out = std::make_unique<Outgoing>(this, index(peer), settings_.send_queue, records);
    state.clear_credits();
    state.is_broken = false;
    state.pushed = state.heard = state.in_hand = 0;
    const ucp_err_handler_t hear{.cb = library_.tells ? hear_failure : nullptr, .arg = this};
    const ucs_status_t status = library_.connect(state.address.worker, hear, state.endpoint);
    if (status == UCS_OK) {
        state.copies = copies_of(state.endpoint);
        return true;
    }
    fail(peer, "UCX cannot reach it: " + meaning(status));
    return false;
}

// --- losing
// -------------------------------------------------------------------------------------------------------------

void Endpoint::hear_failure(void* given, ucp_ep_h endpoint, ucs_status_t status) {
    Endpoint& self = *static_cast<Endpoint*>(given);
    const auto found =
        std::ranges::find_if(self.peers_, [&](const PeerState& each) { return each.endpoint == endpoint; });
    if (found == self.peers_.end()) return;
    found->is_broken = self.has_broken_ = true;
    found->why = status;
}

void Endpoint::hear_broken() {
    has_broken_ = false;
    for (std::uint32_t number = 0; number < peers_.size(); ++number) {
        PeerState& state = peers_[number];
        if (!state.is_broken || !state.has_connection()) continue;
        // Those are said of whoever closes its end, too.
        const bool is_end = state.why == UCS_ERR_CONNECTION_RESET || state.why == UCS_ERR_ENDPOINT_TIMEOUT ||
                            state.why == UCS_ERR_NOT_CONNECTED || state.why == UCS_ERR_CANCELED;
        if (!is_end) {
            log(std::string(transport_name) + ": connection to " + place_of(Peer{number}) +
                " lost: " + meaning(state.why));
        }
        lose(Peer{number}, Status::peer_lost);
    }
}

void Endpoint::close(PeerState& state) const {
    // All that UCX has arrives first, so that nothing does once this side has said its bye. What is broken takes
    // nothing more; only where UCX tells of failures can it be closed so.
    state.closing = ucx::close(state.endpoint, state.is_broken && library_.tells);
    if (state.closing == nullptr) state.endpoint = nullptr;
}

void Endpoint::close_ended() {
    for (std::size_t number = ending_.next(0); number != base::Bitmap::none; number = ending_.next(number + 1)) {
        PeerState& state = peers_[number];
        if (state.endpoint == nullptr) continue;
        if (state.closing == nullptr) {
            if (state.is_silent || seen_empty_ > state.ended_at) close(state);
        } else if (is_closed(state)) {
            forget_closing(state);
            state.endpoint = nullptr;
        }
    }
}

void Endpoint::finish(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.out != nullptr) {
        state.out->end_all([&](Token token) { completed(peer, token, state.lost_as); });
        if (!state.out->is_quiet()) left_behind_.push_back(std::exchange(state.out, nullptr));
    }
    if (!is_closed(state)) has_unclosed_ = true;
    forget_closing(state);
    state.endpoint = nullptr;
    --known_;
    be_down(peer);
}

}  // namespace incast::transport::ucx
