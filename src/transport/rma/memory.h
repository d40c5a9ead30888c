// Memory of endpoints with one-sided writes: keys, and regions that were released, which stay until nobody can write
// there any more. A part of endpoint.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "transport/rma/endpoint.h"

namespace incast::transport::rma {

template <class Own, class Types>
Result<Local> Endpoint<Own, Types>::allocate(std::size_t bytes) {
    Result<Local> made = regions_.allocate(bytes);
    if (!made) return made;
    if (const Result<Ok> registered = own().register_region(*made); !registered) {
        regions_.release(*made);
        sweep();
        return Error{"region of " + std::to_string(bytes) + " bytes: " + registered.error().message};
    }
    return made;
}

template <class Own, class Types>
Result<Blob> Endpoint<Own, Types>::expose(Local region, const Grant& grant) {
    if (!regions_.has(region)) return Error{"expose: " + no_region(region)};
    if (grant.peer != any_peer && index(grant.peer) >= peers_.size())
        return Error{"expose: there is no peer " + std::to_string(index(grant.peer))};
    regions_.expose(region, {});
    const std::span<std::byte> memory = regions_.memory(region);
    typename Types::Key key;
    key.owner = grant.peer == any_peer ? index(options_.self) : own().self_at(grant.peer);
    key.generation = options_.incarnation;
    key.region = static_cast<std::uint32_t>(region);
    key.use = regions_.use(region);
    key.peer = index(grant.peer);
    key.bytes = memory.size();
    key.run = options_.run;
    key.write = grant.write ? 1 : 0;
    key.address = reinterpret_cast<std::uintptr_t>(memory.data());
    return own().complete(key, region);
}

template <class Own, class Types>
Result<Remote> Endpoint<Own, Types>::import_key(Peer peer, const Blob& blob) {
    if (index(peer) >= peers_.size()) return Error{"import_key: there is no peer " + std::to_string(index(peer))};
    const auto key = read_key<typename Types::Key>(blob, peer, Peer{own().self_at(peer)}, options_.run, max_regions,
                                                   common_.transport);
    if (!key) return key.error();
    const State& state = peers_[index(peer)];
    const bool is_known = key->generation == state.incarnation && key->region < state.uses.size();
    Import made;
    made.peer = peer;
    made.address = key->address;
    made.bytes = key->bytes;
    made.generation = key->generation;
    made.region = static_cast<std::uint16_t>(key->region);
    made.use = static_cast<std::uint16_t>(key->use);
    made.may_write = key->write != 0;
    made.is_gone = is_known && key->use < state.uses[key->region];
    own().take_key(made, *key);
    return imports_.add(std::move(made));
}

template <class Own, class Types>
Result<Ok> Endpoint<Own, Types>::release(Local region) {
    if (!regions_.has(region)) return Error{"release: " + no_region(region)};
    retire(region);
    regions_.release(region);
    sweep();
    return Ok{};
}

template <class Own, class Types>
void Endpoint<Own, Types>::retire(Local region) {
    if (!regions_.has(region)) return;
    const auto number = static_cast<std::size_t>(region);
    Retired<Registration> retired{.name = {static_cast<std::uint16_t>(region), regions_.use(region)},
                                  .registration = std::move(registrations_[number]),
                                  .memory = regions_.memory(region),
                                  .waits_for = base::Bitmap(peers_.size())};
    if (regions_.exposed(number).empty()) return;
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
        State& state = peers_[peer];
        // Of any other its welcome will say it. One that is being given up may write until it is down.
        if (state.was_welcomed && state.has_connection()) {
            state.to_tell.push_back(retired.name);
            state.has_changes = true;
            busy_.set(peer);
        } else if (state.state != PeerState::State::ending || own().is_fenced()) {
            continue;
        }
        retired.waits_for.set(peer);
    }
    if (retired.waits_for.any()) retired_.push_back(std::move(retired));
}

template <class Own, class Types>
void Endpoint<Own, Types>::hear_answered(Peer peer, std::span<const Change> changes) {
    for (Retired<Registration>& each : retired_) {
        if (std::ranges::find(changes, each.name) != changes.end()) each.waits_for.reset(index(peer));
    }
    drop_retired();
}

template <class Own, class Types>
void Endpoint<Own, Types>::hear_released(Peer peer, std::span<const Change> changes) {
    State& state = peers_[index(peer)];
    for (const Change& change : changes) {
        if (change.region >= max_regions) continue;
        if (state.uses.size() <= change.region) state.uses.resize(change.region + std::size_t{1});
        state.uses[change.region] =
            std::max<std::uint16_t>(state.uses[change.region], static_cast<std::uint16_t>(change.use + 1));
        mark_gone(peer, [&](const Import& each) { return each.region == change.region && each.use <= change.use; });
        state.to_answer.push_back(change);
        state.has_changes = true;
    }
    busy_.set(index(peer));
}

}  // namespace incast::transport::rma
