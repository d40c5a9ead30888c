// A lying consumer: arbitrary words in its control page, in between what the builder unit does. Whatever it writes, a
// slot is taken back at most once, only if it was handed out, and never without the number that was handed out with it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <vector>

#include "runtime/sinks/consumer/consumer_queue.h"

using namespace incast::sinks;
using incast::consumer::Cell;
using incast::consumer::Control;

namespace {

struct alignas(64) Line {
    std::byte bytes[64] = {};
};

void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::uint32_t window = data[0] % incast::consumer::max_window + 1;
    std::vector<Line> queue_lines(incast::consumer::queue_bytes(window) / sizeof(Line) + 1);
    std::vector<Line> control_lines(incast::consumer::control_bytes(window) / sizeof(Line) + 1);
    ConsumerQueue queue(std::as_writable_bytes(std::span(queue_lines)),
                        std::as_writable_bytes(std::span(control_lines)), window);
    auto& control = *reinterpret_cast<Control*>(control_lines.data());
    auto* cells = reinterpret_cast<Cell*>(reinterpret_cast<std::byte*>(control_lines.data()) + sizeof(Control));
    const auto* entries = reinterpret_cast<const incast::consumer::QueueEntry*>(
        reinterpret_cast<const std::byte*>(queue_lines.data()) + sizeof(incast::consumer::QueueHeader));

    std::map<std::uint32_t, std::uint64_t> out;  // serial by slot
    std::uint64_t serial = 0;
    std::vector<std::uint32_t> slots;
    std::vector<std::uint64_t> verdicts;
    const auto take_back = [&](bool must_have_said) {
        for (const std::uint32_t slot : slots) {
            const auto found = out.find(slot);
            require(found != out.end());
            bool said = !must_have_said;
            for (std::uint32_t cell = 0; cell < window; ++cell) {
                said = said || cells[cell] == found->second;
            }
            require(said);
            out.erase(found);
        }
        slots.clear();
    };
    for (std::size_t at = 1; at + 3 <= size; at += 3) {
        const std::uint32_t cell = data[at + 1] % window;
        const std::uint64_t value = data[at + 2];
        switch (data[at] % 7) {
            case 0:
                require(queue.has_room() == (out.size() < window));
                if (queue.has_room()) {
                    ++serial;
                    const auto slot = static_cast<std::uint32_t>(serial);
                    out[slot] = serial;
                    queue.deliver(serial, slot, value % 2 == 1);
                }
                break;
            case 1:  // an honest release, of whatever stands in that entry
                cells[entries[cell].cell % window] = entries[cell].serial;
                ++control.releases;
                break;
            case 2:
                if (queue.collect(slots, verdicts) == ConsumerQueue::Said::nonsense) {
                    take_back(true);
                    queue.end(incast::consumer::State::ejected);
                    queue.take_all(slots);
                    take_back(false);
                    require(out.empty() && queue.outstanding() == 0);
                    return 0;
                }
                take_back(true);
                break;
            case 3:
                control.releases += value;
                break;
            case 4:
                cells[cell] = value;
                break;
            case 5:
                control.waiting = value;
                (void)queue.wake();
                require(!queue.wake());
                break;
            default:
                queue.take_all(slots);
                take_back(false);
                require(out.empty());
                break;
        }
        require(queue.outstanding() == out.size());
    }
    return 0;
}
