// Connecting and losing peers. The node with the lower number calls the other one over TCP and says its hello; who is
// called answers once its owner has called connect(). Then they meet on the fabric: connected endpoints connect, others
// know each other's address. Each side sends a welcome, and a peer is up for whoever has received it. The TCP
// connection stays, without a word: its end says that the peer is gone, or lets go, whatever the provider finds out by
// itself.
//
// A connected endpoint is closed by who gives its peer up, and nothing of the peer lands from then on. Elsewhere nobody
// can be kept from writing: who gives up ends its half of the TCP connection when nothing of its own is under way, and
// a peer is down once its half has ended.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <netinet/tcp.h>
#include <rdma/fi_errno.h>

#include "transport/ofi/descriptor/descriptor.h"
#include "transport/ofi/endpoint.h"

namespace incast::transport::ofi {

namespace {

constexpr Time ending_timeout = ps_per_s;  // what is under way ends by then, or nobody waits for it

/// Whether it has ended, or said what nobody says there.
bool has_ended(const os::Descriptor& socket) {
    std::byte any{};
    const ssize_t count = ::recv(socket.fd(), &any, 1, MSG_DONTWAIT);
    return count >= 0 || (errno != EAGAIN && errno != EINTR);
}

/// A host that is gone is noticed, too.
void keep_alive(const os::Descriptor& socket, Time deadline) {
    const auto set = [&](int level, int option, int value) {
        (void)::setsockopt(socket.fd(), level, option, &value, sizeof value);
    };
    constexpr int probes = 3;
    const int seconds = static_cast<int>(std::max<Time>(deadline / (probes + 1) / ps_per_s, 1));
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, seconds);
    set(IPPROTO_TCP, TCP_KEEPINTVL, seconds);
    set(IPPROTO_TCP, TCP_KEEPCNT, probes);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(deadline / ps_per_ms));
}

}  // namespace

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
    if (state.incarnation != incarnation) state.uses.clear();
    state.incarnation = incarnation;
    state.address = *address;
    state.is_silent = state.was_welcomed = state.has_hung_up = state.has_said_bye = false;
    ++known_;
    start_timing(state);
    state.state = index(options_.self) < index(peer) ? PeerState::State::dialling : PeerState::State::waiting;
    if (is_wedged_) {
        lose(peer, Status::peer_lost);
    } else if (std::string_view(address->provider.data()) != fabric_.provider() ||
               (address->is_connected != 0) != fabric_.is_connected()) {
        const auto kind = [](bool is_connected) { return is_connected ? "msg" : "rdm"; };
        fail(peer, std::string("it uses the provider ") + address->provider.data() + " (" +
                       kind(address->is_connected != 0) + "), and this node " + fabric_.provider() + " (" +
                       kind(fabric_.is_connected()) + "): set transport.ofi alike");
    } else if (state.state == PeerState::State::dialling) {
        call(peer);
    } else {
        match(peer);
    }
    return Post::pending;
}

void Endpoint::disconnect(Peer peer) {
    if (index(peer) >= peers_.size()) return;
    PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::idle || state.state == PeerState::State::ending) return;
    state.is_silent = true;
    lose(peer, Status::cancelled);
}

void Endpoint::ended(Peer peer, std::uint32_t incarnation) {
    if (index(peer) >= peers_.size()) return;
    PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::idle || state.incarnation != incarnation) return;
    state.has_hung_up = true;
    if (state.state != PeerState::State::ending) lose(peer, Status::peer_lost);
}

// --- dialling, and being dialled
// -----------------------------------------------------------------------------------------------------------

void Endpoint::watch(Peer peer) {
    PeerState& state = peers_[index(peer)];
    // By edges: nothing of it is left to be read when an event has been heard.
    if (!poller_.add(state.socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, peers_id + index(peer)))
        fail(peer, "its connection cannot be watched: " + meaning(errno));
}

void Endpoint::call(Peer peer) {
    PeerState& state = peers_[index(peer)];
    state.has_called = false;
    state.answered = 0;
    const std::uint64_t number = (options_.run + ++attempts_ + (std::uint64_t{options_.incarnation} << 32) +
                                  (std::uint64_t{index(options_.self)} << 48)) *
                                 0x9E3779B97F4A7C15;
    state.attempt = number ^ number >> 32;
    auto socket = transport::dial(state.address.calls);
    if (!socket) return fail(peer, socket.error().message);
    state.socket = std::move(*socket);
    keep_alive(state.socket, settings_.ack_deadline);
    watch(peer);
}

void Endpoint::advance_dial(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (const int error = connect_error(state.socket); error != 0)
        return fail(peer, error == ECONNREFUSED ? "nobody listens there" : meaning(error));
    if (!state.has_called) {
        const Call call{.hello = {.run = options_.run,
                                  .token = options_.token,
                                  .from = index(options_.self),
                                  .from_incarnation = options_.incarnation,
                                  .to = index(peer),
                                  .to_incarnation = state.incarnation},
                        .attempt = state.attempt};
        // Not connected yet if this fails without an error of the socket: a later event decides.
        state.has_called = say(state.socket, std::as_bytes(std::span(&call, 1)));
    }
    while (state.answered < state.answer.size()) {
        const std::span<std::byte> room = std::span(state.answer).subspan(state.answered);
        const ssize_t count = ::recv(state.socket.fd(), room.data(), room.size(), MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return;
        if (count <= 0) return lose(peer, Status::peer_lost);  // it gave up, as quiet as any end
        state.answered += static_cast<std::size_t>(count);
    }
    hear_answer(peer);
}

void Endpoint::hear_answer(Peer peer) {
    PeerState& state = peers_[index(peer)];
    Answer answer;
    if (!read_answer(state.answer, answer)) return fail(peer, "what answers there is no node of this transport");
    if (answer.verdict != Verdict::accepted) return fail(peer, std::string("refused: ") + to_string(answer.verdict));
    state.state = PeerState::State::joining;
    if (!begin(peer)) return;
    if (fabric_.is_connected()) {
        if (!join(peer, fabric_.info.get())) return;
        const Request request{.from = index(options_.self), .attempt = state.attempt};
        const int error = fi_connect(state.endpoint.get(), state.address.name.data(), &request, sizeof request);
        if (error != 0) return fail(peer, meaning(error));
    } else {
        greet(peer);
        push_welcome(peer);
    }
    if (has_ended(state.socket)) hang_up(peer);
}

void Endpoint::hear_socket(std::uint64_t id, Time now) {
    if (id == listener_id) {
        calls_.accept_all(poller_, now);
        next_deadline_ = std::min(next_deadline_, calls_.next_deadline());
        return;
    }
    const auto number = static_cast<std::uint32_t>(id);
    const std::uint64_t kind = id - number;
    if (kind == calls_id) {
        if (auto whole = calls_.advance(poller_, number)) hear_call(std::move(*whole));
        return;
    }
    if (kind == 0) return;
    const Peer peer{number};
    PeerState& state = peers_[number];
    if (kind == parked_id) {
        if (state.parked.socket.is_open() && has_ended(state.parked.socket)) state.parked = {};
    } else if (!state.socket.is_open()) {
        return;
    } else if (state.state == PeerState::State::dialling) {
        advance_dial(peer);
    } else if (has_ended(state.socket)) {
        hang_up(peer);
    }
}

void Endpoint::refuse(Caller caller, Verdict verdict) {
    const Answer answer{.verdict = verdict};
    (void)say(caller.socket, std::as_bytes(std::span(&answer, 1)));
}

void Endpoint::hear_call(Calls::Whole whole) {
    Call call;
    const Verdict verdict =
        judge(whole.bytes, {options_.run, options_.token, index(options_.self), options_.incarnation}, call.hello);
    std::memcpy(&call, whole.bytes.data(), sizeof call);
    Caller caller{
        .socket = std::move(whole.socket), .attempt = call.attempt, .incarnation = call.hello.from_incarnation};
    if (verdict != Verdict::accepted) {
        log(std::string(transport_name) + ": a connection from " + whole.from + " was refused: " + to_string(verdict));
        return refuse(std::move(caller), verdict);
    }
    const Peer peer{call.hello.from};
    PeerState& state = peers_[index(peer)];
    const bool is_known =
        state.has_connection() || state.state == PeerState::State::joining || state.state == PeerState::State::waiting;
    if ((is_known && caller.incarnation < state.incarnation) ||
        (state.parked.socket.is_open() && caller.incarnation < state.parked.incarnation) || is_wedged_) {
        return refuse(std::move(caller), Verdict::stale_incarnation);
    }
    if (!poller_.add(caller.socket, EPOLLIN | EPOLLRDHUP, parked_id + index(peer))) return;
    // A node calls only when it has no connection left, so a connection that still looks alive here is dead.
    const bool is_newer = caller.incarnation > state.incarnation;
    if (state.has_connection() || state.state == PeerState::State::joining ||
        (state.state == PeerState::State::waiting && is_newer)) {
        state.has_hung_up = true;
        lose(peer, Status::peer_lost);
    }
    state.parked = std::move(caller);
    match(peer);
}

void Endpoint::match(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.state != PeerState::State::waiting || !state.parked.socket.is_open()) return;
    if (state.parked.incarnation > state.incarnation) return lose(peer, Status::peer_lost);
    if (state.parked.incarnation < state.incarnation)
        return refuse(std::exchange(state.parked, {}), Verdict::stale_incarnation);
    let_in(peer);
}

void Endpoint::let_in(Peer peer) {
    PeerState& state = peers_[index(peer)];
    Caller caller = std::exchange(state.parked, {});
    poller_.remove(caller.socket);
    state.attempt = caller.attempt;
    state.socket = std::move(caller.socket);
    keep_alive(state.socket, settings_.ack_deadline);
    watch(peer);
    if (state.state != PeerState::State::waiting) return;
    state.state = PeerState::State::joining;
    if (!begin(peer)) return;
    if (!fabric_.is_connected()) greet(peer);
    const Answer answer{.verdict = Verdict::accepted};
    if (!say(state.socket, std::as_bytes(std::span(&answer, 1)))) hang_up(peer);
}

// --- meeting on the fabric
// ------------------------------------------------------------------------------------------------------------

bool Endpoint::begin(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (const auto taken = take_sending(peer); !taken) {
        fail(peer, taken.error().message);
        return false;
    }
    state.granted = state.allowed = state.used = state.returned = state.announced = 0;
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

bool Endpoint::join(Peer peer, fi_info* from) {
    PeerState& state = peers_[index(peer)];
    auto made = fabric_.make_connected(from);
    if (made) state.endpoint = std::move(*made);
    const Result<Ok> taken = made ? take_buffers(peer) : Result<Ok>(made.error());
    if (!taken) fail(peer, taken.error().message);
    return static_cast<bool>(taken);
}

void Endpoint::greet(Peer peer) {
    peers_[index(peer)].state = PeerState::State::greeting;
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

void Endpoint::hang_up(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (std::exchange(state.has_hung_up, true) || state.state == PeerState::State::ending) return;
    if (!fabric_.is_connected() || !state.has_connection()) return lose(peer, Status::peer_lost);
    // What it had sent is heard first: the connection on the fabric ends behind it.
    stop_timing(state);
    start_timing(state);
}

void Endpoint::fail(Peer peer, const std::string& why) {
    PeerState& state = peers_[index(peer)];
    // One line per incarnation, however often its connecting is tried again.
    if (std::exchange(state.complained_of, state.incarnation) != state.incarnation)
        log(std::string(transport_name) + ": cannot connect to " + place_of(peer) + ": " + why);
    lose(peer, Status::peer_lost);
}

void Endpoint::break_off(Peer peer, const std::string& why) {
    PeerState& state = peers_[index(peer)];
    if (!state.has_connection()) return;
    log(std::string(transport_name) + ": connection to " + place_of(peer) + " lost: " + why);
    state.is_silent = true;
    lose(peer, Status::peer_lost);
}

void Endpoint::lose(Peer peer, Status status) {
    PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::ending) return;
    if (state.state != PeerState::State::up) state.is_silent = true;
    // Elsewhere a peer that this side never met writes nothing.
    if (fabric_.is_connected() || !state.has_connection()) state.has_hung_up = true;
    state.state = PeerState::State::ending;
    state.lost_as = status;
    state.wants_room = false;
    state.is_overdue = false;
    state.to_tell.clear();
    state.to_answer.clear();
    state.has_changes = false;
    state.ended_at = reads_;
    busy_.reset(index(peer));
    stalled_.reset(index(peer));
    ending_.set(index(peer));
    stop_timing(state);
    start_timing(state);
    if (state.endpoint != nullptr) {
        (void)fi_shutdown(state.endpoint.get(), 0);
        state.endpoint.reset();  // the fence
    }
    if (state.has_hung_up) state.socket.close();
}

void Endpoint::say_bye(PeerState& state) {
    if (state.has_said_bye || state.has_hung_up) return;
    if (!state.sending.out->is_quiet()) return;
    state.has_said_bye = true;
    (void)::shutdown(state.socket.fd(), SHUT_WR);
}

bool Endpoint::is_over(const PeerState& state) const {
    const bool is_quiet = fabric_.is_connected() || state.sending.out == nullptr || state.sending.out->is_quiet();
    return state.has_hung_up && (is_quiet || state.is_overdue) && seen_empty_ > state.ended_at;
}

void Endpoint::finish_ended() {
    bool is_wedged = false;
    for (std::size_t number = ending_.next(0); number != base::Bitmap::none; number = ending_.next(number + 1)) {
        PeerState& state = peers_[number];
        say_bye(state);
        if (!is_over(state)) continue;
        is_wedged = is_wedged || (fabric_.is_shm() && state.sending.out != nullptr && !state.sending.out->is_quiet());
        finish(Peer{static_cast<std::uint32_t>(number)});
    }
    if (is_wedged) wedge();
}

void Endpoint::wedge() {
    if (std::exchange(is_wedged_, true)) return;
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
        const bool is_quiet = fabric_.is_connected() || state.sending.out->is_quiet();
        state.sending.out->end_all([&](Token token) { completed(peer, token, state.lost_as); });
        if (!is_quiet) left_behind_.push_back(std::exchange(state.sending, {}));
    }
    state.socket.close();
    stop_timing(state);
    forget_waiting(peer);
    ending_.reset(index(peer));
    --known_;
    state.was_welcomed = false;
    state.state = PeerState::State::idle;
    own_events_.must_push(control_event(Event::Kind::peer_down, peer));
}

void Endpoint::handle_deadlines(Time now) {
    calls_.expire(now);
    next_deadline_ = calls_.next_deadline();
    for (std::uint32_t number = 0; number < peers_.size(); ++number) {
        PeerState& state = peers_[number];
        const bool is_ending = state.state == PeerState::State::ending;
        if (state.deadline == time_unset) {
            state.deadline = now + (is_ending || state.has_hung_up ? ending_timeout : settings_.connect_timeout);
            --untimed_;
        } else if (now >= state.deadline && is_ending) {
            state.is_overdue = true;
            state.deadline = time_never;
        } else if (now >= state.deadline && state.has_hung_up) {
            lose(Peer{number}, Status::peer_lost);
        } else if (now >= state.deadline) {
            fail(Peer{number},
                 state.state == PeerState::State::waiting ? "it did not call in time" : "no answer in time");
        }
        next_deadline_ = std::min(next_deadline_, state.deadline);
    }
    if (untimed_ > 0) next_deadline_ = now;
}

}  // namespace incast::transport::ofi
