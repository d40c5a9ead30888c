#include "reliable/connection.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace incast::reliable {

namespace {

/// That often within the deadline a silent peer is asked for a sign of life.
constexpr int pings_per_deadline = 5;
/// What waits for nothing else is called that often; twice as long without a call was a pause of this side.
constexpr std::int64_t pause_of(std::int64_t deadline_ns) {
    return deadline_ns / pings_per_deadline * 2;
}
constexpr std::int64_t first_hello_wait_ns = 10 * ms_ns;
constexpr std::int64_t max_hello_wait_ns = 80 * ms_ns;

Settings with_whole_window(Settings settings) {
    settings.window_packets = std::bit_ceil(settings.window_packets);
    return settings;
}

}  // namespace

const char* to_string(Loss loss) {
    switch (loss) {
        case Loss::unreachable:
            return "nobody is there, or nobody answered";
        case Loss::silent:
            return "no sign of life in time";
        case Loss::restarted:
            return "it has begun anew";
        case Loss::closed:
            return "the session was closed";
    }
    return "?";
}

Connection::Connection(const Settings& settings, std::uint16_t index, std::span<const std::byte> greeting)
    : settings_(with_whole_window(settings)),
      index_(index),
      greeting_bytes_(std::min(greeting.size(), greeting_.size())),
      send_(settings_),
      receive_(settings_) {
    std::copy_n(greeting.begin(), greeting_bytes_, greeting_.begin());
}

std::size_t Connection::answer_unknown(const Packet& packet, std::span<std::byte, header_bytes> into) {
    if (packet.kind == Kind::hello || packet.kind == Kind::unknown || packet.kind == Kind::bye) return 0;
    Packet answer;
    answer.kind = Kind::unknown;
    answer.token = packet.token;
    write_header(answer, into.data());
    return header_bytes;
}

void Connection::begin(std::int64_t now_ns, const Tokens& tokens) {
    tokens_ = tokens;
    next_.reset();
    send_.reset();
    receive_.reset();
    sends_hello_ = sends_welcome_ = sends_ack_ = sends_ping_ = false;
    opened_ns_ = heard_ns_ = now_ns;
    own_pauses_ = {now_ns, pause_of(settings_.open_ns)};
    hello_ns_ = ping_ns_ = never_ns;
}

void Connection::open(std::int64_t now_ns, std::uint64_t random) {
    if (!is_idle()) return;
    begin(now_ns, {fresh_token(random), 0});
    state_ = State::opening;
    sends_hello_ = true;
    hello_wait_ns_ = first_hello_wait_ns;
    hello_ns_ = now_ns + hello_wait_ns_;
}

void Connection::start(std::int64_t now_ns, std::uint64_t own_token, std::uint64_t peer_token, std::uint32_t limit) {
    begin(now_ns, {own_token, peer_token});
    send_.set_limit(std::clamp(limit, 1U, settings_.window_packets));
    establish(now_ns);
}

void Connection::close() {
    if (is_idle()) return;
    sends_bye_ = tokens_.remote;
    begin(0, {});
    state_ = State::idle;
}

void Connection::lose(Loss loss) {
    loss_ = loss;
    begin(0, {});
    state_ = State::idle;
}

std::optional<Loss> Connection::take_loss() {
    return std::exchange(loss_, std::nullopt);
}

void Connection::refuse(std::uint64_t token) {
    // A hello has no token that could prove it; a session that stands is not ended by one who does not know its.
    if (state_ == State::opening ? token == 0 : !is_idle() && token == tokens_.remote) lose(Loss::unreachable);
}

void Connection::give_up() {
    if (!is_idle()) lose(Loss::unreachable);
}

void Connection::establish(std::int64_t now_ns) {
    state_ = State::established;
    sends_hello_ = false;
    hello_ns_ = never_ns;
    ping_ns_ = now_ns + settings_.deadline_ns / pings_per_deadline;
    own_pauses_ = {now_ns, pause_of(settings_.deadline_ns)};
}

std::uint32_t Connection::limit_of(const Packet& packet) const {
    return std::clamp(packet.lane_sequence, 1U, settings_.window_packets);
}

bool Connection::take_hello(std::int64_t now_ns, std::uint64_t random, const Packet& packet) {
    const auto greeting = parse_greeting(packet);
    if (!greeting || greeting->token == 0 || packet.sequence != settings_.datagram_bytes) return false;
    if (is_idle()) {
        begin(now_ns, {fresh_token(random), greeting->token});
        state_ = State::opening;
        hello_wait_ns_ = first_hello_wait_ns;
        hello_ns_ = now_ns + hello_wait_ns_;
        send_.set_limit(limit_of(packet));
    } else if (tokens_.remote == greeting->token || tokens_.remote == 0) {
        // The same again, or both have called at once.
        next_.reset();
        tokens_.remote = greeting->token;
        send_.set_limit(limit_of(packet));
    } else if (!next_ || next_->remote != greeting->token) {
        // Another life of the peer, or a replay: the session stays until whoever asks proves that it reads answers.
        next_ = Tokens{fresh_token(random), greeting->token};
        next_limit_ = limit_of(packet);
    }
    sends_welcome_ = true;
    return true;
}

bool Connection::take_welcome(std::int64_t now_ns, const Packet& packet) {
    const auto greeting = parse_greeting(packet);
    if (!greeting || greeting->token == 0 || packet.sequence != settings_.datagram_bytes) return false;
    // It has this side's token, so it proves more than a hello that came before, which may be anybody's.
    if (state_ == State::established && tokens_.remote != greeting->token) return false;
    tokens_.remote = greeting->token;
    send_.set_limit(limit_of(packet));
    if (state_ == State::opening) establish(now_ns);
    sends_ack_ = true;  // which proves that the welcome was read
    return true;
}

bool Connection::receive(std::int64_t now_ns, std::uint64_t random, const Packet& packet, bool takes_data) {
    if (packet.kind == Kind::hello) return take_hello(now_ns, random, packet);
    if (packet.kind == Kind::unknown) {
        if (is_idle() || packet.token == 0 || packet.token != tokens_.remote) return false;
        lose(Loss::restarted);
        return true;
    }
    if (next_ && packet.token == next_->own && packet.kind != Kind::welcome) {
        const Tokens tokens = *next_;
        lose(Loss::restarted);
        begin(now_ns, tokens);
        send_.set_limit(next_limit_);
        establish(now_ns);
    }
    if (is_idle() || packet.token != tokens_.own) {
        ++strangers_;
        return false;
    }
    heard_ns_ = now_ns;
    if (packet.kind == Kind::welcome) return take_welcome(now_ns, packet);
    if (tokens_.remote == 0) return false;  // nobody can know this token yet
    if (state_ == State::opening) establish(now_ns);
    switch (packet.kind) {
        case Kind::data:
            sends_ack_ = true;
            echo_us_ = packet.time_us;
            return (!takes_data && receive_.is_new(packet)) || receive_.take(packet);
        case Kind::ack:
            return send_.acknowledge(now_ns, packet);
        case Kind::ping:
            sends_ack_ = true;
            echo_us_ = packet.time_us;
            return true;
        case Kind::bye:
            lose(Loss::closed);
            return true;
        default:
            return false;
    }
}

Datagram Connection::control(std::int64_t now_ns, Kind kind, std::uint64_t token, std::span<const std::byte> body) {
    write_header({.kind = kind,
                  .lane = 0,
                  .time_us = kind == Kind::ack ? echo_us_ : static_cast<std::uint32_t>(now_ns / 1000),
                  .token = token,
                  .sequence = kind == Kind::ack ? receive_.complete_below() : settings_.datagram_bytes,
                  .lane_sequence = settings_.window_packets,
                  .body = body},
                 control_.data());
    return {std::span(control_).first(header_bytes + body.size()), false};
}

Datagram Connection::greet(std::int64_t now_ns, Kind kind, const Tokens& tokens) {
    const auto body = std::span(control_).subspan(header_bytes, sizeof tokens.own + greeting_bytes_);
    std::memcpy(body.data(), &tokens.own, sizeof tokens.own);
    std::copy_n(greeting_.begin(), greeting_bytes_, body.begin() + sizeof tokens.own);
    return control(now_ns, kind, kind == Kind::hello ? 0 : tokens.remote, body);
}

Datagram Connection::acknowledge(std::int64_t now_ns) {
    sends_ack_ = false;
    const auto room = std::span(control_).subspan(header_bytes);
    const std::size_t used =
        receive_.write_bitmap(room.first(std::min<std::size_t>(room.size(), settings_.datagram_bytes - header_bytes)));
    return control(now_ns, Kind::ack, tokens_.remote, room.first(used));
}

Datagram Connection::next_datagram(std::int64_t now_ns) {
    if (sends_bye_ != 0) return control(now_ns, Kind::bye, std::exchange(sends_bye_, 0), {});
    if (is_idle()) return {};
    if (sends_welcome_) {
        sends_welcome_ = false;
        return greet(now_ns, Kind::welcome, next_ ? *next_ : tokens_);
    }
    if (sends_hello_) {
        sends_hello_ = false;
        return greet(now_ns, Kind::hello, tokens_);
    }
    if (state_ != State::established) return {};
    if (sends_ack_) return acknowledge(now_ns);
    if (sends_ping_) {
        sends_ping_ = false;
        return control(now_ns, Kind::ping, tokens_.remote, {});
    }
    return {send_.next(now_ns, tokens_.remote), true};
}

std::int64_t Connection::next_deadline_ns() const {
    if (is_idle()) return never_ns;
    if (state_ == State::opening) return std::min(hello_ns_, opened_ns_ + settings_.open_ns);
    return std::min({send_.deadline_ns(), ping_ns_, heard_ns_ + settings_.deadline_ns});
}

/// What had come before this side looked may have been heard meanwhile.
void Connection::forgive(std::int64_t now_ns, std::int64_t pause_ns) {
    opened_ns_ = std::min(opened_ns_ + pause_ns, now_ns);
    heard_ns_ = std::min(heard_ns_ + pause_ns, now_ns);
}

void Connection::advance(std::int64_t now_ns) {
    if (is_idle()) return;
    forgive(now_ns, own_pauses_.look(now_ns));
    if (state_ == State::opening) {
        if (now_ns >= opened_ns_ + settings_.open_ns) {
            lose(Loss::unreachable);
        } else if (now_ns >= hello_ns_) {
            // As long as nothing is proven, whoever called last may not be the peer: that one is called, too.
            sends_hello_ = true;
            sends_welcome_ = tokens_.remote != 0;
            hello_wait_ns_ = std::min(2 * hello_wait_ns_, max_hello_wait_ns);
            hello_ns_ = now_ns + hello_wait_ns_;
        }
        return;
    }
    if (now_ns >= heard_ns_ + settings_.deadline_ns) {
        lose(Loss::silent);
        return;
    }
    if (now_ns >= ping_ns_) {
        const std::int64_t interval_ns = settings_.deadline_ns / pings_per_deadline;
        sends_ping_ = now_ns >= heard_ns_ + interval_ns;
        ping_ns_ = sends_ping_ ? now_ns + interval_ns : heard_ns_ + interval_ns;
    }
    send_.advance(now_ns);
}

}  // namespace incast::reliable
