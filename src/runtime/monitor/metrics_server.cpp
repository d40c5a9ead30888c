#include "runtime/monitor/metrics_server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/pause_watch.h"
#include "base/units.h"
#include "os/socket.h"
#include "runtime/machine/run_clock.h"

namespace incast::runtime {
namespace {

std::string answer(std::string_view status, std::string_view type, std::string_view body, bool with_body) {
    return fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: "
        "close\r\n{}\r\n{}",
        status, type, body.size(), status.starts_with("405") ? "Allow: GET, HEAD\r\n" : "", with_body ? body : "");
}

std::string refusal(std::string_view status, std::string_view words) {
    return answer(status, "text/plain; charset=utf-8", fmt::format("{}\n", words), true);
}

/// The first line of a request, up to its end.
struct RequestLine {
    std::string_view method;
    std::string_view target;  // without a query
    std::string_view version;
};

RequestLine parse_request(std::string_view request) {
    std::string_view line = request.substr(0, request.find("\r\n"));
    RequestLine parsed;
    for (std::string_view* part : {&parsed.method, &parsed.target}) {
        const std::size_t space = line.find(' ');
        if (space == std::string_view::npos) {
            return {};
        }
        *part = line.substr(0, space);
        line.remove_prefix(space + 1);
    }
    parsed.version = line;
    parsed.target = parsed.target.substr(0, parsed.target.find('?'));
    return parsed;
}

/// What the client called this server; nothing: it did not say.
std::string_view host_of(std::string_view request) {
    constexpr std::string_view name = "host:";
    while (!request.empty()) {
        const std::size_t end = std::min(request.find("\r\n"), request.size());
        std::string_view line = request.substr(0, end);
        request.remove_prefix(std::min(end + 2, request.size()));
        const auto same = [](char one, char other) {
            return (one >= 'A' && one <= 'Z' ? one + ('a' - 'A') : one) == other;
        };
        if (line.size() >= name.size() && std::ranges::equal(line.substr(0, name.size()), name, same)) {
            line.remove_prefix(name.size());
            const std::size_t first = std::min(line.find_first_not_of(" \t"), line.size());
            return line.substr(first, line.find_last_not_of(" \t") + 1 - first);
        }
    }
    return {};
}

double unix_now_s() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

/// What the thread serves, and the thread. Nodes publish from theirs.
class MetricsServer::Service {
public:
    Service(os::Descriptor listener, os::Descriptor stop, RunLabels run, std::string name)
        : listener_(std::move(listener)),
          stop_(std::move(stop)),
          run_(std::move(run)),
          name_(std::move(name)),
          own_name_(read_machine().host) {
        // Signals are for the thread that polls for them.
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        thread_ = std::thread([this] { serve(); });
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        pthread_setname_np(thread_.native_handle(), "incast-metrics");
    }
    ~Service() {
        eventfd_write(stop_.fd(), 1);
        thread_.join();
    }
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;

    void publish(const NodeSample& sample, const std::string& roles, Time age) {
        const double taken_at_s = unix_now_s() - base::seconds(age);
        ExposedNode node{roles, taken_at_s, sample};
        node.sample.latency_ns.reset();
        node.sample.net.reset();
        const std::lock_guard lock(mutex_);
        nodes_[sample.node] = std::move(node);
    }

private:
    struct Client {
        os::Descriptor socket;
        Time deadline = 0;
        std::string request;
        std::string answer;
        std::size_t sent = 0;
        bool answered = false;  // whatever still comes is read away, so that the answer is not lost with it
    };

    void serve() {
        base::PauseWatch pauses(clock_.now(), ps_per_s);
        while (true) {
            std::vector<pollfd> waiting{{stop_.fd(), POLLIN, 0}};
            const bool accepts = clock_.now() >= accept_at_;
            waiting.push_back({accepts ? listener_.fd() : -1, POLLIN, 0});
            Time until = accept_at_ > clock_.now() ? accept_at_ : time_never;
            for (const Client& client : clients_) {
                waiting.push_back({client.socket.fd(), static_cast<short>(is_sending(client) ? POLLOUT : POLLIN), 0});
                until = std::min(until, client.deadline);
            }
            const int timeout_ms = until == time_never ? -1 : milliseconds_until(until);
            if (poll(waiting.data(), waiting.size(), timeout_ms) < 0 && errno != EINTR) {
                return;
            }
            if (waiting[0].revents != 0) {
                return;
            }
            const Time now = clock_.now();
            // Stopped, it could not answer.
            const Time pause = pauses.look(now, timeout_ms < 0 ? now : timeout_ms * ps_per_ms);
            for (Client& client : clients_) {
                client.deadline += pause;
            }
            std::erase_if(clients_, [now, this](Client& client) { return now >= client.deadline || !go_on(client); });
            if (waiting[1].revents != 0) {
                accept(now);
            }
        }
    }

    [[nodiscard]] int milliseconds_until(Time until) const {
        return static_cast<int>(std::clamp<Time>((until - clock_.now()) / ps_per_ms + 1, 0, 60'000));
    }
    static bool is_sending(const Client& client) { return client.sent < client.answer.size(); }

    void accept(Time now) {
        std::string peer;
        Client client;
        client.socket = os::accept_one(listener_.fd(), peer);
        if (!client.socket.is_open()) {
            accept_at_ = now + accept_pause;  // without descriptors it would be asked again at once, for ever
            return;
        }
        client.deadline = now + client_deadline;
        if (!go_on(client)) {
            return;
        }
        if (clients_.size() >= max_clients) {
            clients_.erase(clients_.begin());  // who came first is slowest
        }
        clients_.push_back(std::move(client));
    }

    /// False: nothing is left to do for it.
    bool go_on(Client& client) {
        if (!client.answered && !read_request(client)) {
            return false;
        }
        while (is_sending(client)) {
            const ssize_t count = send(client.socket.fd(), client.answer.data() + client.sent,
                                       client.answer.size() - client.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (count < 0) {
                return errno == EAGAIN || errno == EINTR;
            }
            client.sent += static_cast<std::size_t>(count);
            if (!is_sending(client)) {
                shutdown(client.socket.fd(), SHUT_WR);
            }
        }
        return !client.answered || read_away(client);
    }

    /// False: the client is gone.
    bool read_request(Client& client) {
        char bytes[2048];
        while (client.request.size() <= max_request_bytes) {
            const ssize_t count = recv(client.socket.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
            if (count < 0) {
                return errno == EAGAIN || errno == EINTR;
            }
            if (count == 0) {
                return false;
            }
            client.request.append(bytes, static_cast<std::size_t>(count));
            if (client.request.find("\r\n\r\n") != std::string::npos) {
                client.answer = answer_to(client.request);
                client.answered = true;
                return true;
            }
        }
        client.answer = refusal("431 Request Header Fields Too Large",
                                fmt::format("a request has at most {} bytes", max_request_bytes));
        client.answered = true;
        return true;
    }

    static bool read_away(Client& client) {
        char bytes[2048];
        const ssize_t count = recv(client.socket.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
        return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
    }

    std::string answer_to(std::string_view request) {
        const RequestLine line = parse_request(request);
        if (!line.version.starts_with("HTTP/1.")) {
            return refusal("400 Bad Request", "allowed: GET /metrics HTTP/1.1");
        }
        if (line.method != "GET" && line.method != "HEAD") {
            return refusal("405 Method Not Allowed", "allowed: GET, HEAD");
        }
        // A page of elsewhere whose name was made to mean this host shall not read along.
        if (const std::string_view host = host_of(request); !host.empty() && !is_called(host)) {
            return refusal("403 Forbidden",
                           "asked for by a name; allowed: an address in numbers, localhost, this host's name, the name "
                           "in run.metrics");
        }
        if (line.target != "/metrics") {
            return refusal("404 Not Found", "there is only /metrics");
        }
        std::vector<ExposedNode> nodes;
        {
            const std::lock_guard lock(mutex_);
            for (const auto& [node, exposed] : nodes_) {
                nodes.push_back(exposed);
            }
        }
        return answer("200 OK", exposition_type, exposition(run_, nodes), line.method == "GET");
    }

    [[nodiscard]] bool is_called(std::string_view host) const {
        const Result<os::HostPort> parts = os::parse_host_port(std::string(host));
        return parts && (os::is_numeric(parts->host) || parts->host == "localhost" || parts->host == name_ ||
                         parts->host == own_name_);
    }

    os::Descriptor listener_;
    os::Descriptor stop_;
    RunLabels run_;
    std::string name_;             // the host as it was configured
    std::string own_name_;         // of this host
    std::vector<Client> clients_;  // the thread's
    RunClock clock_;
    Time accept_at_ = 0;  // no connection is taken before
    std::mutex mutex_;
    std::map<std::uint32_t, ExposedNode> nodes_;  // guarded by mutex_
    std::thread thread_;
};

MetricsServer::MetricsServer(std::unique_ptr<Service> service, std::string address)
    : service_(std::move(service)), address_(std::move(address)) {}
MetricsServer::~MetricsServer() = default;

Result<std::unique_ptr<MetricsServer>> MetricsServer::open(const std::string& address, RunLabels run) {
    Result<os::Descriptor> listener = os::listen_on(address);
    if (!listener) {
        return listener.error();
    }
    os::Descriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop.is_open()) {
        return Error{fmt::format("eventfd: {}", std::generic_category().message(errno))};
    }
    std::string bound = os::local_address(listener->fd());
    return std::unique_ptr<MetricsServer>(
        new MetricsServer(std::make_unique<Service>(std::move(*listener), std::move(stop), std::move(run),
                                                    os::parse_host_port(address)->host),
                          std::move(bound)));
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::open_for(const Plan& plan, std::uint32_t node) {
    if (plan.config.metrics == "off") {
        return std::unique_ptr<MetricsServer>();
    }
    const Result<std::string> address = metrics_address(plan.config.metrics, node);
    if (!address) {
        return address.error();
    }
    Result<std::unique_ptr<MetricsServer>> server =
        open(*address, {plan.values.at("run.task"), plan.config.transport, plan.values.at("protocol.scheme")});
    if (!server) {
        return Error{fmt::format("run.metrics = {}: {}", plan.config.metrics, server.error().message)};
    }
    return server;
}

void MetricsServer::publish(const NodeSample& sample, const std::string& roles, Time age) {
    service_->publish(sample, roles, age);
}

Result<std::string> metrics_address(const std::string& setting, std::uint32_t node) {
    const Result<os::HostPort> parts = os::parse_host_port(setting);
    if (!parts) {
        return Error{fmt::format("run.metrics = {}: no address; allowed: off, or HOST:PORT", setting)};
    }
    const std::uint64_t first = std::stoul(parts->port);
    const std::uint64_t port = first == 0 ? 0 : first + node;
    if (port > 65535) {
        return Error{fmt::format("run.metrics = {}: node {} would listen on port {}; allowed: up to 65535, or 0",
                                 setting, node, port)};
    }
    const bool v6 = parts->host.find(':') != std::string::npos;
    return v6 ? fmt::format("[{}]:{}", parts->host, port) : fmt::format("{}:{}", parts->host, port);
}

Result<Ok> try_metrics(const std::string& setting, std::uint32_t nodes) {
    for (std::uint32_t node = 0; node < nodes && setting != "off"; ++node) {
        const Result<std::string> address = metrics_address(setting, node);
        if (!address) {
            return address.error();
        }
        if (const Result<os::Descriptor> listener = os::listen_on(*address); !listener) {
            return Error{
                fmt::format("run.metrics = {}: node {}: {}; allowed: an address of this host, with ports that "
                            "are free for all of its nodes",
                            setting, node, listener.error().message)};
        }
    }
    return Ok{};
}

std::string reachable_address(const std::string& bound, const std::string& host) {
    for (const std::string_view any : {"0.0.0.0:", "[::]:"}) {
        if (bound.starts_with(any)) {
            const bool v6 = host.find(':') != std::string::npos;
            const std::string port = bound.substr(any.size());
            return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
        }
    }
    return bound;
}

bool may_claim_metrics(const std::string& setting, std::uint32_t node, const std::string& claimed,
                       const std::string& host) {
    if (setting == "off") {
        return false;
    }
    const Result<std::string> configured = metrics_address(setting, node);
    const Result<os::HostPort> claim = os::parse_host_port(claimed);
    if (!configured || !claim || claim->port == "0") {
        return false;
    }
    const Result<os::HostPort> wanted = os::parse_host_port(*configured);
    if (wanted->port != "0" && wanted->port != claim->port) {
        return false;
    }
    const bool beside = os::is_loopback(host) || os::is_of_this_host(host);
    return claim->host == host || claim->host == wanted->host ||
           (wanted->host == "localhost" && os::is_loopback(claim->host)) ||
           (beside && os::is_of_this_host(claim->host));
}

void announce_metrics(Reporter& reporter, const std::string& who, const std::string& address,
                      std::span<const std::string> all) {
    reporter.notice(Level::info, fmt::format("node {}: metrics at http://{}/metrics", who, address));
    const std::filesystem::path& directory = reporter.directory();
    nlohmann::ordered_json targets = nlohmann::ordered_json::array();
    for (const std::string& one : all) {
        if (!one.empty()) {
            targets.push_back(one);
        }
    }
    const nlohmann::ordered_json groups = nlohmann::ordered_json::array(
        {{{"targets", std::move(targets)}, {"labels", {{"incast_run", directory.filename().string()}}}}});
    reporter.write_file("metrics.json", groups.dump(2) + '\n');
}

}  // namespace incast::runtime
