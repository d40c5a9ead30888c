// One verbs endpoint: posting (endpoint.cpp), memory (memory.cpp), polling (polling.cpp), connecting and losing peers
// (connecting.cpp), by rdma_cm (by_cm.cpp) or by exchanged addresses (by_exchange.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bitmap.h"
#include "os/poller.h"
#include "transport/calls/calls.h"
#include "transport/medium.h"
#include "transport/rma/endpoint.h"
#include "transport/verbs/device.h"
#include "transport/verbs/peer_state.h"

namespace incast::transport::verbs {

/// Which peer a queue pair is of. Numbers of pairs follow each other, so that hardly two meet.
class PairTable {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    explicit PairTable(std::size_t pairs);
    void add(std::uint32_t number, std::uint32_t peer);
    void remove(std::uint32_t number);
    [[nodiscard]] std::uint32_t find(std::uint32_t number) const {
        for (std::size_t at = number & mask_;; at = (at + 1) & mask_) {
            if (places_[at].peer == none || places_[at].number == number) return places_[at].peer;
        }
    }

private:
    struct Place {
        std::uint32_t number = 0;
        std::uint32_t peer = none;
    };
    std::size_t mask_;
    std::vector<Place> places_;
};

struct Types {
    using State = PeerState;
    using Key = verbs::Key;
    using Import = rma::Import;
    using Registration = MemoryRegion;
};

class Endpoint final : public rma::Endpoint<Endpoint, Types> {
    using Base = rma::Endpoint<Endpoint, Types>;
    friend Base;

public:
    static Result<std::unique_ptr<Transport>> make(const EndpointSettings& settings, const EndpointOptions& options);
    /// One of several rails; `pool` is the same for all of them.
    static Result<std::unique_ptr<Endpoint>> make_rail(const EndpointSettings& settings, const EndpointOptions& options,
                                                       std::uint32_t rail, const std::shared_ptr<Pool>& pool);
    ~Endpoint() override;

    [[nodiscard]] Blob address() const override;
    [[nodiscard]] Blob address_for(Peer peer) override;

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override;
    void ended(Peer peer, std::uint32_t incarnation) override;
    [[nodiscard]] bool drained() const override;
    /// A region that another rail allocated, for the peers of this one.
    Result<Ok> register_region(Local region);
    [[nodiscard]] std::uint32_t rkey(Local region) const {
        return registrations_[static_cast<std::size_t>(region)]->rkey;
    }
    /// The number of this node at a peer that it can have.
    [[nodiscard]] std::uint32_t there(Peer peer) const { return peers_[index(peer)].there; }
    [[nodiscard]] bool is_idle(Peer peer) const {
        return index(peer) < peers_.size() && peers_[index(peer)].state == PeerState::State::idle;
    }
    Post send(Peer peer, Bytes message) override;
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override;
    Post read(Peer peer, Target from, Slice into, Token token) override;
    std::size_t poll(Time now, std::span<Event> events) override;
    void flush() override;
    [[nodiscard]] Time next_deadline() const override;
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return poller_.fd(); }

private:
    static constexpr int batch = 32;
    // What the poller's events are of.
    static constexpr std::uint64_t completions_id = 1;
    static constexpr std::uint64_t events_id = 2;
    static constexpr std::uint64_t device_id = 3;

    /// A receive: its work request, and the buffer that is its own.
    struct Receive {
        ibv_recv_wr wr{};
        ibv_sge part{};
        std::uint32_t counts_for = rma::nobody;  // whose count it is given back to
    };

    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, Device device, os::Poller poller,
             std::uint32_t rail, std::shared_ptr<Pool> pool);

    [[nodiscard]] static bool is_fenced() { return true; }
    [[nodiscard]] static const SocketAddress& calls_of(const PeerState& state) { return state.address; }
    [[nodiscard]] std::uint32_t self_at(Peer peer) const { return there(peer); }

    // --- posting

    /// Besides what is reserved.
    [[nodiscard]] bool has_room(const PeerState& state, std::uint32_t requests) const {
        return state.share.out->has_room(requests + state.unpolled + reserved_requests);
    }
    [[nodiscard]] bool has_room_again(const PeerState& state) const;
    [[nodiscard]] static bool has_send(const PeerState& state, std::uint32_t many) {
        return state.share.out->has_room(many);
    }
    [[nodiscard]] ibv_sge part_of(const Slice& body, std::uint32_t at, std::uint32_t bytes) const {
        const std::byte* const memory = regions_.memory(body.region).data();
        return {reinterpret_cast<std::uintptr_t>(memory) + body.offset + at, bytes,
                lkeys_[static_cast<std::size_t>(body.region)]};
    }
    /// The requests of one transfer, in pieces: the last of them.
    SendQueue::Request& place(PeerState& state, ibv_wr_opcode all, ibv_wr_opcode last, const std::byte* head,
                              std::uint32_t head_bytes, const Slice& body, std::uint64_t address, std::uint32_t rkey);
    /// A send of this header and `bytes` behind it: where they are to be put. nullptr: no room in the staging memory.
    std::byte* push(PeerState& state, Header header, std::size_t bytes, bool is_fenced);

    // --- memory

    Result<Ok> take_share(Peer peer);
    [[nodiscard]] std::span<std::byte> buffer(std::uint64_t number) const;
    void post_receives();
    Result<Blob> complete(Key& key, Local region) {
        key.rkeys[rail_] = rkey(region);
        return to_blob(key);
    }
    void take_key(Import& import, const Key& key) const { import.key = key.rkeys[rail_]; }

    // --- polling

    void flush(Peer peer);
    void push_welcome(Peer peer);
    void look(Time now);
    void poll_sent();
    void sent(const ibv_wc& completion);
    std::size_t receive(std::span<Event> events);
    /// One completion of a receive: how many events it gave, 0 or 1.
    std::size_t hear(const ibv_wc& completion, Event& event);
    std::size_t hear_receive(Peer peer, std::uint32_t number, std::size_t bytes, Event& event);
    void finish_ended();
    void beat(Time now);

    // --- connecting and losing

    [[nodiscard]] bool exchanges() const { return settings_.connect == Connect::exchange; }
    void start_dialling(Peer peer);
    bool make_pair(Peer peer);
    int create_pair(PeerState& state, ibv_qp_init_attr& wanted);
    [[nodiscard]] Hello hello_for(Peer peer) const;
    /// Of who calls with these bytes.
    [[nodiscard]] Expected expected(Bytes bytes) const;
    [[nodiscard]] Address own_address() const;
    [[nodiscard]] bool dials(Peer peer) const;
    /// Called properly.
    void admit(Caller caller, const Hello& hello);
    static void refuse(Caller caller, Verdict verdict);
    static void drop(Caller& caller);
    static void destroy_pair(PeerState& state);
    /// Where the peer's connection can be used, its welcome aside.
    void greet(Peer peer);
    void let_in(Peer peer) { exchanges() ? let_in_by_exchange(peer) : let_in_by_cm(peer); }
    void lose(Peer peer, Status status);
    void hang_up(Peer peer) { lose(peer, Status::peer_lost); }
    void finish(Peer peer);
    void remove_device();

    // --- by rdma_cm

    void dial_by_cm(Peer peer);
    void set_options(rdma_cm_id* id);
    void call_by_cm(Peer peer);
    void let_in_by_cm(Peer peer);
    void hear_event(const rdma_cm_event& event);
    void hear_event_of(Peer peer, const rdma_cm_event& event);
    void hear_request(rdma_cm_id* id, const rdma_conn_param& said);

    // --- by exchanged addresses

    bool watch_exchange();
    void hear_device();
    void dial_by_exchange(Peer peer);
    void advance_dial(Peer peer);
    void hear_answer(Peer peer);
    void hear_call(Calls::Whole whole);
    void let_in_by_exchange(Peer peer);
    /// Its queue pair, for the other end.
    [[nodiscard]] PairAddress address_of(const PeerState& state);

    EndpointSettings settings_;
    Device device_;
    std::uint32_t pairs_made_ = 0;
    std::uint32_t rail_;
    std::vector<std::uint32_t> lkeys_;  // by the number of the region
    PairTable pairs_;
    std::vector<Receive> receives_;     // all there can be, by number; those of peers that were connected are in use
    std::vector<std::uint32_t> spent_;  // receives to be posted again by the next poll
    base::Bitmap connected_;            // greeting or up
    std::array<ibv_wc, batch> held_{};  // completions of receives that are still to be looked at
    std::size_t held_at_ = 0;
    std::size_t held_end_ = 0;
    std::uint64_t receive_polls_ = 0;
    std::uint64_t seen_empty_ = 0;  // the last of them that found no more
    bool device_is_gone_ = false;
    bool is_armed_ = false;
    bool said_no_ack_timeout_ = false;
    Time next_beat_ = 0;
};

}  // namespace incast::transport::verbs
