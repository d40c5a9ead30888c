#include "transport/mpi/link.h"

#include <algorithm>
#include <cstring>

namespace incast::transport::mpi {

namespace {

constexpr std::size_t pieces_per_chunk = 64;
// Of a stream, in one poll: enough to keep a peer busy, little enough that others get their turn.
constexpr int chunks_per_poll = 16;

}  // namespace

Link::Link(Library& library, const LinkOptions& options, const framed::SessionOptions& session, const Regions& regions)
    : library_(library), options_(options), session_(session, regions), streams_(options.streams) {
    for (std::size_t at = 0; at < streams_.size(); ++at) {
        Stream& stream = streams_[at];
        const std::size_t bytes = options_.chunk_bytes;
        // Default-initialised: pages are touched only as far as they are used.
        stream.out.reset(new std::byte[options_.chunks * bytes]);
        stream.in.reset(new std::byte[in_buffers() * bytes]);
        stream.sent.resize(options_.chunks);
        stream.arriving.resize(in_buffers());
        for (std::uint32_t buffer = 0; buffer < in_buffers(); ++buffer)
            lay_out(at, buffer);
    }
}

void Link::lay_out(std::size_t stream, std::uint32_t buffer) {
    streams_[stream].arriving[buffer] = {};
    ++under_way_;
    library_.receive(options_.rank, tag(options_.first_tag, stream, false),
                     {streams_[stream].in.get() + std::size_t{buffer} * options_.chunk_bytes, options_.chunk_bytes},
                     name(stream, Use::chunk_in, buffer));
}

void Link::ended(const Library::Ended& request) {
    --under_way_;
    const auto use = static_cast<Use>(request.what >> 12U & 0xFU);
    const auto number = static_cast<std::uint32_t>(request.what & 0xFFFU);
    Stream& stream = streams_[request.what >> 16U & 0xFFFFU];
    switch (use) {
        case Use::chunk_out:
        case Use::body_out:
            --stream.sent[number].under_way;
            break;
        case Use::word_out:
            stream.word_busy[number] = false;
            break;
        case Use::chunk_in:
            if (gave_back_) return;
            stream.arriving[number] = {request.bytes, true};
            break;
        case Use::body_in:
            if (request.bytes != stream.body_bytes) failed_ = true;
            stream.body = stream.body == Stream::Body::placed ? Stream::Body::arrived : Stream::Body::arrived_aside;
            break;
    }
    if (!request.is_good) failed_ = true;
}

bool Link::work(framed::EventWriter& events, std::uint64_t poll_number) {
    if (failed_) {
        why_lost_ = "MPI reports an error";
        return false;
    }
    bool left = session_.settle(events);
    for (std::size_t at = 0; at < streams_.size(); ++at) {
        tell_session(at, events);
        // Sending first: what waits here is what others wait for.
        flush(at, events);
        if (!receive(at, events, poll_number)) return false;
        Stream& stream = streams_[at];
        if (stream.taken - stream.taken_said >= std::max(options_.chunks / 2, 1U) &&
            !send_word(at, ChunkHead::Kind::credit))
            left = true;
    }
    // What the peer said before its end is handed out first, unless it waits for what was cut off.
    if (std::ranges::all_of(streams_, &Stream::end_heard) && (events.room() > 0 || !session_.blocked())) return false;
    for (std::size_t at = 0; at < streams_.size(); ++at) {
        const Stream& stream = streams_[at];
        const bool told =
            stream.told_chunks == stream.sent_chunks || stream.sent[stream.told_chunks % options_.chunks].under_way > 0;
        // Reads of the peer were answered meanwhile.
        left = left || !told || may_send(at) ||
               (stream.arriving[stream.first_arriving].is_here && !session_.blocked(at) && !stream.end_heard &&
                (stream.body == Stream::Body::none || stream.body == Stream::Body::arrived_aside));
    }
    left = left || (events.room() == 0 && session_.blocked());
    busy_ = session_.settle(events) || left;
    return true;
}

// --- sending
// -----------------------------------------------------------------------------------------------------------------

void Link::tell_session(std::size_t at, framed::EventWriter& events) {
    Stream& stream = streams_[at];
    while (stream.told_chunks != stream.sent_chunks) {
        Sent& first = stream.sent[stream.told_chunks % options_.chunks];
        if (first.under_way > 0) return;
        while (first.stream_bytes > 0) {
            // As many as there is room for their completions.
            std::array<Bytes, pieces_per_chunk> pieces;
            const std::size_t count = session_.gather(at, pieces, events);
            std::size_t bytes = 0;
            for (std::size_t each = 0; each < count; ++each)
                bytes += pieces[each].size();
            bytes = std::min(bytes, first.stream_bytes);
            if (bytes == 0) return;
            session_.sent(at, bytes, events);
            first.stream_bytes -= bytes;
            stream.ahead_bytes -= bytes;
        }
        ++stream.told_chunks;
    }
}

void Link::flush(std::size_t at, framed::EventWriter& events) {
    Stream& stream = streams_[at];
    while (may_send(at)) {
        std::array<Bytes, pieces_per_chunk> pieces;
        const std::size_t count = session_.gather(at, pieces, events);
        std::byte* const chunk = stream.out.get() + stream.sent_chunks % options_.chunks * options_.chunk_bytes;
        std::size_t used = sizeof(ChunkHead);
        std::size_t skip = stream.ahead_bytes;
        Bytes body;
        for (std::size_t each = 0; each < count && used < options_.chunk_bytes; ++each) {
            Bytes piece = pieces[each];
            const std::size_t skipped = std::min(skip, piece.size());
            skip -= skipped;
            piece = piece.subspan(skipped);
            if (piece.empty()) continue;
            if (piece.size() >= options_.direct_bytes && !session_.is_copied(at, piece)) {
                body = piece;
                break;
            }
            const std::size_t now = std::min(piece.size(), options_.chunk_bytes - used);
            std::memcpy(chunk + used, piece.data(), now);
            moved_bytes_ += now;
            used += now;
        }
        if (used == sizeof(ChunkHead) && body.empty()) return;  // events have no room for more completions
        send_chunk(at, used, body);
    }
}

void Link::send_chunk(std::size_t at, std::size_t bytes, Bytes body) {
    Stream& stream = streams_[at];
    const auto number = static_cast<std::uint32_t>(stream.sent_chunks % options_.chunks);
    std::byte* const chunk = stream.out.get() + std::size_t{number} * options_.chunk_bytes;
    const ChunkHead head{
        .kind = ChunkHead::Kind::data, .taken = stream.taken, .body_bytes = static_cast<std::uint32_t>(body.size())};
    std::memcpy(chunk, &head, sizeof head);
    stream.taken_said = stream.taken;
    Sent& sent = stream.sent[number];
    sent.stream_bytes = bytes - sizeof head + body.size();
    sent.under_way = body.empty() ? 1 : 2;
    stream.ahead_bytes += sent.stream_bytes;
    ++stream.sent_chunks;
    under_way_ += sent.under_way;
    library_.send(options_.rank, tag(options_.peer_tag, at, false), {chunk, bytes}, name(at, Use::chunk_out, number));
    if (!body.empty())
        library_.send(options_.rank, tag(options_.peer_tag, at, true), body, name(at, Use::body_out, number));
}

bool Link::send_word(std::size_t at, ChunkHead::Kind kind) {
    Stream& stream = streams_[at];
    const auto free = std::ranges::find(stream.word_busy, false);
    if (free == stream.word_busy.end()) return false;
    *free = true;
    const auto number = static_cast<std::uint32_t>(free - stream.word_busy.begin());
    stream.word_heads[number] = {.kind = kind, .taken = stream.taken};
    stream.taken_said = stream.taken;
    ++under_way_;
    library_.send(options_.rank, tag(options_.peer_tag, at, false),
                  std::as_bytes(std::span(&stream.word_heads[number], 1)), name(at, Use::word_out, number));
    return true;
}

bool Link::drained() const {
    for (std::size_t at = 0; at < streams_.size(); ++at)
        if (session_.has_output(at) || streams_[at].told_chunks != streams_[at].sent_chunks) return false;
    return true;
}

// --- receiving
// -----------------------------------------------------------------------------------------------------------------

bool Link::take_chunk_head(Stream& stream, ChunkHead& head) {
    const Arriving& first = stream.arriving[stream.first_arriving];
    if (first.bytes < sizeof head) return violated("a chunk without a head");
    std::memcpy(&head, stream.in.get() + std::size_t{stream.first_arriving} * options_.chunk_bytes, sizeof head);
    if (head.kind != ChunkHead::Kind::data && head.kind != ChunkHead::Kind::credit && head.kind != ChunkHead::Kind::end)
        return violated("a chunk of an unknown kind");
    if (head.body_bytes > max_write_bytes + max_head_bytes) return violated("a body of a forbidden size");
    const std::uint64_t taken = count_of(head.taken, stream.taken_chunks);
    if (taken > stream.sent_chunks) return violated("a credit for what was not sent");
    stream.taken_chunks = taken;
    return true;
}

void Link::next_chunk(std::size_t at, bool is_data) {
    Stream& stream = streams_[at];
    lay_out(at, stream.first_arriving);
    stream.first_arriving = (stream.first_arriving + 1) % in_buffers();
    stream.used_bytes = 0;
    if (is_data) ++stream.taken;
}

void Link::expect_body(std::size_t at, std::size_t bytes, std::span<std::byte> place) {
    Stream& stream = streams_[at];
    stream.body_bytes = bytes;
    stream.body = place.size() == bytes ? Stream::Body::placed : Stream::Body::aside;
    if (stream.body == Stream::Body::aside) {
        stream.aside.resize(bytes);
        stream.aside_used = 0;
        place = stream.aside;
    }
    ++under_way_;
    library_.receive(options_.rank, tag(options_.first_tag, at, true), place, name(at, Use::body_in, 0));
}

Link::Fed Link::feed(std::size_t at, Bytes bytes, std::size_t& used, framed::EventWriter& events,
                     std::uint64_t poll_number) {
    while (used < bytes.size()) {
        if (session_.blocked(at) || events.room() == 0) return Fed::some;
        const framed::Receiver::Space space = session_.space(at, poll_number);
        if (space.bytes() == 0) return Fed::some;
        const std::size_t before = used;
        for (const std::span<std::byte> part : {space.payload, space.staging}) {
            const std::size_t now = std::min(part.size(), bytes.size() - used);
            if (now > 0) std::memcpy(part.data(), bytes.data() + used, now);
            used += now;
        }
        moved_bytes_ += used - before;
        session_.filled(at, used - before);
        if (session_.parse(at, events, poll_number) == framed::Parse::violation) {
            (void)violated(session_.violation());
            return Fed::wrong;
        }
    }
    return Fed::all;
}

bool Link::receive(std::size_t at, framed::EventWriter& events, std::uint64_t poll_number) {
    Stream& stream = streams_[at];
    if (session_.blocked(at) && session_.parse(at, events, poll_number) == framed::Parse::violation)
        return violated(session_.violation());
    for (int chunks = 0; chunks < chunks_per_poll && !stream.end_heard; ++chunks) {
        if (stream.body == Stream::Body::placed || stream.body == Stream::Body::aside) return true;
        if (stream.body == Stream::Body::arrived) {
            stream.body = Stream::Body::none;
            moved_bytes_ += stream.body_bytes;
            session_.filled(at, stream.body_bytes);
            if (session_.parse(at, events, poll_number) == framed::Parse::violation)
                return violated(session_.violation());
        }
        if (stream.body == Stream::Body::arrived_aside) {
            const Fed fed = feed(at, stream.aside, stream.aside_used, events, poll_number);
            if (fed != Fed::all) return fed == Fed::some;
            stream.body = Stream::Body::none;
            stream.aside.clear();
        }
        const Arriving& first = stream.arriving[stream.first_arriving];
        if (!first.is_here) return true;
        ChunkHead head;
        if (!take_chunk_head(stream, head)) return false;
        if (head.kind == ChunkHead::Kind::end) {
            stream.end_heard = true;
            return true;
        }
        if (head.kind == ChunkHead::Kind::credit) {
            next_chunk(at, false);
            continue;
        }
        if (stream.used_bytes == 0) stream.used_bytes = sizeof head;
        const Bytes chunk{stream.in.get() + std::size_t{stream.first_arriving} * options_.chunk_bytes, first.bytes};
        const Fed fed = feed(at, chunk, stream.used_bytes, events, poll_number);
        if (fed != Fed::all) return fed == Fed::some;
        if (head.body_bytes > 0) {
            // Where it goes is known only once all before it was looked at.
            if (session_.blocked(at)) return true;
            expect_body(at, head.body_bytes, session_.space(at, poll_number).payload);
        }
        next_chunk(at, true);
    }
    return true;
}

bool Link::violated(const char* what) {
    why_lost_ = what;
    return false;
}

// --- the end
// -----------------------------------------------------------------------------------------------------------------

bool Link::let_go() {
    if (!is_stopping_) return false;
    bool is_over = !gave_back_;
    for (std::size_t at = 0; at < streams_.size() && !gave_back_; ++at) {
        Stream& stream = streams_[at];
        if (!stream.end_said) stream.end_said = send_word(at, ChunkHead::Kind::end);
        while (!stream.end_heard && !failed_) {
            if (stream.body == Stream::Body::placed || stream.body == Stream::Body::aside) break;
            stream.body = Stream::Body::none;
            ChunkHead head;
            if (!stream.arriving[stream.first_arriving].is_here) break;
            if (!take_chunk_head(stream, head)) {
                failed_ = true;  // whoever says that will not say its end, either
                break;
            }
            if (head.kind == ChunkHead::Kind::end) {
                stream.end_heard = true;
                break;
            }
            if (head.body_bytes > 0) expect_body(at, head.body_bytes, {});
            next_chunk(at, head.kind == ChunkHead::Kind::data);
        }
        const bool is_sent = std::ranges::none_of(stream.word_busy, [](bool busy) { return busy; }) &&
                             std::ranges::all_of(stream.sent, [](const Sent& sent) { return sent.under_way == 0; });
        is_over = is_over && stream.end_said && (stream.end_heard || failed_) && is_sent;
    }
    if (is_over) abandon();
    return gave_back_ && under_way_ == 0;
}

void Link::abandon() {
    is_stopping_ = gave_back_ = true;
    for (std::size_t at = 0; at < streams_.size(); ++at) {
        Stream& stream = streams_[at];
        for (std::uint32_t buffer = 0; buffer < in_buffers(); ++buffer)
            if (!stream.arriving[buffer].is_here) library_.cancel(name(at, Use::chunk_in, buffer));
        if (stream.body == Stream::Body::placed || stream.body == Stream::Body::aside)
            library_.cancel(name(at, Use::body_in, 0));
    }
}

}  // namespace incast::transport::mpi
