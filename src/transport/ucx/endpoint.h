// One ucx endpoint: posting and memory (endpoint.cpp), polling (polling.cpp), connecting and losing peers
// (connecting.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bitmap.h"
#include "os/poller.h"
#include "transport/medium.h"
#include "transport/rma/calling.h"
#include "transport/ucx/library.h"
#include "transport/ucx/peer_state.h"

namespace incast::transport::ucx {

/// Once nothing that was posted with it is under way.
struct DestroyKey {
    Outgoing* out = nullptr;
    void operator()(ucp_rkey_h key) const { out->destroy(key); }
};

struct Import : rma::Import {
    std::vector<std::byte> packed;
    // Unpacked for one connection, when it is first used there.
    mutable std::unique_ptr<ucp_rkey, DestroyKey> rkey;
    mutable std::uint64_t attempt = 0;
};

struct Types {
    using State = PeerState;
    using Key = ucx::Key;
    using Import = ucx::Import;
    using Registration = Mapping;
    using Call = ucx::Call;
    using Answer = ucx::Answer;
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
    [[nodiscard]] Time next_deadline() const override { return untimed_ > 0 ? last_now_ : next_deadline_; }
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return poller_.fd(); }
    [[nodiscard]] std::uint64_t copied_bytes() const override { return copied_bytes_; }

private:
    static constexpr std::uint64_t worker_id = 1;  // of the poller's events
    static constexpr unsigned message_id = 1;      // of active messages

    /// An active message that came in. Its bytes are UCX's until they are given back.
    struct Held {
        Frame frame;
        std::byte* data = nullptr;
        std::size_t bytes = 0;
    };
    /// What was handed out, and is given back by the next poll.
    struct Spent {
        std::byte* data = nullptr;
        std::uint32_t counts_for = rma::nobody;
    };

    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, Library library, os::Poller poller,
             Allocator& allocator, std::shared_ptr<Pool> pool);
    Result<Ok> watch();
    [[nodiscard]] static bool is_fenced() { return false; }
    [[nodiscard]] static const SocketAddress& calls_of(const PeerState& state) { return state.address.calls; }

    // --- posting

    /// Besides what is reserved.
    [[nodiscard]] static bool has_room(const PeerState& state, std::uint32_t transfers) {
        return state.out->has_room(transfers + state.unpolled + reserved_transfers);
    }
    [[nodiscard]] bool has_room_again(const PeerState& state) const;
    [[nodiscard]] static bool has_send(const PeerState& state, std::uint32_t many) {
        return state.out->has_record(many);
    }
    std::byte* push(PeerState& state, rma::Header header, std::size_t bytes, bool is_fenced);
    /// Null: UCX does not take the key.
    ucp_rkey_h rkey_of(Peer peer, const Import& import);
    /// What UCX made of a part of that operation.
    void started(Outgoing::Operation& operation, ucs_status_ptr_t request);
    [[nodiscard]] static ucp_request_param_t param_of(Outgoing::Operation& operation);
    static void ended_part(void* request, ucs_status_t status, void* operation);
    void back(Outgoing::Operation& operation);

    // --- memory

    Result<Ok> register_region(Local region);
    Result<Blob> complete(Key& key, Local region);
    [[nodiscard]] ucp_mem_h handle_of(Local region) const;
    static void take_key(Import& import, const Key& key) {
        import.packed.assign(key.rkey.begin(),
                             key.rkey.begin() + std::min<std::size_t>(key.rkey_bytes, max_rkey_bytes));
    }

    // --- polling

    static constexpr std::uint32_t most_looks = 64;  // of one poll

    void flush(Peer peer);
    void flush(PeerState& state, bool also_for_records);
    /// Active messages that UCX may hold back leave: there is nothing else to do.
    void settle();
    void look(Time now);
    bool progress();
    std::size_t receive(std::span<Event> events);
    static ucs_status_t hear_message(void* endpoint, const void* header, std::size_t header_bytes, void* data,
                                     std::size_t bytes, const ucp_am_recv_param_t* param);
    [[nodiscard]] static bool is_of_now(const Frame& frame, const PeerState& state) {
        return frame.attempt == static_cast<std::uint32_t>(state.attempt);
    }
    std::size_t hear(const Held& held, Event& event);
    void give_back_spent();

    // --- connecting and losing

    bool begin(Peer peer);
    void meet(Peer peer) {
        greet(peer);
        push_welcome(peer);
    }
    void hear_broken();
    static void hear_failure(void* state, ucp_ep_h endpoint, ucs_status_t status);
    void cut(Peer /*peer*/) {}
    void close(PeerState& state) const;
    [[nodiscard]] static bool is_closed(const PeerState& state) {
        return state.closing == nullptr || ucp_request_check_status(state.closing) != UCS_INPROGRESS;
    }
    static void forget_closing(PeerState& state) {
        if (state.closing != nullptr) ucp_request_free(std::exchange(state.closing, nullptr));
    }
    /// What is still to be closed of those that were given up.
    void close_ended();
    [[nodiscard]] bool is_quiet(const PeerState& state) const {
        return state.endpoint == nullptr && (state.out == nullptr || state.out->is_quiet());
    }
    [[nodiscard]] std::uint64_t looks() const { return looks_; }
    [[nodiscard]] std::uint64_t looks_empty() const { return seen_empty_; }
    [[nodiscard]] static bool is_useless() { return false; }
    void finish(Peer peer);

    EndpointSettings settings_;
    Library library_;
    Allocator* allocator_;                                // of the pool
    std::vector<std::unique_ptr<Outgoing>> left_behind_;  // that UCX never gave back
    bool has_unclosed_ = false;                           // peers for which UCX has something left to do
    std::deque<Held> held_;
    std::vector<Spent> spent_;
    base::Bitmap unsettled_;        // peers with active messages that no flush has followed
    bool has_broken_ = false;       // some peer
    std::uint32_t known_ = 0;       // peers that are not idle
    std::uint64_t looks_ = 0;       // for what peers sent
    std::uint64_t seen_empty_ = 0;  // the last of them that found nothing
    std::uint64_t copied_bytes_ = 0;
};

}  // namespace incast::transport::ucx
