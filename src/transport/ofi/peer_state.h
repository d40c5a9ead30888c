// What an ofi endpoint knows of each peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "os/descriptor.h"
#include "transport/connect_rule.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/outgoing.h"
#include "transport/ofi/wire.h"

namespace incast::transport::ofi {

/// Who dialled, and is to be let in or turned away.
struct Caller {
    os::Descriptor socket;
    std::uint64_t attempt = 0;
    std::uint32_t incarnation = 0;
};

struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* memory) const { (void)::munmap(memory, bytes); }
};

/// Memory that libfabric may use: registered where the provider asks for it.
class Buffers {
public:
    Buffers() = default;
    static Result<Buffers> make(const Fabric& fabric, std::size_t bytes, std::uint64_t key);
    [[nodiscard]] std::byte* data() const { return memory_.get(); }
    [[nodiscard]] void* descriptor() const {
        return registration_ == nullptr ? nullptr : fi_mr_desc(registration_.get());
    }

private:
    std::unique_ptr<std::byte, Unmap> memory_;
    Opened<fid_mr> registration_;
};

/// A buffer for what a peer sends.
struct Receive : Context {
    std::byte* buffer = nullptr;
    void* descriptor = nullptr;
    std::uint32_t of = 0;               // the peer whose buffers it is among
    std::uint32_t counts_for = nobody;  // who gets it back
    bool is_posted = false;
    static constexpr std::uint32_t nobody = ~std::uint32_t{0};
};

/// What goes to a peer, with its memory.
struct Sending {
    Buffers memory;
    std::unique_ptr<Outgoing> out;
};

struct PeerState {
    enum class State : std::uint8_t {
        idle,
        dialling,  // it has the higher number
        waiting,   // for it to dial
        joining,   // both know each other; their connection on the fabric is awaited
        greeting,  // connected; its welcome is awaited
        up,
        ending,  // given up; what is under way is still to end, and perhaps the peer's side of it
    };
    [[nodiscard]] Connection connection() const {
        if (state == State::idle) return Connection::none;
        if (state == State::up) return Connection::up;
        return state == State::ending ? Connection::ending : Connection::opening;
    }
    [[nodiscard]] bool has_connection() const { return state == State::greeting || state == State::up; }
    [[nodiscard]] std::uint16_t credits() const { return static_cast<std::uint16_t>(allowed - used); }

    State state = State::idle;
    bool wants_room = false;
    bool is_silent = false;     // ending: what it had sent is not handed out
    bool was_welcomed = false;  // by this side
    bool has_changes = false;   // to tell or to answer
    bool is_overdue = false;    // ending takes too long
    bool has_hung_up = false;   // it writes nothing more, or is gone
    bool has_said_bye = false;  // to it: nothing of this side lands there any more
    bool has_called = false;
    std::uint32_t wanted_transfers = 0;
    std::uint32_t unpolled = 0;  // completions among the endpoint's own events
    Status lost_as = Status::peer_lost;

    // Receives: those that this side may use up at the peer, and has; those that the peer gets back, and was told of.
    // Numbers that go round.
    std::uint16_t granted = 0;
    std::uint16_t allowed = 0;
    std::uint16_t used = 0;
    std::uint16_t returned = 0;
    std::uint16_t announced = 0;

    std::uint64_t attempt = 0;        // the connection's number
    Opened<fid_ep> endpoint;          // connected to it
    fi_addr_t at = FI_ADDR_NOTAVAIL;  // of the name that the provider was told
    std::array<std::byte, max_name_bytes> name_there{};
    os::Descriptor socket;  // its end is the connection's end
    std::array<std::byte, sizeof(Answer)> answer{};
    std::size_t answered = 0;

    // From its first connection to the endpoint's end.
    Buffers buffers;
    std::unique_ptr<Receive[]> receives;
    Sending sending;

    std::uint32_t incarnation = 0;
    std::uint32_t complained_of = 0;  // incarnation for which a failure to connect was logged
    std::uint64_t ended_at = 0;       // reads of the completion queue until it was given up
    Time deadline = time_never;
    Address address;

    Caller parked;  // this side has not called connect() yet

    std::vector<Change> to_tell;      // regions of this endpoint that were released
    std::vector<Change> to_answer;    // regions of the peer that were, and are used no more
    std::vector<std::uint16_t> uses;  // of the peer's regions, as far as it has said
};

}  // namespace incast::transport::ofi
