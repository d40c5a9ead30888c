#include "conformance.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "planted.h"
#include "transport/builtin/builtin.h"
#include "transport/ucx/descriptor/descriptor.h"
#include "transport/verbs/descriptor/descriptor.h"

namespace incast::conformance {

namespace {

constexpr auto patience = std::chrono::milliseconds(60'000);
constexpr auto impatience = std::chrono::milliseconds(100);  // where the test fails in any case
constexpr std::uint64_t barrier_seed = 0xBA44'1E4;
constexpr std::uint64_t barrier_bytes = 24;

std::string to_string(Mode mode) {
    switch (mode) {
        case Mode::one_thread:
            return "one_thread";
        case Mode::two_threads:
            return "two_threads";
        case Mode::two_processes:
            return "two_processes";
    }
    return "";
}

std::string to_string(Decoration decoration) {
    switch (decoration) {
        case Decoration::none:
            return "";
        case Decoration::trace:
            return "trace";
        case Decoration::count:
            return "count";
        case Decoration::fault:
            return "fault";
        case Decoration::pad:
            return "pad";
    }
    return "";
}

std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(' ');
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, '|');)
        cells.push_back(trimmed(cell));
    return cells;
}

/// What was seen of bare transports.
std::map<std::string, Outcomes>& seen_outcomes() {
    static std::map<std::string, Outcomes> seen;
    return seen;
}

/// The table that would have been right, behind all that the tests say.
void print_seen_outcomes() {
    for (const auto& [transport, outcomes] : seen_outcomes()) {
        std::cout << "As seen here, " << expected_file(transport) << " is to hold:\n";
        for (const auto& [test, modes] : outcomes)
            std::cout << test << " | " << modes[0] << " | " << modes[1] << " | " << modes[2] << "\n";
    }
    std::cout.flush();
}

}  // namespace

void give_up(const std::string& why) {
    std::cerr << "incast-conformance: " << why << "\n";
    std::exit(2);
}

std::string Case::name() const {
    return transport + (variant.empty() ? "" : "_" + variant) +
           (decoration == Decoration::none ? "" : "_" + to_string(decoration)) + "_" + to_string(mode);
}

const std::optional<Outside>& outside() {
    static const std::optional<Outside> found = [] {
        const char* const given = std::getenv("INCAST_CONFORMANCE");
        const std::string text = given != nullptr ? given : "";
        if (text.empty()) return std::optional<Outside>();
        const std::size_t sign = text.find('=');
        if (sign == std::string::npos || sign == 0 || sign + 1 == text.size())
            give_up("INCAST_CONFORMANCE = '" + text + "': expected NAME=FILE, with the file of its expected outcomes");
        return std::optional(Outside{text.substr(0, sign), text.substr(sign + 1)});
    }();
    return found;
}

std::vector<const transport::Descriptor*> tested_transports() {
    std::vector<const transport::Descriptor*> tested;
    if (outside()) {
        const auto found = transport::load_outside(outside()->transport);
        if (!found) give_up(found.error().message);
        tested.push_back(*found);
    } else {
        for (const transport::Descriptor& builtin : transport::builtin_transports())
            tested.push_back(&builtin);
    }
    return tested;
}

std::string missing_for(const transport::Descriptor& transport) {
    // A module from elsewhere is there to be tested, on whatever it brings.
    return outside() || transport.missing_here == nullptr ? "" : transport.missing_here();
}

std::string expected_file(const std::string& transport, const std::string& variant) {
    if (outside()) return outside()->expected;
    const std::string folder = "src/transport/" + transport;
    std::string own = folder + "/conformance-" + variant.substr(0, variant.find('_')) + ".txt";
    if (std::filesystem::exists(own)) return own;
    return (std::filesystem::is_directory(folder) ? folder : "src/" + transport) + "/conformance.txt";
}

const Outcomes& expected_outcomes(const std::string& transport, const std::string& variant) {
    static std::map<std::string, Outcomes> known;
    const std::string name = expected_file(transport, variant);
    const auto [found, is_new] = known.try_emplace(name);
    if (!is_new) return found->second;
    std::ifstream file(name);
    if (!file) {
        give_up(name + " is not there: " +
                (outside() ? "it is to hold a row for each test, or nothing at first"
                           : "run this in the top folder of the sources, or name a transport from outside and its "
                             "expected outcomes in INCAST_CONFORMANCE=NAME=FILE"));
    }
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        const std::vector<std::string> cells = cells_of(line);
        if (cells.size() != 4) give_up(name + ": not a row of four cells: " + line);
        if (!found->second.emplace(cells[0], std::vector(cells.begin() + 1, cells.end())).second)
            give_up(name + ": twice: " + line);
    }
    return found->second;
}

std::string to_string(const Seen& seen) {
    static constexpr std::array kinds{"completed", "message", "notice", "peer_up", "peer_down", "room", "knock"};
    return std::string(kinds.at(static_cast<std::size_t>(seen.kind))) + " of node " + std::to_string(seen.peer) +
           ", value " + std::to_string(seen.value) + ", incarnation " + std::to_string(seen.incarnation) + ", token " +
           std::to_string(seen.token) + ", status " + std::to_string(static_cast<int>(seen.status)) + ", " +
           std::to_string(seen.message.size()) + " bytes";
}

std::string message_of(std::uint64_t length, std::uint64_t seed) {
    std::string message(length, '\0');
    fill_pattern(std::as_writable_bytes(std::span(message)), seed);
    return message;
}

// --- Node
// -------------------------------------------------------------------------------------------------------------------

Reply Node::execute(const Command& command) {
    Reply reply = runner_->execute(command);
    next_deadline_ = reply.next_deadline;
    return reply;
}

void Node::create(std::uint32_t incarnation, Command settings) {
    settings.op = Op::create;
    settings.peer = index_;
    settings.incarnation = incarnation;
    const Reply reply = execute(settings);
    ASSERT_TRUE(reply.ok) << reply.text;
    incarnation_ = incarnation;
    capabilities_ = reply.capabilities;
    exists_ = true;
}

void Node::destroy() {
    execute({.op = Op::destroy});
    exists_ = false;
}

bool Node::kill() {
    exists_ = false;
    return runner_->kill();
}

Post Node::connect(Number peer, const Blob& address, std::uint32_t incarnation) {
    return execute({.op = Op::connect, .peer = peer.value, .incarnation = incarnation, .blob = address}).post;
}

std::uint32_t Node::dial(const Blob& address, std::uint64_t greeting, std::uint64_t seed) {
    const Reply reply = execute({.op = Op::dial, .length = greeting, .seed = seed, .blob = address});
    EXPECT_TRUE(reply.ok) << reply.text;
    return reply.number;
}

std::uint16_t Node::allocate(std::uint64_t bytes) {
    const Reply reply = execute({.op = Op::allocate, .length = bytes});
    EXPECT_TRUE(reply.ok) << reply.text;
    return static_cast<std::uint16_t>(reply.number);
}

Blob Node::expose(std::uint16_t region) {
    const Reply reply = execute({.op = Op::expose, .region = region});
    EXPECT_TRUE(reply.ok) << reply.text;
    return reply.blob;
}

std::uint32_t Node::import_key(Number peer, const Blob& key) {
    const Reply reply = execute({.op = Op::import_key, .peer = peer.value, .blob = key});
    EXPECT_TRUE(reply.ok) << reply.text;
    return reply.number;
}

void Node::fill(std::uint16_t region, std::uint64_t offset, std::uint64_t length, std::uint64_t seed) {
    execute({.op = Op::fill, .region = region, .length = length, .offset = offset, .seed = seed});
}

bool Node::matches(std::uint16_t region, std::uint64_t offset, std::uint64_t length, std::uint64_t seed) {
    return execute({.op = Op::matches, .region = region, .length = length, .offset = offset, .seed = seed}).ok;
}

Post Node::send(Number peer, std::uint64_t length, std::uint64_t seed) {
    return send_many(peer, length, seed, 1).second;
}

std::pair<std::uint64_t, Post> Node::send_many(Number peer, std::uint64_t length, std::uint64_t seed,
                                               std::uint64_t count) {
    const Reply reply = execute({.op = Op::send, .peer = peer.value, .length = length, .seed = seed, .repeat = count});
    return {reply.length, reply.post};
}

Post Node::write(Number peer, const WriteArguments& arguments) {
    return write_as(Op::write, peer, arguments);
}

Post Node::write_from(Number peer, const WriteArguments& arguments) {
    return write_as(Op::write_from, peer, arguments);
}

Post Node::write_as(Op op, Number peer, const WriteArguments& arguments) {
    return execute({.op = op,
                    .head_bytes = arguments.head_bytes,
                    .has_notice = arguments.notice.has_value(),
                    .notice = arguments.notice.value_or(0),
                    .region = arguments.region,
                    .peer = peer.value,
                    .remote = arguments.remote,
                    .token = arguments.token,
                    .length = arguments.length,
                    .offset = arguments.offset,
                    .remote_offset = arguments.remote_offset,
                    .seed = arguments.seed})
        .post;
}

Post Node::read(Number peer, const ReadArguments& arguments) {
    return execute({.op = Op::read,
                    .region = arguments.region,
                    .peer = peer.value,
                    .remote = arguments.remote,
                    .token = arguments.token,
                    .length = arguments.length,
                    .offset = arguments.offset,
                    .remote_offset = arguments.remote_offset})
        .post;
}

std::size_t Node::poll(Time now, std::uint64_t events_at_a_time) {
    Reply reply = execute({.op = Op::poll, .length = events_at_a_time, .now = now});
    EXPECT_LE(reply.events.size(), events_at_a_time);
    const std::size_t count = reply.events.size();
    keep(std::move(reply.events));
    return count;
}

void Node::keep(std::vector<Seen> events) {
    for (Seen& seen : events)
        events_.push_back(std::move(seen));
}

std::vector<Seen> Node::take() {
    return std::exchange(events_, {});
}

std::optional<Seen> Node::take(Event::Kind kind, Number peer) {
    return take_first([&](const Seen& seen) { return seen.kind == kind && seen.peer == peer.value; });
}

std::optional<Seen> Node::take(Event::Kind kind) {
    return take_first([&](const Seen& seen) { return seen.kind == kind; });
}

std::optional<Seen> Node::take_first(const std::function<bool(const Seen&)>& wanted) {
    const auto found = std::ranges::find_if(events_, wanted);
    if (found == events_.end()) return {};
    Seen seen = std::move(*found);
    events_.erase(found);
    return seen;
}

// --- Conformance
// ----------------------------------------------------------------------------------------------------------------

void Conformance::SetUp() {
    const Case& here = GetParam();
    recipe_ = {.transport = here.transport,
               .decoration = here.decoration,
               .settings = here.settings,
               .starts_anew = here.transport == transport::verbs::transport_name ||
                              here.transport == transport::ucx::transport_name};
    auto medium = transport::make_medium(*transport::find_transport(here.transport), recipe_.settings);
    ASSERT_TRUE(medium.ok()) << medium.error().message;
    transport::EndpointOptions options;
    options.max_peers = 4;
    options.max_dialled = 4;
    auto endpoint = (*medium)->endpoint(options);
    ASSERT_TRUE(endpoint.ok()) << endpoint.error().message;
    capabilities_ = (*endpoint)->capabilities();
    INCAST_SKIP_UNLESS(here.mode == Mode::one_thread || !virtual_time(), "simulated endpoints share one thread");
    INCAST_SKIP_UNLESS(here.mode == Mode::one_thread || !capabilities_.one_thread, "all endpoints share one thread");
}

void Conformance::TearDown() {
    nodes_.clear();
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    const std::string full = info->name();
    const std::string test = full.substr(0, full.find('/'));
    const Case& here = GetParam();
    const auto mode = static_cast<std::size_t>(here.mode);
    const std::string outcome = skipped() ? "skip: " + skip_reason_ : "run";
    if (here.decoration == Decoration::none && here.variant.empty()) {
        auto& seen = seen_outcomes()[here.transport].try_emplace(test, 3).first->second;
        seen[mode] = outcome;
    }
    const Outcomes& table = expected_outcomes(here.transport, here.variant);
    const auto row = table.find(test);
    const std::string expected = row == table.end() ? "no row" : row->second[mode];
    if (outcome == expected) return;
    static const bool prints_at_the_end = std::atexit(print_seen_outcomes) == 0;
    (void)prints_at_the_end;
    ADD_FAILURE() << expected_file(here.transport, here.variant) << " says otherwise for " << test << " of "
                  << here.transport << ", " << to_string(here.mode) << ": it is '" << outcome << "', expected: '"
                  << expected << "'";
}

void Conformance::skip(const std::string& reason) {
    skip_reason_ = reason;
}

bool Conformance::set(const std::string& name, const std::string& value) {
    const auto settings = transport::find_transport(recipe_.transport)->settings;
    if (std::ranges::find(settings, name, &base::Setting::name) == settings.end()) return false;
    recipe_.settings[name] = value;
    return true;
}

Node& Conformance::node(std::uint32_t index, const Command& settings) {
    if (medium_ == nullptr) {
        auto medium = transport::make_medium(*transport::find_transport(recipe_.transport), recipe_.settings);
        EXPECT_TRUE(medium.ok()) << medium.error().message;
        medium_ = std::move(*medium);
    }
    std::unique_ptr<Runner> runner;
    if (nodes_.empty() || GetParam().mode == Mode::one_thread) {
        runner = run_here(recipe_, medium_);
    } else if (GetParam().mode == Mode::two_threads) {
        runner = run_in_thread(recipe_, medium_);
    } else {
        const bool is_launched = transport::find_transport(recipe_.transport)->launch != nullptr;
        runner = is_launched ? run_in_rank(recipe_) : run_in_process(recipe_);
    }
    nodes_.push_back(std::make_unique<Node>(index, std::move(runner)));
    nodes_.back()->create(1, settings);
    return *nodes_.back();
}

void Conformance::join(Node& a, Node& b) {
    ASSERT_EQ(a.connect(b, b.address(), b.incarnation()), Post::pending);
    ASSERT_EQ(b.connect(a, a.address(), a.incarnation()), Post::pending);
    EXPECT_EQ(wait_for(a, Event::Kind::peer_up, b).incarnation, b.incarnation());
    EXPECT_EQ(wait_for(b, Event::Kind::peer_up, a).incarnation, a.incarnation());
}

Conformance::Shared Conformance::share(Node& owner, Node& user, std::uint64_t bytes) {
    Shared shared;
    shared.region = owner.allocate(bytes);
    shared.remote = user.import_key(owner, owner.expose(shared.region));
    return shared;
}

Time Conformance::now() {
    if (virtual_time()) return virtual_now_;
    static const auto begin = std::chrono::steady_clock::now();
    const auto since = std::chrono::steady_clock::now() - begin;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() * ps_per_ns;
}

bool Conformance::round(std::uint64_t events_at_a_time) {
    return poll_all([](const Node&) { return true; }, events_at_a_time);
}

bool Conformance::poll_all(const std::function<bool(const Node&)>& chosen, std::uint64_t events_at_a_time) {
    bool any = false;
    for (const auto& each : nodes_) {
        if (each->exists() && chosen(*each)) any = each->poll(now(), events_at_a_time) > 0 || any;
    }
    if (!any && virtual_time()) {
        Time next = time_never;
        for (const auto& each : nodes_) {
            if (each->exists() && chosen(*each)) next = std::min(next, each->next_deadline());
        }
        // Nothing will happen by itself: time passes all the same.
        virtual_now_ = next == time_never ? virtual_now_ + ps_per_us : std::max(virtual_now_, next);
    }
    return any;
}

bool Conformance::wait_until(const std::string& what, const std::function<bool()>& done) {
    return wait(what, done, [this] { return round(); });
}

bool Conformance::wait_polling(Node& node, const std::string& what, const std::function<bool()>& done) {
    return wait(what, done, [&] { return poll_all([&](const Node& each) { return &each == &node; }, 64); });
}

bool Conformance::wait_without(Node& node, const std::string& what, const std::function<bool()>& done) {
    return wait(what, done, [&] { return poll_all([&](const Node& each) { return &each != &node; }, 64); });
}

bool Conformance::wait(const std::string& what, const std::function<bool()>& done, const std::function<bool()>& poll) {
    // One wait in vain is enough to wait for.
    const bool fails = waited_in_vain_ || planted_here() != nullptr;
    const auto deadline = std::chrono::steady_clock::now() + (fails ? impatience : patience);
    while (!done()) {
        if (HasFatalFailure() || std::chrono::steady_clock::now() > deadline) {
            waited_in_vain_ = true;
            ADD_FAILURE() << "waited in vain: " << what;
            return false;
        }
        // In virtual time nobody else is waited for, and who yields is asked again late where processors are busy.
        if (!poll() && !virtual_time()) std::this_thread::yield();
    }
    return true;
}

Seen Conformance::wait_for(Node& node, Event::Kind kind, Number peer) {
    std::optional<Seen> seen;
    const std::string what =
        to_string(Seen{.kind = kind, .peer = peer.value}) + " at node " + std::to_string(node.index());
    if (wait_until(what, [&] { return (seen = node.take(kind, peer)).has_value(); })) return *seen;
    return {};
}

Seen Conformance::wait_for_knock(Node& node) {
    std::optional<Seen> seen;
    const std::string what = "a knock at node " + std::to_string(node.index());
    if (wait_until(what, [&] { return (seen = node.take(Event::Kind::knock)).has_value(); })) return *seen;
    return {};
}

void Conformance::barrier(Node& from, Node& to) {
    const std::uint64_t seed = barrier_seed + ++barriers_;
    ASSERT_TRUE(wait_until("room for a barrier", [&] { return from.send(to, barrier_bytes, seed) == Post::done; }));
    std::vector<Seen> others;
    wait_until("a barrier", [&] {
        bool passed = false;
        for (Seen& seen : to.take()) {
            if (seen.kind == Event::Kind::message && seen.message == message_of(barrier_bytes, seed)) {
                passed = true;
            } else {
                others.push_back(std::move(seen));
            }
        }
        return passed;
    });
    to.keep(std::move(others));
}

void Conformance::put_head(Node& from, Node& owner, std::uint32_t remote, std::uint64_t offset,
                           std::uint64_t head_bytes, std::uint64_t seed) {
    ASSERT_TRUE(taken(from.write(owner, {.head_bytes = static_cast<std::uint8_t>(head_bytes),
                                         .remote = remote,
                                         .remote_offset = offset,
                                         .notice = std::uint16_t{1},
                                         .seed = seed})));
    wait_for(owner, Event::Kind::notice, from);
}

void Conformance::let_time_pass() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
    for (int rounds = 0; rounds < 200 || (!virtual_time() && std::chrono::steady_clock::now() < end); ++rounds)
        round();
}

}  // namespace incast::conformance
