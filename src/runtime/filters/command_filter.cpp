#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/descriptor.h"
#include "runtime/filters/filters.h"
#include "runtime/sinks/child.h"

namespace incast::filters {
namespace {

constexpr Time ask_command_again_after = 100 * ps_per_us;
constexpr std::size_t most_waiting_bytes = std::size_t{8} << 20;  // beyond them the command is asked nothing more
constexpr int last_words_ms = 500;

// docs/formats.md
struct Question {
    std::uint64_t mep = 0;
    std::uint64_t first_event = 0;
    std::uint32_t n_events = 0;
    std::uint32_t attempt = 0;
    std::uint32_t n_sources = 0;
    std::uint32_t unused = 0;
};
struct QuestionSource {
    std::uint16_t id = 0;
    std::uint8_t flag = 0;
    std::uint8_t unused = 0;
    std::uint32_t bytes = 0;
};
struct Answer {
    std::uint64_t mep = 0;
    std::uint32_t attempt = 0;
    std::uint32_t accept = 0;  // 1 or 0
};

class CommandFilter final : public protocol::Filter {
public:
    CommandFilter(std::string command, pid_t pid, os::Descriptor socket, const protocol::Config& config)
        : command_(std::move(command)),
          pid_(pid),
          socket_(std::move(socket)),
          config_(config),
          window_(4 * std::uint64_t{config.retention_meps} + 64) {}

    ~CommandFilter() override {
        socket_.close();
        constexpr int look_every_ms = 5;
        for (int waited = 0; waited < last_words_ms && ::waitpid(pid_, nullptr, WNOHANG) == 0;
             waited += look_every_ms) {
            (void)::poll(nullptr, 0, look_every_ms);
        }
    }

    Verdict decide(Time now, const protocol::BuiltMep& first) override {
        exchange();
        if (!socket_.is_open()) {
            return Verdict::gone;
        }
        const auto found = verdicts_.find({first.mep, first.attempt});
        if (found == verdicts_.end()) {
            ask(first);
            exchange();
        } else if (found->second != Verdict::undecided) {
            const Verdict verdict = found->second;
            verdicts_.erase(found);
            return verdict;
        }
        ask_again_ = now + ask_command_again_after;
        return Verdict::undecided;
    }
    [[nodiscard]] Time next_deadline() const override { return ask_again_; }

private:
    void ask(const protocol::BuiltMep& first) {
        if (out_.size() - sent_ > most_waiting_bytes) {
            return;
        }
        // Those that were decided by their deadline are not asked for again.
        while (!verdicts_.empty() && verdicts_.begin()->first.first + window_ < first.mep) {
            verdicts_.erase(verdicts_.begin());
        }
        verdicts_[{first.mep, first.attempt}] = Verdict::undecided;
        append(Question{.mep = first.mep,
                        .first_event = first.first_event,
                        .n_events = first.n_events,
                        .attempt = first.attempt,
                        .n_sources = static_cast<std::uint32_t>(first.sources.size())});
        for (std::size_t index = 0; index < first.sources.size(); ++index) {
            append(QuestionSource{.id = config_.sources[index].id,
                                  .flag = static_cast<std::uint8_t>(first.sources[index].flag),
                                  .bytes = static_cast<std::uint32_t>(first.sources[index].body.size())});
        }
        for (const protocol::BuiltSource& source : first.sources) {
            out_.insert(out_.end(), source.body.begin(), source.body.end());
        }
    }

    template <class T>
    void append(const T& value) {
        const auto* bytes = reinterpret_cast<const std::byte*>(&value);
        out_.insert(out_.end(), bytes, bytes + sizeof value);
    }

    /// Writes and reads what goes without waiting.
    void exchange() {
        while (socket_.is_open() && sent_ < out_.size()) {
            const ssize_t sent =
                ::send(socket_.fd(), out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0) {
                if (errno != EAGAIN && errno != EINTR) lose("takes no more");
                break;
            }
            sent_ += static_cast<std::size_t>(sent);
        }
        if (sent_ == out_.size()) {
            out_.clear();
            sent_ = 0;
        }
        while (socket_.is_open()) {
            const ssize_t got = ::recv(socket_.fd(), in_.data() + received_, in_.size() - received_, MSG_DONTWAIT);
            if (got <= 0) {
                if (got == 0 || (errno != EAGAIN && errno != EINTR)) lose("ended");
                break;
            }
            received_ += static_cast<std::size_t>(got);
            std::size_t at = 0;
            for (; at + sizeof(Answer) <= received_; at += sizeof(Answer)) {
                Answer answer;
                std::memcpy(&answer, in_.data() + at, sizeof answer);
                take(answer);
            }
            std::memmove(in_.data(), in_.data() + at, received_ - at);
            received_ -= at;
        }
    }

    void take(const Answer& answer) {
        const auto asked = verdicts_.find({answer.mep, answer.attempt});
        if (asked != verdicts_.end() && answer.accept <= 1) {
            asked->second = answer.accept == 1 ? Verdict::accept : Verdict::reject;
        } else if (answer.accept > 1) {
            lose("says what is no verdict");
        }
    }

    void lose(std::string_view what) {
        socket_.close();
        std::fputs(
            fmt::format("incast-node: filter: '{}' {}; from here on every MEP is accepted\n", command_, what).c_str(),
            stderr);
    }

    std::string command_;
    pid_t pid_;
    os::Descriptor socket_;
    const protocol::Config& config_;
    std::uint64_t window_;
    Time ask_again_ = time_never;
    std::map<std::pair<protocol::MepId, std::uint32_t>, Verdict> verdicts_;  // by MEP and attempt, of those asked for
    std::vector<std::byte> out_;
    std::size_t sent_ = 0;  // of out_
    std::array<std::byte, 256 * sizeof(Answer)> in_{};
    std::size_t received_ = 0;
};

}  // namespace

Result<std::unique_ptr<protocol::Filter>> start_command(const std::string& command, std::uint32_t node,
                                                        const protocol::Config& config) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return Error{
            fmt::format("filter.command = {}: no sockets: {}", command, std::generic_category().message(errno))};
    }
    os::Descriptor own(ends[0]);
    const os::Descriptor theirs(ends[1]);
    const Result<pid_t> pid =
        sinks::spawn_shell(command, theirs.fd(), theirs.fd(), {fmt::format("INCAST_FILTER_NODE={}", node)});
    if (!pid) {
        return Error{fmt::format("filter.command = {}: {}", command, pid.error().message)};
    }
    return std::unique_ptr<protocol::Filter>(std::make_unique<CommandFilter>(command, *pid, std::move(own), config));
}

}  // namespace incast::filters
