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
#include "os/poller.h"
#include "transport/medium.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/peer_state.h"
#include "transport/rma/calling.h"

namespace incast::transport::ofi {

struct Types {
    using State = PeerState;
    using Key = ofi::Key;
    using Import = rma::Import;
    using Registration = Opened<fid_mr>;
    using Call = ofi::Call;
    using Answer = ofi::Answer;
};

class Endpoint final : public rma::CallingEndpoint<Endpoint, Types> {
    using Calling = rma::CallingEndpoint<Endpoint, Types>;
    using Base = rma::Endpoint<Endpoint, Types>;
    friend Calling;
    friend Base;

public:
    static Result<std::unique_ptr<Transport>> make(const EndpointSettings& settings, const EndpointOptions& options);
    ~Endpoint() override;

    [[nodiscard]] Blob address() const override;

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override;
    [[nodiscard]] bool drained() const override;
    Post send(Peer peer, Bytes message) override;
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override;
    Post read(Peer peer, Target from, Slice into, Token token) override;
    std::size_t poll(Time now, std::span<Event> events) override;
    void flush() override;
    [[nodiscard]] Time next_deadline() const override;
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return capabilities_.has_wait_fd ? poller_.fd() : -1; }
    [[nodiscard]] std::uint64_t copied_bytes() const override { return copied_bytes_; }

private:
    static constexpr std::size_t batch = 32;
    static constexpr std::uint64_t queue_id = 1;  // of the poller's events

    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, Fabric fabric, os::Poller poller);
    bool watch();
    [[nodiscard]] bool is_fenced() const { return fabric_.is_connected(); }
    [[nodiscard]] static const SocketAddress& calls_of(const PeerState& state) { return state.address.calls; }

    // --- posting

    /// Besides what is reserved.
    [[nodiscard]] static bool has_room(const PeerState& state, std::uint32_t transfers) {
        return state.sending.out->has_room(transfers + state.unpolled + reserved_transfers);
    }
    [[nodiscard]] bool has_room_again(const PeerState& state) const;
    [[nodiscard]] static bool has_send(const PeerState& state, std::uint32_t many) {
        return state.sending.out->has_record(many);
    }
    /// The transfers of one post, in pieces: the last of them.
    Outgoing::Operation& place(PeerState& state, Bytes head, const Slice& body, std::uint64_t address,
                               std::uint64_t key, bool is_read);
    /// A send of this header and `bytes` behind it: where they are to be put.
    std::byte* push(PeerState& state, rma::Header header, std::size_t bytes, bool is_fenced);

    // --- memory

    Result<Ok> register_region(Local region);
    Result<Blob> complete(Key& key, Local region);
    static void take_key(Import& import, const Key& key) { import.key = key.key; }
    Result<Ok> take_buffers(Peer peer);
    Result<Ok> take_sending(Peer peer);
    void post(Receive& receive);
    void post_spent();

    // --- polling

    void flush(Peer peer);
    ssize_t hand_over(const PeerState& state, Outgoing::Operation& operation, std::uint64_t flags) const;
    void look(Time now);
    std::size_t receive(std::span<Event> events);
    void read_queue();
    bool hear_failure();
    [[nodiscard]] Receive* receive_of(const void* context) const;
    [[nodiscard]] Outgoing* outgoing_of(const void* context) const;
    void back(Outgoing::Operation& operation);
    /// One completion: how many events it gave, 0 or 1.
    std::size_t hear(const fi_cq_data_entry& completion, Event& event);
    std::size_t hear_notice(std::uint64_t data, Event& event);
    std::size_t hear_receive(Receive& receive, std::size_t bytes, Event& event);

    // --- connecting and losing

    void hear_events();
    void hear_request(const fi_eq_cm_entry& entry, std::size_t bytes);
    /// Memory and addresses of a connection that begins.
    bool begin(Peer peer);
    /// Who called goes on, when it was answered.
    void meet(Peer peer);
    bool join(Peer peer, fi_info* from);
    void cut(Peer peer);
    [[nodiscard]] bool is_quiet(const PeerState& state) const {
        return fabric_.is_connected() || state.sending.out == nullptr || state.sending.out->is_quiet();
    }
    [[nodiscard]] std::uint64_t looks() const { return reads_; }
    [[nodiscard]] std::uint64_t looks_empty() const { return seen_empty_; }
    [[nodiscard]] bool is_useless() const { return is_wedged_; }
    void finish(Peer peer);
    void wedge();
    [[nodiscard]] Peer find(const fid* endpoint) const;

    EndpointSettings settings_;
    Fabric fabric_;
    std::uint64_t next_key_ = 0;                  // of registrations, where this side chooses
    std::vector<Sending> left_behind_;            // that libfabric never gave back
    std::vector<Receive*> spent_;                 // to be posted again by the next poll
    base::Bitmap stalled_;                        // libfabric did not take it
    std::array<fi_cq_data_entry, batch> held_{};  // completions that are still to be looked at
    std::size_t held_at_ = 0;
    std::size_t held_end_ = 0;
    std::uint64_t reads_ = 0;       // of the completion queue
    std::uint64_t seen_empty_ = 0;  // the last of them that found nothing
    bool is_stuck_ = false;         // the same, of a peer that was just finished
    bool is_wedged_ = false;        // what is under way will never end: the owner makes another endpoint
    std::uint32_t known_ = 0;       // peers that are not idle
    std::uint64_t copied_bytes_ = 0;
};

}  // namespace incast::transport::ofi
