// Where a transport has no dial(), both sides connect: each gives the other a number, and says at which address it is
// awaited under that number (card.h).
#include <algorithm>
#include <cerrno>

#include "channel/api/core.h"

namespace incast::channel::api {

/// A number for that hub. False: all are in use.
bool Core::add_remote(const HubId& hub) {
    for (std::uint32_t number = 1; number <= choices_.max_peers; ++number) {
        const Peer peer{number};
        if (std::ranges::find(remotes_, peer, &Remote::peer) != remotes_.end()) continue;
        Blob own = endpoint_.transport->address_for(peer);
        if (own.bytes.empty()) continue;  // the one before is not wholly gone
        remotes_.push_back({.hub = hub, .peer = peer, .own = std::move(own)});
        return true;
    }
    return false;
}

void Core::begin_exchange(incast_channel& channel, const WholeCard& said) {
    if (!add_remote(said.card.hub)) {
        directory_->give_up(channel.call);
        return fail(
            channel, ENOBUFS,
            channel.address.text() + ": all " + std::to_string(choices_.max_peers) + " places for peers are taken");
    }
    Remote& remote = remotes_.back();
    remote.call = channel.call;
    channel.peer = remote.peer;
    channel.state = incast_channel::State::dialling;
    directory_->answer(remote.call, card(Card::What::answer), remote.own);
}

/// Of a call whose offer was answered.
void Core::end_exchange(const Directory::Event& event) {
    const auto found = std::ranges::find(remotes_, event.number, &Remote::call);
    if (found == remotes_.end() || event.number == 0) return;
    const Peer peer = found->peer;
    found->call = 0;
    if (event.what == Directory::Event::What::replied) {
        if (event.said.card.hub == found->hub && found->theirs.bytes.empty()) found->theirs = event.said.address;
        return connect_remotes();
    }
    if (!found->theirs.bytes.empty()) return;  // it has come by itself meanwhile
    remotes_.erase(found);
    if (event.what != Directory::Event::What::again) return lose(peer, event.failure.error, event.failure.line);
    for (incast_channel* const channel : opening_) {
        if (channel->state != incast_channel::State::dialling || channel->peer != peer) continue;
        call_again(*channel, now() + come_again_after);
    }
}

void Core::take_answer(std::uint32_t caller, const WholeCard& said) {
    auto known = std::ranges::find(remotes_, said.card.hub, &Remote::hub);
    const bool is_of_here = said.card.scheme == static_cast<std::uint8_t>(choices_.scheme);
    if (known != remotes_.end() && !known->theirs.bytes.empty() && known->theirs.bytes != said.address.bytes) {
        // It has lost the connection that is still known here.
        endpoint_.transport->disconnect(known->peer);
        return directory_->reply(caller, card(Card::What::again), {});
    }
    const bool is_new = known == remotes_.end();
    if (!is_of_here || (is_new && !add_remote(said.card.hub)))
        return directory_->reply(caller, card(Card::What::again), {});
    Remote& remote = is_new ? remotes_.back() : *known;
    remote.theirs = said.address;
    directory_->reply(caller, card(Card::What::reply), remote.own);
    connect_remotes();
}

void Core::connect_remotes() {
    for (std::size_t at = 0; at < remotes_.size(); ++at) {
        Remote& remote = remotes_[at];
        if (remote.theirs.bytes.empty() || remote.is_asked) continue;
        const Post post = endpoint_.transport->connect(remote.peer, remote.theirs, 1);
        remote.is_asked = post == Post::pending || post == Post::done;
        if (post != Post::refused) continue;
        const Peer peer = remote.peer;
        remotes_.erase(remotes_.begin() + static_cast<std::ptrdiff_t>(at));
        --at;
        lose(peer, EPROTO, "its address or settings are of another kind");
    }
}

/// Channels that wait for that peer.
void Core::lose(Peer peer, int error, const std::string& why) {
    for (incast_channel* const channel : opening_)
        if (channel->state == incast_channel::State::dialling && channel->peer == peer)
            fail(*channel, error, channel->address.text() + ": " + why);
}

}  // namespace incast::channel::api
