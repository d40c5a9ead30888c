#include "transport/framed/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace incast::transport::framed {

namespace {

// From this size on a write moves to the next stream, so that several share the load; smaller frames follow the last
// write.
constexpr std::size_t rotate_bytes = 16384;

Sender::Limits sender_limits(const SessionOptions& options) {
    // A read request, its reply's header and a refusal are one header each.
    const std::size_t answers = options.max_peer_reads * frame_header_bytes;
    return {.copied_bytes = options.copied_bytes + answers,
            .bodies = options.max_posted + options.max_peer_reads,
            .reserved_bytes = answers,
            .reserved_bodies = options.max_peer_reads};
}

}  // namespace

Session::Session(const SessionOptions& options, const Regions& regions)
    : options_(options),
      regions_(regions),
      next_sequence_(options.first_sequence),
      order_(options.first_sequence),
      bodies_(options.bodies_beside == 0 ? 0 : options.max_posted, options.bodies_beside),
      reads_(options.max_posted) {
    streams_.reserve(options.streams);
    for (std::uint32_t i = 0; i < options.streams; ++i) {
        streams_.push_back({Sender(sender_limits(options)), Receiver(options.staging_bytes)});
    }
    faults_.reserve(options.max_posted);
    free_tags_.reserve(reads_.size());
    for (std::size_t tag = reads_.size(); tag > 0; --tag)
        free_tags_.push_back(static_cast<std::uint32_t>(tag - 1));
}

Post Session::send(Bytes message) {
    Sender& sender = choose(message.size());
    if (!sender.fits(frame_header_bytes + message.size(), 0)) return come_back();
    put_header(sender, {.kind = FrameKind::message, .length = static_cast<std::uint32_t>(message.size())});
    sender.copy(message);
    return Post::done;
}

Post Session::write(Bytes head, Bytes body, const Key& key, std::uint64_t offset, Notice notice, Token token) {
    if (!reaches(key, offset, head.size() + body.size()) || key.write == 0) return fault(token);
    if (options_.bodies_beside != 0 && !body.empty()) return write_beside(head, body, key, offset, notice, token);
    const bool copied = body.size() < options_.copy_below_bytes;
    const std::size_t copied_bytes = frame_header_bytes + head.size() + (copied ? body.size() : 0);
    Sender& sender = choose(body.size());
    if (!sender.fits(copied_bytes, copied ? 0 : 1)) return come_back();
    put_header(sender, {.kind = notice.has_value() ? FrameKind::write_notice : FrameKind::write,
                        .notice = notice.value_or(0),
                        .length = static_cast<std::uint32_t>(head.size() + body.size()),
                        .generation = key.generation,
                        .region = static_cast<std::uint16_t>(key.region),
                        .use = static_cast<std::uint16_t>(key.use),
                        .offset = offset});
    sender.copy(head);
    if (copied) {
        sender.copy(body);
        copied_bytes_ += body.size();
        return Post::done;
    }
    sender.refer(body, token);
    return Post::pending;
}

Post Session::write_beside(Bytes head, Bytes body, const Key& key, std::uint64_t offset, Notice notice, Token token) {
    Sender& sender = streams_[0].sender;
    if (bodies_.full() || !sender.fits(frame_header_bytes + head.size(), 0)) return come_back();
    FrameHeader frame{.generation = key.generation,
                      .region = static_cast<std::uint16_t>(key.region),
                      .use = static_cast<std::uint16_t>(key.use),
                      .offset = offset + head.size()};
    frame.kind = FrameKind::piece;
    bodies_.post({frame, body.data(), body.size(), token, sender.posted_bytes()});
    frame.kind = notice.has_value() ? FrameKind::write_notice : FrameKind::write;
    frame.notice = notice.value_or(0);
    frame.length = static_cast<std::uint32_t>(head.size());
    frame.tag = static_cast<std::uint32_t>(body.size());
    frame.offset = offset;
    put_header(sender, frame);
    sender.copy(head);
    return Post::pending;
}

Session::Piece Session::next_piece(std::size_t room) const {
    const Body& body = bodies_.front();
    const std::size_t bytes = std::min(body.left, room - frame_header_bytes);
    Piece piece{body.next, {body.bytes, bytes}};
    piece.header.length = static_cast<std::uint32_t>(bytes);
    return piece;
}

bool Session::piece_sent(std::size_t bytes, EventWriter& events) {
    Body& body = bodies_.front();
    if (bytes < body.left) {
        body.bytes += bytes;
        body.left -= bytes;
        body.next.offset += bytes;
        return true;
    }
    if (body.token != 0) {
        if (events.room() == 0) return false;
        events.completed(options_.peer, body.token, Status::ok);
    }
    bodies_.pop();
    return true;
}

bool Session::take_piece(Bytes piece) {
    if (piece.empty()) return true;
    FrameHeader frame;
    if (options_.bodies_beside == 0 || piece.size() <= sizeof frame) return fail_check("a piece of no body");
    std::memcpy(&frame, piece.data(), sizeof frame);
    const Bytes bytes = piece.subspan(sizeof frame);
    if (frame.kind != FrameKind::piece || frame.length != bytes.size()) return fail_check("a piece of no body");
    if (!check_write(frame, bytes.size())) return false;
    // Its frame was here: what it says has been acted on, and the place may be another write's by now.
    if (!bodies_.takes(frame.sequence)) return true;
    bodies_.landed(frame.sequence, frame.length);
    if (regions_.is_past(frame.region, frame.use)) [[unlikely]]
        return true;
    std::memcpy(regions_.exposed(frame.region).data() + frame.offset, bytes.data(), bytes.size());
    copied_bytes_ += bytes.size();
    return true;
}

Post Session::read(const Key& key, std::uint64_t offset, std::span<std::byte> into, Token token) {
    if (!reaches(key, offset, into.size())) return fault(token);
    Sender& sender = choose(0);
    if (free_tags_.empty() || !sender.fits(frame_header_bytes, 0)) return come_back();
    const std::uint32_t tag = free_tags_.back();
    free_tags_.pop_back();
    reads_[tag] = {.into = into, .token = token, .pending = true};
    put_header(sender, {.kind = FrameKind::read_request,
                        .length = static_cast<std::uint32_t>(into.size()),
                        .generation = key.generation,
                        .region = static_cast<std::uint16_t>(key.region),
                        .use = static_cast<std::uint16_t>(key.use),
                        .tag = tag,
                        .offset = offset});
    return Post::pending;
}

bool Session::has_room() const {
    return free_tags_.size() >= reads_.size() / 2 && faults_.empty() && bodies_.has_room() &&
           std::ranges::all_of(streams_, [](const Stream& stream) { return stream.sender.has_room(); });
}

Post Session::fault(Token token) {
    if (token == 0) return Post::done;
    if (faults_.size() == faults_.capacity()) return come_back();
    faults_.push_back(token);
    return Post::pending;
}

bool Session::settle(EventWriter& events) {
    std::size_t told = 0;
    for (; told < faults_.size() && events.room() > 0; ++told) {
        events.completed(options_.peer, faults_[told], Status::remote_fault);
    }
    faults_.erase(faults_.begin(), faults_.begin() + static_cast<std::ptrdiff_t>(told));
    if (room_wanted_ && events.room() > 0 && has_room()) {
        room_wanted_ = false;
        events.push({.kind = Event::Kind::room,
                     .status = Status::ok,
                     .size_or_value = 0,
                     .peer = options_.peer,
                     .incarnation = options_.peer_incarnation,
                     .token = 0});
    }
    return !faults_.empty() || (room_wanted_ && has_room());
}

bool Session::abandon(Status status, EventWriter& events) {
    room_wanted_ = false;
    if (settle(events)) return false;
    for (; !bodies_.empty(); bodies_.pop()) {
        if (bodies_.front().token == 0) continue;
        if (events.room() == 0) return false;
        events.completed(options_.peer, bodies_.front().token, status);
    }
    for (Stream& stream : streams_) {
        if (!stream.sender.abandon(status, options_.peer, events)) return false;
    }
    for (std::uint32_t tag = 0; tag < reads_.size(); ++tag) {
        if (!reads_[tag].pending) continue;
        if (reads_[tag].token != 0 && events.room() == 0) return false;
        finish_read(tag, status, events);
    }
    return true;
}

Parse Session::parse(std::size_t stream, EventWriter& events, std::uint64_t poll_number) {
    const Parse result = streams_[stream].receiver.parse(*this, events, poll_number);
    if (result == Parse::violation || streams_.size() == 1) return result;
    // A frame of this stream may be what others wait for, and theirs what this one waits for.
    for (std::uint32_t before = ~order_.next(); before != order_.next();) {
        before = order_.next();
        for (Stream& other : streams_) {
            if (!other.receiver.blocked()) continue;
            if (other.receiver.parse(*this, events, poll_number) == Parse::violation) return Parse::violation;
        }
    }
    return streams_[stream].receiver.blocked() ? Parse::blocked : Parse::hungry;
}

bool Session::uses(Bytes memory) const {
    return bodies_.refers_to(memory) || std::ranges::any_of(streams_, [&](const Stream& stream) {
               return stream.sender.refers_to(memory) || stream.receiver.fills(memory);
           });
}

bool Session::blocked() const {
    return std::ranges::any_of(streams_, [](const Stream& stream) { return stream.receiver.blocked(); });
}

bool Session::check(const FrameHeader& frame) {
    const bool names_region = frame.kind == FrameKind::write || frame.kind == FrameKind::write_notice ||
                              frame.kind == FrameKind::read_request;
    if (frame.zero_8 != 0 || (frame.use != 0 && !names_region))
        return fail_check("a reserved field of a frame is not zero");
    switch (frame.kind) {
        case FrameKind::message:
            if (frame.length == 0 || frame.length > max_message_bytes)
                return fail_check("a message of a forbidden size");
            return true;
        case FrameKind::write:
        case FrameKind::write_notice:
            if (frame.tag != 0 && options_.bodies_beside == 0) return fail_check("a body beside the stream");
            return check_write(frame, std::uint64_t{frame.length} + frame.tag);
        case FrameKind::read_request:
            if (frame.length > max_write_bytes) return fail_check("a read of a forbidden size");
            return true;
        case FrameKind::read_reply:
        case FrameKind::read_refused: {
            const bool refused = frame.kind == FrameKind::read_refused;
            if (frame.tag >= reads_.size() || !reads_[frame.tag].pending || reads_[frame.tag].arriving) {
                return fail_check("an answer to no read");
            }
            if (frame.length != (refused ? 0 : reads_[frame.tag].into.size()))
                return fail_check("a read reply of a wrong size");
            reads_[frame.tag].arriving = true;
            return true;
        }
        case FrameKind::piece:
            break;
    }
    return fail_check("a frame of an unknown kind");
}

bool Session::check_write(const FrameHeader& frame, std::uint64_t bytes) {
    if (bytes > max_write_bytes + max_head_bytes) return fail_check("a write of a forbidden size");
    if (frame.generation != options_.self_incarnation) return fail_check("a write for another incarnation");
    if (regions_.is_past(frame.region, frame.use)) [[unlikely]]
        return true;
    if (!regions_.is_use(frame.region, frame.use) ||
        !Regions::inside(regions_.exposed(frame.region).size(), frame.offset, bytes)) {
        return fail_check("a write outside an exposed region");
    }
    if (!regions_.may_write(options_.peer, frame.region, frame.offset, bytes)) {
        return fail_check("a write outside the places that it may write in");
    }
    return true;
}

std::span<std::byte> Session::destination(const FrameHeader& frame) {
    switch (frame.kind) {
        case FrameKind::write:
        case FrameKind::write_notice:
            if (regions_.is_past(frame.region, frame.use)) [[unlikely]]
                return {};
            return regions_.exposed(frame.region).subspan(frame.offset, frame.length);
        case FrameKind::read_reply:
            return reads_[frame.tag].into;
        default:
            return {};
    }
}

void Session::hand_out(const FrameHeader& frame, const std::byte* message, EventWriter& events) {
    events.push({.kind = Event::Kind::message,
                 .status = Status::ok,
                 .size_or_value = static_cast<std::uint16_t>(frame.length),
                 .peer = options_.peer,
                 .incarnation = options_.peer_incarnation,
                 .data = message});
    order_.complete(frame.sequence);
}

Session::Effect Session::take_effect(const FrameHeader& frame, EventWriter& events) {
    switch (frame.kind) {
        case FrameKind::write_notice:
            if (regions_.is_past(frame.region, frame.use)) [[unlikely]] {
                end_body(frame);
                is_damaged_ = false;
                break;
            }
            if (order_.place(frame.sequence) != Order::Place::next || events.room() == 0) return Effect::held;
            end_body(frame);
            events.push({.kind = Event::Kind::notice,
                         .status = std::exchange(is_damaged_, false) ? Status::damaged : Status::ok,
                         .size_or_value = frame.notice,
                         .peer = options_.peer,
                         .incarnation = options_.peer_incarnation,
                         .token = 0});
            break;
        case FrameKind::read_reply:
        case FrameKind::read_refused:
            if (events.room() == 0) return Effect::held;
            finish_read(frame.tag, frame.kind == FrameKind::read_reply ? Status::ok : Status::remote_fault, events);
            break;
        case FrameKind::read_request:
            if (!answer(frame)) {
                violation_ = "more reads at a time than agreed";
                return Effect::violation;
            }
            break;
        case FrameKind::write:
            end_body(frame);
            break;
        case FrameKind::message:
        case FrameKind::piece:
            break;
    }
    order_.complete(frame.sequence);
    return Effect::done;
}

bool Session::answer(const FrameHeader& request) {
    const std::span<std::byte> region = regions_.exposed(request.region);
    const bool granted = request.generation == options_.self_incarnation &&
                         regions_.is_use(request.region, request.use) &&
                         Regions::inside(region.size(), request.offset, request.length) &&
                         regions_.may_read(options_.peer, request.region, request.offset, request.length);
    const Bytes body = granted ? region.subspan(request.offset, request.length) : std::span<std::byte>{};
    Sender& sender = choose(body.size());
    if (!sender.fits_in_reserve(frame_header_bytes, 1)) return false;
    put_header(sender, {.kind = granted ? FrameKind::read_reply : FrameKind::read_refused,
                        .length = static_cast<std::uint32_t>(body.size()),
                        .tag = request.tag});
    if (!body.empty()) sender.refer(body, 0);
    return true;
}

Sender& Session::choose(std::size_t bytes) {
    if (bytes >= rotate_bytes && streams_.size() > 1) current_stream_ = (current_stream_ + 1) % streams_.size();
    return streams_[current_stream_].sender;
}

void Session::put_header(Sender& sender, FrameHeader frame) {
    frame.sequence = next_sequence_++;
    sender.copy(std::as_bytes(std::span(&frame, 1)));
}

void Session::finish_read(std::uint32_t tag, Status status, EventWriter& events) {
    Read& read = reads_[tag];
    if (read.token != 0) events.completed(options_.peer, read.token, status);
    read.pending = read.arriving = false;
    free_tags_.push_back(tag);
}

}  // namespace incast::transport::framed
