// What the endpoints have in common whose connections are framed sessions: regions, grants, keys and posts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <incast/transport.h>

#include "transport/framed/session.h"
#include "transport/imports.h"
#include "transport/medium.h"
#include "transport/regions.h"

namespace incast::transport::framed {

struct Import {
    Peer peer{};
    Key key;
};

class Endpoint : public Transport {
public:
    /// `name`: of the transport, in its lines.
    Endpoint(std::string_view name, const EndpointOptions& options);

    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
    Result<Local> allocate(std::size_t bytes) override { return regions_.allocate(bytes); }
    Result<Ok> release(Local region) override;
    Result<Ok> release(Remote import) override { return imports_.release(import); }
    Result<int> share(Local region) override { return regions_.share(region); }
    std::span<std::byte> memory(Local region) override { return regions_.memory(region); }
    Result<Blob> expose(Local region, const Grant& grant) override;
    Result<Remote> import_key(Peer peer, const Blob& blob) override;

    Post send(Peer peer, Bytes message) override;
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override;
    Post write_from(Peer peer, Bytes head, Bytes body, Target target, Notice notice, Token token) override;
    Post read(Peer peer, Target from, Slice into, Token token) override;
    [[nodiscard]] Bytes local(Slice where) const override;
    Bytes view(Target, std::uint32_t) override { return {}; }

protected:
    static std::uint32_t index(Peer peer) { return static_cast<std::uint32_t>(peer); }
    [[nodiscard]] std::uint32_t self() const { return index(options_.self); }
    /// A node of the run. Others dialled, or were dialled.
    [[nodiscard]] bool is_node(Peer peer) const { return index(peer) < options_.max_peers; }
    void log(const std::string& line) const {
        if (options_.log) options_.log(line);
    }
    /// Memory of released regions that nothing is received into or sent from any more.
    void free_retired();

    /// nullptr: it is not up.
    virtual Session* session_of(Peer peer) = 0;
    [[nodiscard]] virtual bool exists(Peer peer) const = 0;
    /// Its number at home. Precondition: it exists.
    [[nodiscard]] virtual std::uint32_t node_of(Peer peer) const = 0;
    /// Something was posted to it.
    virtual void activate(Peer peer) = 0;
    /// The session of some peer that is up uses that memory.
    [[nodiscard]] virtual bool uses(Bytes memory) const = 0;

    EndpointOptions options_;
    Capabilities capabilities_;  // without its nature
    Regions regions_;
    Imports<Import> imports_;

private:
    std::string_view name_;
};

/// What every endpoint of these needs: an error names what is wrong.
Result<Ok> check_options(std::string_view name, const EndpointOptions& options, std::uint32_t max_posted);

}  // namespace incast::transport::framed
