#include "transport/framed/endpoint.h"

#include <string>

namespace incast::transport::framed {

namespace {

constexpr std::uint32_t max_regions = 1024;
constexpr std::uint32_t max_region_keys = 65536;  // of a peer: what a frame can name

}  // namespace

Endpoint::Endpoint(std::string_view name, const EndpointOptions& options)
    : options_(options), regions_(max_regions, options.shareable), name_(name) {
    capabilities_ = {.nature = {},
                     .max_peers = options.max_peers,
                     .max_dialled = options.max_dialled,
                     .max_regions = max_regions,
                     .max_posted = options.max_posted,
                     .read = true,
                     .has_wait_fd = true};
}

Result<Ok> Endpoint::release(Local region) {
    if (!regions_.release(region))
        return Error{"release: there is no region " + std::to_string(static_cast<unsigned>(region))};
    free_retired();
    return Ok{};
}

void Endpoint::free_retired() {
    regions_.sweep([&](Bytes memory) { return uses(memory); });
}

Result<Blob> Endpoint::expose(Local region, const Grant& grant) {
    if (!regions_.has(region))
        return Error{"expose: there is no region " + std::to_string(static_cast<unsigned>(region))};
    if ((grant.peer != any_peer && !exists(grant.peer)) || !regions_.expose(region, grant)) {
        return Error{"expose: " + std::to_string(grant.count) + " places of " + std::to_string(grant.length) +
                     " bytes at " + std::to_string(grant.offset) + ": not in region " +
                     std::to_string(static_cast<unsigned>(region)) + ", or for no peer"};
    }
    const Key key{.owner = self(),
                  .generation = options_.incarnation,
                  .region = static_cast<std::uint32_t>(region),
                  .use = regions_.use(region),
                  .peer = grant.peer == any_peer ? index(any_peer) : node_of(grant.peer),
                  .bytes = regions_.memory(region).size(),
                  .run = options_.run,
                  .write = grant.write ? 1U : 0U};
    return to_blob(key);
}

Result<Remote> Endpoint::import_key(Peer peer, const Blob& blob) {
    if (!exists(peer)) return Error{"import_key: there is no peer " + std::to_string(index(peer))};
    const Result<Key> key =
        read_key<Key>(blob, Peer{node_of(peer)}, options_.self, options_.run, max_region_keys, name_);
    if (!key) return key.error();
    return imports_.add({peer, *key});
}

Post Endpoint::send(Peer peer, Bytes message) {
    Session* session = session_of(peer);
    if (session == nullptr || message.empty() || message.size() > max_message_bytes) return Post::refused;
    activate(peer);
    return session->send(message);
}

Post Endpoint::write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) {
    if (body.length == 0) return write_from(peer, head, {}, target, notice, token);
    const std::span<std::byte> from = regions_.memory(body.region);
    if (!Regions::inside(from.size(), body.offset, body.length)) return Post::refused;
    return write_from(peer, head, from.subspan(body.offset, body.length), target, notice, token);
}

Post Endpoint::write_from(Peer peer, Bytes head, Bytes body, Target target, Notice notice, Token token) {
    Session* session = session_of(peer);
    if (session == nullptr || head.size() > max_head_bytes || body.size() > max_write_bytes ||
        !imports_.has(target.region, peer)) {
        return Post::refused;
    }
    activate(peer);
    return session->write(head, body, imports_[target.region].key, target.offset, notice, token);
}

Post Endpoint::read(Peer peer, Target from, Slice into, Token token) {
    Session* session = session_of(peer);
    const std::span<std::byte> to = regions_.memory(into.region);
    if (session == nullptr || into.length > max_write_bytes || !Regions::inside(to.size(), into.offset, into.length) ||
        !imports_.has(from.region, peer)) {
        return Post::refused;
    }
    activate(peer);
    return session->read(imports_[from.region].key, from.offset, to.subspan(into.offset, into.length), token);
}

Bytes Endpoint::local(Slice where) const {
    const std::span<std::byte> region = regions_.memory(where.region);
    if (!Regions::inside(region.size(), where.offset, where.length)) return {};
    return region.subspan(where.offset, where.length);
}

Result<Ok> check_options(std::string_view name, const EndpointOptions& options, std::uint32_t max_posted) {
    const auto self = static_cast<std::uint32_t>(options.self);
    if (options.max_peers > 0 && options.max_posted > 0 && options.max_posted <= max_posted && self < options.max_peers)
        return Ok{};
    return Error{std::string(name) + ": node " + std::to_string(self) + " with max_peers " +
                 std::to_string(options.max_peers) + ", max_posted " + std::to_string(options.max_posted) +
                 ": max_posted must be 1.." + std::to_string(max_posted) + " and the node's index below max_peers"};
}

}  // namespace incast::transport::framed
