#include "softrio/tools/tool.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>

#include "softrio/options.h"

namespace incast::softrio::tools {

namespace {

constexpr std::uint64_t default_address = 0x1000'0000;

struct Options {
    std::string fabric;
    std::string destid;
    std::uint32_t target = 0;
    std::uint64_t address = default_address;
    std::uint64_t bytes = 16U << 20;
    std::uint64_t from = 0;  // bytes
    std::string text;
    HostOptions host;
    LinkOptions link;
    std::uint32_t payload = 0;
    std::uint32_t count = 4;
    double seconds = 0;
    bool json = false;
    bool unanswered = false;
};

int list(const api::MasterPort& port, const Options& options) {
    const auto others = port.endpoints();
    if (!others) return fail(others.error().message);
    if (options.json) {
        fmt::print("{{\"own\":{},\"others\":[{}]}}\n", port.destid(), fmt::join(*others, ","));
        return 0;
    }
    fmt::print("this one: {}\n", port.destid());
    for (const api::Destid other : *others)
        fmt::print("{}\n", other);
    return 0;
}

/// Maintenance reads, which no program has to answer.
int ping(const api::MasterPort& port, const Options& options) {
    for (std::uint32_t number = 0; number < options.count; ++number) {
        std::uint32_t identity = 0;
        const auto start = std::chrono::steady_clock::now();
        const int error = riomp_mgmt_rcfg_read(port.get(), options.target, HC_MP, 0, sizeof identity, &identity);
        const double took_us = seconds_since(start) * 1e6;
        if (error != 0) return fail(api::error_line("endpoint " + std::to_string(options.target), error).message);
        fmt::print("endpoint {}: device 0x{:08x}, {:.1f} us\n", options.target, identity, took_us);
    }
    return 0;
}

int write(const api::MasterPort& port, const Options& options) {
    const auto bytes = std::as_bytes(std::span(options.text));
    const auto completion = options.unanswered ? api::Completion::left : api::Completion::placed;
    if (const auto error = port.write(options.target, options.address, bytes, completion))
        return fail(fmt::format("writing {} bytes at 0x{:x} of endpoint {}: {}", bytes.size(), options.address,
                                options.target, error.message()));
    return 0;
}

int read(const api::MasterPort& port, const Options& options) {
    std::vector<std::byte> bytes(options.bytes);
    if (const auto error = port.read(options.target, options.address, bytes))
        return fail(fmt::format("reading {} bytes at 0x{:x} of endpoint {}: {}", bytes.size(), options.address,
                                options.target, error.message()));
    for (std::size_t at = 0; at < bytes.size(); at += 16) {
        std::string hex;
        std::string text;
        for (std::size_t each = at; each < std::min(at + 16, bytes.size()); ++each) {
            const auto value = static_cast<unsigned char>(bytes[each]);
            hex += fmt::format("{:02x} ", value);
            text += value >= 0x20 && value < 0x7F ? static_cast<char>(value) : '.';
        }
        fmt::print("{:012x}  {:48} {}\n", options.address + at, hex, text);
    }
    return 0;
}

int doorbell(const api::MasterPort& port, const Options& options) {
    if (const auto error = port.ring(options.target, static_cast<std::uint16_t>(options.payload)))
        return fail(fmt::format("doorbell {} to endpoint {}: {}", options.payload, options.target, error.message()));
    return 0;
}

int message(const api::MasterPort& port, const Options& options) {
    auto mailbox = api::Mailbox::open(port);
    if (!mailbox) return fail(mailbox.error().message);
    api::Socket socket = mailbox->socket();
    api::Letter letter;
    const Note note{Note::Kind::echo};
    if (options.text.size() > letter.payload().size() - sizeof note)
        return fail(fmt::format("a message holds {} bytes", letter.payload().size() - sizeof note));
    std::memcpy(letter.payload().data(), &note, sizeof note);
    std::memcpy(letter.payload().data() + sizeof note, options.text.data(), options.text.size());
    std::error_code error = socket.connect(options.target, service_channel);
    if (!error) error = socket.send(letter, sizeof note + options.text.size());
    if (!error) error = socket.receive(letter, 3000);
    if (error) return fail(fmt::format("CM with endpoint {}: {}", options.target, error.message()));
    const auto* answer = reinterpret_cast<const char*>(letter.payload().data() + sizeof note);
    fmt::print("endpoint {} answers: {}\n", options.target, std::string_view(answer, options.text.size()));
    return 0;
}

void declare(CLI::App& app, Options& options) {
    app.require_subcommand(1);
    app.add_option("--fabric", options.fabric, "the fabric, as RIO_FABRIC names it (default: that variable)");
    app.add_option("--destid", options.destid, "destination id of this endpoint (default: RIO_DESTID, or a free one)");
    const auto command = [&](const char* name, const char* what) { return app.add_subcommand(name, what); };
    const auto to = [&](CLI::App* sub) {
        sub->add_option("destid", options.target, "destination id")->required()->check(CLI::Range(0, 65535));
        return sub;
    };
    const auto at = [&](CLI::App* sub) {
        sub->add_option("--at", options.address, "RapidIO address")->capture_default_str();
        return sub;
    };
    command("list", "the endpoints of the fabric")->add_flag("--json", options.json, "as one JSON object");
    to(command("ping", "read a register of an endpoint, and time it"))
        ->add_option("--count", options.count, "times")
        ->capture_default_str();
    CLI::App* writing = at(to(command("write", "write a text into a window")));
    writing->add_option("text", options.text)->required();
    writing->add_flag("--unanswered", options.unanswered, "by NWRITE, as multicast groups need it");
    at(to(command("read", "show bytes of a window")))
        ->add_option("bytes", options.bytes)
        ->required()
        ->check(CLI::Range(1, 1 << 20));
    to(command("doorbell", "ring a doorbell"))
        ->add_option("payload", options.payload)
        ->required()
        ->check(CLI::Range(0, 65535));
    to(command("cm", "send a message to an endpoint that serves, and show its answer"))
        ->add_option("text", options.text)
        ->required();
    const auto hosting = [&](const char* name, const char* what) {
        CLI::App* sub = command(name, what);
        sub->add_option("--listen", options.host.listen, "ADDRESS:PORT; port 0: any")->capture_default_str();
        sub->add_option("--first", options.host.first, "the lowest id for those who want any")
            ->capture_default_str()
            ->check(CLI::Range(std::uint32_t{1}, softrio::max_destid));
        return sub;
    };
    hosting("enumerate", "be the host that gives destination ids to the endpoints of a fabric");
    hosting("switch", "be that host and the switch between them; SIGUSR1 prints the counters of its ports")
        ->add_option("--table", options.host.table,
                     "TOML file with routes and multicast groups; SIGHUP reads it again");
    CLI::App* serving = at(command("serve", "be an endpoint that the other commands can talk to"));
    serving->add_option("--window", options.bytes, "bytes of its window")
        ->capture_default_str()
        ->check(CLI::Range(std::uint64_t{4096}, std::uint64_t{1} << 31));
    serving->add_option("--seconds", options.seconds, "end after that time (default: at an interrupt)");
    CLI::App* linking = command("link", "make a master port of the kernel's rio_soft an endpoint of a udp fabric");
    linking->add_option("number", options.link.number, "of /dev/rio_soft_linkN")->required()->check(CLI::Range(0, 7));
    linking->add_option("--mport", options.link.mport, "number of its /dev/rio_mportN (default: the same)")
        ->check(CLI::Range(0, 255));
    CLI::App* measuring = to(command("perf", "measure to an endpoint that serves"));
    measuring->add_option("--from", options.from, "smallest size, in bytes");
    measuring->add_option("--up-to", options.bytes, "largest size, in bytes")->capture_default_str();
    measuring->add_option("--seconds", options.seconds, "for each figure (default: 0.2)");
    measuring->add_flag("--json", options.json, "one JSON object per line");
    measuring->add_option("--only", options.text, "figures whose name contains this");
}

}  // namespace

int fail(const std::string& line) {
    fmt::print(stderr, "softrio: {}\n", line);
    return exit_failed;
}

int run(std::vector<std::string> arguments) {
    CLI::App app{"The endpoints of a RapidIO fabric, by hand.", "softrio"};
    Options options;
    declare(app, options);
    std::ranges::reverse(arguments);  // as CLI11 wants them
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        fmt::print(stderr, "softrio: {}\n", error.what());
        return exit_bad_usage;
    }
    // Before there are threads.
    if (!options.fabric.empty()) setenv("RIO_FABRIC", options.fabric.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    if (!options.destid.empty()) setenv("RIO_DESTID", options.destid.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    const std::string command = app.get_subcommands().front()->get_name();
    options.host.is_switch = command == "switch";
    if (command == "enumerate" || command == "switch") return host(options.host);
    if (command == "link") return link(options.link);
    if (command == "serve") return serve({options.address, options.bytes, options.seconds});
    if (command == "perf")
        return perf({.target = options.target,
                     .from_bytes = options.from,
                     .up_to_bytes = options.bytes,
                     .seconds = options.seconds > 0 ? options.seconds : 0.2,
                     .json = options.json,
                     .only = options.text});
    auto port = api::MasterPort::open(0, 0);
    if (!port) return fail(port.error().message);
    if (command == "list") return list(*port, options);
    if (command == "ping") return ping(*port, options);
    if (command == "write") return write(*port, options);
    if (command == "read") return read(*port, options);
    if (command == "doorbell") return doorbell(*port, options);
    return message(*port, options);
}

}  // namespace incast::softrio::tools
