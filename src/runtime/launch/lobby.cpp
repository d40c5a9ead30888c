#include "runtime/launch/lobby.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "runtime/launch/agreement.h"

namespace incast::runtime {

Result<Ok> Lobby::open(const std::string& host_port) {
    Result<os::Descriptor> listener = os::listen_on(host_port.empty() ? "127.0.0.1:0" : host_port);
    if (!listener && host_port.empty()) {
        listener = os::listen_on("[::1]:0");
    }
    if (!listener) {
        return Error{"--listen: " + listener.error().message};
    }
    listener_ = std::move(*listener);
    return Ok{};
}

void Lobby::watch(std::vector<pollfd>& waiting, Time now) const {
    waiting.push_back({now < accept_at_ ? -1 : listener_.fd(), POLLIN, 0});
    for (const Stranger& stranger : strangers_) {
        waiting.push_back({stranger.channel.fd(), POLLIN, 0});
    }
}

void Lobby::forgive(Time pause) {
    for (Stranger& stranger : strangers_) {
        stranger.deadline += pause;
    }
}

Time Lobby::next_deadline() const {
    Time next = accept_at_ == 0 ? time_never : accept_at_;
    for (const Stranger& stranger : strangers_) {
        next = std::min(next, stranger.deadline);
    }
    return next;
}

void Lobby::refuse(Time now, Channel& channel, const std::string& from, const std::string& reason, bool again) {
    turn_away(now, channel, from, reason, again, fmt::format("refused {}: {}", from, reason));
}

void Lobby::refuse_late(Time now, Channel& channel, const std::string& from) {
    turn_away(now, channel, from, "the run is ending", false, {});
}

void Lobby::turn_away(Time now, Channel& channel, const std::string& from, const std::string& reason, bool again,
                      const std::string& line) {
    audit_.say(now, Level::warning, line, {"refused", {}, from, reason, nullptr});
    channel.send({{"type", "refused"}, {"reason", reason}, {"again", again}});
    channel.close();
}

/// A node of the run says hello at once: whoever has been silent longest is least likely to be one. Of a host that has
/// many, so that it takes no place but its own.
void Lobby::make_room(Time now) {
    const auto crowd = [this](const Stranger& stranger) {
        return std::ranges::count(strangers_, stranger.host, &Stranger::host);
    };
    std::size_t victim = 0;  // they stand in the order in which they came
    for (std::size_t index = 1; index < strangers_.size(); ++index) {
        victim = crowd(strangers_[index]) > crowd(strangers_[victim]) ? index : victim;
    }
    refuse(now, strangers_[victim].channel, strangers_[victim].from,
           "too many connections that have not said who they are", true);
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(victim));
}

void Lobby::accept_all(Time now, std::vector<Joiner>& joiners) {
    if (now < accept_at_) {
        return;
    }
    accept_at_ = 0;
    for (unsigned accepted = 0; accepted < accepted_at_once; ++accepted) {
        std::string from;
        os::Descriptor socket = os::accept_one(listener_.fd(), from);
        if (!socket.is_open()) {
            accept_at_ = errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED ? 0 : now + accept_pause;
            return;
        }
        std::string host = from.substr(0, from.rfind(':'));
        Stranger stranger{Channel(std::move(socket), {}), std::move(from), std::move(host), now + handshake_deadline};
        if (decide(stranger, now, joiners)) {
            continue;  // whoever says at once who it is needs no place
        }
        if (strangers_.size() >= max_strangers) {
            make_room(now);
        }
        strangers_.push_back(std::move(stranger));
    }
}

std::optional<std::string> Lobby::judge(Stranger& stranger, Time now, Joiner& joiner) const {
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
    if (std::string why = wrong_rendezvous_version(hello); !why.empty()) {
        return why;
    }
    if (!same_token(text_in(hello, "token").value_or(""), token_)) {
        return "wrong token";
    }
    if (const std::optional<std::uint64_t> node = number_in(hello, "node")) {
        joiner.wanted_node = static_cast<std::uint32_t>(std::min<std::uint64_t>(*node, UINT32_MAX));
    }
    joiner.control = control_versions_of(hello);
    joiner.program = program_of(hello);
    return "";
}

bool Lobby::decide(Stranger& stranger, Time now, std::vector<Joiner>& joiners) {
    Joiner joiner;
    const std::optional<std::string> verdict = judge(stranger, now, joiner);
    if (!verdict) {
        return false;
    }
    if (verdict->empty()) {
        stranger.channel.set_limits(limits_);
        joiner.channel = std::move(stranger.channel);
        joiner.from = stranger.from;
        joiners.push_back(std::move(joiner));
    } else {
        refuse(now, stranger.channel, stranger.from, *verdict, now >= stranger.deadline);
    }
    return true;
}

std::vector<Lobby::Joiner> Lobby::receive(Time now) {
    std::vector<Joiner> joiners;
    std::erase_if(strangers_, [&](Stranger& stranger) { return decide(stranger, now, joiners); });
    accept_all(now, joiners);
    return joiners;
}

}  // namespace incast::runtime
