// Both ends of a reliable session between whom somebody writes datagrams: as they are, changed, again, or made up. What
// was added is delivered once and in order, or not at all; nobody reads beyond a datagram.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "reliable/connection.h"

using namespace incast::reliable;

namespace {

constexpr Settings settings = {.datagram_bytes = 128, .window_packets = 16};

struct End {
    Connection connection{settings, 0, {}};
    std::uint64_t added = 0;
    std::uint64_t expected = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::array<End, 2> ends;
    std::vector<std::byte> last;
    std::size_t last_from = 0;
    std::int64_t now_ns = 1'000'000'000;
    std::uint64_t random = 0x1234'0000;
    // Only who reads the traffic can have such a packet taken, and then nothing more is promised of the session.
    bool is_tampered = false;
    const auto give = [&](std::size_t to, std::span<const std::byte> bytes) {
        const auto packet = parse(bytes);
        if (!packet) return;
        (void)ends[to].connection.receive(now_ns, random += 0x10000, *packet);
        while (const auto delivery = ends[to].connection.next_delivery()) {
            std::uint64_t number = 0;
            if (is_tampered) continue;
            if (delivery->body.size() != sizeof number) std::abort();
            std::memcpy(&number, delivery->body.data(), sizeof number);
            if (number != ends[to].expected++) std::abort();
        }
        if (ends[to].connection.take_loss()) is_tampered = true;
    };
    ends[0].connection.open(now_ns, random);
    for (std::size_t at = 0; at < size; ++at) {
        const std::size_t from = data[at] & 1;
        Connection& connection = ends[from].connection;
        switch (data[at] >> 1 & 7) {
            case 0:
            case 1: {
                const Datagram out = connection.next_datagram(now_ns);
                if (out.bytes.empty()) break;
                last.assign(out.bytes.begin(), out.bytes.end());
                last_from = from;
                if ((data[at] & 0x80) == 0) give(1 - from, last);
                break;
            }
            case 2:
                if (connection.room() == 0) break;
                std::memcpy(connection.body().data(), &ends[from].added, sizeof ends[from].added);
                ++ends[from].added;
                connection.add(1, sizeof ends[from].added);
                break;
            case 3:
                now_ns += std::int64_t{data[at]} * 1'000'000;
                connection.advance(now_ns);
                if (connection.take_loss()) is_tampered = true;
                break;
            case 4:
                // Also back to its sender; whoever calls itself is called, which is a session of its own.
                if (const auto packet = parse(last); packet && packet->kind != Kind::hello) give(last_from, last);
                give(1 - last_from, last);
                break;
            case 5: {
                if (last.empty() || at + 2 >= size) break;
                is_tampered = true;
                std::vector<std::byte> changed = last;
                changed[data[at + 1] % changed.size()] = std::byte{data[at + 2]};
                at += 2;
                give(1 - from, changed);
                break;
            }
            case 6: {
                const auto made_up = std::as_bytes(std::span(data + at + 1, std::min<std::size_t>(size - at - 1, 64)));
                is_tampered = true;
                give(from, made_up);
                at += made_up.size();
                break;
            }
            default:
                connection.refuse(data[at]);
                if (connection.take_loss()) is_tampered = true;
        }
    }
    return 0;
}
