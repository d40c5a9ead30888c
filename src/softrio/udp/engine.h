// A RapidIO endpoint over datagrams, sans-IO: what it is sent it applies to the memory, doorbells, registers and
// channels of this endpoint (Target), and answers; what this endpoint asks of others it packs into datagrams and
// matches with their responses. One reliable session (reliable) with each peer; a datagram's body is RapidIO
// packets (softrio/wire), each behind its length of 16 bits. For one thread, or one lock.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "reliable/connection.h"
#include "softrio/port.h"
#include "softrio/udp/address.h"
#include "softrio/wire/packet.h"

namespace incast::softrio::udp {

/// The own half of the endpoint.
class Target {
public:
    virtual ~Target() = default;
    /// Bytes of an inbound window, for that endpoint; empty: not all of them are in one, or it may not reach them.
    virtual std::span<std::byte> window(std::uint32_t source, Direction direction, std::uint64_t address,
                                        std::size_t bytes) = 0;
    virtual wire::Status ring(std::uint32_t source, std::uint16_t info) = 0;
    virtual std::uint32_t read_register(std::uint32_t offset) = 0;
    virtual wire::Status write_register(std::uint32_t offset, std::uint32_t value) = 0;
    /// A whole message; it may answer by Engine::send_message.
    virtual void take_message(std::uint32_t source, std::span<const std::byte> message) = 0;
    /// The same of any mailbox. Endpoints of software have no use for others than 0.
    virtual void take_letter(std::uint32_t source, std::uint8_t mailbox, std::span<const std::byte> message) {
        if (mailbox == 0) take_message(source, message);
    }
    virtual void lose_peer(std::uint32_t destid, reliable::Loss why) = 0;
};

/// A request with responses, which its issuer waits for. It outlives them: it is done when nothing is outstanding.
struct Request {
    std::uint32_t outstanding = 0;
    int error = 0;  // the first
    [[nodiscard]] bool is_done() const { return outstanding == 0; }
};

/// Where the data of a response goes.
struct Landing {
    std::byte* into = nullptr;
    std::uint64_t address = 0;
    std::uint16_t bytes = 0;
};

struct Counters {
    std::uint64_t bad_datagrams = 0;  // no header, an unknown session, an unknown greeting
    std::uint64_t forged = 0;         // from another address, or with another source id, than the session's peer
    std::uint64_t bad_packets = 0;    // no RapidIO packet, a wrong CRC, for another destination, a response to nothing
    std::uint64_t outside = 0;        // of all windows that their sender may reach
    std::uint64_t postponed = 0;      // data that came while there was no room for the answers
};

class Engine {
public:
    struct Settings {
        std::uint32_t destid = 0;
        bool has_small_ids = false;
        reliable::Settings session;
    };
    struct Output {
        Address to;
        std::span<const std::byte> bytes;
        bool is_stable = false;  // see reliable::Datagram
    };

    /// `random`: asked when a session begins. Directory and target outlive this.
    Engine(const Settings& settings, const Directory& directory, Target& target, std::function<std::uint64_t()> random);

    [[nodiscard]] std::uint32_t destid() const { return settings_.destid; }
    [[nodiscard]] std::uint32_t datagram_bytes() const { return settings_.session.datagram_bytes; }
    /// Another endpoint from now on, which knows nobody. close_all() and collect() come before.
    void restart(std::uint32_t destid);
    [[nodiscard]] const Counters& counters() const { return counters_; }
    [[nodiscard]] reliable::SendCounters send_counters() const;

    /// False: no endpoint can have that id. Otherwise a session is there, or is being opened.
    bool open(std::int64_t now_ns, std::uint32_t destid);
    [[nodiscard]] bool is_established(std::uint32_t destid) const {
        const Peer* peer = find(destid);
        return peer != nullptr && peer->connection.is_established();
    }
    /// Sessions with that peer that were lost so far.
    [[nodiscard]] std::uint32_t losses(std::uint32_t destid) const;
    /// All that was sent to that peer has arrived there.
    [[nodiscard]] bool is_settled(std::uint32_t destid) const;
    void close_all();
    /// The directory says otherwise of that id than before: who had it is gone.
    void relocate(std::uint32_t destid);

    // What goes to a peer after open(). False: not now, there is no room, or 255 requests have no response yet.
    /// Takes a transaction id of that peer, for a Request that is then outstanding.
    bool begin(std::uint32_t destid, Request& request, const Landing& landing, std::uint8_t& transaction);
    /// Packs one request packet. The ids are filled in.
    bool send(std::uint32_t destid, std::uint8_t lane, wire::Packet& packet);
    /// Of writes like `packet` to that peer.
    [[nodiscard]] wire::WriteRun run_to(std::uint32_t destid, wire::Packet packet) const;
    /// Packs the begin of `data`, whole packets of 256 bytes each, for `address` and what follows. Returns the bytes
    /// packed: as many as there is room for.
    std::size_t send_run(std::uint32_t destid, std::uint8_t lane, const wire::WriteRun& run, std::uint64_t address,
                         std::span<const std::byte> data);
    bool send_message(std::uint32_t destid, std::uint8_t lane, std::span<const std::byte> message,
                      std::uint8_t mailbox = 0);
    /// Data of a run that a datagram holds.
    [[nodiscard]] std::size_t run_bytes_per_datagram() const;
    /// The most of these bytes that packets of full size fill. Datagrams of just that size lie side by side in memory.
    [[nodiscard]] static std::uint32_t filled_bytes(std::uint32_t datagram_bytes);

    /// Who is there? First begin_probes() with a random number, then what probe() gives to each that is unanswered().
    void begin_probes(std::uint64_t random, std::vector<std::uint32_t> candidates);
    Output probe(std::uint32_t destid);
    /// Nobody has said of them that they are there, or that nobody is.
    [[nodiscard]] const std::vector<std::uint32_t>& unanswered() const { return unanswered_; }
    [[nodiscard]] std::vector<std::uint32_t> alive() const;

    void receive(std::int64_t now_ns, const Address& from, std::span<const std::byte> datagram);
    /// Nobody is at that address, as a datagram that was sent there has come back to say.
    void refuse(const Address& at, std::span<const std::byte> datagram);
    [[nodiscard]] std::int64_t next_deadline_ns() const;
    void advance(std::int64_t now_ns);

    /// Everything that can be sent now, one by one; each is used before the next is asked for, unless it is stable.
    template <class Use>
    void collect(std::int64_t now_ns, Use&& use) {
        for (const Output& each : answers_)
            use(each);
        answers_.clear();
        answers_used_ = 0;
        for (auto& [destid, peer] : peers_) {
            close_datagram(*peer);
            while (true) {
                const reliable::Datagram datagram = peer->connection.next_datagram(now_ns);
                if (datagram.bytes.empty()) break;
                use(Output{peer->address, datagram.bytes, datagram.is_stable});
            }
        }
    }

private:
    struct Waiting {
        Request* request = nullptr;
        Landing landing;
    };
    struct Peer {
        Peer(const reliable::Settings& settings, std::uint16_t index, std::span<const std::byte> greeting,
             std::uint32_t id, const Address& where)
            : destid(id), address(where), connection(settings, index, greeting) {}
        std::uint32_t destid;
        Address address;
        reliable::Connection connection;
        std::uint32_t losses = 0;
        bool is_paused = false;  // deliveries wait for room for their answers
        // The datagram being filled.
        std::size_t used = 0;
        std::uint8_t lane = 0;
        std::array<Waiting, 256> waiting;
        std::uint8_t last_transaction = 0;
        std::bitset<256> failed;         // writes of these transactions fell outside, and no response has said so yet
        std::vector<std::byte> message;  // its segments so far
        wire::RunReader run;
    };
    static constexpr std::size_t max_answers = 64;

    Peer* find(std::uint32_t destid) const;
    /// Of a token: of which id; nothing: it is not of the probes' that are on their way.
    [[nodiscard]] std::optional<std::uint32_t> probed(std::uint64_t token) const;
    Peer* find_or_make(std::uint32_t destid);
    Peer* peer_of(const Address& from, const reliable::Packet& packet);
    void answer_unknown(const Address& to, const reliable::Packet& packet);
    static void close_datagram(Peer& peer);
    std::byte* room_for(Peer& peer, std::uint8_t lane, std::size_t reserve);
    void address(wire::Packet& packet, std::uint32_t destid) const;
    void pack(Peer& peer, const wire::Packet& packet, std::byte* at);
    void respond(Peer& peer, std::uint8_t lane, wire::Packet& packet);
    void deliver(Peer& peer);
    void unpack(Peer& peer, const reliable::Delivery& delivery);
    void apply(Peer& peer, std::uint8_t lane, const wire::Packet& packet);
    void write(Peer& peer, std::uint8_t lane, const wire::Packet& packet);
    /// Applies the packets at the begin of `body` that continue the run; returns their bytes.
    std::size_t continue_run(Peer& peer, std::span<const std::byte> body);
    void write_one(Peer& peer, std::uint64_t address, std::span<const std::byte> data, std::uint8_t transaction);
    void read(Peer& peer, std::uint8_t lane, const wire::Packet& packet);
    void maintain(Peer& peer, std::uint8_t lane, const wire::Packet& packet);
    void take_segment(Peer& peer, const wire::Packet& packet);
    void complete(Peer& peer, const wire::Packet& packet);
    void drop_session(Peer& peer, reliable::Loss why);
    void look_for_loss(Peer& peer);

    Settings settings_;
    const Directory* directory_;
    Target* target_;
    std::function<std::uint64_t()> random_;
    std::map<std::uint32_t, std::unique_ptr<Peer>> peers_;
    std::vector<Peer*> by_index_;
    Counters counters_;
    std::vector<Output> answers_;
    std::size_t answers_used_ = 0;
    std::array<std::array<std::byte, reliable::header_bytes>, max_answers> answer_bytes_{};
    std::uint64_t nonce_ = 0;
    std::vector<std::uint32_t> alive_;
    std::vector<std::uint32_t> unanswered_;
    std::array<std::byte, reliable::header_bytes> probe_{};
    std::uint32_t restarts_ = 0;
    mutable Peer* last_ = nullptr;  // that was found
};

}  // namespace incast::softrio::udp
