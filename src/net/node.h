// A node of raw traffic: sends, receives and answers as the pattern says, on one transport endpoint, driven by one
// thread. Beside protocol::Node it is what an interconnect does without event building (EB-M5).
// Sans-IO: no clock, thread or socket; it acts only through the transport and the content it was given.
//
// Flow control: every queue of a pair has `outstanding` slots of its own at the receiver, used in turn. A receiver
// returns how many messages of each queue it has polled, so a slot is never written again before its notice was polled.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <incast/transport.h>

#include "base/bitmap.h"
#include "base/fifo.h"
#include "base/histogram.h"
#include "net/config.h"
#include "net/wire.h"

namespace incast::net {

/// What bodies consist of. Every 64-byte line is a function of sender, position in its ring, and line.
class Content {
public:
    Content() = default;
    Content(const Content&) = delete;
    Content& operator=(const Content&) = delete;
    virtual ~Content() = default;
    virtual void fill(Peer sender, std::uint64_t position, std::span<std::byte> body) = 0;
    /// The first byte that differs from what fill writes; nothing if all agree.
    virtual std::optional<std::size_t> difference(Peer sender, std::uint64_t position, Bytes body) = 0;
};

enum class State : std::uint8_t {
    joining,   // connecting to those it has traffic with
    ready,     // all are there; waits for go(), or is under way
    finished,  // everything it sends was sent, and everything it hears was announced as sent and was polled
};

/// Since start; read by the owner thread.
struct Counters {
    std::uint64_t messages_sent = 0;
    std::uint64_t messages_received = 0;
    std::uint64_t bytes_sent = 0;  // of bodies; answers, and pings beside a load, count for nobody
    std::uint64_t bytes_received = 0;
    std::uint64_t answers_sent = 0;
    std::uint64_t verified_messages = 0;  // every byte compared
    std::uint64_t content_errors = 0;     // a body differs
    std::uint64_t order_errors = 0;  // a slot held another message than the one that was due, or messages are missing
    std::uint64_t controls_sent = 0;
    std::uint64_t controls_received = 0;
    std::uint64_t bad_messages = 0;   // malformed, or of another run: dropped
    std::uint64_t back_pressure = 0;  // posts that answered `again`
};

/// Of one partner.
struct PairCount {
    Peer peer{};
    std::uint64_t messages_sent = 0;
    std::uint64_t messages_received = 0;
};

class Node {
public:
    /// Everything is borrowed and must outlive the node.
    Node(const Config& config, Peer self, Transport& transport, Content& content);
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    /// Allocates all memory, and fills the ring. After it only update_peer may allocate (inside the transport).
    Result<Ok> start();
    /// From the rendezvous. Connects if the pattern needs it, and retries until it is up.
    void update_peer(Time now, Peer peer, std::uint32_t incarnation, const Blob& address);
    /// Sending begins at `at`.
    void go(Time at);
    /// Nothing new is sent; what is under way still arrives.
    void stop();

    /// Handles what the last step polled, posts what became due, and polls one batch of events. True if anything
    /// happened: call again soon. `now` is the clock's, read for this step.
    bool step(Time now);
    /// When step must be called even if the transport is silent (<= now: at once).
    [[nodiscard]] Time next_deadline() const;

    [[nodiscard]] State state() const { return state_; }
    /// Not empty: it cannot go on, and why.
    [[nodiscard]] const std::string& failure() const { return failure_; }
    /// The first message that was not what it should have been; empty if there is none.
    [[nodiscard]] const std::string& first_error() const { return first_error_; }
    [[nodiscard]] const Counters& counters() const { return counters_; }
    [[nodiscard]] std::size_t partner_count() const { return links_.size(); }
    [[nodiscard]] PairCount pair_count(std::size_t partner) const;
    /// Round trips with that partner, or reads from it, in ns; nullptr unless latency is measured and this node asks
    /// it.
    [[nodiscard]] const base::Histogram* round_trips(std::size_t partner) const;
    void clear_round_trips();
    /// When sending began (go) and when it became finished; 0: not yet.
    [[nodiscard]] Time began_at() const { return began_at_; }
    [[nodiscard]] Time finished_at() const { return finished_at_; }

private:
    enum class LinkState : std::uint8_t { unknown, wanted, connecting, up, lost };
    struct Link {
        Partner partner;
        Blob address;
        std::uint32_t incarnation = 0;
        LinkState state = LinkState::unknown;
        bool hello_sent = false;
        bool hello_heard = false;
        bool blocked = false;  // `again`, and no room since
        bool ended = false;    // outbound: its end was sent
        bool end_heard = false;
        Remote region{};
        Time retry_at = 0;
        std::uint32_t open_streams = 0;  // that this node posts to, not yet over
        std::uint64_t messages_sent = 0;
        std::uint64_t messages_received = 0;
    };
    // Hot: a line each for the streams of one direction.
    struct Outbound {
        std::uint64_t sequence = 0;  // of the next message
        std::uint64_t credited = 0;  // polled by the receiver
        std::uint64_t position = 0;  // of the next body in the ring
        Time posted_at = 0;
        std::uint32_t link = 0;
        std::uint32_t under_way = 0;  // writes that will complete; counted where sends are limited
        std::uint16_t slot = 0;       // of the next message
        std::uint16_t queue = 0;
        bool queued = false;  // in ready_
        bool over = false;
    };
    struct Inbound {
        std::uint64_t expected = 0;  // sequence of the next message; reads: those that have completed
        std::uint64_t returned = 0;  // credits
        std::uint64_t position = 0;  // of the next answer's body in the ring; reads: of the next one in the peer's
        std::uint64_t issued = 0;    // reads that were posted
        std::uint32_t link = 0;
        std::uint16_t slot = 0;
        std::uint16_t queue = 0;
        bool over = false;  // reads
    };
    // A slot that is read into.
    struct Reading {
        enum class State : std::uint8_t { idle, queued, pending };
        std::uint64_t position = 0;
        Time posted_at = 0;
        State state = State::idle;
    };

    static std::string name_of(Peer peer);
    [[nodiscard]] std::uint32_t first_stream(std::uint32_t link) const { return link * queues_; }
    /// Writes to it, or reads from it, as the pattern says; answers aside.
    [[nodiscard]] bool posts_to(const Link& link) const {
        return reads_ ? link.partner.hears_from : link.partner.sends_to;
    }
    [[nodiscard]] std::uint32_t slots_of(std::uint32_t queue) const {
        return is_ping(config_, queue) ? 1 : config_.outstanding;
    }
    /// Among the slots for answers of a pair.
    [[nodiscard]] std::uint64_t answer_slot(std::uint32_t queue) const { return queue == config_.queues ? 0 : queue; }
    Result<Ok> make_region(std::uint64_t bytes);
    Result<Ok> make_ring();
    Result<Ok> expose(Local region);
    void want(Link& link, Time at);
    void connect_due(Time now);
    void handle(Time now, const Event& event);
    void on_up(Time now, const Event& event);
    void on_down(Time now, const Event& event);
    void on_message(std::uint32_t link, Bytes message);
    void on_hello(Link& link, Bytes key);
    void on_credits(std::uint32_t link, const ControlView& view);
    void on_end(std::uint32_t link, const ControlView& view);
    void on_notice(Time now, std::uint32_t link, std::uint16_t notice, bool damaged);
    void on_answer(Time now, std::uint32_t link, std::uint16_t queue, bool damaged);
    void on_completed(Time now, const Event& event);
    void count_sent(Link& link, std::uint64_t messages);
    void count_received(Link& link);
    /// What landed in a slot, against what was due there.
    void examine(const Link& link, std::uint64_t offset, std::uint64_t sequence, std::uint16_t queue, bool answer,
                 bool damaged);
    void wrong(std::uint64_t& count, std::string text);
    void begin(Time now);
    /// Of either kind: what there is room for becomes due.
    void resume(std::uint32_t stream);
    void enqueue(std::uint32_t stream);
    void enqueue_reads(std::uint32_t stream);
    void enqueue_read(std::uint32_t reading);
    void end_reads_if_over(std::uint32_t stream);
    std::uint32_t post_reads(Time now);
    void finish_done_reads(Time now);
    void on_read(Time now, std::uint32_t reading);
    void end_stream(Outbound& stream);
    std::uint32_t send_controls();
    bool send_control(std::uint32_t link);
    bool send(Link& link, ControlMessage& message);
    std::uint32_t post_answers();
    std::uint32_t post_messages(Time now);
    Post write(Link& link, const Head& head, std::uint64_t position, std::uint64_t offset, std::uint16_t notice,
               Token token);
    void note(Link& link, Post post);
    void advance(std::uint64_t& position) const { position = position + 1 == ring_messages_ ? 0 : position + 1; }
    void check_finished(Time now);

    static constexpr std::size_t events_per_step = 64;
    static constexpr std::uint32_t no_link = ~std::uint32_t{0};

    Config config_;
    Peer self_;
    Transport& transport_;
    Content& content_;
    const std::uint64_t run_;
    const std::uint32_t queues_;  // of a pair, with that of pings
    const bool reads_;
    const std::uint64_t stride_;
    const std::uint64_t ring_messages_;
    const std::uint64_t body_stride_;
    const std::uint64_t credit_threshold_;  // polled messages of a queue that are told of together
    bool phantom_ = false;
    Local region_{};  // where messages land
    Blob key_;        // of what peers write to or read from
    Local ring_{};    // what is sent
    std::vector<std::uint32_t> link_of_peer_;
    std::vector<Link> links_;
    std::vector<Outbound> outbound_;  // `queues_` of every link, also of those it sends nothing to
    std::vector<Inbound> inbound_;
    std::vector<Reading> readings_;              // `outstanding` of every inbound stream
    std::vector<base::Histogram> round_trips_;   // by link
    base::Fifo<std::uint32_t> ready_;            // outbound streams with credit, or readings
    base::Fifo<std::uint32_t> done_;             // readings that were done at once, until the next step
    base::Fifo<std::uint32_t> answers_due_;      // inbound streams
    base::Bitmap control_due_;                   // links with something to tell
    std::array<Event, events_per_step> events_;  // polled and not handled yet: the first `arrived_`
    std::size_t arrived_ = 0;
    State state_ = State::joining;
    std::uint32_t links_missing_ = 0;
    std::uint32_t open_links_ = 0;  // directions that have not ended
    Time now_ = 0;                  // of the step
    Time next_retry_ = time_never;
    Time go_at_ = time_never;
    Time give_up_at_ = time_never;
    std::uint32_t lost_link_ = no_link;  // the first one
    Time began_at_ = 0;
    Time finished_at_ = 0;
    bool stopping_ = false;
    Counters counters_;
    std::string lost_;  // what is said at give_up_at_
    std::string failure_;
    std::string first_error_;
};

}  // namespace incast::net
