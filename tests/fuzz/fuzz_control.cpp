// A lying peer: arbitrary control messages, notices and connection events against a node with all three roles (
// EB-T8). Nothing may crash, read outside, or write a slot that does not exist. The first byte chooses scheme, node,
// schedule and who keeps the credits; then records of {u8 what, u8 peer, u16 length, bytes}. Messages get a valid
// header, or the fuzzer would never pass the first check.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "protocol/node.h"
#include "wire/control.h"

namespace {

using namespace incast;

constexpr std::size_t region_bytes = std::size_t{1} << 16;

/// Says yes to everything; delivers the events it is given. Writes must stay inside the region a peer could have
/// exposed.
class ScriptedTransport final : public Transport {
public:
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
        return Remote{1};
    }
    Post send(Peer, Bytes message) override {
        if (message.empty() || message.size() > max_message_bytes) {
            std::abort();
        }
        return Post::done;
    }
    Post write(Peer, Bytes head, Slice body, Target target, Notice, Token) override {
        const std::size_t own = regions_[static_cast<std::size_t>(body.region)].size();
        if (head.size() > max_head_bytes || body.offset + body.length > own ||
            target.offset + head.size() + body.length > region_bytes) {
            std::abort();
        }
        return Post::done;
    }
    Post read(Peer, Target, Slice into, Token) override {
        if (into.offset + into.length > regions_[static_cast<std::size_t>(into.region)].size()) {
            std::abort();
        }
        return Post::done;
    }
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
    Capabilities capabilities_;
    std::vector<std::vector<std::byte>> regions_;
};

class SmallSource final : public protocol::Source {
public:
    Result<Ok> attach(Transport& transport, const protocol::Config& config, std::uint32_t, std::uint32_t) override {
        retention_ = config.retention_meps;
        region_ = transport.allocate(std::size_t{retention_} * 64).value();
        return Ok{};
    }
    [[nodiscard]] std::span<const Local> regions() const override { return {&region_, 1}; }
    void start(Time, protocol::MepId first, std::uint64_t) override { released_ = first; }
    bool produce(Time, protocol::MepId mep) override {
        if (mep >= released_ + retention_) {
            std::abort();  // the protocol never asks for more than fits
        }
        return true;
    }
    const protocol::Piece& piece(protocol::MepId mep, std::uint32_t) override {
        if (mep < released_) {
            std::abort();  // released data is never written
        }
        piece_.body = {region_, 64, (mep % retention_) * 64};
        return piece_;
    }
    void release(protocol::MepId below) override { released_ = below; }
    [[nodiscard]] Time next_ready() const override { return time_never; }
    [[nodiscard]] std::uint64_t total_meps() const override { return 0; }

private:
    std::uint32_t retention_ = 1;
    Local region_{};
    protocol::Piece piece_;
    protocol::MepId released_ = 0;
};

protocol::Config make_config(bool pull, unsigned family) {
    using namespace protocol;
    Config config;
    config.nodes = {{role_em | role_ru | role_bu}, {role_ru | role_bu}, {role_bu}};
    config.sources = {{1, Peer{0}, 128}, {2, Peer{0}, 128}, {3, Peer{1}, 128}};
    config.scheme = pull ? Scheme::pull_write : Scheme::push;
    if (family == 1) {
        config.scheme = pull ? Scheme::pull_pull : Scheme::push_pull;
        config.first_stage_rus = 1;
    } else if (family == 2) {
        config.scheme = Scheme::pull_read;
    }
    config.credits = 3;
    config.retention_meps = 8;
    config.parallel_sends = pull ? 0 : 3;
    return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::span<const std::byte> input = std::as_bytes(std::span(data, size));
    wire::ControlView::parse(input);
    if (input.empty()) {
        return 0;
    }
    protocol::Config config = make_config((data[0] & 1U) != 0, (data[0] >> 5U) % 3);
    const unsigned schedule = (data[0] >> 2U) % 8;
    if (config.scheme == protocol::Scheme::push && schedule > 0) {
        config.schedule = static_cast<protocol::Schedule>(schedule - 1);
    }
    if ((data[0] >> 5U) >= 6) {
        config.assignment = protocol::Assignment::source_credits;
        if (!protocol::validate(config)) {
            config.assignment = protocol::Assignment::em;  // the schedule waits for one destination
        }
    }
    // The fuzzed node is the EM or, seen from the other side, a plain RU + BU.
    const Peer self{(data[0] & 2U) != 0 ? 1U : 0U};
    input = input.subspan(1);
    ScriptedTransport transport;
    SmallSource source;
    protocol::NullSink sink;
    protocol::Node node(config, self, 1, transport, &source, &sink, nullptr);
    if (!node.start(0).ok()) {
        std::abort();
    }
    Time now = 0;
    std::array<std::uint32_t, 3> incarnation{1, 1, 1};
    for (std::uint32_t peer = 0; peer < 3; ++peer) {
        node.update_peer(now, Peer{peer}, 1, {});
    }
    node.step(now);
    std::vector<std::byte> message;
    for (int records = 0; input.size() >= 4 && records < 200; ++records) {
        const auto what = static_cast<std::uint8_t>(input[0]);
        const Peer peer{static_cast<std::uint32_t>(input[1]) % 3};
        const auto index = static_cast<std::size_t>(peer);
        std::uint16_t length = 0;
        std::memcpy(&length, input.data() + 2, 2);
        input = input.subspan(4);
        const std::span<const std::byte> payload = input.first(std::min<std::size_t>(length % 2048, input.size()));
        input = input.subspan(payload.size());
        Event event{};
        event.peer = peer;
        event.incarnation = incarnation[index];
        now += ps_per_ms * (what >> 4);
        if (what % 16 == 0) {
            event.kind = Event::Kind::notice;
            event.size_or_value = length;
        } else if (what % 16 == 1) {
            event.kind = Event::Kind::peer_up;
        } else if (what % 16 == 2) {
            event.kind = Event::Kind::peer_down;
        } else if (what % 16 == 3) {
            node.update_peer(now, peer, ++incarnation[index], {});
            event.kind = Event::Kind::room;
        } else if (peer != self) {
            wire::ControlHeader header;
            header.kind = static_cast<wire::ControlKind>(1 + length % 25);
            header.run = config.run;
            header.incarnation = incarnation[index];
            header.count = static_cast<std::uint32_t>(what % 16 - 4);
            message.assign(sizeof header + payload.size(), std::byte{0});
            std::memcpy(message.data(), &header, sizeof header);
            std::copy(payload.begin(), payload.end(), message.begin() + sizeof header);
            event.kind = Event::Kind::message;
            event.size_or_value = static_cast<std::uint16_t>(message.size());
            event.data = message.data();
        } else {
            continue;
        }
        transport.pending.push_back(event);
        for (int steps = 0; steps < 8 && node.step(now); ++steps) {
        }
    }
    return 0;
}
