// The fixture of the conformance suite. A test is written once, against nodes, and runs for every built-in transport in
// every mode; or for one transport from outside the tree, alone.
//
// A test's name starts with the clause it tests ("TC_O1_MessagesArriveInPostingOrder"). Whether it is to run or to be
// skipped, and why, stands in conformance.txt beside the transport's sources: what is not expected fails.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runner.h"
#include "transport/descriptor.h"

namespace incast::conformance {

struct Case {
    std::string transport;
    Decoration decoration = Decoration::none;
    Mode mode = Mode::one_thread;
    std::string variant;  // names settings that change how, not what the transport does
    transport::Settings settings;
    [[nodiscard]] std::string name() const;
    friend void PrintTo(const Case& here, std::ostream* out) { *out << here.name(); }
};
/// The transport from outside the tree that INCAST_CONFORMANCE=NAME=FILE names; FILE has its expected outcomes.
struct Outside {
    std::string transport;
    std::string expected;
};
const std::optional<Outside>& outside();
inline constexpr const char* looks_at_the_tree = "it looks at the source tree, and the transport is from outside";

/// Ends the program, with that line.
[[noreturn]] void give_up(const std::string& why);

/// Those that the suite is run for: the built-in ones, or the one from outside.
std::vector<const transport::Descriptor*> tested_transports();
/// Why that one cannot run on this host; empty: it can.
std::string missing_for(const transport::Descriptor& transport);
/// Each of them that can run here in every mode, its variants in every mode, and decorated in one thread. Ends the
/// program, with one line, where what it needs is not there.
std::vector<Case> all_cases();

/// Of each test of a transport, what is expected in each mode: "run", or "skip: REASON".
using Outcomes = std::map<std::string, std::vector<std::string>>;
/// A variant whose name begins with WORD or WORD_ has the file conformance-WORD.txt, if there is one.
std::string expected_file(const std::string& transport, const std::string& variant = "");
const Outcomes& expected_outcomes(const std::string& transport, const std::string& variant = "");

inline constexpr auto no_notice = std::nullopt;

struct WriteArguments {
    std::uint8_t head_bytes = 0;
    std::uint64_t length = 0;  // of the body
    std::uint16_t region = 0;  // of the body
    std::uint64_t offset = 0;  // of the body
    std::uint32_t remote = 0;
    std::uint64_t remote_offset = 0;
    Notice notice = no_notice;
    Token token = 0;
    std::uint64_t seed = 0;  // of the head
};

struct ReadArguments {
    std::uint32_t remote = 0;
    std::uint64_t remote_offset = 0;
    std::uint64_t length = 0;
    std::uint16_t region = 0;  // read into
    std::uint64_t offset = 0;  // in it
    Token token = 0;
};

class Node;
/// By which a node knows another: a node of the run by its index, one that dialled by what the transport said.
struct Number {
    std::uint32_t value = 0;
    Number(std::uint32_t number) : value(number) {}
    Number(const Node& node);
};

/// A node of the test: its agent, and what it polled but the test has not looked at yet.
class Node {
public:
    Node(std::uint32_t index, std::unique_ptr<Runner> runner) : index_(index), runner_(std::move(runner)) {}

    [[nodiscard]] std::uint32_t index() const { return index_; }
    [[nodiscard]] std::uint32_t incarnation() const { return incarnation_; }
    [[nodiscard]] const Capabilities& capabilities() const { return capabilities_; }
    [[nodiscard]] Runner& runner() { return *runner_; }
    [[nodiscard]] Time next_deadline() const { return next_deadline_; }
    [[nodiscard]] bool exists() const { return exists_; }

    /// A new endpoint. `settings` may set run, token, max_posted.
    void create(std::uint32_t incarnation, Command settings = {});
    void destroy();
    bool kill();

    Blob address() { return execute({.op = Op::address}).blob; }
    Post connect(Number peer, const Blob& address, std::uint32_t incarnation);
    /// The number of the new peer. Its greeting has `greeting` bytes.
    std::uint32_t dial(const Blob& address, std::uint64_t greeting, std::uint64_t seed = 0);
    Post accept(Number peer) { return execute({.op = Op::accept, .peer = peer.value}).post; }
    void disconnect(Number peer) { execute({.op = Op::disconnect, .peer = peer.value}); }
    void ended(Number peer, std::uint32_t incarnation) {
        execute({.op = Op::ended, .peer = peer.value, .incarnation = incarnation});
    }
    bool drained() { return execute({.op = Op::drained}).ok; }
    std::uint16_t allocate(std::uint64_t bytes);
    Blob expose(std::uint16_t region);
    std::uint32_t import_key(Number peer, const Blob& key);
    void fill(std::uint16_t region, std::uint64_t offset, std::uint64_t length, std::uint64_t seed);
    bool matches(std::uint16_t region, std::uint64_t offset, std::uint64_t length, std::uint64_t seed);
    Reply release(std::uint16_t region) { return execute({.op = Op::release, .region = region}); }
    Reply release_import(std::uint32_t remote) { return execute({.op = Op::release_import, .remote = remote}); }
    Post send(Number peer, std::uint64_t length, std::uint64_t seed);
    /// Messages with the seeds from `seed`, until one is not done. How many were, and the answer to the last.
    std::pair<std::uint64_t, Post> send_many(Number peer, std::uint64_t length, std::uint64_t seed,
                                             std::uint64_t count);
    Post write(Number peer, const WriteArguments& arguments);
    /// The same with a body of the pattern of `offset`, in memory that is no region.
    Post write_from(Number peer, const WriteArguments& arguments);
    Post read(Number peer, const ReadArguments& arguments);
    Reply execute(const Command& command);

    /// Polls once and keeps the events. How many there were.
    std::size_t poll(Time now, std::uint64_t events_at_a_time = 64);
    void keep(std::vector<Seen> events);
    /// The kept events, oldest first, and forgets them.
    std::vector<Seen> take();
    /// The oldest kept event of that kind from that peer.
    std::optional<Seen> take(Event::Kind kind, Number peer);
    /// The oldest kept event of that kind.
    std::optional<Seen> take(Event::Kind kind);

private:
    Post write_as(Op op, Number peer, const WriteArguments& arguments);
    std::optional<Seen> take_first(const std::function<bool(const Seen&)>& wanted);

    std::uint32_t index_;
    std::uint32_t incarnation_ = 0;
    bool exists_ = false;
    std::unique_ptr<Runner> runner_;
    Capabilities capabilities_;
    Time next_deadline_ = 0;
    std::vector<Seen> events_;
};

inline Number::Number(const Node& node) : value(node.index()) {}

class Conformance : public testing::TestWithParam<Case> {
protected:
    void SetUp() override;
    void TearDown() override;

    /// Node `index`, with an endpoint of incarnation 1. The first lives in the test's thread, others where the mode
    /// says.
    Node& node(std::uint32_t index, const Command& settings = {});
    /// Both call connect, and both see the other come up.
    void join(Node& a, Node& b);
    /// A region of `bytes` at `owner`, its key imported at `user`.
    struct Shared {
        std::uint16_t region = 0;
        std::uint32_t remote = 0;
    };
    Shared share(Node& owner, Node& user, std::uint64_t bytes);

    /// Polls every node once. True if any had events.
    bool round(std::uint64_t events_at_a_time = 64);
    /// Polls all nodes until `done` says so; fails the test after a deadline.
    bool wait_until(const std::string& what, const std::function<bool()>& done);
    /// The same, and nobody else polls.
    bool wait_polling(Node& node, const std::string& what, const std::function<bool()>& done);
    /// The same, and everybody else polls.
    bool wait_without(Node& node, const std::string& what, const std::function<bool()>& done);
    /// The next event of that kind from that peer.
    Seen wait_for(Node& node, Event::Kind kind, Number peer);
    /// The next knock.
    Seen wait_for_knock(Node& node);
    /// Everything that `from` posted to `to` before this call has arrived when it returns.
    void barrier(Node& from, Node& to);
    /// A head of that pattern is there when it returns.
    void put_head(Node& from, Node& owner, std::uint32_t remote, std::uint64_t offset, std::uint64_t head_bytes,
                  std::uint64_t seed);
    /// A bounded while in which something that must not happen could.
    void let_time_pass();

    /// For nodes that are made from here on, in the test's process or another. False: the transport has no such
    /// setting.
    bool set(const std::string& name, const std::string& value);
    [[nodiscard]] Time now();
    [[nodiscard]] const Capabilities& capabilities() const { return capabilities_; }
    [[nodiscard]] bool virtual_time() const { return capabilities_.virtual_time; }
    void skip(const std::string& reason);
    [[nodiscard]] bool skipped() const { return !skip_reason_.empty(); }

private:
    bool wait(const std::string& what, const std::function<bool()>& done, const std::function<bool()>& poll);
    bool poll_all(const std::function<bool(const Node&)>& chosen, std::uint64_t events_at_a_time);

    Recipe recipe_;
    std::shared_ptr<transport::Medium> medium_;
    Capabilities capabilities_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::string skip_reason_;
    Time virtual_now_ = 0;
    std::uint64_t barriers_ = 0;
    bool waited_in_vain_ = false;
};

std::string to_string(const Seen& seen);
/// The operation was taken; whether at once is the transport's choice.
inline bool taken(Post post) {
    return post == Post::done || post == Post::pending;
}
/// The message `send` makes of that seed.
std::string message_of(std::uint64_t length, std::uint64_t seed);

}  // namespace incast::conformance

/// Ends the test as skipped, for a reason that the table knows.
#define INCAST_SKIP_UNLESS(condition, reason) \
    do {                                      \
        if (!(condition)) {                   \
            skip(reason);                     \
            GTEST_SKIP() << (reason);         \
        }                                     \
    } while (false)
