// One endpoint of the rio transport: posting (endpoint.cpp), what is under way (transfers.cpp), polling (polling.cpp),
// connecting and losing peers (connecting.cpp).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bitmap.h"
#include "transport/blob.h"
#include "transport/imports.h"
#include "transport/medium.h"
#include "transport/rio/peer_state.h"
#include "transport/rio/regions.h"

namespace incast::transport::rio {

/// Of a message of CM; records follow.
struct LetterHead {
    std::uint64_t start = 0;  // position of the first
    std::uint32_t bytes = 0;
    std::uint32_t zero = 0;
};

/// What carries notices and messages, and what tells the peer to look.
enum class NoticeKind : std::uint32_t {
    doorbell,  // records by rDMA, and a doorbell when they are there
    memory,    // records by rDMA, which the peer polls for
    cm,        // records by CM, and a doorbell
};

struct EndpointSettings {
    std::string fabric;  // empty: one of the run's own
    std::string fabric_options;
    NoticeKind notice = NoticeKind::doorbell;
    enum class Stores : std::uint8_t { automatic, plain, streaming };
    Stores stores = Stores::automatic;
    std::uint64_t cache_bytes = 0;  // what slots may take before writes stream
    Layout layout;
    std::uint32_t dma_channels = 1;
    std::uint32_t ring_bytes = 0;  // a power of two
    Time poll_every = 0;
    Time look_every = 0;
    Time connect_timeout = 0;
};

struct Address {
    static constexpr std::uint32_t expected_magic = 0x414F4952;  // "RIOA"
    std::uint32_t magic = expected_magic;
    std::uint32_t node = 0;
    std::uint32_t destid = 0;
    std::uint32_t peers = 0;  // slots
    std::uint32_t ring_bytes = 0;
    NoticeKind notice{};
    std::uint64_t slots = 0;       // RapidIO address of the first
    std::uint32_t is_for_one = 0;  // then `node` is the number of whoever connects, here
    std::uint32_t doorbell = 0;    // its only one: look into my slot
};

struct Key : RegionKey<0x4B4F4952> {  // "RIOK"
    Place place;
};

struct Import {
    Peer peer{};
    Key key;
    bool written = false;
};

class Endpoint final : public Transport {
public:
    static Result<std::unique_ptr<Transport>> make(const EndpointSettings& settings, const EndpointOptions& options);
    ~Endpoint() override;

    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
    [[nodiscard]] Blob address() const override;
    [[nodiscard]] Blob address_for(Peer peer) override;

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override;
    void disconnect(Peer peer) override;
    void ended(Peer peer, std::uint32_t incarnation) override {
        if (index(peer) < peers_.size() && peers_[index(peer)].incarnation == incarnation) ended(peer, true);
    }
    [[nodiscard]] bool drained() const override;
    Result<Local> allocate(std::size_t bytes) override { return regions_.allocate(bytes); }
    std::span<std::byte> memory(Local region) override { return regions_.memory(region); }
    Result<Blob> expose(Local region, const Grant& grant) override;
    Result<int> share(Local region) override;
    Result<Remote> import_key(Peer peer, const Blob& blob) override;
    Result<Ok> release(Local region) override { return regions_.release(region); }
    Result<Ok> release(Remote import) override;
    Post send(Peer peer, Bytes message) override;
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override;
    Post read(Peer peer, Target from, Slice into, Token token) override;
    [[nodiscard]] Bytes local(Slice where) const override;
    Bytes view(Target, std::uint32_t) override { return {}; }
    std::size_t poll(Time now, std::span<Event> events) override;
    [[nodiscard]] Time next_deadline() const override;
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return port_.fd(); }
    [[nodiscard]] std::uint64_t copied_bytes() const override { return copied_bytes_; }

private:
    static constexpr Time time_unset = -1;  // a deadline that the next poll, which knows the time, sets

    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, api::MasterPort port,
             std::uint16_t doorbell, std::uint64_t addresses, api::Memory slots_memory, api::Mapping slots,
             api::Window slots_window);

    static std::uint32_t index(Peer peer) { return static_cast<std::uint32_t>(peer); }
    [[nodiscard]] bool is_up(Peer peer) const {
        return index(peer) < peers_.size() && peers_[index(peer)].state == PeerState::State::up;
    }
    [[nodiscard]] Slot& slot(std::uint32_t peer) const {
        return *reinterpret_cast<Slot*>(slots_.bytes().data() + peer * slot_bytes(settings_.ring_bytes));
    }

    // --- posting

    [[nodiscard]] bool has_room(Peer peer, std::size_t payload);
    void see_read(Peer peer);
    [[nodiscard]] static bool has_dma_room(const PeerState& state, std::uint64_t pieces);
    Post back_pressure(Peer peer);
    Post fault(Peer peer, Token token);
    void push(Peer peer, Record record, Bytes message = {});
    std::uint32_t next_port(std::size_t bytes);
    [[nodiscard]] const api::MasterPort& port(std::uint32_t number) const {
        return number == 0 ? port_ : more_ports_[number - 1];
    }
    /// Moves a body, in pieces that each lie in one segment. Done or pending; a peer that it cannot be moved to or from
    /// is lost. Nothing: the peer does not grant it, or no more.
    template <class Start>
    std::optional<Post> transfer(Peer peer, const Place& place, std::uint64_t offset, std::size_t bytes, Token token,
                                 std::uint32_t number, Start start);
    /// A copy that stays until the body behind it is placed.
    Bytes keep_head(Peer peer, Bytes head);
    bool write_head(Peer peer, const Place& place, std::uint64_t offset, Bytes head, std::uint32_t number);
    void note_written(Import& import);
    std::error_code start_body(Peer peer, std::uint32_t number, std::uint64_t address, Bytes bytes,
                               api::Cookie& cookie);
    Post lost_with(Peer peer, Token token);
    /// To a guarded window: it says of this endpoint's right, not of whether the peer is there.
    static bool was_refused(const Place& place, std::error_code error) {
        return place.is_guarded != 0 && error == std::errc::io_error;
    }

    // --- what is under way to a peer

    /// Writes a part of the peer's slot; `value` becomes `out`, which stays until that has ended.
    template <class T>
    void put(Peer peer, Cell& cell, T& out, const T& value, std::uint64_t offset, bool ring);
    template <class T>
    void settle(Peer peer, Cell& cell, T& out, const T& value, std::uint64_t offset);
    void put_hello(Peer peer);
    void put_written(Peer peer, bool ring);
    void put_read(Peer peer, bool ring);
    void put_beat(Peer peer);
    void settle_cells(Peer peer);
    void settle_dmas(Peer peer);
    void send_records(Peer peer);
    bool send_letters(Peer peer, std::uint64_t end);
    void ring(Peer peer);
    void say_hello(Peer peer);
    void work(Peer peer);
    /// Of this endpoint's memory, to or from the peer.
    [[nodiscard]] static bool has_transfers(const PeerState& state);
    [[nodiscard]] bool is_under_way(const PeerState& state) const;

    // --- polling

    void release_read();
    void hear_doorbells();
    [[nodiscard]] bool has_news(std::uint32_t peer) const;
    void look_at_all();
    void look_at(Peer peer);
    void give_room(Peer peer);
    std::size_t take_own(std::span<Event> events);
    std::size_t read_lanes(std::span<Event> events);
    std::size_t read_lane(Peer peer, std::span<Event> events);
    bool receive_letter(Peer peer);
    LaneReader::Got next_record(Peer peer, Record& record, Bytes& message);
    [[nodiscard]] Event control_event(Event::Kind kind, Peer peer) const;
    void completed(Peer peer, Token token, Status status);

    // --- connecting and losing

    void log(const std::string& line) const {
        if (options_.log) options_.log(line);
    }
    [[nodiscard]] Address own_address() const;
    /// This endpoint's number at whoever gave that address.
    [[nodiscard]] std::uint32_t there_by(const Address& address) const;
    [[nodiscard]] bool dials(Peer peer) const;
    [[nodiscard]] Hello hello(Hello::Kind kind, Peer to) const;
    [[nodiscard]] Verdict judge(const Hello& hello, std::uint32_t from) const;
    void hear(Peer peer);
    void refuse(Peer peer, std::uint64_t attempt, Verdict verdict);
    void hear_call(Peer peer, const Hello& hello);
    void matched(Peer peer);
    void go_up(Peer peer);
    void look_for_letters();
    void arrived(Arrived arrival);
    /// Nothing of the peer lands from here on; `gone`: nothing can be written to it either.
    void ended(Peer peer, bool gone);
    /// A transfer to the peer failed.
    void lost(Peer peer);
    void give_up(Peer peer);
    void say_bye(Peer peer);
    void finish_if_quiet(Peer peer);
    void finish(Peer peer);
    void fail(Peer peer, const std::string& why);
    void handle_deadlines(Time now);

    EndpointSettings settings_;
    EndpointOptions options_;
    Capabilities capabilities_;
    api::MasterPort port_;
    std::uint16_t doorbell_;
    std::vector<api::MasterPort> more_ports_;  // for bodies, each perhaps on a DMA channel of its own
    api::Memory slots_memory_;
    api::Mapping slots_;
    api::Window slots_window_;
    Regions regions_;
    std::unique_ptr<PostOffice> post_office_;
    std::vector<PeerState> peers_;
    std::unordered_map<api::Destid, Peer> by_destid_;
    Imports<Import> imports_;
    api::Letter out_letter_;
    std::deque<Event> own_events_;  // connections, completions, room
    std::vector<Peer> touched_;     // read from in the last poll
    std::deque<Arrived> parked_;    // dialled here before this side knew of it
    base::Bitmap active_;           // have news in their slots, or may have
    base::Bitmap busy_;             // something is under way to them
    base::Bitmap known_;            // not idle
    base::Bitmap dialling_;         // wait for CM
    std::size_t first_lane_ = 0;
    std::uint32_t port_turn_ = 0;
    std::uint64_t attempts_;
    std::uint64_t copied_bytes_ = 0;
    std::uint64_t written_bytes_ = 0;  // of peers' regions that this endpoint writes to
    bool streams_ = false;
    bool look_at_all_ = false;
    bool unsent_ = false;  // posted since the last poll
    bool unset_deadlines_ = false;
    Time last_now_ = 0;
    Time next_look_ = 0;
    Time next_deadline_ = time_never;
};

}  // namespace incast::transport::rio
