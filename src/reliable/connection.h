// A reliable session with one peer over datagrams: sans-IO, for one thread. The owner hands in the time, what it
// received and random numbers, and sends what it is given; nothing here waits, reads a clock or, once constructed,
// allocates. Packets added here are delivered there exactly once, in order within their lane (lane 0: in any order),
// unless the session is lost. A session ends with either side's life: tokens, which are random and new for each, keep
// the packets of former lives, and of those who do not see the traffic, out.
//
//   connection.open(now, random);                        // or answer: receive() a hello
//   while (connection.room() > 0) { fill connection.body(); connection.add(lane, bytes); }
//   while (auto out = connection.next_datagram(now); !out.bytes.empty()) send(out.bytes);
//   connection.receive(now, random, datagram); while (auto in = connection.next_delivery()) use(in->body);
//   if (auto loss = connection.take_loss()) ...          // after each receive() and advance()
//   connection.advance(now);                             // by next_deadline_ns()
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/pause_watch.h"
#include "reliable/packet.h"
#include "reliable/receive_window.h"
#include "reliable/send_window.h"
#include "reliable/settings.h"

namespace incast::reliable {

enum class Loss : std::uint8_t {
    unreachable,  // nobody answered, or somebody said that nobody is there
    silent,       // no sign of life for the deadline
    restarted,    // it lives again, and knows nothing of this session
    closed,       // it said good-bye
};
const char* to_string(Loss loss);

struct Datagram {
    std::span<const std::byte> bytes;  // empty: there is none
    /// They stay as they are until something is received; else only until the next call.
    bool is_stable = false;
};

class Connection {
public:
    /// `index`: its owner's number for it, which comes back by index_of(). `greeting` goes with each hello and welcome.
    Connection(const Settings& settings, std::uint16_t index, std::span<const std::byte> greeting);

    /// The owner's number of the session that a token is of. Tokens come from the network: it may be anything.
    static std::uint16_t index_of(std::uint64_t token) { return static_cast<std::uint16_t>(token); }
    /// The answer to a packet of a session that nobody here knows.
    static std::size_t answer_unknown(const Packet& packet, std::span<std::byte, header_bytes> into);

    [[nodiscard]] bool is_idle() const { return state_ == State::idle; }
    [[nodiscard]] bool is_established() const { return state_ == State::established; }
    void open(std::int64_t now_ns, std::uint64_t random);
    /// Goes on with a session that both sides have agreed on in a way of their own, each with a token that it made.
    /// `limit`: packets that the peer takes in ahead.
    void start(std::int64_t now_ns, std::uint64_t own_token, std::uint64_t peer_token, std::uint32_t limit);
    /// A token for start(), with the owner's number in it.
    static std::uint64_t token_of(std::uint16_t index, std::uint64_t random) { return (random & ~0xFFFFULL) | index; }
    /// Says good-bye, once, and forgets the session and what was not acknowledged.
    void close();
    /// A report from elsewhere (ICMP) that nobody is at that address. `token`: of the packet it came back for.
    void refuse(std::uint64_t token);
    /// Somebody who knows says that the peer is gone.
    void give_up();

    /// Packets that can be added now; 0 while no session is open or being opened.
    [[nodiscard]] std::uint32_t room() const { return is_idle() ? 0 : send_.room(); }
    [[nodiscard]] std::span<std::byte> body() { return send_.body(); }
    void add(std::uint8_t lane, std::size_t body_bytes) { send_.add(lane, body_bytes); }
    /// What is sent once, at once, if it may: see SendWindow::pass. It stays as it is until something is received.
    [[nodiscard]] bool may_pass(std::int64_t now_ns) const {
        return state_ == State::established && send_.may_pass(now_ns);
    }
    void wait_for_pace(std::int64_t now_ns) { send_.wait_for_pace(now_ns); }
    std::span<const std::byte> pass(std::int64_t now_ns, std::size_t kept_bytes, std::size_t rest_bytes) {
        return send_.pass(now_ns, tokens_.remote, kept_bytes, rest_bytes);
    }
    /// Something that was added was never sent: what is added now has to wait, too.
    [[nodiscard]] bool has_unsent() const { return send_.has_fresh(); }
    /// All that was added has been acknowledged.
    [[nodiscard]] bool is_settled() const { return send_.is_empty(); }

    Datagram next_datagram(std::int64_t now_ns);
    /// `random`: a fresh number, used if a session begins. `takes_data`: false while the owner cannot use deliveries;
    /// new data is then dropped, to come again. False: it was dropped for good, and counted.
    bool receive(std::int64_t now_ns, std::uint64_t random, const Packet& packet, bool takes_data = true);
    std::optional<Delivery> next_delivery() { return receive_.next(); }
    /// How the session ended, once. What is added and delivered from then on is of the next.
    std::optional<Loss> take_loss();

    [[nodiscard]] std::int64_t next_deadline_ns() const;
    /// Silence ends no session whose owner was stopped itself: calls that come much later than they were due are a sign
    /// of that.
    void advance(std::int64_t now_ns);

    [[nodiscard]] const SendCounters& send_counters() const { return send_.counters(); }
    [[nodiscard]] const ReceiveCounters& receive_counters() const { return receive_.counters(); }
    /// Packets with another token than this session's.
    [[nodiscard]] std::uint64_t strangers() const { return strangers_; }
    [[nodiscard]] std::int64_t round_trip_ns() const { return send_.round_trip_ns(); }

private:
    enum class State : std::uint8_t { idle, opening, established };
    struct Tokens {
        std::uint64_t own = 0;
        std::uint64_t remote = 0;
    };

    [[nodiscard]] std::uint64_t fresh_token(std::uint64_t random) const { return token_of(index_, random); }
    void begin(std::int64_t now_ns, const Tokens& tokens);
    void forgive(std::int64_t now_ns, std::int64_t pause_ns);
    void lose(Loss loss);
    [[nodiscard]] std::uint32_t limit_of(const Packet& packet) const;
    bool take_hello(std::int64_t now_ns, std::uint64_t random, const Packet& packet);
    bool take_welcome(std::int64_t now_ns, const Packet& packet);
    void establish(std::int64_t now_ns);
    Datagram control(std::int64_t now_ns, Kind kind, std::uint64_t token, std::span<const std::byte> body);
    Datagram greet(std::int64_t now_ns, Kind kind, const Tokens& tokens);
    Datagram acknowledge(std::int64_t now_ns);

    Settings settings_;
    std::uint16_t index_ = 0;
    std::array<std::byte, max_greeting_bytes> greeting_{};
    std::size_t greeting_bytes_ = 0;
    State state_ = State::idle;
    Tokens tokens_;
    std::optional<Tokens> next_;  // of a session that another life of the peer asks for, until it proves itself
    std::uint32_t next_limit_ = 0;
    bool sends_hello_ = false;
    bool sends_welcome_ = false;
    bool sends_ack_ = false;
    bool sends_ping_ = false;
    std::uint64_t sends_bye_ = 0;  // its token
    std::uint32_t echo_us_ = 0;
    base::PauseWatch own_pauses_{0, never_ns};
    std::int64_t opened_ns_ = 0;
    std::int64_t hello_ns_ = never_ns;
    std::int64_t hello_wait_ns_ = 0;
    std::int64_t heard_ns_ = 0;
    std::int64_t ping_ns_ = never_ns;
    std::optional<Loss> loss_;
    std::uint64_t strangers_ = 0;
    std::array<std::byte, header_bytes + 1024> control_{};
    SendWindow send_;
    ReceiveWindow receive_;
};

}  // namespace incast::reliable
