// A connection with one peer: moves the bytes of its session's streams by messages. A stream travels in chunks, each
// into one of the buffers that its receiver has laid out for it; a large body goes by itself, straight from the
// sender's memory to its place, and the chunk before it says how long it is. Who has no chunk left waits for the
// receiver's word that earlier ones were taken in.
//
// Both sides end a stream before they let go, and take in all that was sent until then: nothing of the connection is
// under way afterwards, and nobody sends to what nobody receives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/framed/session.h"
#include "transport/mpi/library.h"
#include "transport/mpi/wire.h"

namespace incast::transport::mpi {

struct LinkOptions {
    std::uint32_t number = 0;     // in the names of its requests
    int rank = 0;                 // the peer's
    std::uint32_t first_tag = 0;  // at which this side receives: two tags for each stream
    std::uint32_t peer_tag = 0;   // at which the peer does
    std::uint32_t streams = 1;
    std::uint32_t chunks = 4;  // of a stream, that may be on their way
    std::uint32_t chunk_bytes = 0;
    std::uint32_t direct_bytes = 0;  // bodies from this size on go by themselves
};

class Link {
public:
    Link(Library& library, const LinkOptions& options, const framed::SessionOptions& session, const Regions& regions);

    [[nodiscard]] framed::Session& session() { return session_; }

    /// One of its requests has ended.
    void ended(const Library::Ended& request);

    /// Moves what can be moved. False: the connection is lost, or was ended by the peer; why_lost() may have a line.
    bool work(framed::EventWriter& events, std::uint64_t poll_number);
    /// More could be moved at once: call work again soon.
    [[nodiscard]] bool busy() const { return busy_; }
    [[nodiscard]] const std::string& why_lost() const { return why_lost_; }
    [[nodiscard]] bool drained() const;
    [[nodiscard]] std::uint64_t copied_bytes() const { return moved_bytes_ + session_.copied_bytes(); }

    /// Nothing is sent from here on, but that nothing is; what still comes is thrown away.
    void stop() { is_stopping_ = true; }
    /// While it stops: to be called after each test() until it says true. Nothing is under way then.
    bool let_go();
    /// The peer's process is gone: nothing is waited for. What is under way never ends, or does so by itself.
    void abandon();
    /// Some of its requests have not ended: its buffers have to stay.
    [[nodiscard]] bool is_under_way() const { return under_way_ > 0; }

private:
    enum class Use : std::uint8_t { chunk_out, body_out, word_out, chunk_in, body_in };
    static constexpr std::uint32_t spare = 4;  // chunks without data, which need no permission
    static constexpr std::size_t words = 4;    // the same, on their way out

    struct Sent {                      // in order; its chunk lies in the buffer of the same number
        std::size_t stream_bytes = 0;  // of the session that it stands for, body included, and that it was not told of
        std::uint8_t under_way = 0;    // requests
    };
    struct Arriving {
        std::size_t bytes = 0;
        bool is_here = false;
    };
    struct Stream {
        // out
        std::unique_ptr<std::byte[]> out;  // a buffer for each chunk
        std::vector<Sent> sent;            // a ring
        std::uint64_t sent_chunks = 0;     // since the beginning
        std::uint64_t told_chunks = 0;     // of those the session knows, too
        std::uint64_t taken_chunks = 0;    // of those the peer took in
        std::size_t ahead_bytes = 0;       // of the session that were sent and that it was not told of
        std::array<ChunkHead, words> word_heads{};
        std::array<bool, words> word_busy{};
        bool end_said = false;
        // in
        std::unique_ptr<std::byte[]> in;
        std::vector<Arriving> arriving;  // a ring of `chunks` + spare
        std::uint32_t first_arriving = 0;
        std::size_t used_bytes = 0;    // of the first one, its head included
        std::uint32_t taken = 0;       // chunks of data, modulo 2^32
        std::uint32_t taken_said = 0;  // of which the peer knows
        enum class Body : std::uint8_t { none, placed, aside, arrived, arrived_aside } body = Body::none;
        std::size_t body_bytes = 0;
        std::vector<std::byte> aside;  // a body that has no place
        std::size_t aside_used = 0;
        bool end_heard = false;
    };

    [[nodiscard]] std::uint64_t name(std::size_t stream, Use use, std::uint32_t number) const {
        return std::uint64_t{options_.number} << 32U | static_cast<std::uint64_t>(stream) << 16U |
               static_cast<std::uint64_t>(use) << 12U | number;
    }
    [[nodiscard]] std::uint32_t in_buffers() const { return options_.chunks + spare; }
    [[nodiscard]] std::uint32_t tag(std::uint32_t first, std::size_t stream, bool is_body) const {
        return first + 2 * static_cast<std::uint32_t>(stream) + (is_body ? 1 : 0);
    }
    /// More of the session could go, and may.
    [[nodiscard]] bool may_send(std::size_t at) const {
        const Stream& stream = streams_[at];
        return session_.unsent_bytes(at) > stream.ahead_bytes &&
               stream.sent_chunks - stream.told_chunks < options_.chunks &&
               stream.sent_chunks - stream.taken_chunks < options_.chunks;
    }
    void lay_out(std::size_t stream, std::uint32_t buffer);
    void tell_session(std::size_t stream, framed::EventWriter& events);
    void flush(std::size_t stream, framed::EventWriter& events);
    void send_chunk(std::size_t stream, std::size_t chunk_bytes, Bytes body);
    bool send_word(std::size_t stream, ChunkHead::Kind kind);
    bool receive(std::size_t stream, framed::EventWriter& events, std::uint64_t poll_number);
    enum class Fed : std::uint8_t { all, some, wrong };
    Fed feed(std::size_t stream, Bytes bytes, std::size_t& used, framed::EventWriter& events,
             std::uint64_t poll_number);
    bool take_chunk_head(Stream& stream, ChunkHead& head);
    void next_chunk(std::size_t stream, bool is_data);
    void expect_body(std::size_t stream, std::size_t bytes, std::span<std::byte> place);
    bool violated(const char* what);

    Library& library_;
    LinkOptions options_;
    framed::Session session_;
    std::vector<Stream> streams_;
    std::string why_lost_;
    std::uint64_t moved_bytes_ = 0;
    std::uint64_t under_way_ = 0;
    bool busy_ = true;
    bool is_stopping_ = false;
    bool gave_back_ = false;
    bool failed_ = false;
};

}  // namespace incast::transport::mpi
