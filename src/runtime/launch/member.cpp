#include "runtime/launch/member.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/allowance.h"
#include "base/pause_watch.h"
#include "os/signals.h"
#include "runtime/launch/agreement.h"
#include "runtime/launch/file_messages.h"
#include "runtime/launch/input_messages.h"
#include "runtime/launch/launched.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/whereabouts.h"
#include "runtime/machine/clock_estimate.h"
#include "runtime/machine/exit_status.h"
#include "runtime/machine/limits.h"
#include "runtime/machine/machine.h"
#include "runtime/machine/network_place.h"
#include "runtime/machine/port_counters.h"
#include "runtime/machine/run_clock.h"
#include "runtime/monitor/metrics_server.h"
#include "runtime/node/driver.h"
#include "runtime/node/host.h"
#include "runtime/phases/run_control.h"
#include "runtime/plan/resolve.h"
#include "runtime/report/display.h"
#include "transport/builtin/builtin.h"

namespace incast::runtime {
namespace {

constexpr int connect_timeout_ms = 10'000;
constexpr Time welcome_deadline = 30 * ps_per_s;
constexpr int knock_again_ms = 50;
// On another clock than the coordinator's (clock_estimate.h).
constexpr int first_questions = 8;
constexpr Time ask_first_every = 100 * ps_per_ms;  // until there is a line
constexpr Time ask_every = ps_per_s;
constexpr std::int64_t awaited_ns = 2'000'000;
constexpr Time look_for_answer_every = 20 * ps_per_us;
// Whoever knocks at an endpoint's port costs a line; a flood of them shall not drown the run.
constexpr unsigned remark_burst = 64;
constexpr Time remark_gap = 100 * ps_per_ms;
// A coordinator that does not read misses samples, not the run.
constexpr std::size_t most_unread = std::size_t{256} << 10U;

/// Where a node stands with its coordinator.
class Member {
public:
    explicit Member(const JoinOptions& options) : options_(options) {}

    Result<Ok> be_welcomed();
    /// Until the coordinator says quit (ok), or is gone (error).
    Result<Ok> take_part();
    /// The ledger, if the coordinator wants it.
    void hand_over();

private:
    /// Waits for the next message, at most until `deadline`.
    Result<Json> wait_for_message(Time deadline);
    /// Connects, says hello, and returns the answer.
    Result<Json> knock(Time deadline);
    Result<Ok> set_up(const Json& welcome);
    Result<Ok> set_clock(const Json& welcome);
    Result<Ok> tell_inputs(std::uint32_t node);
    void ask_time(Time now);
    Result<Ok> take_time(const Json& message);
    [[nodiscard]] std::uint64_t clock_error_now() const;
    [[nodiscard]] Time look_at(Time now) const;
    Result<Ok> open_metrics(std::uint32_t node);
    Result<Ok> begin(std::uint32_t incarnation);
    Result<Ok> handle(const Json& message);
    Result<Ok> update_peers(const Json& message);
    Result<Ok> receive_all();
    void tell(Mark mark, Time now);
    void look(Time now);
    void watch_ports(const transport::Settings& settings);
    /// A line of the transport, for the run's log.
    void remark(std::string_view line);

    const JoinOptions& options_;
    RunClock clock_;                          // the run's, once it is welcome
    bool follows_ = false;                    // the coordinator's clock is another one
    const Machine machine_ = read_machine();  // as it is before nodes are placed
    ClockEstimate estimate_;
    std::int64_t hello_ns_ = 0;  // when it knocked
    std::int64_t asked_ns_ = 0;  // for the time; 0: no answer is awaited
    Time next_ask_ = 0;
    std::uint64_t clock_error_ns_ = 0;  // the most since window_begin
    Channel channel_;
    Plan plan_;
    std::unique_ptr<transport::Medium> medium_;
    std::unique_ptr<Host> host_;
    PortCounters ports_;                      // that its data goes through
    std::deque<Json> put_off_;                // came before it was set up
    std::unique_ptr<MetricsServer> metrics_;  // null: run.metrics = off
    std::string metrics_address_;             // as others reach it
    std::optional<NetworkPlace> place_;       // of its transport's address, if it has one
    Seat seat_;
    std::string folder_;         // of its ledger, if it is not the run's
    bool wants_ledger_ = false;  // the coordinator does, now that the run is over
    Time next_sample_ = 0;
    base::Allowance remarks_{remark_burst, remark_gap};
    std::uint64_t unsaid_ = 0;  // remarks that were too many
    bool introduced_ = false;   // the peers of this incarnation are known
    bool renewing_ = false;     // a new incarnation was asked for
    bool host_gone_ = false;    // the coordinator's
    bool quit_ = false;
};

Result<Json> Member::wait_for_message(Time deadline) {
    base::PauseWatch pauses(clock_.now(), 2 * ps_per_s);
    while (true) {
        Result<std::optional<Json>> message = channel_.receive();
        if (!message) {
            return message.error();
        }
        if (message->has_value()) {
            return std::move(**message);
        }
        const Time now = clock_.now();
        deadline += pauses.look(now);
        const Time left = deadline - now;
        if (left <= 0) {
            return Error{"the coordinator does not answer"};
        }
        pollfd waiting{channel_.fd(), static_cast<short>(POLLIN | (channel_.wants_write() ? POLLOUT : 0)), 0};
        poll(&waiting, 1, static_cast<int>(std::min<Time>(left / ps_per_ms + 1, 1000)));
        if (!channel_.flush()) {
            return Error{"the connection to the coordinator broke"};
        }
    }
}

Result<Json> Member::knock(Time deadline) {
    Result<os::Descriptor> connected = os::connect_to(options_.coordinator, connect_timeout_ms);
    if (!connected) {
        return connected.error();
    }
    channel_ = Channel(std::move(*connected), {max_coordinator_frame});
    hello_ns_ = monotonic_ns();
    Json hello = hello_with_versions(versions().incast);
    hello.update({{"token", options_.token},
                  {"node", options_.node ? Json(*options_.node) : Json(nullptr)},
                  {"pid", static_cast<std::uint64_t>(getpid())}});
    channel_.send(hello);
    return wait_for_message(deadline);
}

Result<Ok> Member::be_welcomed() {
    const Time deadline = clock_.now() + welcome_deadline;
    Result<Json> answer = knock(deadline);
    // Where many strangers knock, a node that was slow to say who it is had to make room.
    const auto again = [](const Json& message) {
        const auto found = message.find("again");
        return found != message.end() && *found == true;
    };
    while (answer && again(*answer) && clock_.now() < deadline && os::interrupts() == 0) {
        poll(nullptr, 0, knock_again_ms);
        answer = knock(deadline);
    }
    if (!answer) {
        return answer.error();
    }
    if (type_of(*answer) == "refused") {
        return Error{"the coordinator refused: " + text_in(*answer, "reason").value_or("no reason given")};
    }
    if (type_of(*answer) != "welcome") {
        return Error{"the coordinator speaks another protocol"};
    }
    Result<Ok> done = within_limits([&] { return set_up(*answer); });
    if (!done) {
        channel_.send({{"type", "failed"}, {"text", one_line(with_memory_limit(done.error()).message)}});
    }
    return done;
}

Result<Ok> Member::set_up(const Json& welcome) {
    const std::optional<std::uint64_t> node = number_in(welcome, "node");
    const std::optional<std::uint64_t> incarnation = number_in(welcome, "incarnation");
    const std::optional<std::uint64_t> run_token = number_in(welcome, "run_token");
    const std::optional<std::string> directory = text_in(welcome, "directory");
    const auto config = welcome.find("config");
    if (!node || !incarnation || !run_token || !directory || config == welcome.end() || !config->is_object()) {
        return Error{"the coordinator's welcome lacks a field"};
    }
    ConfigText text;
    for (const auto& [key, value] : config->items()) {
        if (!value.is_string()) {
            return Error{"the coordinator's config has a value that is no text"};
        }
        if (Result<Ok> set = text.set(key, value.get<std::string>()); !set) {
            return set;
        }
    }
    const auto laid_out = welcome.find("recorded");
    std::optional<Recorded> recorded;
    if (laid_out != welcome.end() && laid_out->is_object()) {
        recorded = recorded_from_json(*laid_out);
        if (!recorded) return Error{"the coordinator's welcome has a malformed field 'recorded'"};
    }
    Result<Plan> plan = resolve(text, machine_, std::move(recorded));
    if (!plan) {
        return plan.error();
    }
    plan_ = std::move(*plan);
    if (Result<Ok> set = set_clock(welcome); !set) {
        return set;
    }
    if (Result<Ok> fits = check_rank(plan_, *node); !fits) return fits;
    transport::Settings settings = plan_.config.transport_settings;
    Result<std::optional<NetworkPlace>> place = choose_address(plan_, channel_.fd(), settings);
    if (!place) {
        return place.error();
    }
    place_ = *place;
    seat_ = sit_down(plan_, place_, settings, options_.nodes_here);
    watch_ports(settings);
    Result<std::unique_ptr<transport::Medium>> medium =
        transport::make_medium(*transport::find_transport(plan_.config.transport), settings);
    if (!medium) {
        return medium.error();
    }
    medium_ = std::move(*medium);
    if (Result<Ok> opened = open_metrics(static_cast<std::uint32_t>(*node)); !opened) {
        return opened;
    }
    const bool beside_coordinator = options_.beside_coordinator();
    if (Result<Ok> told = beside_coordinator ? Ok{} : tell_inputs(static_cast<std::uint32_t>(*node)); !told) {
        return told;
    }
    folder_ = beside_coordinator ? "" : std::filesystem::absolute(options_.output.empty() ? "." : options_.output);
    const std::string folder = beside_coordinator ? *directory : options_.output.empty() ? "." : options_.output;
    host_ = make_host(plan_, *medium_,
                      {static_cast<std::uint32_t>(*node), *run_token, folder, true, nullptr,
                       [this](std::string_view line) { remark(line); }});
    return begin(static_cast<std::uint32_t>(*incarnation));
}

/// Those of what it listens at, and of the RDMA device that its transport may name.
void Member::watch_ports(const transport::Settings& settings) {
    const std::string_view bind = plan_.config.traits().bind;
    const bool rdma = std::ranges::any_of(transport::find_transport(plan_.config.transport)->settings,
                                          [](const base::Setting& one) { return one.name == "device"; });
    const auto value = [&settings](std::string_view name) {
        const auto found = settings.find(std::string(name));
        return found == settings.end() ? std::string() : found->second;
    };
    if (!bind.empty() || rdma) {
        ports_ = PortCounters("/sys", watched_ports(value(bind.empty() ? "bind" : bind), value("device"), rdma));
    }
}

/// A node that joins replays files of its own. What it finds is counted for the run, and said where that is conducted.
Result<Ok> Member::tell_inputs(std::uint32_t node) {
    if (!plan_.recorded) {
        return Ok{};
    }
    const Result<sources::Recording> recording =
        sources::Recording::open(plan_.config.source_path, plan_.recorded->numbering);
    if (!recording) {
        return recording.error();
    }
    std::vector<sources::InputFile> files;
    for (const protocol::SourceSpec& spec : plan_.protocol.sources) {
        const sources::RecordedSource* source = spec.ru == Peer{node} ? recording->find(spec.id) : nullptr;
        if (source != nullptr) {
            files.push_back(source->input);
        }
    }
    for (const Json& message : input_messages(host_name(), files)) {
        channel_.send(message);
    }
    return Ok{};
}

/// All nodes count their time from the same moment. That is exact on the coordinator's own clock, which is one that
/// says it is and shows it; elsewhere its time is asked for.
Result<Ok> Member::set_clock(const Json& welcome) {
    const std::optional<std::string> clock = text_in(welcome, "clock");
    const std::optional<std::uint64_t> origin_ns = number_in(welcome, "origin_ns");
    const std::optional<std::uint64_t> now_ns = number_in(welcome, "now_ns");
    constexpr auto most_ns = static_cast<std::uint64_t>(time_never / ps_per_ns);
    if (!clock || !origin_ns || !now_ns || *now_ns > most_ns || *origin_ns > std::uint64_t{time_never} - *now_ns) {
        return Error{"the coordinator's clock is malformed"};
    }
    const std::int64_t here_ns = monotonic_ns();
    const auto theirs_ns = static_cast<std::int64_t>(*origin_ns + *now_ns);
    follows_ = *clock != monotonic_clock_id() || theirs_ns < hello_ns_ || theirs_ns > here_ns;
    if (!follows_) {
        clock_ = RunClock(static_cast<std::int64_t>(*origin_ns));
        return Ok{};
    }
    estimate_.add({hello_ns_, static_cast<Time>(*now_ns) * ps_per_ns, here_ns});
    for (int asked = 0; asked < first_questions;) {
        if (asked_ns_ == 0) ask_time(clock_.now());
        Result<Json> message = wait_for_message(clock_.now() + welcome_deadline);
        if (!message) {
            return message.error();
        }
        if (type_of(*message) != "clock") {
            put_off_.push_back(std::move(*message));
            continue;
        }
        ++asked;
        if (Result<Ok> taken = take_time(*message); !taken) {
            return taken;
        }
    }
    const std::int64_t local_ns = monotonic_ns();
    clock_ = RunClock(local_ns - estimate_.at(local_ns) / ps_per_ns);
    return Ok{};
}

void Member::ask_time(Time now) {
    next_ask_ = now + (estimate_.has_line() ? ask_every : ask_first_every);
    asked_ns_ = monotonic_ns();
    channel_.send({{"type", "clock"}, {"asked_ns", asked_ns_}});
}

Result<Ok> Member::take_time(const Json& message) {
    const std::int64_t local_ns = monotonic_ns();
    const std::optional<std::uint64_t> asked_ns = number_in(message, "asked_ns");
    const std::optional<std::uint64_t> now_ns = number_in(message, "now_ns");
    if (!follows_ || !asked_ns || !now_ns || *now_ns > static_cast<std::uint64_t>(time_never / ps_per_ns)) {
        return Error{"the coordinator's answer about the time is malformed"};
    }
    if (asked_ns_ == 0 || *asked_ns != static_cast<std::uint64_t>(asked_ns_)) {
        return Ok{};  // of a question that was given up
    }
    estimate_.add({std::exchange(asked_ns_, 0), static_cast<Time>(*now_ns) * ps_per_ns, local_ns});
    clock_.steer(local_ns, estimate_.at(local_ns), estimate_.drift());
    clock_error_ns_ = std::max(clock_error_ns_, clock_error_now());
    return Ok{};
}

std::uint64_t Member::clock_error_now() const {
    if (!follows_) {
        return 0;
    }
    const std::int64_t local_ns = monotonic_ns();
    const Time lag = std::abs(estimate_.at(local_ns) - clock_.at(local_ns));
    return static_cast<std::uint64_t>((estimate_.error(local_ns) + lag) / ps_per_ns) + 1;
}

/// While an answer is awaited a busy driver looks more often, as its round trip tells how good it is.
Time Member::look_at(Time now) const {
    if (!follows_) {
        return next_sample_;
    }
    const bool awaits = asked_ns_ != 0 && monotonic_ns() - asked_ns_ < awaited_ns;
    return std::min(next_sample_, awaits ? now + look_for_answer_every : next_ask_);
}

Result<Ok> Member::open_metrics(std::uint32_t node) {
    Result<std::unique_ptr<MetricsServer>> opened = MetricsServer::open_for(plan_, node);
    if (!opened) {
        return opened.error();
    }
    metrics_ = std::move(*opened);
    metrics_address_ = metrics_ ? reachable_address(metrics_->address(), os::local_host(channel_.fd())) : "";
    return Ok{};
}

Result<Ok> Member::begin(std::uint32_t incarnation) {
    const Result<Blob> address = host_->begin(clock_.now(), incarnation);
    if (!address) {
        return address.error();
    }
    introduced_ = false;
    renewing_ = false;
    channel_.send({{"type", "address"},
                   {"incarnation", incarnation},
                   {"address", to_hex(address->view())},
                   {"metrics", metrics_address_},
                   {"place", whereabouts(place_, seat_, folder_)}});
    return Ok{};
}

Result<Ok> Member::update_peers(const Json& message) {
    const auto peers = message.find("peers");
    if (peers == message.end() || !peers->is_array()) {
        return Error{"the coordinator's list of peers is malformed"};
    }
    if (Result<Ok> taken = take_decision(message, plan_.protocol.control_version); !taken) {
        return taken;
    }
    const Time now = clock_.now();
    for (const Json& peer : *peers) {
        if (!peer.is_array() || peer.size() != 3 || !peer[0].is_number_unsigned() || !peer[1].is_number_unsigned() ||
            !peer[2].is_string()) {
            return Error{"the coordinator's list of peers is malformed"};
        }
        const std::optional<Blob> address = blob_from_hex(peer[2].get_ref<const std::string&>());
        const auto node = peer[0].get<std::uint64_t>();
        if (!address || node >= plan_.n_nodes) {
            return Error{"the coordinator's list of peers is malformed"};
        }
        host_->update_peer(now, static_cast<std::uint32_t>(node), peer[1].get<std::uint32_t>(), *address);
    }
    introduced_ = true;
    return Ok{};
}

Result<Ok> Member::handle(const Json& message) {
    const std::string type = type_of(message);
    if (type == "peers") {
        return update_peers(message);
    }
    if (type == "ended") {
        const std::optional<std::uint64_t> node = number_in(message, "node");
        const std::optional<std::uint64_t> incarnation = number_in(message, "incarnation");
        if (!node || *node >= plan_.n_nodes || !incarnation || *incarnation > UINT32_MAX) {
            return Error{"the coordinator names an ended node that there is not"};
        }
        host_->transport().ended(Peer{static_cast<std::uint32_t>(*node)}, static_cast<std::uint32_t>(*incarnation));
        return Ok{};
    }
    if (type == "sample") {
        const std::optional<std::uint64_t> mark = number_in(message, "mark");
        if (mark && *mark <= static_cast<std::uint64_t>(Mark::last)) {
            tell(static_cast<Mark>(*mark), clock_.now());
        }
        return Ok{};
    }
    if (type == "clock") {
        return take_time(message);
    }
    if (type == "stop") {
        host_->stop_admission();
        return Ok{};
    }
    if (type == "triggers") {
        const std::optional<std::uint64_t> origin_ns = number_in(message, "origin_ns");
        if (!origin_ns || *origin_ns > static_cast<std::uint64_t>(time_never / ps_per_ns)) {
            return Error{"the coordinator's start of the triggers is malformed"};
        }
        host_->start_triggers(static_cast<Time>(*origin_ns) * ps_per_ns);
        return Ok{};
    }
    if (type == "incarnation") {
        const std::optional<std::uint64_t> incarnation = number_in(message, "incarnation");
        if (!incarnation || *incarnation <= host_->incarnation()) {
            return Error{"the coordinator gave a bad incarnation"};
        }
        Result<Ok> begun = within_limits([&] { return begin(static_cast<std::uint32_t>(*incarnation)); });
        if (!begun) {
            channel_.send({{"type", "failed"}, {"text", one_line(with_memory_limit(begun.error()).message)}});
        }
        return begun;
    }
    if (type == "quit") {
        quit_ = true;
        const auto ledger = message.find("ledger");
        wants_ledger_ = ledger != message.end() && *ledger == true;
        return Ok{};
    }
    return Error{fmt::format("the coordinator sent an unknown message '{}'", type)};
}

Result<Ok> Member::receive_all() {
    while (!quit_) {
        if (!put_off_.empty()) {
            const Json message = std::move(put_off_.front());
            put_off_.pop_front();
            if (Result<Ok> done = handle(message); !done) {
                return done;
            }
            continue;
        }
        Result<std::optional<Json>> message = channel_.receive();
        if (!message) {
            return message.error();
        }
        if (!message->has_value()) {
            break;
        }
        if (Result<Ok> done = handle(**message); !done) {
            return done;
        }
    }
    return channel_.flush() ? Result<Ok>(Ok{}) : Error{"the connection to the coordinator broke"};
}

void Member::tell(Mark mark, Time now) {
    Json message{{"type", "sample"}};
    NodeSample sample = host_->sample(mark, now);
    const std::uint64_t error_now_ns = clock_error_now();
    sample.clock_error_ns = clock_error_ns_ = std::max(clock_error_ns_, error_now_ns);
    if (mark == Mark::window_begin) {
        clock_error_ns_ = error_now_ns;
        ports_.begin();
    } else if (mark != Mark::interval && !ports_.empty()) {
        sample.host = host_name();
        sample.ports = ports_.grown();
    }
    message["sample"] = to_json(sample);
    channel_.send(message);
    if (metrics_) {
        metrics_->publish(sample, role_names(plan_.protocol.nodes[sample.node].roles), clock_.now() - now);
    }
}

void Member::remark(std::string_view line) {
    if (channel_.queued() > most_unread || !remarks_.take(clock_.now())) {
        ++unsaid_;
        return;
    }
    std::string text = one_line(line);
    if (unsaid_ > 0) {
        text += fmt::format(" ({} lines before it were left out)", std::exchange(unsaid_, 0));
    }
    channel_.send({{"type", "remark"}, {"text", text}});
}

void Member::look(Time now) {
    const bool news = host_->news();
    if (now >= next_sample_ || news) {
        host_gone_ = !options_.beside_coordinator() && os::is_unanswered(channel_.fd());
        if (channel_.queued() <= most_unread) {
            tell(Mark::interval, now);
        }
        next_sample_ = now + plan_.sample_interval;
    }
    if (host_->needs_new_incarnation() && !renewing_) {
        renewing_ = true;
        channel_.send({{"type", "rejoin"}});
    }
}

Result<Ok> Member::take_part() {
    Driver driver(*host_, clock_, plan_.config.yields, options_.nodes_here <= machine_.cores);
    while (true) {
        if (Result<Ok> received = receive_all(); !received) {
            return received;
        }
        if (quit_) {
            return Ok{};
        }
        if (os::interrupts() > 0) {
            return Error{"interrupted"};
        }
        if (host_gone_) {
            return Error{"the coordinator's host does not answer any more"};
        }
        const Time now = clock_.now();
        if (follows_ && now >= next_ask_) {
            ask_time(now);
        }
        if (introduced_) {
            look(driver.run(look_at(now), channel_.fd(), channel_.wants_write()));
        } else {
            pollfd waiting{channel_.fd(), static_cast<short>(POLLIN | (channel_.wants_write() ? POLLOUT : 0)), 0};
            poll(&waiting, 1, follows_ ? static_cast<int>(ask_first_every / ps_per_ms) : 1000);
        }
    }
}

void Member::hand_over() {
    if (wants_ledger_) {
        host_.reset();  // then the file is whole
        send_file(channel_, std::filesystem::path(folder_) / "ledger.bin");
    }
}

}  // namespace

int join(const JoinOptions& options) {
    prepare_descriptors();
    if (options.watched_by != 0) {
        os::live_with_parent(options.watched_by);
    } else {
        os::count_interrupts();
    }
    Member member(options);
    Result<Ok> outcome = member.be_welcomed();
    if (outcome) {
        outcome = member.take_part();
        member.hand_over();
    }
    // A watching coordinator tells of its nodes itself, in one line.
    if (!outcome && !options.beside_coordinator()) {
        std::fputs(fmt::format("incast-node: node of {}: {}\n", options.coordinator, outcome.error().message).c_str(),
                   stderr);
    }
    return outcome ? exit_ok : exit_refused;
}

}  // namespace incast::runtime
