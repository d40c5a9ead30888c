#include "runtime/launch/coordinator.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "base/pause_watch.h"
#include "base/units.h"
#include "os/signals.h"
#include "runtime/launch/coordinator_nodes.h"
#include "runtime/launch/file_messages.h"
#include "runtime/launch/input_messages.h"
#include "runtime/launch/launched.h"
#include "runtime/machine/machine.h"
#include "runtime/monitor/metrics_server.h"

namespace incast::runtime {
namespace {

constexpr int reap_wait_ms = 500;  // between the end of a connection and the end of its process
constexpr int quit_wait_ms = 5000;
constexpr int lost_wait_ms = 1000;          // for the others, where a launcher waits for one that is lost
constexpr std::uint32_t max_respawns = 10;  // of one node: more often, something is wrong with it
constexpr Time longest_wait = ps_per_s;
constexpr int messages_at_once = 32;  // of one node, before the others have their turn

}  // namespace

Result<Ok> Coordinator::Nodes::start() {
    if (Result<Ok> opened = lobby_.open(options_.listen); !opened) {
        return opened;
    }
    // A host whose loopback is down lets programs listen there; its own nodes would end without a word.
    if (Result<Ok> way = os::find_way_to(lobby_.address()); !way && nodes_here_ > 0) {
        return Error{way.error().message + "; nodes of this host join there: is its interface up?"};
    }
    if (plan_.config.traits().nature.launch && nodes_here_ > 0) {
        Result<std::string> launched = launch_nodes(
            spawner_, plan_, {lobby_.address(), std::nullopt, token_, reporter_.directory(), 0, nodes_here_});
        if (!launched) {
            return launched.error();
        }
        launcher_ = std::move(*launched);
        announce_join(nodes_here_);
        return Ok{};
    }
    for (std::uint32_t node = 0; node < nodes_here_; ++node) {
        members_[node].awaited = true;
        members_[node].spawned = 1;
        if (const Result<pid_t> started = spawner_.start(node, {lobby_.address(), node, token_, {}, 0, nodes_here_});
            !started) {
            return started.error();
        }
    }
    announce_join(nodes_here_);
    return Ok{};
}

void Coordinator::Nodes::announce_join(std::uint32_t spawned) {
    reporter_.event({{"type", "listening"}, {"address", lobby_.address()}, {"waiting_for", plan_.n_nodes - spawned}});
    if (spawned == plan_.n_nodes || !options_.token.empty()) {
        return;  // who gave a token tells the others
    }
    // To the terminal alone: the log may be shown to others.
    const std::uint32_t wanted = plan_.n_nodes - spawned;
    std::fputs(fmt::format("incast-node: waiting for {} node{}: INCAST_TOKEN={} incast-node --join {}\n", wanted,
                           wanted == 1 ? "" : "s", token_, lobby_.address())
                   .c_str(),
               stderr);
}

Result<bool> Coordinator::Nodes::run() {
    if (Result<Ok> started = start(); !started) {
        return started.error();
    }
    open_commands();
    int handled = 0;
    base::PauseWatch watch(clock_.now(), plan_.protocol.heartbeat);
    while (control_.phase() != Phase::done) {
        const Time slept = wait();
        const Time now = clock_.now();
        if (const Time pause = watch.look(now, slept); pause > 0) {
            forgive(pause);
        }
        for (Lobby::Joiner& joiner : lobby_.receive(now)) {
            admit(std::move(joiner), now);
        }
        for (std::uint32_t node = 0; node < members_.size(); ++node) {
            if (members_[node].present && now >= members_[node].read_at) {
                receive_from(node, now);
            }
        }
        reap(now);
        take_commands(now);
        place(now);
        look_for_silence(now);
        control_.tick(now);
        if (os::watcher_is_gone(now)) {
            control_.hurry();
        }
        if (os::interrupts() > 1) {
            return false;  // the spawner kills what is left
        }
        if (os::interrupts() > handled) {
            handled = os::interrupts();
            control_.interrupt(now);
        }
    }
    say_goodbye();
    return true;
}

Time Coordinator::Nodes::wait() {
    std::vector<pollfd> waiting;
    lobby_.watch(waiting, clock_.now());
    commands_.watch(waiting);
    Time reading = time_never;
    for (const Member& member : members_) {
        reading = std::min(reading, member.leaves_by);
        if (member.present && member.has_more) {
            reading = std::min(reading, member.read_at);
        } else if (member.present) {
            waiting.push_back(
                {member.channel.fd(), static_cast<short>(POLLIN | (member.channel.wants_write() ? POLLOUT : 0)), 0});
        }
    }
    for (const Spawner::Child& child : spawner_.children()) {
        waiting.push_back({child.watch.fd(), POLLIN, 0});
    }
    const Time placing = introduced_ ? placement_.next_deadline() : time_never;
    const Time until = std::min({control_.next_deadline(), lobby_.next_deadline(), placing, reading});
    const Time time = std::clamp<Time>(until - clock_.now(), 0, longest_wait);
    const timespec span{static_cast<std::time_t>(time / ps_per_s), static_cast<long>(time % ps_per_s / ps_per_ns)};
    ppoll(waiting.data(), waiting.size(), &span, nullptr);
    return time;
}

void Coordinator::Nodes::forgive(Time pause) {
    control_.forgive(pause);
    lobby_.forgive(pause);
    for (Member& member : members_) {
        member.last_heard += pause;
    }
}

std::optional<std::uint32_t> Coordinator::Nodes::place_for(const Lobby::Joiner& joiner) const {
    if (joiner.wanted_node) {
        const bool there = *joiner.wanted_node < members_.size() && !members_[*joiner.wanted_node].present &&
                           !members_[*joiner.wanted_node].is_out;
        return there ? joiner.wanted_node : std::nullopt;
    }
    const auto free = std::ranges::find_if(
        members_, [](const Member& member) { return !member.present && !member.awaited && !member.is_out; });
    return free == members_.end() ? std::nullopt : std::optional(static_cast<std::uint32_t>(free - members_.begin()));
}

void Coordinator::Nodes::admit(Lobby::Joiner joiner, Time now) {
    const std::optional<std::uint32_t> node = place_for(joiner);
    if (!node) return lobby_.refuse(now, joiner.channel, joiner.from, joiner.no_place());
    if (control_.phase() >= Phase::closing) return lobby_.refuse_late(now, joiner.channel, joiner.from);
    if (const std::string why = agreement_.take(joiner.control, joiner.program); !why.empty())
        return lobby_.refuse(now, joiner.channel, joiner.from, why);
    Member& member = members_[*node];
    if (member.incarnation != 0) {
        control_.replaced(*node);
    }
    member.channel = std::move(joiner.channel);
    member.from = joiner.from;
    member.present = true;
    member.awaited = false;
    member.silent = false;
    member.told_inputs = false;
    member.address.clear();
    member.last_heard = now;
    member.has_more = false;
    member.read_at = 0;
    ++member.incarnation;
    tell(*node, {{"type", "welcome"},
                 {"node", *node},
                 {"incarnation", member.incarnation},
                 {"run_token", run_token_},
                 {"directory", reporter_.directory().string()},
                 {"clock", monotonic_clock_id()},
                 {"origin_ns", clock_.origin_ns()},
                 {"now_ns", clock_.now() / ps_per_ns},
                 {"recorded", plan_.recorded ? to_json(*plan_.recorded) : Json(nullptr)},
                 {"config", plan_.values}});
}

void Coordinator::Nodes::receive_from(std::uint32_t node, Time now, Share share) {
    Member& member = members_[node];
    const bool broke = !member.channel.flush();  // who has ended may have said why, which is read first
    if (broke && member.channel.stuck()) {
        drop(node, "it does not read what it is told", now);
        return;
    }
    for (int messages = 0; member.present; ++messages) {
        member.has_more = share == Share::fair && (messages == messages_at_once || member.allowance.next(now) > now);
        if (member.has_more) {
            member.read_at = member.allowance.next(now);
            return;
        }
        const Result<std::optional<Json>> message = member.channel.receive();
        if (!message || (broke && !message->has_value())) {
            drop(node, message ? "its connection broke" : message.error().message, now);
            return;
        }
        if (!message->has_value()) {
            return;
        }
        member.allowance.take(now);
        member.last_heard = now;
        if (!handle(node, **message, now)) {
            drop(node, fmt::format("it sent a message that makes no sense ('{}')", one_line(type_of(**message))), now);
        }
    }
}

bool Coordinator::Nodes::handle(std::uint32_t node, const Json& message, Time now) {
    const std::string type = type_of(message);
    if (type == "sample") {
        const auto json = message.find("sample");
        Result<NodeSample> sample =
            json != message.end() ? sample_from_json(*json) : Result<NodeSample>(Error{"no sample"});
        if (!sample || sample->node != node) {
            return false;
        }
        const std::vector<ViewChange> changes =
            Peer{node} == plan_.protocol.em ? sample->changes : std::vector<ViewChange>();
        control_.sample(now, std::move(*sample));
        for (const ViewChange& change : changes) {
            is_back(change);
        }
        return true;
    }
    if (type == "address") {
        const std::optional<std::string> address = text_in(message, "address");
        const std::string metrics = text_in(message, "metrics").value_or("");
        // Once per incarnation: everybody is told of it.
        if (!address || address->empty() || !blob_from_hex(*address) || !members_[node].address.empty() ||
            number_in(message, "incarnation") != members_[node].incarnation) {
            return false;
        }
        places_[node] = checked_whereabouts(message);
        learn_metrics(node, metrics, now);
        learn_inputs(node);
        learn_address(node, *address, now);
        return true;
    }
    if (type == "inputs") {
        members_[node].told_inputs = true;
        return members_[node].address.empty() && take_inputs(plan_, node, message, inputs_);  // before its address
    }
    if (type == "clock") {
        const std::optional<std::uint64_t> asked_ns = number_in(message, "asked_ns");
        if (asked_ns) {
            tell(node, {{"type", "clock"}, {"asked_ns", *asked_ns}, {"now_ns", clock_.now() / ps_per_ns}});
        }
        return asked_ns.has_value();
    }
    if (type == "rejoin") {
        if (members_[node].address.empty()) {
            return false;  // it has one to begin with already
        }
        ++members_[node].incarnation;
        members_[node].address.clear();
        tell(node, {{"type", "incarnation"}, {"incarnation", members_[node].incarnation}});
        return true;
    }
    if (type == "remark") {
        const std::optional<std::string> text = text_in(message, "text");
        if (text) {
            control_.audit().say(now, Level::warning, fmt::format("node {}: {}", name_of(node), one_line(*text)),
                                 {"remark", node, "", one_line(*text), nullptr});
        }
        return text.has_value();
    }
    if (type == "failed") {
        drop(node, one_line(text_in(message, "text").value_or("it failed")), now, true);
        return true;
    }
    return false;
}

void Coordinator::Nodes::learn_metrics(std::uint32_t node, std::string address, Time now) {
    const std::string host = os::peer_host(members_[node].channel.fd());
    if (!address.empty() && !may_claim_metrics(plan_.config.metrics, node, address, host)) {
        const std::string reason =
            fmt::format("it says that its metrics are at '{}', which is not at {}", one_line(address), host);
        control_.audit().say(now, Level::warning, fmt::format("node {}: {}: left out", name_of(node), reason),
                             {"bad_message", node, members_[node].from, reason, nullptr});
        address.clear();
    }
    if (members_[node].metrics == address) {
        return;
    }
    members_[node].metrics = std::move(address);
    std::vector<std::string> all;
    all.reserve(members_.size());
    for (const Member& member : members_) {
        all.push_back(member.metrics);
    }
    announce_metrics(reporter_, name_of(node), members_[node].metrics, all);
}

/// Of files of this host was spoken at the start.
void Coordinator::Nodes::learn_inputs(std::uint32_t node) {
    if (!std::exchange(members_[node].told_inputs, false)) {
        return;
    }
    for (const std::string& line : input_warnings(plan_, inputs_, node, 1)) {
        reporter_.notice(Level::warning, line);
    }
}

void Coordinator::Nodes::learn_address(std::uint32_t node, std::string address, Time now) {
    members_[node].address = std::move(address);
    if (!introduced_ && std::ranges::any_of(members_, [](const Member& member) { return member.address.empty(); })) {
        return;
    }
    Json all{{"type", "peers"}, {"control", agreement_.decide()}, {"peers", Json::array()}};
    for (std::uint32_t peer = 0; peer < members_.size(); ++peer) {
        if (!members_[peer].address.empty()) {
            all["peers"].push_back(peer_entry(peer));
        }
    }
    if (!introduced_) {
        introduced_ = true;
        // Who came early had nothing to say until now.
        for (Member& member : members_) {
            member.last_heard = now;
        }
        tell_all(all);
        return;
    }
    tell(node, all);
    if (!triggers_.is_null()) {
        tell(node, triggers_);
    }
    all["peers"] = Json::array({peer_entry(node)});
    for (std::uint32_t peer = 0; peer < members_.size(); ++peer) {
        if (peer != node) {
            tell(peer, all);
        }
    }
}

void Coordinator::Nodes::drop(std::uint32_t node, const std::string& why, Time now, bool last_words) {
    Member& member = members_[node];
    member.present = false;
    member.channel.close();
    member.address.clear();
    for (const Spawner::Child& child : spawner_.children()) {
        if (child.node == node) {
            // The process says better than its connection what happened, and ends soon after it.
            pollfd waiting{child.watch.fd(), POLLIN, 0};
            poll(&waiting, 1, reap_wait_ms);
        }
    }
    const std::optional<std::string> how = spawner_.reap(node);
    if (how) {
        tell_ended(node);
    }
    if (member.is_out) {
        control_.taken_out(now, node);
    } else {
        const std::string reason = last_words || !how ? why : *how;
        control_.lost(now, node, reason);
        answer(node, false, fmt::format("node {} was lost again: {}", name_of(node), reason));
    }
    respawn(node, now);
}

void Coordinator::Nodes::reap(Time now) {
    for (const std::uint32_t node : spawner_.ended()) {
        if (node == Spawner::launcher) {
            // Of a node that was there its connection tells.
            const std::optional<std::string> how = spawner_.reap(node);
            const auto missing = std::ranges::find(members_, 0U, &Member::incarnation);
            if (missing != members_.end()) {
                control_.lost(now, static_cast<std::uint32_t>(missing - members_.begin()),
                              fmt::format("{}: {}", launcher_, how.value_or("it has ended")));
            }
            continue;
        }
        Member& member = members_[node];
        member.awaited = false;
        if (member.present) {
            receive_from(node, now, Share::all);  // its last words, up to the end of the connection, which drops it
        }
        const std::optional<std::string> how = spawner_.reap(node);
        if (!how) {
            continue;  // it was dropped with its last words, and may have a successor
        }
        tell_ended(node);
        if (member.present || member.incarnation == 0) {
            drop(node, *how, now);
        } else {
            respawn(node, now);  // its successor died before it came in
        }
    }
}

/// A peer that cannot be fenced while it lives is over for the others from here on.
void Coordinator::Nodes::tell_ended(std::uint32_t node) {
    if (members_[node].incarnation != 0) {
        tell_all({{"type", "ended"}, {"node", node}, {"incarnation", members_[node].incarnation}});
    }
}

void Coordinator::Nodes::respawn(std::uint32_t node, Time now) {
    Member& member = members_[node];
    if (member.is_out) {
        return left(node);
    }
    const bool is_em = Peer{node} == plan_.protocol.em;
    if (!plan_.config.respawn || is_em || member.spawned == 0 || spawner_.pid_of(node) != 0 ||
        control_.phase() >= Phase::draining) {
        return;
    }
    if (member.spawned > max_respawns) {
        reporter_.notice(Level::warning,
                         fmt::format("node {} died {} times and is not started again", node, member.spawned));
        return;
    }
    ++member.spawned;
    member.awaited = true;
    if (const Result<pid_t> started = spawner_.start(node, {lobby_.address(), node, token_, {}, 0, nodes_here_});
        !started) {
        control_.lost(now, node, started.error().message);
    }
}

void Coordinator::Nodes::place(Time now) {
    if (!introduced_ || now < placement_.next_deadline()) {
        return;
    }
    std::vector<pid_t> pids;
    pids.reserve(members_.size());
    for (std::uint32_t node = 0; node < members_.size(); ++node) {
        pids.push_back(spawner_.pid_of(node));
    }
    if (placement_.tick(now, pids)) {
        reporter_.notice(Level::info, placement_.keeps()
                                          ? "the nodes stay on one core each while no other program wants the cores"
                                          : "other programs want the cores: the kernel places the nodes");
    }
}

void Coordinator::Nodes::look_for_silence(Time now) {
    if (!introduced_ || control_.phase() >= Phase::closing) {
        return;
    }
    const Time patience = plan_.protocol.detection_deadline + 2 * plan_.sample_interval;
    for (std::uint32_t node = 0; node < members_.size(); ++node) {
        Member& member = members_[node];
        const bool silent = member.present && now - member.last_heard > patience;
        if (silent && !member.silent && plan_.ends_with(node)) {
            spawner_.kill_node(node, SIGKILL);  // so that it cannot wake up and go on with a run that is over
            control_.lost(now, node, fmt::format("silent for {}", base::format_duration(now - member.last_heard)));
        } else if (silent && !member.silent) {
            reporter_.notice(Level::warning,
                             fmt::format("node {} has been silent for {}; the run goes on without it until it is back",
                                         name_of(node), base::format_duration(now - member.last_heard)));
        }
        member.silent = silent;
    }
}

void Coordinator::Nodes::tell(std::uint32_t node, const Json& message) {
    if (members_[node].present) {
        members_[node].channel.send(message);  // a broken connection shows when it is read
    }
}

void Coordinator::Nodes::tell_all(const Json& message) {
    for (std::uint32_t node = 0; node < members_.size(); ++node) {
        tell(node, message);
    }
}

void Coordinator::Nodes::say_goodbye() {
    const auto em = static_cast<std::uint32_t>(plan_.protocol.em);
    const std::filesystem::path ledger = reporter_.directory() / "ledger.bin";
    const bool fetches = !plan_.is_net() && is_elsewhere(ledger, places_[em]);
    for (std::uint32_t node = 0; node < members_.size(); ++node) {
        tell(node, {{"type", "quit"}, {"ledger", fetches && node == em}});
        if (members_[node].silent) {
            spawner_.kill_node(node, SIGKILL);
        }
    }
    // Whoever is lost of a launcher's nodes does not end by itself, and neither does the launcher then.
    const bool are_there =
        std::ranges::all_of(members_, [](const Member& each) { return each.present && !each.silent; });
    spawner_.wait_or_kill(launcher_.empty() || are_there ? quit_wait_ms : lost_wait_ms);
    receive_file(members_[em].channel, ledger, quit_wait_ms);
}

Coordinator::Coordinator(const Plan& plan, const RunOptions& options, Reporter& reporter)
    : members_(std::make_unique<Nodes>(plan, options, reporter)) {}
Coordinator::~Coordinator() = default;

Result<bool> Coordinator::run() {
    return members_->run();
}
const RunControl& Coordinator::control() const {
    return members_->control();
}
const Inputs& Coordinator::inputs() const {
    return members_->inputs();
}
const std::vector<nlohmann::ordered_json>& Coordinator::places() const {
    return members_->places();
}

}  // namespace incast::runtime
