// For tests of sources: a transport that has memory and nothing else. With `phantom` not even that, as in simulation.
#pragma once

#include <memory>
#include <vector>

#include <incast/transport.h>

namespace incast::sources {

class FakeTransport : public Transport {
public:
    explicit FakeTransport(bool phantom = false) { capabilities_.phantom_bodies = phantom; }

    const Capabilities& capabilities() const override { return capabilities_; }
    Blob address() const override { return {}; }
    Post connect(Peer, const Blob&, std::uint32_t) override { return Post::refused; }
    void disconnect(Peer) override {}
    bool drained() const override { return true; }
    Result<Local> allocate(std::size_t bytes) override {
        if (bytes > most_bytes) {
            return Error{"out of memory"};
        }
        regions_.emplace_back(capabilities_.phantom_bodies ? 0 : bytes);
        return Local{static_cast<std::uint16_t>(regions_.size() - 1)};
    }
    std::span<std::byte> memory(Local region) override { return regions_[static_cast<std::size_t>(region)]; }
    Result<Blob> expose(Local, const Grant&) override { return Blob{}; }
    Result<Remote> import_key(Peer, const Blob&) override { return Error{"no peers"}; }
    Post send(Peer, Bytes) override { return Post::refused; }
    Post write(Peer, Bytes, Slice, Target, Notice, Token) override { return Post::refused; }
    Post read(Peer, Target, Slice, Token) override { return Post::refused; }
    Bytes local(Slice where) const override {
        const auto& region = regions_[static_cast<std::size_t>(where.region)];
        return region.empty() ? Bytes{} : Bytes(region).subspan(where.offset, where.length);
    }
    Bytes view(Target, std::uint32_t) override { return {}; }
    std::size_t poll(Time, std::span<Event>) override { return 0; }
    Time next_deadline() const override { return time_never; }
    bool prepare_wait() override { return true; }
    int wait_fd() const override { return -1; }

    std::size_t most_bytes = std::size_t{1} << 30;

private:
    Capabilities capabilities_;
    std::vector<std::vector<std::byte>> regions_;
};

}  // namespace incast::sources
