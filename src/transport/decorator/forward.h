// A Transport that hands everything to the one it wraps. Decorators override what they are about.
#pragma once

#include <memory>
#include <utility>

#include <incast/transport.h>

namespace incast::transport::decorator {

class Forward : public Transport {
public:
    explicit Forward(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

    [[nodiscard]] const Capabilities& capabilities() const override { return inner_->capabilities(); }
    [[nodiscard]] Blob address() const override { return inner_->address(); }
    [[nodiscard]] Blob address_for(Peer peer) override { return inner_->address_for(peer); }
    Post connect(Peer peer, const Blob& address, std::uint32_t incarnation) override {
        return inner_->connect(peer, address, incarnation);
    }
    void disconnect(Peer peer) override { inner_->disconnect(peer); }
    Result<Peer> dial(const Blob& address, Bytes greeting) override { return inner_->dial(address, greeting); }
    Post accept(Peer peer) override { return inner_->accept(peer); }
    void ended(Peer peer, std::uint32_t incarnation) override { inner_->ended(peer, incarnation); }
    [[nodiscard]] bool drained() const override { return inner_->drained(); }
    Result<Local> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
    std::span<std::byte> memory(Local region) override { return inner_->memory(region); }
    Result<Blob> expose(Local region, const Grant& grant) override { return inner_->expose(region, grant); }
    Result<Remote> import_key(Peer peer, const Blob& key) override { return inner_->import_key(peer, key); }
    Result<Ok> release(Local region) override { return inner_->release(region); }
    Result<Ok> release(Remote import) override { return inner_->release(import); }
    Result<int> share(Local region) override { return inner_->share(region); }
    Post send(Peer peer, Bytes message) override { return inner_->send(peer, message); }
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        return inner_->write(peer, head, body, target, notice, token);
    }
    Post write_from(Peer peer, Bytes head, Bytes body, Target target, Notice notice, Token token) override {
        return inner_->write_from(peer, head, body, target, notice, token);
    }
    Post read(Peer peer, Target from, Slice into, Token token) override {
        return inner_->read(peer, from, into, token);
    }
    [[nodiscard]] Bytes local(Slice where) const override { return inner_->local(where); }
    Bytes view(Target where, std::uint32_t length) override { return inner_->view(where, length); }
    std::size_t poll(Time now, std::span<Event> events) override { return inner_->poll(now, events); }
    void flush() override { inner_->flush(); }
    [[nodiscard]] Time next_deadline() const override { return inner_->next_deadline(); }
    bool prepare_wait() override { return inner_->prepare_wait(); }
    [[nodiscard]] int wait_fd() const override { return inner_->wait_fd(); }
    [[nodiscard]] std::uint64_t copied_bytes() const override { return inner_->copied_bytes(); }
    [[nodiscard]] Datagrams datagrams() const override { return inner_->datagrams(); }

protected:
    [[nodiscard]] Transport& inner() { return *inner_; }
    [[nodiscard]] const Transport& inner() const { return *inner_; }

private:
    std::unique_ptr<Transport> inner_;
};

}  // namespace incast::transport::decorator
