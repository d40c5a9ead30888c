#include "runner.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/builtin/builtin.h"

namespace incast::conformance {

namespace {

class Here final : public Runner {
public:
    Here(const Recipe& recipe, std::shared_ptr<transport::Medium> medium) : agent_(recipe, std::move(medium)) {}
    void start(const Command& command) override { command_ = command; }
    Reply finish() override { return agent_.execute(command_); }

private:
    Agent agent_;
    Command command_;
};

class InThread final : public Runner {
public:
    InThread(const Recipe& recipe, std::shared_ptr<transport::Medium> medium)
        : thread_([this, recipe, medium = std::move(medium)]() mutable { serve(Agent(recipe, std::move(medium))); }) {}

    ~InThread() override {
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    void start(const Command& command) override {
        {
            const std::lock_guard lock(mutex_);
            command_ = command;
        }
        changed_.notify_all();
    }

    Reply finish() override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return reply_.has_value(); });
        Reply reply = std::move(*reply_);
        reply_.reset();
        return reply;
    }

private:
    void serve(Agent&& agent) {
        for (;;) {
            Command command;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [this] { return command_.has_value() || ending_; });
                if (!command_.has_value()) return;
                command = *command_;
                command_.reset();
            }
            Reply reply = agent.execute(command);
            {
                const std::lock_guard lock(mutex_);
                reply_ = std::move(reply);
            }
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<Command> command_;
    std::optional<Reply> reply_;
    bool ending_ = false;
    std::thread thread_;
};

/// Plain data and strings over a socket pair between a process and its child.
class Pipe {
public:
    explicit Pipe(int fd) : fd_(fd) {}
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe() { ::close(fd_); }

    template <class T>
    bool put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        return put_bytes(std::as_bytes(std::span(&value, 1)));
    }
    template <class T>
    bool get(T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        return get_bytes(std::as_writable_bytes(std::span(&value, 1)));
    }
    bool put(const Blob& blob) { return put(blob.bytes.size()) && put_bytes(blob.view()); }
    bool get(Blob& blob) {
        std::size_t size = 0;
        if (!get(size)) return false;
        blob.bytes.resize(size);
        return get_bytes(blob.bytes);
    }
    bool put(const std::string& text) { return put(text.size()) && put_bytes(std::as_bytes(std::span(text))); }
    bool get(std::string& text) {
        std::size_t size = 0;
        if (!get(size)) return false;
        text.resize(size);
        return get_bytes(std::as_writable_bytes(std::span(text)));
    }

    /// For a millisecond at least.
    [[nodiscard]] bool is_silent() const {
        pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
        return ::poll(&wait, 1, 1) == 0;
    }

private:
    bool put_bytes(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (count <= 0) return false;
            bytes = bytes.subspan(static_cast<std::size_t>(count));
        }
        return true;
    }
    bool get_bytes(std::span<std::byte> bytes) {
        while (!bytes.empty()) {
            const ssize_t count = ::recv(fd_, bytes.data(), bytes.size(), 0);
            if (count <= 0) return false;
            bytes = bytes.subspan(static_cast<std::size_t>(count));
        }
        return true;
    }
    int fd_;
};

/// Calls it with one field of a command after the other, until it says no.
template <class AnyCommand, class Each>
bool every_field(AnyCommand& command, Each each) {
    return each(command.op) && each(command.head_bytes) && each(command.has_notice) && each(command.shareable) &&
           each(command.notice) && each(command.region) && each(command.peer) && each(command.incarnation) &&
           each(command.max_peers) && each(command.max_dialled) && each(command.max_posted) && each(command.remote) &&
           each(command.run) && each(command.token) && each(command.length) && each(command.offset) &&
           each(command.remote_offset) && each(command.seed) && each(command.repeat) && each(command.now) &&
           each(command.blob);
}
bool put_command(Pipe& pipe, const Command& command) {
    return every_field(command, [&](const auto& field) { return pipe.put(field); });
}
bool get_command(Pipe& pipe, Command& command) {
    return every_field(command, [&](auto& field) { return pipe.get(field); });
}

bool put_reply(Pipe& pipe, const Reply& reply) {
    bool good = pipe.put(reply.ok) && pipe.put(reply.post) && pipe.put(reply.number) && pipe.put(reply.length) &&
                pipe.put(reply.next_deadline) && pipe.put(reply.capabilities) && pipe.put(reply.blob) &&
                pipe.put(reply.text) && pipe.put(reply.events.size());
    for (const Seen& seen : reply.events) {
        good = good && pipe.put(seen.kind) && pipe.put(seen.status) && pipe.put(seen.value) && pipe.put(seen.peer) &&
               pipe.put(seen.incarnation) && pipe.put(seen.token) && pipe.put(seen.message);
    }
    return good;
}

bool get_reply(Pipe& pipe, Reply& reply) {
    std::size_t events = 0;
    bool good = pipe.get(reply.ok) && pipe.get(reply.post) && pipe.get(reply.number) && pipe.get(reply.length) &&
                pipe.get(reply.next_deadline) && pipe.get(reply.capabilities) && pipe.get(reply.blob) &&
                pipe.get(reply.text) && pipe.get(events);
    for (std::size_t i = 0; good && i < events; ++i) {
        Seen seen;
        good = pipe.get(seen.kind) && pipe.get(seen.status) && pipe.get(seen.value) && pipe.get(seen.peer) &&
               pipe.get(seen.incarnation) && pipe.get(seen.token) && pipe.get(seen.message);
        reply.events.push_back(std::move(seen));
    }
    return good;
}

constexpr const char* agent_argument = "--agent";

void serve(int fd, const Recipe& recipe) {
    Pipe pipe(fd);
    Agent agent(recipe, nullptr);
    Command command;
    while (get_command(pipe, command) && put_reply(pipe, agent.execute(command))) {
    }
}

[[noreturn]] void start_anew(int fd, const Recipe& recipe) {
    (void)::fcntl(fd, F_SETFD, 0);
    std::vector<std::string> words{"conformance", agent_argument, std::to_string(fd), recipe.transport,
                                   std::to_string(static_cast<int>(recipe.decoration))};
    for (const auto& [name, value] : recipe.settings)
        words.push_back(name + "=" + value);
    std::vector<char*> arguments;
    for (std::string& word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(1);
}

/// INCAST_CONFORMANCE_THERE: the network that processes of their own live in, and settings that they have there, as
/// "/run/netns/node2 bind=10.0.0.2".
Recipe moved_out(Recipe recipe) {
    const char* const given = std::getenv("INCAST_CONFORMANCE_THERE");
    if (given == nullptr) return recipe;
    std::istringstream words(given);
    std::string word;
    words >> word;
    const int network = ::open(word.c_str(), O_RDONLY | O_CLOEXEC);
    if (network < 0 || ::setns(network, CLONE_NEWNET) != 0) ::_exit(1);
    ::close(network);
    for (std::size_t sign = 0; words >> word && (sign = word.find('=')) != std::string::npos;)
        recipe.settings[word.substr(0, sign)] = word.substr(sign + 1);
    return recipe;
}

[[noreturn]] void serve_in_child(int fd, const Recipe& recipe) {
    // A test that dies must not leave its child behind.
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Sockets of the parent would otherwise stay open here when it closes them.
    if (fd > 3) (void)::close_range(3, static_cast<unsigned>(fd) - 1, 0);
    (void)::close_range(static_cast<unsigned>(fd) + 1, ~0U, 0);
    const Recipe there = moved_out(recipe);
    if (there.starts_anew) start_anew(fd, there);
    serve(fd, there);
    ::_exit(0);
}

class InProcess final : public Runner {
public:
    InProcess(pid_t child, int fd) : child_(child), pipe_(std::make_unique<Pipe>(fd)) {}

    ~InProcess() override {
        pipe_.reset();  // the child ends when it can read no more
        wait();
    }

    void start(const Command& command) override { (void)put_command(*pipe_, command); }

    Reply finish() override {
        Reply reply;
        if (!get_reply(*pipe_, reply)) reply.text = "the agent's process ended";
        return reply;
    }

    bool kill() override {
        (void)::kill(child_, SIGKILL);
        wait();
        return true;
    }

private:
    void wait() {
        if (child_ > 0) (void)::waitpid(child_, nullptr, 0);
        child_ = -1;
    }

    pid_t child_;
    std::unique_ptr<Pipe> pipe_;
};

}  // namespace

namespace {

/// The socket at which ranks meet the first one.
sockaddr_un meeting_place() {
    const char* const folder = std::getenv("INCAST_CONFORMANCE_RANKS");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = std::string(folder == nullptr ? "." : folder) + "/ranks";
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    return address;
}

/// Ranks that wait to be agents, by the sockets that lead to them.
std::vector<int>& idle_ranks() {
    static std::vector<int> idle = [] {
        std::vector<int> ranks;
        const sockaddr_un address = meeting_place();
        const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
            ::listen(listener, 64) != 0)
            std::abort();
        const transport::Rank rank = transport::launched_rank().value();
        for (std::uint32_t other = 1; other < rank.of; ++other)
            ranks.push_back(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
        (void)::unlink(address.sun_path);
        return ranks;
    }();
    return idle;
}

bool put_recipe(Pipe& pipe, const Recipe& recipe) {
    bool good = pipe.put(recipe.transport) && pipe.put(recipe.decoration) && pipe.put(recipe.settings.size());
    for (const auto& [name, value] : recipe.settings)
        good = good && pipe.put(name) && pipe.put(value);
    return good;
}
bool get_recipe(Pipe& pipe, Recipe& recipe) {
    std::size_t settings = 0;
    bool good = pipe.get(recipe.transport) && pipe.get(recipe.decoration) && pipe.get(settings);
    for (std::size_t at = 0; good && at < settings; ++at) {
        std::string name;
        std::string value;
        good = pipe.get(name) && pipe.get(value);
        recipe.settings[name] = value;
    }
    return good;
}

/// The library makes progress only while somebody polls, also for endpoints that are gone: by one that has no peers.
void poll_for_others() {
    static const std::unique_ptr<transport::Medium> medium = [] {
        const auto list = transport::builtin_transports();
        const auto launched = std::ranges::find_if(list, [](const auto& each) { return each.launch != nullptr; });
        return transport::make_medium(*launched, {}).value();
    }();
    static const std::unique_ptr<Transport> keeper = medium->endpoint({}).value();
    (void)keeper->poll(0, {});
}

class InRank final : public Runner {
public:
    InRank(int fd, const Recipe& recipe) : fd_(fd), pipe_(::dup(fd)) { (void)put_recipe(pipe_, recipe); }
    ~InRank() override {
        Command last{.op = Op::destroy};
        last.length = end_of_service;
        (void)put_command(pipe_, last);
        Reply reply;
        (void)get_reply(pipe_, reply);
        idle_ranks().push_back(fd_);
    }
    void start(const Command& command) override {
        poll_for_others();
        (void)put_command(pipe_, command);
    }
    Reply finish() override {
        Reply reply;
        if (!get_reply(pipe_, reply)) reply.text = "the agent's process ended";
        return reply;
    }

    static constexpr std::uint64_t end_of_service = 1;

private:
    int fd_;
    Pipe pipe_;
};

}  // namespace

std::unique_ptr<Runner> run_in_rank(const Recipe& recipe) {
    std::vector<int>& idle = idle_ranks();
    if (idle.empty()) std::abort();  // the launcher was to start more
    const int fd = idle.back();
    idle.pop_back();
    return std::make_unique<InRank>(fd, recipe);
}

void dismiss_ranks() {
    if (!transport::launched_rank()) return;
    for (const int fd : std::exchange(idle_ranks(), {}))
        (void)::close(fd);
}

std::optional<int> serve_as_rank() {
    const std::optional<transport::Rank> rank = transport::launched_rank();
    if (!rank || rank->number == 0) return std::nullopt;
    poll_for_others();  // all ranks begin together
    const sockaddr_un address = meeting_place();
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        std::this_thread::yield();  // the launcher ends it if the first one never comes
    Pipe pipe(fd);
    const auto wait = [&] {
        while (pipe.is_silent())
            poll_for_others();
    };
    for (Recipe recipe; wait(), get_recipe(pipe, recipe); recipe = {}) {
        Agent agent(recipe, nullptr);
        for (Command command;; (void)put_reply(pipe, agent.execute(command))) {
            wait();
            if (!get_command(pipe, command)) return 0;
            if (command.op != Op::destroy || command.length != InRank::end_of_service) continue;
            (void)put_reply(pipe, agent.execute(command));
            break;
        }
    }
    return 0;
}

std::optional<int> serve_as_agent(std::span<const char* const> arguments) {
    if (arguments.size() < 5 || std::string(arguments[1]) != agent_argument) return std::nullopt;
    Recipe recipe{.transport = arguments[3],
                  .decoration = static_cast<Decoration>(std::atoi(arguments[4])),
                  .settings = {},
                  .starts_anew = true};
    for (const std::string word : arguments.subspan(5))
        recipe.settings[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    serve(std::atoi(arguments[2]), recipe);
    return 0;
}

std::unique_ptr<Runner> run_here(const Recipe& recipe, std::shared_ptr<transport::Medium> medium) {
    return std::make_unique<Here>(recipe, std::move(medium));
}

std::unique_ptr<Runner> run_in_thread(const Recipe& recipe, std::shared_ptr<transport::Medium> medium) {
    return std::make_unique<InThread>(recipe, std::move(medium));
}

std::unique_ptr<Runner> run_in_process(const Recipe& recipe) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
    const pid_t child = ::fork();
    if (child < 0) std::abort();
    if (child == 0) {
        serve_in_child(ends[1], recipe);
    }
    ::close(ends[1]);
    return std::make_unique<InProcess>(child, ends[0]);
}

}  // namespace incast::conformance
