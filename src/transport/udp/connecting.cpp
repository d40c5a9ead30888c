// The connections of a udp endpoint: dialling, being dialled, letting in, losing.
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <sys/random.h>

#include "transport/blob.h"
#include "transport/udp/endpoint.h"
#include "transport/udp/udp.h"

namespace incast::transport::udp {

namespace {

constexpr Time first_wait = 20 * ps_per_ms;  // for an answer to a hello; then twice as long
constexpr Time longest_wait = 320 * ps_per_ms;
constexpr Time parked_for = 4 * longest_wait;  // without another hello; then whoever said it has given up
constexpr std::uint32_t ip_and_udp_bytes = 28;
constexpr std::uint32_t ipv6_and_udp_bytes = 48;
constexpr std::uint32_t least_window = 16;
constexpr std::uint32_t largest_window = 8192;  // what an acknowledgement has bits for
/// Larger ones save little, and each that is lost costs as much more. (On loopback the kernel would take 64 KiB.)
constexpr std::uint32_t largest_discovered_mtu = 9000;
constexpr std::uint32_t smallest_mtu = 576;

/// An endpoint address as it travels.
struct WireAddress {
    static constexpr std::uint32_t expected_magic = 0x41504455;  // "UDPA"
    std::uint32_t magic = expected_magic;
    std::uint32_t node = 0;
    std::uint16_t family = 0;  // 4 or 6
    std::uint16_t port = 0;
    std::array<std::uint8_t, 16> ip{};
    std::uint32_t incarnation = 0;
};
static_assert(sizeof(WireAddress) == 32);

struct EndpointAddress {
    Address at;
    std::uint32_t node = 0;
    std::uint32_t incarnation = 0;
};

std::optional<EndpointAddress> read_address(const Blob& blob) {
    WireAddress wire;
    if (!from_blob(blob, wire) || wire.port == 0 || (wire.family != 4 && wire.family != 6)) return std::nullopt;
    return EndpointAddress{{wire.ip, wire.port, wire.family == 6}, wire.node, wire.incarnation};
}

std::uint64_t fresh_token(Peer peer) {
    std::uint64_t random = 0;
    do {
        while (::getrandom(&random, sizeof random, 0) != sizeof random) {
        }
        random = reliable::Connection::token_of(static_cast<std::uint16_t>(peer), random);
    } while (random == 0);
    return random;
}

}  // namespace

Blob with_host(const Blob& blob, std::string_view ip) {
    WireAddress wire;
    const auto host = datagram::parse_ip(ip);
    if (!host || !from_blob(blob, wire)) return blob;
    wire.family = host->is_v6 ? 6 : 4;
    wire.ip = host->ip;
    return to_blob(wire);
}

Blob Endpoint::address() const {
    return to_blob(WireAddress{.node = self(),
                               .family = static_cast<std::uint16_t>(address_.is_v6 ? 6 : 4),
                               .port = address_.port,
                               .ip = address_.ip,
                               .incarnation = options_.incarnation});
}

Post Endpoint::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    const std::optional<EndpointAddress> address = read_address(blob);
    if (!is_node(peer) || peer == options_.self || !address || address->node != index(peer)) return Post::refused;
    PeerState& state = peers_[index(peer)];
    if (const auto answer =
            answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
        return *answer;
    }
    state.incarnation = incarnation;
    state.address = address->at;
    start_timing(state);
    if (self() < index(peer)) {
        start_dialling(peer, {});
    } else {
        state.state = PeerState::State::waiting;
        match(peer);
    }
    return Post::pending;
}

void Endpoint::disconnect(Peer peer) {
    if (index(peer) >= peers_.size()) return;
    const PeerState::State state = peers_[index(peer)].state;
    if (state != PeerState::State::idle && state != PeerState::State::down) lose(peer, Status::cancelled);
}

void Endpoint::ended(Peer peer, std::uint32_t incarnation) {
    if (index(peer) >= peers_.size()) return;
    const PeerState& state = peers_[index(peer)];
    const bool known = state.state != PeerState::State::idle && state.state != PeerState::State::down;
    if (known && state.incarnation == incarnation) lose(peer, Status::peer_lost);
}

Result<Peer> Endpoint::dial(const Blob& blob, Bytes greeting) {
    const std::optional<EndpointAddress> address = read_address(blob);
    if (!address) return Error{"dial: not an address of the udp transport"};
    if (greeting.size() > max_greeting_bytes) return no_greeting(greeting.size());
    const Peer peer = free_number();
    if (peer == any_peer) return no_number_left(options_.max_dialled);
    PeerState& state = peers_[index(peer)];
    state.node = address->node;
    state.incarnation = address->incarnation;
    state.complained_of = 0;
    state.address = address->at;
    state.greeting.assign(greeting.begin(), greeting.end());
    start_timing(state);
    start_dialling(peer, {.knocks = 1, .greeting_bytes = static_cast<std::uint16_t>(greeting.size())});
    return peer;
}

Post Endpoint::accept(Peer peer) {
    if (is_node(peer) || !exists(peer)) return Post::refused;
    const PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::down) return Post::pending;  // it is gone, which is still to be polled
    if (state.state != PeerState::State::knocking || !state.announced) return Post::refused;
    let_in(peer);
    return Post::pending;
}

Peer Endpoint::free_number() const {
    for (std::uint32_t peer = options_.max_peers; peer < peers_.size(); ++peer)
        if (peers_[peer].state == PeerState::State::idle) return Peer{peer};
    return any_peer;
}

void Endpoint::log_lost(Peer peer, std::string_view why) const {
    log(std::string(transport_name) + ": connection to node " + std::to_string(index(peer)) + " at " +
        to_string(peers_[index(peer)].address) + " lost: " + std::string(why));
}

// --- connecting
// -----------------------------------------------------------------------------------------------------------
std::uint32_t Endpoint::datagram_bytes_to(const Address& to) const {
    std::uint32_t mtu = settings_.mtu;
    if (mtu == 0) mtu = std::min(datagram::mtu_to(to), largest_discovered_mtu);
    const std::uint32_t headers = to.is_v6 ? ipv6_and_udp_bytes : ip_and_udp_bytes;
    return std::min<std::uint32_t>(std::max(mtu, smallest_mtu) - headers, reliable::max_datagram_bytes);
}

std::uint32_t Endpoint::window_packets(std::uint32_t datagram_bytes) const {
    std::size_t bytes = settings_.window_bytes;
    // What does not fit into the receive buffer is gone for good: each peer has its share, in which the kernel counts
    // a datagram with as much again for itself.
    if (!settings_.repairs) bytes = std::min<std::size_t>(bytes, receive_buffer_bytes_ / 2 / peers_.size());
    const auto packets = static_cast<std::uint32_t>(bytes / datagram_bytes);
    return std::bit_floor(std::clamp(packets, least_window, largest_window));
}

void Endpoint::start_dialling(Peer peer, const Hello& hello) {
    PeerState& state = peers_[index(peer)];
    state.state = PeerState::State::dialling;
    state.wait = first_wait;
    state.hello = hello;
    state.hello.versions = settings_.versions.packed();
    state.hello.program = base::program_number();
    state.hello.run = options_.run;
    state.hello.token = options_.token;
    state.hello.group = ++serials_;
    state.hello.session = fresh_token(peer);
    state.hello.from = self();
    state.hello.from_incarnation = options_.incarnation;
    state.hello.to = state.node;
    state.hello.to_incarnation = state.incarnation;
    state.hello.max_posted = options_.max_posted;
    state.hello.datagram_bytes = datagram_bytes_to(state.address);
    state.hello.window_packets = window_packets(state.hello.datagram_bytes);
    state.hello.once = settings_.repairs ? 0 : 1;
}

void Endpoint::say_hello(PeerState& state, Time now) {
    say(state.address, state.hello, state.greeting);
    state.repeat = now + state.wait;
    state.wait = std::min(2 * state.wait, longest_wait);
}

void Endpoint::say(const Address& to, const Hello& hello, Bytes greeting) {
    std::array<std::byte, sizeof(Hello) + max_greeting_bytes> bytes;
    std::memcpy(bytes.data(), &hello, sizeof hello);
    const Bytes behind = greeting.first(hello.greeting_bytes);
    std::ranges::copy(behind, bytes.begin() + sizeof hello);
    socket_.add(to, Bytes(bytes).first(sizeof hello + behind.size()), false);
}

void Endpoint::answer(Answer answer, const Address& to) {
    answer.program = base::program_number();
    if (answer.said != Said::accepted) answer.versions = settings_.versions.packed();
    socket_.add(to, std::as_bytes(std::span(&answer, 1)), false);
}

void Endpoint::fail_dial(Peer peer, std::string_view why) {
    PeerState& state = peers_[index(peer)];
    // One line per incarnation, however often its connecting is tried again.
    if (std::exchange(state.complained_of, state.incarnation) != state.incarnation)
        log(std::string(transport_name) + ": cannot connect to node " + std::to_string(index(peer)) + " at " +
            to_string(state.address) + ": " + std::string(why));
    lose(peer, Status::peer_lost);
}

void Endpoint::take_answer(const Answer& answer) {
    for (std::uint32_t i = 0; i < peers_.size(); ++i) {
        PeerState& state = peers_[i];
        if (state.state != PeerState::State::dialling || state.hello.group != answer.group ||
            state.hello.session != answer.session) {
            continue;
        }
        if (answer.said == Said::cookie && state.hello.cookie != answer.value) {
            state.hello.cookie = answer.value;
            state.wait = first_wait;
            say_hello(state, last_now_);
            next_deadline_ = std::min(next_deadline_, state.repeat);
        } else if (answer.said == Said::refused && answer.verdict == Verdict::turned_away) {
            lose(Peer{i}, Status::peer_lost);  // as quiet as any peer_down
        } else if (answer.said == Said::refused) {
            fail_dial(Peer{i}, "refused: " + reason(answer, settings_.versions));
        } else if (answer.said == Said::accepted) {
            if (!settings_.versions.contains(answer.versions) || answer.max_posted == 0 ||
                answer.max_posted > max_posted_limit || answer.datagram_bytes < least_datagram_bytes ||
                answer.datagram_bytes > state.hello.datagram_bytes) {
                return fail_dial(Peer{i}, "its answer makes no sense");
            }
            state.address = socket_.from();
            go_up(Peer{i}, {.own_session = state.hello.session,
                            .peer_session = answer.value,
                            .datagram_bytes = answer.datagram_bytes,
                            .peer_window = answer.window_packets,
                            .peer_max_posted = answer.max_posted});
        }
        return;
    }
}

void Endpoint::refuse(const Hello& hello, const Address& to, Verdict verdict) {
    if (verdict != Verdict::turned_away) {
        strangers_.add(last_now_, std::string(transport_name) + ": refused connection from " + to_string(to) + ": " +
                                      reason(hello, verdict, settings_.versions));
    }
    answer({.said = Said::refused, .verdict = verdict, .group = hello.group, .session = hello.session}, to);
}

void Endpoint::take_hello(Time now, const Hello& hello, Bytes greeting) {
    const Verdict verdict = judge(hello, {.run = options_.run,
                                          .token = options_.token,
                                          .self = self(),
                                          .self_incarnation = options_.incarnation,
                                          .max_peers = options_.max_peers,
                                          .once = settings_.repairs ? 0U : 1U,
                                          .versions = settings_.versions});
    const std::uint64_t cookie = cookies_.of(socket_.from(), hello);
    if (hello.said == Said::withdraw) {  // which nobody waits for an answer to
        if (verdict == Verdict::accepted && hello.cookie == cookie) take_withdrawal(hello);
        return;
    }
    if (verdict != Verdict::accepted) return refuse(hello, socket_.from(), verdict);
    if (hello.cookie != cookie) {
        return answer({.said = Said::cookie, .group = hello.group, .session = hello.session, .value = cookie},
                      socket_.from());
    }
    if (hello.knocks != 0) return hear_knock(now, hello, greeting);
    park(now, hello);
}

Peer Endpoint::dialler(const Hello& hello) const {
    if (hello.knocks == 0) return Peer{hello.from};
    for (std::uint32_t peer = options_.max_peers; peer < peers_.size(); ++peer) {
        const PeerState& state = peers_[peer];
        if (state.let_in_group == hello.group && state.let_in_from == socket_.from() &&
            state.let_in_incarnation == hello.from_incarnation) {
            return Peer{peer};
        }
    }
    return any_peer;
}

void Endpoint::take_withdrawal(const Hello& hello) {
    const Peer peer = dialler(hello);
    if (peer == any_peer) return;
    PeerState& state = peers_[index(peer)];
    if (state.parked.is_there && state.parked.hello.group == hello.group &&
        state.parked.hello.from_incarnation == hello.from_incarnation) {
        state.parked.is_there = false;
        if (state.state == PeerState::State::knocking) lose(peer, Status::peer_lost);
    }
    // Let in, which it did not hear in time.
    if (state.state == PeerState::State::up && state.let_in_group == hello.group &&
        state.let_in_incarnation == hello.from_incarnation) {
        lose(peer, Status::peer_lost);
    }
}

void Endpoint::park(Time now, const Hello& hello) {
    const Peer peer{hello.from};
    PeerState& state = peers_[hello.from];
    const bool is_same_life = hello.from_incarnation == state.let_in_incarnation;
    if (state.state == PeerState::State::up && is_same_life && hello.group == state.let_in_group)
        return answer(state.answer, socket_.from());
    const bool is_connected = state.state == PeerState::State::up || state.state == PeerState::State::waiting;
    const Hello& last = state.parked.hello;
    if ((is_connected && hello.from_incarnation < state.incarnation) ||
        hello.from_incarnation < state.let_in_incarnation || (is_same_life && hello.group <= state.let_in_group) ||
        (state.parked.is_there && (hello.from_incarnation < last.from_incarnation ||
                                   (hello.from_incarnation == last.from_incarnation && hello.group < last.group)))) {
        return refuse(hello, socket_.from(), Verdict::stale);
    }
    // A node dials only when it has no connection left, so a connection that still looks alive here is dead.
    if (state.state == PeerState::State::up) lose(peer, Status::peer_lost);
    if (state.state == PeerState::State::waiting && hello.from_incarnation > state.incarnation)
        lose(peer, Status::peer_lost);
    state.parked = {.is_there = true, .hello = hello, .from = socket_.from(), .heard = now};
    match(peer);
}

void Endpoint::match(Peer peer) {
    PeerState& state = peers_[index(peer)];
    Parked& parked = state.parked;
    if (parked.is_there && last_now_ > parked.heard + parked_for) parked.is_there = false;
    if (state.state != PeerState::State::waiting || !parked.is_there) return;
    if (parked.hello.from_incarnation > state.incarnation) return lose(peer, Status::peer_lost);
    if (parked.hello.from_incarnation < state.incarnation) {
        parked.is_there = false;
        return refuse(parked.hello, parked.from, Verdict::stale);
    }
    let_in(peer);
}

void Endpoint::hear_knock(Time now, const Hello& hello, Bytes greeting) {
    const Peer known = dialler(hello);
    if (known != any_peer) {
        PeerState& state = peers_[index(known)];
        if (state.state == PeerState::State::knocking) {
            state.parked.heard = now;
        } else if (state.state == PeerState::State::up) {
            answer(state.answer, socket_.from());
        } else {
            refuse(hello, socket_.from(), Verdict::turned_away);
        }
        return;
    }
    const Peer peer = free_number();
    if (peer == any_peer) return refuse(hello, socket_.from(), Verdict::no_room);
    PeerState& state = peers_[index(peer)];
    state.node = hello.from;
    state.incarnation = hello.from_incarnation;
    state.address = socket_.from();
    state.greeting.assign(greeting.begin(), greeting.end());
    state.parked = {.is_there = true, .hello = hello, .from = socket_.from(), .heard = now};
    state.let_in_group = hello.group;
    state.let_in_incarnation = hello.from_incarnation;
    state.let_in_from = socket_.from();
    state.announced = false;
    state.state = PeerState::State::knocking;
    raised_.push_back(peer);
    next_deadline_ = std::min(next_deadline_, now + settings_.deadline);
}

void Endpoint::let_in(Peer peer) {
    PeerState& state = peers_[index(peer)];
    const Hello& hello = state.parked.hello;
    state.parked.is_there = false;
    state.address = state.parked.from;
    state.let_in_group = hello.group;
    state.let_in_incarnation = hello.from_incarnation;
    const std::uint32_t datagram_bytes = std::min(hello.datagram_bytes, datagram_bytes_to(state.address));
    state.answer = {.versions = chosen(hello, settings_.versions).value_or(0),
                    .said = Said::accepted,
                    .group = hello.group,
                    .session = hello.session,
                    .value = fresh_token(peer),
                    .max_posted = options_.max_posted,
                    .datagram_bytes = datagram_bytes,
                    .window_packets = window_packets(datagram_bytes)};
    answer(state.answer, state.address);
    go_up(peer, {.own_session = state.answer.value,
                 .peer_session = hello.session,
                 .datagram_bytes = datagram_bytes,
                 .peer_window = hello.window_packets,
                 .peer_max_posted = hello.max_posted});
}

void Endpoint::go_up(Peer peer, const Agreed& agreed) {
    PeerState& state = peers_[index(peer)];
    stop_timing(state);
    // What the peer may send ahead of the frame that comes next: of a body each packet, at most.
    const std::uint32_t bodies_beside = settings_.repairs ? 0 : std::bit_ceil(window_packets(agreed.datagram_bytes));
    state.link = std::make_unique<Link>(reliable::Settings{.datagram_bytes = agreed.datagram_bytes,
                                                           .window_packets = window_packets(agreed.datagram_bytes),
                                                           .deadline_ns = settings_.deadline / ps_per_ns,
                                                           .pace_bytes_per_s = settings_.max_rate_bytes_per_s},
                                        static_cast<std::uint16_t>(index(peer)),
                                        framed::SessionOptions{.self = options_.self,
                                                               .peer = peer,
                                                               .self_incarnation = options_.incarnation,
                                                               .peer_incarnation = state.incarnation,
                                                               .streams = 1,
                                                               .max_posted = options_.max_posted,
                                                               .max_peer_reads = agreed.peer_max_posted,
                                                               .staging_bytes = settings_.staging_bytes,
                                                               .copied_bytes = settings_.send_buffer_bytes,
                                                               .copy_below_bytes = settings_.copy_below_bytes,
                                                               .bodies_beside = bodies_beside},
                                        regions_);
    state.link->connection().start(last_now_ / ps_per_ns, agreed.own_session, agreed.peer_session, agreed.peer_window);
    state.state = PeerState::State::up;
    state.announced = false;
    raised_.push_back(peer);
    activate(peer);
}

void Endpoint::lose(Peer peer, Status status) {
    PeerState& state = peers_[index(peer)];
    stop_timing(state);
    std::erase(raised_, peer);
    if (stuck_ == peer) stuck_ = any_peer;
    if (state.state == PeerState::State::dialling) {
        state.hello.said = Said::withdraw;
        say(state.address, state.hello, state.greeting);
    }
    if (!is_node(peer) && std::exchange(state.parked.is_there, false) && state.state == PeerState::State::knocking) {
        refuse(state.parked.hello, state.parked.from, Verdict::turned_away);
    }
    if (state.state == PeerState::State::knocking && !state.announced) {  // and nobody was told of it
        state.state = PeerState::State::idle;
        return;
    }
    if (state.link != nullptr) {
        state.link->connection().close();
        const reliable::Datagram bye = state.link->connection().next_datagram(last_now_ / ps_per_ns);
        if (!bye.bytes.empty()) socket_.add(state.address, bye.bytes, bye.is_stable);
    }
    state.state = PeerState::State::down;
    state.lost_as = status;
    down_.push_back(peer);
}

void Endpoint::announce(framed::EventWriter& events) {
    std::size_t told = 0;
    for (; told < raised_.size() && events.room() > 0; ++told) {
        PeerState& state = peers_[index(raised_[told])];
        state.announced = true;
        Event event = control_event(Event::Kind::peer_up, raised_[told]);
        if (state.state == PeerState::State::knocking) {
            event.kind = Event::Kind::knock;
            event.size_or_value = static_cast<std::uint16_t>(state.greeting.size());
            event.data = state.greeting.data();
        }
        events.push(event);
    }
    raised_.erase(raised_.begin(), raised_.begin() + static_cast<std::ptrdiff_t>(told));
}

void Endpoint::finish_losses(framed::EventWriter& events) {
    std::erase_if(down_, [&](Peer peer) {
        PeerState& state = peers_[index(peer)];
        if (state.link != nullptr && !state.link->session().abandon(state.lost_as, events)) return false;
        if (events.room() == 0) return false;
        events.push(control_event(Event::Kind::peer_down, peer));
        if (state.link != nullptr) {
            copied_for_lost_ += state.link->copied_bytes();
            counted_for_lost_ += state.link->datagrams();
        }
        // Messages of this poll may lie in its memory, and are valid until the next.
        lost_links_.push_back(std::move(state.link));
        state.state = PeerState::State::idle;
        if (!is_node(peer)) {  // whoever gets its number is not taken for it
            imports_.forget(peer);
            regions_.forget(peer);
        }
        return true;
    });
}

void Endpoint::take_refused() {
    socket_.take_refused([&](const Address& at, Bytes begin) {
        // What comes back may be cut short.
        Hello hello;
        std::memcpy(&hello, begin.data(), std::min(begin.size(), sizeof hello));
        std::array<std::byte, reliable::header_bytes> header{};
        std::copy_n(begin.begin(), std::min(begin.size(), header.size()), header.begin());
        header[header.size() - 2] = header[header.size() - 1] = std::byte{0};
        const auto packet = reliable::parse(header);
        for (std::uint32_t i = 0; i < peers_.size(); ++i) {
            PeerState& state = peers_[i];
            if (state.address != at) continue;
            if (state.state == PeerState::State::dialling && hello.magic == hello_magic &&
                hello.group == state.hello.group && hello.session == state.hello.session) {
                fail_dial(Peer{i}, std::generic_category().message(ECONNREFUSED));
            } else if (state.state == PeerState::State::up && packet) {
                state.link->connection().refuse(packet->token);
                look_for_loss(Peer{i});
            }
        }
    });
}

void Endpoint::start_timing(PeerState& state) {
    state.deadline = deadline_unset;
    ++untimed_;
}

void Endpoint::stop_timing(PeerState& state) {
    if (state.deadline == deadline_unset) --untimed_;
    state.deadline = time_never;
}

}  // namespace incast::transport::udp
