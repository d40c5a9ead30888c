// One ofi endpoint: posting (endpoint.cpp), memory (memory.cpp), polling (polling.cpp), connecting and losing peers
// (connecting.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rdma/fi_eq.h>

#include "base/bitmap.h"
#include "base/fifo.h"
#include "os/poller.h"
#include "transport/calls/calls.h"
#include "transport/imports.h"
#include "transport/medium.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/peer_state.h"
#include "transport/regions.h"

namespace incast::transport::ofi {

struct Import {
    Peer peer{};
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t key = 0;
    std::uint32_t generation = 0;
    std::uint16_t region = 0;
    std::uint16_t use = 0;
    bool may_write = false;
    bool is_gone = false;  // its owner released it
};

/// A region that was released: its memory stays until the last peer has heard of it.
struct Retired {
    Change name;
    Opened<fid_mr> registration;
    std::span<std::byte> memory;
    base::Bitmap waits_for;
};

class Endpoint final : public Transport {
public:
    static Result<std::unique_ptr<Transport>> make(const EndpointSettings& settings, const EndpointOptions& options);
    ~Endpoint() override;

    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
    [[nodiscard]] Blob address() const override;

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override;
    void disconnect(Peer peer) override;
    void ended(Peer peer, std::uint32_t incarnation) override;
    [[nodiscard]] bool drained() const override;
    Result<Local> allocate(std::size_t bytes) override;
    std::span<std::byte> memory(Local region) override { return regions_.memory(region); }
    Result<Blob> expose(Local region, const Grant& grant) override;
    Result<int> share(Local region) override { return regions_.share(region); }
    Result<Remote> import_key(Peer peer, const Blob& blob) override;
    Result<Ok> release(Local region) override;
    Result<Ok> release(Remote import) override { return imports_.release(import); }
    Post send(Peer peer, Bytes message) override;
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override;
    Post read(Peer peer, Target from, Slice into, Token token) override;
    [[nodiscard]] Bytes local(Slice where) const override;
    Bytes view(Target, std::uint32_t) override { return {}; }
    std::size_t poll(Time now, std::span<Event> events) override;
    void flush() override;
    [[nodiscard]] Time next_deadline() const override;
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return capabilities_.has_wait_fd ? poller_.fd() : -1; }
    [[nodiscard]] std::uint64_t copied_bytes() const override { return copied_bytes_; }

private:
    static constexpr Time time_unset = -1;  // a deadline that the next poll, which knows the time, sets
    static constexpr std::size_t batch = 32;
    // What the poller's events are of. With `calls_id` and beyond, the number of a call or a peer is in the lower half.
    static constexpr std::uint64_t queue_id = 1;
    static constexpr std::uint64_t listener_id = 2;
    static constexpr std::uint64_t calls_id = std::uint64_t{1} << 32;
    static constexpr std::uint64_t parked_id = std::uint64_t{2} << 32;
    static constexpr std::uint64_t peers_id = std::uint64_t{3} << 32;

    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, Fabric fabric, os::Poller poller);
    bool watch();

    static std::uint32_t index(Peer peer) { return static_cast<std::uint32_t>(peer); }
    [[nodiscard]] bool is_up(Peer peer) const {
        return index(peer) < peers_.size() && peers_[index(peer)].state == PeerState::State::up;
    }
    void log(const std::string& line) const {
        if (options_.log) options_.log(line);
    }
    [[nodiscard]] static std::string node_name(Peer peer) { return "node " + std::to_string(index(peer)); }
    /// "node 3 at 127.0.0.1:4567"
    [[nodiscard]] std::string place_of(Peer peer) const;
    [[nodiscard]] Event control_event(Event::Kind kind, Peer peer) const;

    // --- posting

    /// Besides what is reserved.
    [[nodiscard]] static bool has_room(const PeerState& state, std::uint32_t transfers) {
        return state.sending.out->has_room(transfers + state.unpolled + reserved_transfers);
    }
    Post back_pressure(Peer peer, std::uint32_t transfers);
    Post fault(Peer peer, Token token);
    /// The transfers of one post, in pieces: the last of them.
    Outgoing::Operation& place(PeerState& state, Bytes head, const Slice& body, std::uint64_t address,
                               std::uint64_t key, bool is_read);
    /// A send of this header and `bytes` behind it: where they are to be put.
    std::byte* push(PeerState& state, Header header, std::size_t bytes, bool is_fenced = false);
    void completed(Peer peer, Token token, Status status);
    void give_room(Peer peer);

    // --- memory

    Result<Opened<fid_mr>> register_region(std::span<std::byte> memory);
    Result<Ok> take_buffers(Peer peer);
    Result<Ok> take_sending(Peer peer);
    void post(Receive& receive);
    void post_spent();
    void hear_released(Peer peer, std::span<const Change> changes);
    void hear_answered(Peer peer, std::span<const Change> changes);
    void forget_waiting(Peer peer);
    void sweep();
    /// Imports of what the peer has released.
    void mark_gone(Peer peer, const Change& change);

    // --- polling

    void flush(Peer peer);
    ssize_t hand_over(const PeerState& state, Outgoing::Operation& operation, std::uint64_t flags) const;
    void push_changes(PeerState& state, std::vector<Change>& changes, Header::Kind kind);
    void push_welcome(Peer peer);
    void look(Time now);
    std::size_t take_own(std::span<Event> events);
    std::size_t receive(std::span<Event> events);
    void read_queue();
    bool hear_failure();
    [[nodiscard]] Receive* receive_of(const void* context) const;
    [[nodiscard]] Outgoing* outgoing_of(const void* context) const;
    void count_back(Peer peer);
    void back(Outgoing::Operation& operation);
    /// One completion: how many events it gave, 0 or 1.
    std::size_t hear(const fi_cq_data_entry& completion, Event& event);
    std::size_t hear_notice(std::uint64_t data, Event& event);
    std::size_t hear_send(Receive& receive, std::size_t bytes, Event& event);
    void hear_credits(Peer peer, std::uint16_t returned);
    void hear_welcome(Peer peer, const Header& header, Bytes rest);
    void finish_ended();

    // --- connecting and losing

    void call(Peer peer);
    void advance_dial(Peer peer);
    void hear_answer(Peer peer);
    void hear_socket(std::uint64_t id, Time now);
    void hear_call(Calls::Whole whole);
    void hear_events();
    void hear_request(const fi_eq_cm_entry& entry, std::size_t bytes);
    static void refuse(Caller caller, Verdict verdict);
    void match(Peer peer);
    void let_in(Peer peer);
    /// Memory and addresses of a connection that begins.
    bool begin(Peer peer);
    bool join(Peer peer, fi_info* from);
    void greet(Peer peer);
    void hang_up(Peer peer);
    void fail(Peer peer, const std::string& why);
    void lose(Peer peer, Status status);
    void watch(Peer peer);
    void break_off(Peer peer, const std::string& why);
    void say_bye(PeerState& state);
    [[nodiscard]] bool is_over(const PeerState& state) const;
    void finish(Peer peer);
    void wedge();
    [[nodiscard]] Peer find(const fid* endpoint) const;
    void start_timing(PeerState& state) {
        if (std::exchange(state.deadline, time_unset) != time_unset) ++untimed_;
    }
    void stop_timing(PeerState& state) {
        if (std::exchange(state.deadline, time_never) == time_unset) --untimed_;
    }
    void handle_deadlines(Time now);

    EndpointSettings settings_;
    EndpointOptions options_;
    Capabilities capabilities_;
    Fabric fabric_;
    os::Poller poller_;
    Calls calls_;
    std::uint64_t attempts_ = 0;
    std::uint64_t next_key_ = 0;  // of registrations, where this side chooses
    Regions regions_;
    std::vector<Opened<fid_mr>> registrations_;  // by the number of the region
    std::size_t regions_made_ = 0;               // numbers below were used
    std::vector<Retired> retired_;
    std::vector<Sending> left_behind_;  // that libfabric never gave back
    std::vector<PeerState> peers_;
    Imports<Import> imports_;
    std::vector<Receive*> spent_;   // to be posted again by the next poll
    std::uint16_t untold_limit_;    // so many receives are given back to a peer by a send of their own
    base::Fifo<Event> own_events_;  // connections, completions, room
    base::Bitmap busy_;             // something is to be handed to libfabric
    base::Bitmap stalled_;          // libfabric did not take it
    base::Bitmap ending_;
    std::array<fi_cq_data_entry, batch> held_{};  // completions that are still to be looked at
    std::size_t held_at_ = 0;
    std::size_t held_end_ = 0;
    std::uint64_t reads_ = 0;       // of the completion queue
    std::uint64_t seen_empty_ = 0;  // the last of them that found nothing
    bool look_ = true;
    bool is_wedged_ = false;     // what is under way will never end: the owner makes another endpoint
    std::uint32_t known_ = 0;    // peers that are not idle
    std::uint32_t untimed_ = 0;  // peers whose deadline is unset
    std::uint64_t copied_bytes_ = 0;
    Time last_now_ = 0;
    Time next_look_ = 0;
    Time next_deadline_ = time_never;
};

}  // namespace incast::transport::ofi
