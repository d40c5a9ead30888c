// Connecting and losing peers, once they have called each other (rma/calling.h): connected endpoints connect, others
// know each other's address. A connected endpoint is closed by who gives its peer up.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <rdma/fi_errno.h>

#include "transport/ofi/descriptor/descriptor.h"
#include "transport/ofi/endpoint.h"

namespace incast::transport::ofi {

Blob Endpoint::address() const {
    Address made;
    made.node = index(options_.self);
    made.calls = fabric_.address;
    const std::string_view provider = fabric_.provider();
    std::memcpy(made.provider.data(), provider.data(), std::min(provider.size(), made.provider.size() - 1));
    made.is_connected = fabric_.is_connected() ? 1 : 0;
    made.is_ordered = fabric_.is_ordered ? 1 : 0;
    made.name_bytes = static_cast<std::uint16_t>(fabric_.name.size());
    std::memcpy(made.name.data(), fabric_.name.data(), fabric_.name.size());
    return to_blob(made);
}

Post Endpoint::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    const std::optional<Address> address = address_in(blob);
    if (index(peer) >= peers_.size() || peer == options_.self || !address || address->node != index(peer))
        return Post::refused;
    PeerState& state = peers_[index(peer)];
    if (const auto answer =
            answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
        return *answer;
    }
    begin_connecting(state, incarnation, index(options_.self) < index(peer));
    state.address = *address;
    ++known_;
    if (is_wedged_) {
        lose(peer, Status::peer_lost);
    } else if (std::string_view(address->provider.data()) != fabric_.provider() ||
               (address->is_connected != 0) != fabric_.is_connected()) {
        const auto kind = [](bool is_connected) { return is_connected ? "msg" : "rdm"; };
        fail(peer, std::string("it uses the provider ") + address->provider.data() + " (" +
                       kind(address->is_connected != 0) + "), and this node " + fabric_.provider() + " (" +
                       kind(fabric_.is_connected()) + "): set transport.ofi alike");
    } else {
        start_connecting(peer);
    }
    return Post::pending;
}

// --- meeting on the fabric
// ------------------------------------------------------------------------------------------------------------

bool Endpoint::begin(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (const auto taken = take_sending(peer); !taken) {
        fail(peer, taken.error().message);
        return false;
    }
    state.clear_credits();
    if (fabric_.is_connected()) return true;
    if (const auto taken = take_buffers(peer); !taken) {
        fail(peer, taken.error().message);
        return false;
    }
    // It stays there: shm takes a place that was given back for that of the peer before (1.17).
    if (state.at != FI_ADDR_NOTAVAIL && state.name_there == state.address.name) return true;
    state.name_there = state.address.name;
    if (fi_av_insert(fabric_.addresses.get(), state.address.name.data(), 1, &state.at, 0, nullptr) != 1) {
        state.at = FI_ADDR_NOTAVAIL;
        fail(peer, std::string(fabric_.provider()) + " does not know its address");
        return false;
    }
    return true;
}

void Endpoint::meet(Peer peer) {
    if (!fabric_.is_connected()) {
        greet(peer);
        return push_welcome(peer);
    }
    if (!join(peer, fabric_.info.get())) return;
    PeerState& state = peers_[index(peer)];
    const Request request{.from = index(options_.self), .attempt = state.attempt};
    const int error = fi_connect(state.endpoint.get(), state.address.name.data(), &request, sizeof request);
    if (error != 0) fail(peer, meaning(error));
}

bool Endpoint::join(Peer peer, fi_info* from) {
    PeerState& state = peers_[index(peer)];
    auto made = fabric_.make_connected(from);
    if (made) state.endpoint = std::move(*made);
    const Result<Ok> taken = made ? take_buffers(peer) : Result<Ok>(made.error());
    if (!taken) fail(peer, taken.error().message);
    return static_cast<bool>(taken);
}

Peer Endpoint::find(const fid* endpoint) const {
    const auto found = std::ranges::find_if(
        peers_, [&](const PeerState& state) { return state.endpoint != nullptr && &state.endpoint->fid == endpoint; });
    return found == peers_.end() ? any_peer : Peer{static_cast<std::uint32_t>(found - peers_.begin())};
}

void Endpoint::hear_events() {
    alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + 256> heard{};  // and what was said with it
    const auto& entry = *reinterpret_cast<const fi_eq_cm_entry*>(heard.data());
    for (;;) {
        std::uint32_t kind = 0;
        const ssize_t got = fi_eq_read(fabric_.events.get(), &kind, heard.data(), heard.size(), 0);
        if (got == -FI_EAVAIL) {
            fi_eq_err_entry failure{};
            if (fi_eq_readerr(fabric_.events.get(), &failure, 0) < 0) return;
            const Peer peer = find(failure.fid);
            if (peer == any_peer) continue;
            if (is_up(peer)) {
                lose(peer, Status::peer_lost);
            } else {
                fail(peer, meaning(failure.err));
            }
            continue;
        }
        if (got < 0) return;
        if (kind == FI_CONNREQ) {
            hear_request(entry, static_cast<std::size_t>(got));
            continue;
        }
        const Peer peer = find(entry.fid);
        if (peer == any_peer) continue;
        if (kind == FI_SHUTDOWN) {
            lose(peer, Status::peer_lost);
        } else if (kind == FI_CONNECTED && peers_[index(peer)].state == PeerState::State::joining) {
            greet(peer);
            push_welcome(peer);
        }
    }
}

void Endpoint::hear_request(const fi_eq_cm_entry& entry, std::size_t bytes) {
    const Opened<fi_info> from(entry.info);
    Request request{.magic = 0};
    if (bytes >= sizeof entry + sizeof request)
        std::memcpy(&request, reinterpret_cast<const std::byte*>(&entry) + sizeof entry, sizeof request);
    const bool is_expected = request.magic == Request::expected_magic && request.from < index(options_.self) &&
                             peers_[request.from].state == PeerState::State::joining &&
                             peers_[request.from].attempt == request.attempt;
    if (!is_expected) {
        (void)fi_reject(fabric_.listening.get(), from->handle, nullptr, 0);
        return;
    }
    const Peer peer{request.from};
    if (!join(peer, from.get())) return;
    if (const int error = fi_accept(peers_[request.from].endpoint.get(), nullptr, 0); error != 0)
        return fail(peer, meaning(error));
    greet(peer);
}

// --- losing
// -------------------------------------------------------------------------------------------------------------

void Endpoint::cut(Peer peer) {
    stalled_.reset(index(peer));
    PeerState& state = peers_[index(peer)];
    if (state.endpoint == nullptr) return;
    (void)fi_shutdown(state.endpoint.get(), 0);
    state.endpoint.reset();  // the fence
}

void Endpoint::wedge() {
    if (!std::exchange(is_stuck_, false) || std::exchange(is_wedged_, true)) return;
    log(std::string(transport_name) + ": a peer ended with writes under way, behind which the provider " +
        fabric_.provider() + " completes nothing any more: all peers of this endpoint are lost");
    for (std::uint32_t number = 0; number < peers_.size(); ++number) {
        PeerState& state = peers_[number];
        state.parked = {};
        if (state.state == PeerState::State::idle || state.state == PeerState::State::ending) continue;
        state.has_hung_up = true;
        lose(Peer{number}, Status::peer_lost);
    }
}

void Endpoint::finish(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.sending.out != nullptr) {
        const bool was_quiet = is_quiet(state);
        state.sending.out->end_all([&](Token token) { completed(peer, token, state.lost_as); });
        if (!was_quiet) left_behind_.push_back(std::exchange(state.sending, {}));
        is_stuck_ = is_stuck_ || (fabric_.is_shm() && !was_quiet);
    }
    --known_;
    be_down(peer);
}

}  // namespace incast::transport::ofi
