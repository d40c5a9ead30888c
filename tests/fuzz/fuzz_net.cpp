// A lying peer of raw traffic: arbitrary control messages, notices and connection events against a traffic node
// (EB-T8). Nothing may crash, read outside its own region, or write outside that of a peer. The first byte
// chooses what is measured; then records of {u8 what, u8 peer, u16 length, bytes}. Messages get a valid header, or the
// fuzzer would never pass the first check.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "net/node.h"

namespace {

using namespace incast;

/// Says yes to everything; delivers the events it is given.
class ScriptedTransport final : public Transport {
public:
    explicit ScriptedTransport(const net::Config& config) {
        for (std::uint32_t peer = 0; peer < config.n_nodes; ++peer) {
            region_bytes_.push_back(net::layout_of(config, Peer{peer}).region_bytes);
        }
    }
    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
    [[nodiscard]] Blob address() const override { return {}; }
    Post connect(Peer, const Blob&, std::uint32_t) override { return Post::pending; }
    void disconnect(Peer) override {}
    [[nodiscard]] bool drained() const override { return true; }
    Result<Local> allocate(std::size_t bytes) override {
        regions_.emplace_back(bytes);
        return Local{static_cast<std::uint16_t>(regions_.size() - 1)};
    }
    std::span<std::byte> memory(Local region) override { return regions_[static_cast<std::size_t>(region)]; }
    Result<Blob> expose(Local, const Grant&) override { return Blob{}; }
    Result<Remote> import_key(Peer, const Blob& key) override {
        if (key.bytes.size() > max_key_bytes) {
            std::abort();
        }
        return key.bytes.size() % 2 == 0 ? Result<Remote>(Remote{1}) : Error{"no key"};
    }
    Post send(Peer, Bytes message) override {
        if (message.empty() || message.size() > max_message_bytes) {
            std::abort();
        }
        return answer();
    }
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice, Token) override {
        const std::size_t own = regions_[static_cast<std::size_t>(body.region)].size();
        if (head.size() > max_head_bytes || body.offset + body.length > own ||
            target.offset + head.size() + body.length > region_bytes_[static_cast<std::size_t>(peer)]) {
            std::abort();
        }
        return answer();
    }
    Post read(Peer, Target, Slice, Token) override { return Post::refused; }
    [[nodiscard]] Bytes local(Slice where) const override {
        const std::vector<std::byte>& region = regions_[static_cast<std::size_t>(where.region)];
        if (where.offset + where.length > region.size()) {
            std::abort();
        }
        return {region.data() + where.offset, where.length};
    }
    Bytes view(Target, std::uint32_t) override { return {}; }
    std::size_t poll(Time, std::span<Event> events) override {
        const std::size_t count = std::min(events.size(), pending.size());
        std::copy_n(pending.begin(), count, events.begin());
        pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(count));
        return count;
    }
    [[nodiscard]] Time next_deadline() const override { return time_never; }
    bool prepare_wait() override { return true; }
    [[nodiscard]] int wait_fd() const override { return -1; }

    std::deque<Event> pending;

private:
    /// Every seventh post is turned away.
    Post answer() { return ++posts_ % 7 == 0 ? Post::again : Post::done; }

    Capabilities capabilities_;
    std::vector<std::uint64_t> region_bytes_;  // by peer
    std::vector<std::vector<std::byte>> regions_;
    std::uint64_t posts_ = 0;
};

class NoContent final : public net::Content {
public:
    void fill(Peer, std::uint64_t, std::span<std::byte>) override {}
    std::optional<std::size_t> difference(Peer, std::uint64_t, Bytes body) override {
        return body.back() == std::byte{} ? std::nullopt : std::optional(body.size() - 1);
    }
};

net::Config make_config(std::uint8_t what) {
    net::Config config;
    config.n_nodes = 3;
    config.pairs =
        net::make_pairs({(what & 2U) != 0 ? net::Pattern::all_to_all : net::Pattern::many_to_one, 3, 0, 0, false});
    config.measure = (what & 1U) != 0 ? net::Measure::latency : net::Measure::bandwidth;
    config.queues = 2;
    config.outstanding = config.measure == net::Measure::latency ? 1 : 3;
    config.message_bytes = 40;
    config.messages = (what & 4U) != 0 ? 5 : 0;
    config.verify = true;
    return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::span<const std::byte> input = std::as_bytes(std::span(data, size));
    (void)net::read_control(input, 1, 2);
    if (input.empty()) {
        return 0;
    }
    const net::Config config = make_config(data[0]);
    const Peer self{(data[0] & 8U) != 0 ? 1U : 0U};
    input = input.subspan(1);
    ScriptedTransport transport(config);
    NoContent content;
    net::Node node(config, self, transport, content);
    if (!net::validate(config).ok() || !node.start().ok()) {
        std::abort();
    }
    Time now = 0;
    for (std::uint32_t peer = 0; peer < 3; ++peer) {
        node.update_peer(now, Peer{peer}, 1, {});
    }
    node.go(ps_per_ms);
    std::vector<std::byte> message;
    for (int records = 0; input.size() >= 4 && records < 200; ++records) {
        const auto what = static_cast<std::uint8_t>(input[0]);
        std::uint16_t length = 0;
        std::memcpy(&length, input.data() + 2, 2);
        Event event{};
        event.peer = Peer{static_cast<std::uint32_t>(input[1]) % 3};
        event.incarnation = 1 + (static_cast<std::uint32_t>(input[1]) >> 7U);
        input = input.subspan(4);
        const std::span<const std::byte> payload = input.first(std::min<std::size_t>(length % 2048, input.size()));
        now += ps_per_ms * (what >> 4U);
        switch (what % 8) {
            case 0:
                event.kind = Event::Kind::notice;
                event.size_or_value = length;
                break;
            case 1:
                event.kind = Event::Kind::peer_up;
                break;
            case 2:
                event.kind = Event::Kind::peer_down;
                break;
            case 3:
                event.kind = Event::Kind::room;
                break;
            case 4:
                node.stop();
                continue;
            default: {
                input = input.subspan(payload.size());
                net::ControlHeader header;
                header.run = net::fingerprint(config);
                header.magic = net::control_magic;
                header.kind = static_cast<std::uint16_t>(what % 8 - 5);
                header.count = header.kind == 0 ? static_cast<std::uint16_t>(payload.size()) : 2;
                message.assign(sizeof header + payload.size(), std::byte{0});
                std::memcpy(message.data(), &header, sizeof header);
                std::ranges::copy(payload, message.begin() + sizeof header);
                event.kind = Event::Kind::message;
                event.size_or_value = static_cast<std::uint16_t>(message.size());
                event.data = message.data();
            }
        }
        transport.pending.push_back(event);
        for (int steps = 0; steps < 8 && node.step(now); ++steps) {
        }
    }
    return 0;
}
