// The program `incast-netdev`: what `incast netdev` calls (docs/netdev.md).
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <optional>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "control.h"
#include "device.h"
#include "failure.h"

namespace incast::netdev {

namespace {

constexpr int bad_settings = 2;
constexpr std::size_t least_backlog_bytes = 2 * most_message_bytes;

struct Options {
    Settings settings;
    unsigned id = 0;
    std::string peers, at, secret_file, log;
    std::vector<std::string> addresses;
    std::uint64_t backlog_bytes = 8U << 20U;
    bool stays = false;
    std::string device;
    bool json = false, prometheus = false;
};

/// Where devices listen if --at says nothing: what needs no address of a host.
std::string default_address(const std::string& transport) {
    if (transport == "shm") return "shm:///run/incast-netdev-{id}";
    if (transport == "rio") return "rio://{id}:700";
    return "";
}

std::uint64_t read_secret(const std::string& file) {
    std::ifstream in(file);
    std::uint64_t secret = 0;
    if (!(in >> std::hex >> secret) || secret == 0)
        throw Failure("--secret " + file + ": allowed: a file with a number of 1 to 16 hexadecimal digits, not 0");
    return secret;
}

Settings settle(Options& options) {
    Settings made = options.settings;
    if (!is_device_name(made.name))
        throw Failure("'" + made.name +
                      "' is no name of a device; allowed: 1 to 15 characters, none of / : % and spaces");
    if (options.id < 1 || options.id > 65534)
        throw Failure("--id " + std::to_string(options.id) + "; allowed: 1 to 65534");
    made.id = static_cast<std::uint16_t>(options.id);
    if (options.at.empty()) options.at = default_address(made.transport);
    made.members = parse_members(options.peers, options.at);
    const auto own = std::find_if(made.members.begin(), made.members.end(),
                                  [&](const Member& member) { return member.id == made.id; });
    if (own != made.members.end()) {
        made.address = own->address;
        made.members.erase(own);
    } else {
        const std::vector<Member> alone = parse_members(std::to_string(made.id), options.at);
        made.address = alone.front().address;
    }
    for (const std::string& text : options.addresses) {
        const auto cidr = parse_cidr(text);
        if (!cidr)
            throw Failure("--address " + text + "; allowed: an address with its prefix, as 10.9.0.1/24 or fd00::1/64");
        made.addresses.push_back(*cidr);
    }
    made.backlog_bytes = static_cast<std::size_t>(options.backlog_bytes);
    if (!options.secret_file.empty()) made.secret = read_secret(options.secret_file);
    return made;
}

/// The device until it ends; `ready` hears once that it is up.
int live(const Settings& settings, const std::function<void(const std::string&)>& ready) {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
        ::sigaddset(&signals, number);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    ::signal(SIGPIPE, SIG_IGN);  // NOLINT(concurrency-mt-unsafe)
    Device device(settings);
    ready(device.summary());
    if (device.run()) return 0;
    fmt::print(stderr, "{}: the device was deleted\n", settings.name);
    return 1;
}

void point(int from, const std::string& file, int flags) {
    const Descriptor opened(::open(file.c_str(), flags | O_CLOEXEC, 0644));
    if (!opened.is_open()) throw system_failure(file, errno);
    (void)::dup2(opened.fd(), from);
}

/// In a process of its own, which goes on when this one returns: once the device is up, or cannot be.
int live_apart(const Settings& settings, const std::string& log) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_failure("a pipe", errno);
    std::optional<Descriptor> hears(ends[0]);
    std::optional<Descriptor> says(ends[1]);
    const pid_t child = ::fork();
    if (child < 0) throw system_failure("a process", errno);
    if (child == 0) {
        hears.reset();
        const auto tell = [&says](const std::string& line) {
            if (says) (void)!::write(says->fd(), line.data(), line.size());
            says.reset();
        };
        try {
            ::setsid();
            point(STDIN_FILENO, "/dev/null", O_RDONLY);
            point(STDOUT_FILENO, "/dev/null", O_WRONLY);
            const int status = live(settings, [&](const std::string& line) {
                point(STDERR_FILENO, log.empty() ? "/dev/null" : log, O_WRONLY | O_CREAT | O_APPEND);
                tell("+" + line);
            });
            ::_exit(status);
        } catch (const std::exception& error) {
            tell("-" + std::string(error.what()));
            ::_exit(1);
        }
    }
    says.reset();
    std::string said;
    std::array<char, 1024> text{};
    ssize_t bytes = 0;
    while ((bytes = ::read(hears->fd(), text.data(), text.size())) > 0 || (bytes < 0 && errno == EINTR))
        said.append(text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, bytes)));
    if (said.starts_with('+')) {
        fmt::print("{}\n", said.substr(1));
        return 0;
    }
    throw Failure(said.empty() ? settings.name + ": the program of the device ended at once" : said.substr(1));
}

int up(Options& options) {
    const Settings settings = settle(options);
    if (!options.stays) return live_apart(settings, options.log);
    if (!options.log.empty()) point(STDERR_FILENO, options.log, O_WRONLY | O_CREAT | O_APPEND);
    return live(settings, [](const std::string& line) {
        fmt::print("{}\n", line);
        std::fflush(stdout);
    });
}

void print_table(const nlohmann::json& status) {
    fmt::print("{}: {} over {}, MTU {}, {} queues, process {}\n", status["device"].get<std::string>(),
               status["mac"].get<std::string>(), status["transport"].get<std::string>(), status["mtu"].get<unsigned>(),
               status["queues"].get<unsigned>(), status["pid"].get<long>());
    fmt::print("{:>5} {:>6} {:>15} {:>15} {:>9} {:>8} {:>8}\n", "peer", "queues", "sent B", "received B", "dropped",
               "marked", "waiting");
    for (const auto& peer : status["peers"]) {
        const auto count = [&peer](const char* name) { return peer[name].get<std::uint64_t>(); };
        const std::uint64_t dropped = count("dropped_full") + count("dropped_codel") + count("dropped_lost") +
                                      count("received_faulty") + count("received_refused");
        fmt::print("{:>5} {:>6} {:>15} {:>15} {:>9} {:>8} {:>8}\n", count("id"), count("queues_up"),
                   count("sent_bytes"), count("received_bytes"), dropped, count("marked_codel"),
                   count("waiting_bytes"));
        const auto why = peer["why_not_up"].get<std::string>();
        if (!why.empty()) fmt::print("      {}\n", why);
    }
}

/// The text format of Prometheus, for a textfile collector.
void print_metrics(const nlohmann::json& status) {
    const auto device = status["device"].get<std::string>();
    fmt::print("# TYPE incast_netdev_queues_up gauge\n# TYPE incast_netdev_waiting_bytes gauge\n");
    for (const auto& peer : status["peers"])
        for (const char* name : {"queues_up", "waiting_bytes"})
            fmt::print("incast_netdev_{}{{device=\"{}\",peer=\"{}\"}} {}\n", name, device, peer["id"].get<unsigned>(),
                       peer[name].get<std::uint64_t>());
    for (const CounterName& each : counter_names) {
        fmt::print("# TYPE incast_netdev_{}_total counter\n", each.name);
        for (const auto& peer : status["peers"])
            fmt::print("incast_netdev_{}_total{{device=\"{}\",peer=\"{}\"}} {}\n", each.name, device,
                       peer["id"].get<unsigned>(), peer[each.name].get<std::uint64_t>());
    }
    fmt::print(
        "# TYPE incast_netdev_dropped_nobody_total counter\nincast_netdev_dropped_nobody_total{{device=\"{}\"}} {}\n",
        device, status["dropped_nobody"].get<std::uint64_t>());
}

int status(const Options& options) {
    const std::vector<std::string> names =
        options.device.empty() ? devices_here() : std::vector<std::string>{options.device};
    for (const std::string& name : names) {
        const std::string said = ask(name, "status");
        const auto parsed = nlohmann::json::parse(said);
        if (options.json)
            fmt::print("{}", said);
        else if (options.prometheus)
            print_metrics(parsed);
        else
            print_table(parsed);
    }
    return 0;
}

/// Returns once the device is gone.
int down(const Options& options) {
    const std::string said = ask(options.device, "status");
    const auto pid = nlohmann::json::parse(said)["pid"].get<pid_t>();
    (void)ask(options.device, "down");
    const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    pollfd ended{.fd = process.fd(), .events = POLLIN, .revents = 0};
    constexpr int patience_ms = 10'000;
    if (process.is_open() && ::poll(&ended, 1, patience_ms) == 0)
        throw Failure(options.device + ": its process " + std::to_string(pid) + " has not ended after 10 s");
    return 0;
}

void declare(CLI::App& app, Options& options) {
    app.require_subcommand(1);
    Settings& settings = options.settings;
    CLI::App* const make = app.add_subcommand("up", "make a network device whose frames go over Incast's channels");
    make->add_option("name", settings.name, "name of the device")->required();
    make->add_option("--transport", settings.transport, "rio | shm | tcp | udp | verbs")
        ->required()
        ->check(CLI::IsMember({"rio", "shm", "tcp", "udp", "verbs"}));
    make->add_option("--id", options.id, "destination id of this device, 1 to 65534: its MAC has it")->required();
    make->add_option("--peers", options.peers, "devices of the network: 1-16, or 3=ADDRESS, with commas between")
        ->required();
    make->add_option("--at", options.at,
                     "where devices listen, {id} for the id (default: shm:///run/incast-netdev-{id}, rio://{id}:700)");
    make->add_option("--address", options.addresses, "of IP, with its prefix; may be repeated");
    make->add_option("--mtu", settings.mtu, "bytes of an IP packet (default: 1500)")
        ->check(CLI::Range(least_mtu, most_mtu));
    make->add_option("--queues", settings.queues, "threads and channels to each peer (default: 1)")
        ->check(CLI::Range(1U, most_queues));
    make->add_option("--netns", settings.netns, "make the device in that network namespace, and stay here");
    make->add_option("--backlog", options.backlog_bytes, "what may wait for one peer, in each queue (default: 8MiB)")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::uint64_t{least_backlog_bytes}, std::uint64_t{1} << 30U));
    make->add_option("--fabric", settings.fabric, "rio: as RIO_FABRIC, which is the default");
    make->add_option("--bind", settings.bind, "tcp, udp, verbs: the address that data goes by");
    make->add_option("--set", settings.transport_settings, "of the transport: NAME=VALUE,NAME=VALUE");
    make->add_option("--buffers", settings.buffers, "of a ring (docs/channel.md)");
    make->add_option("--buffer-bytes", settings.buffer_bytes, "of a ring")->transform(CLI::AsSizeValue(false));
    make->add_option("--secret", options.secret_file, "a file with a hexadecimal number, the same for all devices");
    make->add_option("--log", options.log, "a file for what happens to peers");
    make->add_flag("--foreground", options.stays, "do not return, but end with the device");
    CLI::App* const show = app.add_subcommand("status", "what devices of this network namespace have done");
    show->add_option("name", options.device, "of one device (default: all)");
    show->add_flag("--json", options.json, "as JSON");
    show->add_flag("--prometheus", options.prometheus, "as Prometheus has it");
    app.add_subcommand("down", "end a device")->add_option("name", options.device, "of the device")->required();
}

int run(int count, char** words) {
    CLI::App app("Network devices over Incast's channels.", "incast netdev");
    Options options;
    declare(app, options);
    try {
        app.parse(count, words);
    } catch (const CLI::ParseError& error) {
        const int number = app.exit(error);
        return number == 0 ? 0 : bad_settings;
    }
    try {
        if (app.got_subcommand("up")) return up(options);
        return app.got_subcommand("status") ? status(options) : down(options);
    } catch (const Failure& failure) {
        fmt::print(stderr, "incast netdev: {}\n", failure.what());
    } catch (const std::exception& error) {
        fmt::print(stderr, "incast netdev: {}\n", error.what());
    }
    return bad_settings;
}

}  // namespace

}  // namespace incast::netdev

int main(int count, char** words) {
    return incast::netdev::run(count, words);
}
