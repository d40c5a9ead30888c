// The program `incast-farm`: what `incast dispatch` and `incast consume` call (docs/farm.md).
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/units.h"
#include "consumer/layout.h"
#include "farm/dispatcher.h"
#include "farm/farm_node.h"
#include "os/signals.h"

namespace incast::farm {

namespace {

constexpr int bad_settings = 2;

struct Words {
    std::string timeout = "60s", silence = "5s", patience = "0s", secret_file;
};

/// Adds what both sides have.
void declare(CLI::App& app, Words& words, WireSettings& wires) {
    app.add_option("--timeout", words.timeout, "how long to wait for the other side (default: 60s)");
    app.add_option("--silence", words.silence, "one that says nothing for so long is given up (default: 5s)");
    app.add_option("--patience", words.patience,
                   "one that has events and finishes none for so long loses them (default: 0s, never)");
    app.add_option("--secret", words.secret_file, "a file with a hexadecimal number, the same on both sides");
    app.add_option("--bind", wires.bind, "tcp, udp, verbs: the address that data goes by");
    app.add_option("--fabric", wires.fabric, "rio: as RIO_FABRIC, which is the default");
    app.add_option("--set", wires.settings, "of the transport: NAME=VALUE,NAME=VALUE");
}

Result<Time> time_of(const char* option, const std::string& text) {
    const auto parsed = base::parse_duration(text);
    if (!parsed || *parsed < 0) {
        return Error{fmt::format("{} {}: allowed: a time, as 500ms or 5s", option, text)};
    }
    return *parsed;
}

Result<Ok> read_secret(const std::string& file, std::uint64_t& secret) {
    if (file.empty()) {
        return Ok{};
    }
    std::ifstream in(file);
    if (!(in >> std::hex >> secret) || secret == 0) {
        return Error{"--secret " + file + ": allowed: a file with a number of 1 to 16 hexadecimal digits, not 0"};
    }
    return Ok{};
}

/// Of the two sides alike.
template <typename Options>
Result<Ok> settle(const Words& words, Options& options, Time& silence_of, Time& patience_of) {
    const auto timeout = time_of("--timeout", words.timeout);
    const auto silence = time_of("--silence", words.silence);
    const auto patience = time_of("--patience", words.patience);
    for (const auto* each : {&timeout, &silence, &patience}) {
        if (!*each) return each->error();
    }
    if (*silence < 2 * ps_per_s) {
        return Error{
            fmt::format("--silence {}: allowed: 2s or more, as each side speaks once a second", words.silence)};
    }
    options.timeout = *timeout;
    silence_of = *silence;
    patience_of = *patience;
    if (!consumer::is_name(options.name)) {
        return Error{
            fmt::format("'{}' is no name of consumers; allowed: letters, digits, '.', '_' and '-'", options.name)};
    }
    return read_secret(words.secret_file, options.wires.secret);
}

Result<Ok> dispatch(const Words& words, DispatcherOptions& options) {
    if (const auto settled = settle(words, options, options.limits.silence, options.limits.patience); !settled) {
        return settled.error();
    }
    auto wires = Wires::make(options.address, options.wires);
    if (!wires) {
        return wires.error();
    }
    const auto where = wires->listen(options.address);
    if (!where) {
        return where.error();
    }
    fmt::print("listening at {}\n", *where);
    std::fflush(stdout);
    Dispatcher dispatcher(options, std::move(*wires));
    const auto ran = dispatcher.run();
    fmt::print("{}\n", dispatcher.summary());
    return ran;
}

Result<Ok> consume(const Words& words, FarmNodeOptions& options) {
    if (const auto settled = settle(words, options, options.silence, options.patience); !settled) {
        return settled.error();
    }
    constexpr std::size_t most_slots = 65535;
    if (options.addresses.size() * options.window > most_slots) {
        return Error{fmt::format("--window {} for {} dispatchers; allowed: {} slots", options.window,
                                 options.addresses.size(), most_slots)};
    }
    auto wires = Wires::make(options.addresses.front(), options.wires);
    if (!wires) {
        return wires.error();
    }
    FarmNode node(options, std::move(*wires));
    const auto ran = node.run();
    fmt::print("{}\n", node.summary());
    return ran;
}

int run(int count, char** arguments) {
    CLI::App app("Built events for a farm over the network (docs/farm.md).", "incast");
    app.require_subcommand(1);
    Words words;
    DispatcherOptions dispatcher;
    FarmNodeOptions node;
    CLI::App* const gives =
        app.add_subcommand("dispatch", "hand the events of this host's builder units to farm nodes");
    gives->add_option("name", dispatcher.name, "of the builder units' consumers: sink.name")->required();
    gives->add_option("address", dispatcher.address, "to listen at, as tcp://10.0.0.1:7000 (docs/channel.md)")
        ->required();
    gives->add_option("--most", dispatcher.wires.most_peers, "farm nodes at a time (default: 255, the most over rio)")
        ->check(CLI::Range(1U, 4095U));
    declare(*gives, words, dispatcher.wires);
    CLI::App* const takes =
        app.add_subcommand("consume", "be a farm node: take events from dispatchers for processes here");
    takes->add_option("address", node.addresses, "of dispatchers, all of one transport")->required();
    takes->add_option("--name", node.name, "that processes of this host attach to (default: farm)");
    takes->add_option("--node", node.node, "number of the farm node for these (default: the lowest that is free)")
        ->check(CLI::Range(0, 65535));
    takes->add_option("--window", node.window, "MEPs that it has of each dispatcher (default: 8)")
        ->check(CLI::Range(1U, 64U));
    takes->add_option("--process-window", node.process_window, "MEPs that a process has (default: 4)")
        ->check(CLI::Range(1U, consumer::max_window));
    auto* const drop = takes->add_flag("--drop", node.drop, "take events and drop them: for measurements");
    auto* const files =
        takes->add_option("--files", node.files, "write events to this folder, as MEP files")->excludes(drop);
    takes
        ->add_flag("--once", node.once,
                   "with --files: a file for each MEP, which one of all farm nodes that share the folder writes")
        ->needs(files);
    takes->add_option("--command", node.command, "write events to the standard input of this command, as MEPs")
        ->excludes(drop)
        ->excludes(files);
    declare(*takes, words, node.wires);
    try {
        app.parse(count, arguments);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : bad_settings;
    }
    const bool is_dispatcher = app.got_subcommand(gives);
    os::count_interrupts();
    ::signal(SIGPIPE, SIG_IGN);  // NOLINT(concurrency-mt-unsafe)
    const auto ran = is_dispatcher ? dispatch(words, dispatcher) : consume(words, node);
    if (!ran) {
        fmt::print(stderr, "incast {}: {}\n", is_dispatcher ? "dispatch" : "consume", ran.error().message);
        return 1;
    }
    return 0;
}

}  // namespace

}  // namespace incast::farm

int main(int count, char** arguments) {
    return incast::farm::run(count, arguments);
}
