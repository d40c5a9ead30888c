// The records of a simulated world: transfers, connections, and what an observer is told.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <incast/transport.h>

#include "sim/area_map.h"
#include "sim/pool.h"

namespace incast::sim {

using EndpointId = std::uint32_t;    // one incarnation of a node; never used again
using ConnectionId = std::uint32_t;  // one connection of two endpoints; never used again
using TransferId = std::uint32_t;    // index of a record, used again once the transfer is over
using ActorId = std::uint32_t;

/// An intrusive list of transfers, in posting order.
struct TransferList {
    TransferId head = nil;
    TransferId tail = nil;
};
struct TransferLink {
    TransferId previous = nil;
    TransferId next = nil;
    bool linked = false;
};

/// One message, write or read on its way.
struct Transfer {
    std::uint64_t number = 0;  // unique, increasing in posting order: a write's identity
    ConnectionId connection = nil;
    std::uint8_t direction = 0;  // = the side that posted it
    bool is_write = false;
    bool is_read = false;
    bool noticed = false;
    bool faulty = false;         // outside its region: completes as remote_fault, never lands
    bool silent = false;         // no completion event
    bool bytes_free = false;     // the sender may reuse its bytes
    bool arrived = false;        // for models: it is there, and may wait for what was posted before
    bool message_owned = false;  // `message` is still ours to give back
    std::uint8_t taken = 0;      // Part bits: of a read, what has left the owner's memory
    std::uint8_t landed = 0;     // Part bits
    std::uint8_t lost = 0;       // Part bits of a body: they never land, though they count as landed
    bool damaged = false;        // something of this write, or of one since the notice before, is lost
    std::uint8_t head_bytes = 0;
    std::uint16_t notice = 0;
    std::uint16_t region = 0;  // of the peer: a write's target, or what is read
    std::uint32_t use = 0;     // of that number, as the key says
    std::uint32_t scheduled = 0;
    std::uint64_t bytes = 0;  // on the wire: message, or head and body, or what a read asks for
    std::uint64_t offset = 0;
    Slice body;  // of the poster: what is written, or where a read puts its bytes
    Token token = 0;
    Time posted = 0;
    BufferPool::Buffer message;
    std::array<std::byte, max_head_bytes> head;  // of a read: the head it found, once taken
    TransferLink ordered;                        // messages and noticed writes, not delivered yet
    TransferLink unlanded;                       // writes with parts still to land
    TransferLink pending;                        // the sender counts it as posted

    [[nodiscard]] bool is_message() const { return !is_write && !is_read; }
};

/// What an endpoint has not polled yet. In a pool of the world: when a thousand nodes connect, a million of these come
/// in one instant, and few at any other time.
struct Arrival {
    static constexpr std::uint8_t no_message = 255;
    Event event{};
    std::uint32_t next = nil;                 // for the same endpoint
    std::uint8_t message_class = no_message;  // of the buffer that event.data is
    std::uint16_t region = 0;                 // a notice: where its write landed, which will be read next
    std::uint64_t offset = 0;
};

/// One direction of a connection, and how it stands for the side that sends in it.
struct Channel {
    enum class Side : std::uint8_t { connecting, up, leaving, down };
    TransferList ordered;
    TransferList unlanded;
    TransferList pending;
    std::uint32_t posted : 26 = 0;
    Side side : 2 = Side::connecting;
    bool fenced : 1 = false;          // the receiver is down: nothing lands or arrives any more
    bool room_wanted : 1 = false;     // the sender was told `again`
    bool room_scheduled : 1 = false;  // and the model said when that ends
    bool damaged : 1 = false;         // something of a write since the last notice is lost
};

struct alignas(64) Connection {  // one cache line: of a million, each was last touched long ago
    using Side = Channel::Side;
    std::array<EndpointId, 2> endpoint{
        nil, nil};  // equal for a connection of an endpoint with itself, which has one side and channel only
    std::array<Channel, 2> channel;  // [s]: from side s

    [[nodiscard]] bool loopback() const { return endpoint[0] == endpoint[1]; }
    /// The side that receives what side `s` sends.
    [[nodiscard]] std::uint8_t receiver(std::uint8_t s) const {
        return loopback() ? s : static_cast<std::uint8_t>(1 - s);
    }
};

static_assert(sizeof(Connection) == 64);

/// What a World tells about itself while it runs, for checkers and stories. Nothing may be posted from inside these
/// calls.
class Observer {
public:
    Observer() = default;
    Observer(const Observer&) = delete;
    Observer& operator=(const Observer&) = delete;
    virtual ~Observer() = default;
    virtual void message_posted(Time, EndpointId /*from*/, EndpointId /*to*/, Bytes) {}
    virtual void message_delivered(Time, EndpointId /*from*/, EndpointId /*to*/, Bytes) {}
    virtual void write_posted(Time, EndpointId /*from*/, EndpointId /*to*/, const Transfer&) {}
    /// `parts` of the write are in the memory of `to` now.
    virtual void landed(Time, EndpointId /*from*/, EndpointId /*to*/, const Transfer&, std::uint8_t /*parts*/) {}
    virtual void notice_delivered(Time, EndpointId /*from*/, EndpointId /*to*/, const Transfer&) {}
    /// Of reads `from` is the reader, `to` the owner of the bytes.
    virtual void read_posted(Time, EndpointId /*from*/, EndpointId /*to*/, const Transfer&) {}
    /// `parts` are read as they are now: what `to` changes from here on does not reach the reader.
    virtual void read_taken(Time, EndpointId /*from*/, EndpointId /*to*/, const Transfer&, std::uint8_t /*parts*/) {}
    /// `parts` are in the memory of `from` now.
    virtual void read_landed(Time, EndpointId /*from*/, EndpointId /*to*/, const Transfer&, std::uint8_t /*parts*/) {}
    /// Whatever the status, and also where no event says so: nothing of it lands any more.
    virtual void read_completed(Time, EndpointId /*from*/, EndpointId /*to*/, const Transfer&, Status) {}
    virtual void peer_up(Time, EndpointId /*at*/, EndpointId /*peer*/) {}
    virtual void peer_down(Time, EndpointId /*at*/, EndpointId /*peer*/) {}
};

}  // namespace incast::sim
