// Arbitrary bytes as frames on one to four streams, in arbitrary pieces, with arbitrary room for events, while this
// side has reads pending: nothing lands outside exposed memory or the place of a pending read, no event is made up, a
// violation ends it.
//
// Input: one byte (streams, room for events; from 144 on: one stream, and bodies beside it), then steps of one byte
// each:
//   0x00-0x3F  deliver to stream (step mod streams): a u16 length, then that many bytes
//   0x40-0x7F  poll without new bytes; with bodies beside it, from 0x60 on: a u16 length, then a piece of that many
//   bytes 0x80-0xBF  post a read 0xC0-0xFF  send (and lose) up to (step - 0xC0 + 1) * 64 bytes of the answers
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "transport/framed/session.h"

namespace {

using namespace incast;
using namespace incast::transport;
using namespace incast::transport::framed;

constexpr std::size_t region_bytes = 8192;
constexpr std::size_t read_bytes = 512;
constexpr std::uint32_t generation = 3;
constexpr std::byte canary{0xA5};

void require(bool condition) {
    if (!condition) std::abort();
}

class Input {
public:
    explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
    [[nodiscard]] bool empty() const { return bytes_.empty(); }
    std::span<const std::byte> take(std::size_t size) {
        const auto taken = bytes_.first(std::min(size, bytes_.size()));
        bytes_ = bytes_.subspan(taken.size());
        return taken;
    }
    std::uint8_t byte() {
        const auto taken = take(1);
        return taken.empty() ? std::uint8_t{0} : std::to_integer<std::uint8_t>(taken[0]);
    }

private:
    std::span<const std::byte> bytes_;
};

class Subject {
public:
    Subject(std::uint32_t streams, std::size_t room, bool beside)
        : streams_(streams),
          room_(room),
          exposed_(regions_.allocate(region_bytes).value()),
          hidden_(regions_.allocate(region_bytes).value()),
          reading_(regions_.allocate(region_bytes).value()),
          session_({.self = Peer{0},
                    .peer = Peer{1},
                    .self_incarnation = generation,
                    .peer_incarnation = generation,
                    .streams = streams,
                    .max_posted = 8,
                    .max_peer_reads = 4,
                    .staging_bytes = 8192,
                    .copied_bytes = 16384,
                    .copy_below_bytes = 64,
                    .bodies_beside = beside ? 16U : 0U},
                   regions_) {
        require(regions_.expose(exposed_, {}));
        for (const Local region : {hidden_, reading_})
            std::ranges::fill(regions_.memory(region), canary);
    }

    /// False after a violation.
    bool deliver(std::size_t stream, std::span<const std::byte> bytes) {
        while (true) {
            if (!poll(stream)) return false;
            const Receiver::Space space = session_.space(stream, poll_number_);
            std::size_t filled = 0;
            for (const std::span<std::byte> part : {space.payload, space.staging}) {
                const std::size_t now = std::min(part.size(), bytes.size());
                std::ranges::copy(bytes.first(now), part.begin());
                bytes = bytes.subspan(now);
                filled += now;
                if (now < part.size()) break;
            }
            if (filled == 0) return true;  // all delivered, or the stream waits for others: a link would stop reading
            session_.filled(stream, filled);
        }
    }

    bool piece(std::span<const std::byte> bytes) { return session_.take_piece(bytes); }

    bool poll(std::size_t stream) {
        ++poll_number_;
        std::array<Event, 8> events;
        EventWriter writer(std::span<Event>(events).first(room_));
        session_.settle(writer);
        const Parse result = session_.parse(stream, writer, poll_number_);
        require(writer.count() <= room_);
        for (const Event& event : std::span(events).first(writer.count()))
            look_at(event);
        return result != Parse::violation;
    }

    void read() {
        const Key key{.generation = generation, .region = 0, .bytes = region_bytes};
        const std::size_t place = reads_ % 8 * read_bytes;
        if (session_.read(key, 0, regions_.memory(reading_).subspan(place, read_bytes), reads_ + 1) == Post::pending) {
            ++pending_;
            ++reads_;
        }
    }

    void send(std::size_t bytes) {
        for (std::size_t stream = 0; stream < streams_; ++stream) {
            std::array<Event, 8> events;
            EventWriter writer(events);
            std::array<Bytes, 4> pieces;
            std::size_t total = 0;
            for (const Bytes piece : std::span(pieces).first(session_.gather(stream, pieces, writer))) {
                require(inside(piece));
                total += piece.size();
            }
            session_.sent(stream, std::min(bytes, total), writer);
            require(writer.count() == 0);  // answers complete silently
        }
    }

    void finish() {
        const auto untouched = [](std::span<const std::byte> bytes) {
            return std::ranges::all_of(bytes, [](std::byte each) { return each == canary; });
        };
        require(untouched(regions_.memory(hidden_)));
        require(untouched(regions_.memory(reading_).subspan(8 * read_bytes)));
        std::array<Event, 16> events;
        EventWriter writer(events);
        require(session_.abandon(Status::peer_lost, writer));
        require(writer.count() == pending_);
    }

private:
    void look_at(const Event& event) {
        switch (event.kind) {
            case Event::Kind::message:
                require(event.size_or_value >= 1 && event.size_or_value <= max_message_bytes);
                sum_ = sum_ + std::to_integer<unsigned>(event.data[0]) +
                       std::to_integer<unsigned>(event.data[event.size_or_value - 1]);
                return;
            case Event::Kind::completed:
                require(event.token >= 1 && event.token <= reads_ && pending_ > 0);
                require(event.status == Status::ok || event.status == Status::remote_fault);
                --pending_;
                return;
            case Event::Kind::notice:
            case Event::Kind::room:
                return;
            default:
                std::abort();
        }
    }

    /// Bodies of answers come from the exposed region; everything else is the session's own ring.
    bool inside(Bytes piece) {
        for (const Local region : {hidden_, reading_}) {
            const auto memory = regions_.memory(region);
            if (piece.data() >= memory.data() && piece.data() < memory.data() + memory.size()) return false;
        }
        return true;
    }

    std::uint32_t streams_;
    std::size_t room_;
    Regions regions_{3};
    Local exposed_;
    Local hidden_;
    Local reading_;
    Session session_;
    std::uint64_t poll_number_ = 0;
    std::uint64_t reads_ = 0;
    std::size_t pending_ = 0;
    volatile unsigned sum_ = 0;  // so that handed-out messages are really looked at
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(std::as_bytes(std::span(data, size)));
    const std::uint8_t setup = input.byte();
    const bool beside = setup >= 144;
    const std::uint32_t streams = beside ? 1 : 1 + setup % 4;
    Subject subject(streams, setup / 4 % 9, beside);
    bool alive = true;
    while (alive && !input.empty()) {
        const std::uint8_t step = input.byte();
        if (step < 0x40 || (beside && step >= 0x60 && step < 0x80)) {
            const std::size_t low = input.byte();
            const std::size_t length = low + std::size_t{256} * input.byte();
            const auto bytes = input.take(length);
            alive = step < 0x40 ? subject.deliver(step % streams, bytes) : subject.piece(bytes);
        } else if (step < 0x80) {
            alive = subject.poll(step % streams);
        } else if (step < 0xC0) {
            subject.read();
        } else {
            subject.send((step - 0xBFU) * 64);
        }
    }
    subject.finish();
    return 0;
}
