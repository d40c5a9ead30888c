#include "transport/decorator/fault.h"

#include <algorithm>
#include <vector>

#include "base/prng.h"
#include "transport/decorator/forward.h"

namespace incast::transport::decorator {

namespace {

class Fault final : public Forward {
public:
    Fault(std::unique_ptr<Transport> wrapped, const FaultOptions& options)
        : Forward(std::move(wrapped)),
          options_(options),
          random_(options.seed),
          peers_(capabilities().max_peers + capabilities().max_dialled) {
        owed_.reserve(peers_.size());
        up_.reserve(peers_.size());
    }

    Post send(Peer peer, Bytes message) override {
        return holds_back(peer) ? Post::again : inner().send(peer, message);
    }

    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        return holds_back(peer) ? Post::again : inner().write(peer, head, body, target, notice, token);
    }

    Post write_from(Peer peer, Bytes head, Bytes body, Target target, Notice notice, Token token) override {
        return holds_back(peer) ? Post::again : inner().write_from(peer, head, body, target, notice, token);
    }

    Post read(Peer peer, Target from, Slice into, Token token) override {
        return holds_back(peer) ? Post::again : inner().read(peer, from, into, token);
    }

    std::size_t poll(Time now, std::span<Event> events) override {
        if (now < silent_until_) return 0;
        silent_until_ = 0;
        if (options_.delay_max > 0 && random_.chance(options_.delay_per_million)) {
            silent_until_ = now + random_.between(0, options_.delay_max);
            return 0;
        }
        if (!up_.empty() && random_.chance(options_.drop_per_million)) {
            const Peer victim = up_[random_.below(up_.size())];
            peers_[index(victim)].dropped = true;
            inner().disconnect(victim);
        }
        std::size_t count = give_room(events);
        const std::size_t first = count;
        count += inner().poll(now, events.subspan(count));
        for (Event& event : events.subspan(first, count - first))
            follow(event);
        return count;
    }

    [[nodiscard]] Time next_deadline() const override {
        if (silent_until_ != 0) return silent_until_;
        return owed_.empty() ? inner().next_deadline() : 0;
    }
    bool prepare_wait() override { return owed_.empty() && inner().prepare_wait(); }

private:
    struct PeerState {
        bool up = false;
        bool owed = false;     // a room event for an `again` of ours
        bool dropped = false;  // disconnected by us: to the caller it is a lost connection
    };

    static std::uint32_t index(Peer peer) { return static_cast<std::uint32_t>(peer); }

    bool holds_back(Peer peer) {
        if (index(peer) >= peers_.size() || !peers_[index(peer)].up || peers_[index(peer)].dropped) return false;
        if (!random_.chance(options_.again_per_million)) return false;
        if (!peers_[index(peer)].owed) {
            peers_[index(peer)].owed = true;
            owed_.push_back(peer);
        }
        return true;
    }

    std::size_t give_room(std::span<Event> events) {
        const std::size_t count = std::min(events.size(), owed_.size());
        for (std::size_t i = 0; i < count; ++i) {
            peers_[index(owed_[i])].owed = false;
            events[i] = {.kind = Event::Kind::room,
                         .status = Status::ok,
                         .size_or_value = 0,
                         .peer = owed_[i],
                         .incarnation = 0,
                         .token = 0};
        }
        owed_.erase(owed_.begin(), owed_.begin() + static_cast<std::ptrdiff_t>(count));
        return count;
    }

    void follow(Event& event) {
        PeerState& state = peers_[index(event.peer)];
        if (event.kind == Event::Kind::peer_up) {
            state.up = true;
            up_.push_back(event.peer);
        } else if (event.kind == Event::Kind::peer_down) {
            if (state.up) std::erase(up_, event.peer);
            if (state.owed) std::erase(owed_, event.peer);
            state = {};
        } else if (event.kind == Event::Kind::completed && state.dropped && event.status == Status::cancelled) {
            event.status = Status::peer_lost;
        }
    }

    FaultOptions options_;
    base::Prng random_;
    std::vector<PeerState> peers_;
    std::vector<Peer> owed_;
    std::vector<Peer> up_;
    Time silent_until_ = 0;  // 0: not silent
};

}  // namespace

std::unique_ptr<Transport> make_fault(std::unique_ptr<Transport> inner, const FaultOptions& options) {
    return std::make_unique<Fault>(std::move(inner), options);
}

}  // namespace incast::transport::decorator
