// A peer of a channel that writes what it likes into the ring and the credit cells, and rings and tells what it likes
// (EB-T8): nobody reads or writes outside, nothing more is taken or sent than there can be, and what is broken stays
// so. The first byte chooses shape and ways; then steps, a byte each, with what they need behind them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "channel/messages.h"
#include "channel/receiver.h"
#include "channel/sender.h"

namespace {

using namespace incast;
using namespace incast::channel;

void require(bool fact) {
    if (!fact) std::abort();
}

class Script {
public:
    explicit Script(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
    [[nodiscard]] bool has_more() const { return at_ < bytes_.size(); }
    std::uint8_t next() { return has_more() ? bytes_[at_++] : std::uint8_t{0}; }
    std::uint64_t number() {
        const std::uint8_t low = next();
        return low < 128 ? low : std::uint64_t{low} << (next() % 57U);
    }

private:
    std::span<const std::uint8_t> bytes_;
    std::size_t at_ = 0;
};

struct End {
    End(std::uint8_t first, Shape with)
        : shape(with),
          staging(shape.bytes()),
          ring(shape.bytes()),
          cells(shape.cells() * sizeof(CreditCell)),
          sender({.shape = shape, .announce = way(first / 4U), .acknowledge = way(first / 16U)}, staging, cells),
          receiver({.shape = shape, .announce = way(first / 4U), .acknowledge = way(first / 16U)}, ring),
          reader(receiver, 5000) {}

    static Way way(unsigned value) { return static_cast<Way>(value % 3U); }

    Shape shape;
    std::vector<std::byte> staging;
    std::vector<std::byte> ring;
    std::vector<std::byte> cells;
    Sender sender;
    Receiver receiver;
    MessageReader reader;
    std::uint64_t buffers_posted = 0;
};

/// The next buffer as a peer would write it, with any bytes; `length` may lie.
void forge(End& end, std::uint64_t number, std::uint32_t length) {
    const std::span<std::byte> buffer = std::span(end.ring).subspan(end.receiver.next_offset(), end.shape.buffer_bytes);
    BufferHeader header{.number = number, .length = length, .check = 0};
    const std::size_t covered = std::min<std::size_t>(header.bytes(), capacity(end.shape));
    header.check = check_of(header, base::crc32c(buffer.subspan(header_bytes, covered)));
    std::memcpy(buffer.data(), &header, sizeof header);
}

void post(End& end, bool is_pending) {
    const auto out = end.sender.next();
    if (!out) return;
    require(out->offset + out->head.size() + out->body.size() <= end.shape.bytes());
    require(out->head.size() <= max_head_bytes && out->number == ++end.buffers_posted);
    end.sender.posted(is_pending);
}

void step(End& end, Script& script, std::uint64_t& taken) {
    std::array<std::byte, 300> bytes{};
    const std::uint8_t what = script.next();
    switch (what % 14U) {
        case 0: {
            const std::size_t at = script.number() % end.ring.size();
            end.ring[at] = static_cast<std::byte>(script.next());
            break;
        }
        case 1: {
            const std::uint64_t number = script.number();
            forge(end, number, static_cast<std::uint32_t>(script.number()) | (what & 0x80U) << 24U);
            break;
        }
        case 2:
            end.receiver.rung();
            break;
        case 3:
            end.receiver.told(script.number());
            break;
        case 4: {
            const CreditCell cell = make_credit(script.number());
            std::memcpy(end.cells.data() + end.sender.next_cell(), &cell, sizeof cell);
            break;
        }
        case 5:
            end.sender.rung();
            break;
        case 6:
            end.sender.told(script.number());
            break;
        case 7:
            (void)end.sender.write(Bytes(bytes).first(script.number() % bytes.size()));
            break;
        case 8:
            post(end, (what & 0x80U) != 0);
            break;
        case 9:
            end.sender.completed(static_cast<std::uint32_t>(script.number()));
            break;
        case 10: {
            const bool was_broken = end.receiver.is_broken();
            const std::size_t done = (what & 0x80U) != 0 ? end.reader.read(bytes) : end.receiver.read(bytes);
            taken += done;
            require(done == 0 || !was_broken);
            if (end.reader.length() && end.reader.left() == 0) end.reader.done();
            break;
        }
        case 11:
            end.receiver.wanted(script.number());
            break;
        case 12:
            if (end.sender.wish()) end.sender.wish_posted();
            break;
        default:
            end.sender.flush();
            (void)end.sender.look();
            if (const auto credit = end.receiver.credit()) {
                require(credit->offset + sizeof(CreditCell) <= end.cells.size());
                require(credit->is_new || credit->rings);
                end.receiver.credit_posted(*credit);
            }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    Script script({data, size});
    const std::uint8_t first = script.next();
    const std::uint32_t buffers = 1U + first % 4U;
    End end(first, {.buffers = buffers, .buffer_bytes = 64U * buffers, .batch = 1U + buffers / 3U});
    std::uint64_t taken = 0;
    for (int steps = 0; script.has_more() && steps < 4000; ++steps)
        step(end, script, taken);
    return 0;
}
