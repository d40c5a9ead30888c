#include "runtime/lobby.h"

#include <algorithm>

#include <fmt/format.h>

namespace incast::runtime {

Result<Ok> Lobby::open(const std::string& host_port) {
    Result<Descriptor> listener = listen_on(host_port);
    if (!listener) {
        return Error{"--listen: " + listener.error().message};
    }
    listener_ = std::move(*listener);
    return Ok{};
}

void Lobby::watch(std::vector<pollfd>& waiting) const {
    waiting.push_back({listener_.fd(), POLLIN, 0});
    for (const Stranger& stranger : strangers_) {
        waiting.push_back({stranger.channel.fd(), POLLIN, 0});
    }
}

Time Lobby::next_deadline() const {
    Time next = time_never;
    for (const Stranger& stranger : strangers_) {
        next = std::min(next, stranger.deadline);
    }
    return next;
}

void Lobby::refuse(Channel& channel, const std::string& from, const std::string& reason) {
    reporter_.notice(Level::warning, fmt::format("refused {}: {}", from, reason));
    channel.send({{"type", "refused"}, {"reason", reason}});
    channel.close();
}

void Lobby::accept_all(Time now) {
    for (std::string from;; from.clear()) {
        Descriptor accepted = accept_one(listener_.fd(), from);
        if (!accepted.is_open()) {
            return;
        }
        Channel channel(std::move(accepted), max_stranger_frame);
        if (strangers_.size() >= max_strangers) {
            refuse(channel, from, fmt::format("{} connections are waiting to be let in already", max_strangers));
            continue;
        }
        strangers_.push_back({std::move(channel), from, now + handshake_deadline});
    }
}

std::optional<std::string> Lobby::judge(Stranger& stranger, Time now, std::optional<std::uint32_t>& wanted_node) const {
    const Result<std::optional<Json>> received = stranger.channel.receive();
    if (!received) {
        return received.error().message + " before it was let in";
    }
    if (!received->has_value()) {
        return now < stranger.deadline ? std::nullopt : std::optional<std::string>("it did not say who it is in time");
    }
    const Json& hello = **received;
    if (type_of(hello) != "hello" || text_in(hello, "magic") != rendezvous_magic) {
        return "not an Incast node: no hello";
    }
    // The version first: what comes after it may mean something else there.
    if (const std::optional<std::uint64_t> version = number_in(hello, "protocol"); version != rendezvous_version) {
        return fmt::format("it speaks version {} of the rendezvous, this is version {}",
                           version ? std::to_string(*version) : "unknown", rendezvous_version);
    }
    if (!same_token(text_in(hello, "token").value_or(""), token_)) {
        return "wrong token";
    }
    if (const std::optional<std::uint64_t> node = number_in(hello, "node")) {
        wanted_node = static_cast<std::uint32_t>(std::min<std::uint64_t>(*node, UINT32_MAX));
    }
    return "";
}

std::vector<Lobby::Guest> Lobby::receive(Time now) {
    accept_all(now);
    std::vector<Guest> guests;
    std::erase_if(strangers_, [&](Stranger& stranger) {
        std::optional<std::uint32_t> wanted_node;
        const std::optional<std::string> verdict = judge(stranger, now, wanted_node);
        if (!verdict) {
            return false;
        }
        if (verdict->empty()) {
            stranger.channel.set_frame_limit(max_frame);
            guests.push_back({std::move(stranger.channel), stranger.from, wanted_node});
        } else {
            refuse(stranger.channel, stranger.from, *verdict);
        }
        return true;
    });
    return guests;
}

}  // namespace incast::runtime
