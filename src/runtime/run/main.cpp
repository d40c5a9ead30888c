// incast-node: runs an event builder (or raw traffic) from a config, or joins one as a node.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/units.h"
#include "base/utf8.h"
#include "runtime/config/config.h"
#include "runtime/flows/flows.h"
#include "runtime/launch/member.h"
#include "runtime/launch/member_group.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/machine/exit_status.h"
#include "runtime/machine/limits.h"
#include "runtime/machine/machine.h"
#include "runtime/record/record_file.h"
#include "runtime/results/info.h"
#include "runtime/run/run.h"
#include "transport/builtin/builtin.h"

namespace {

using incast::Error;
using incast::Ok;
using incast::Result;
namespace rt = incast::runtime;

struct Options {
    std::string config_file;
    std::vector<std::string> assignments;
    std::string output;
    bool force = false;
    std::string progress = "text";
    std::optional<std::uint32_t> spawn;
    std::string listen;
    std::string join;
    std::optional<std::uint32_t> node;
    bool by_rank = false;
    std::uint32_t count = 0;
    bool until_eof = false;
    int watched_by = 0;
    std::uint32_t nodes_here = 1;
    std::string token_file;
    std::string info;
    std::string fabric;
    std::string flows;
    std::string flows_name;
    std::string flows_fabric;
    std::uint64_t seed = 1;
    std::string until;
    bool no_alone = false;
    bool check = false;
    bool reference = false;
    bool schema = false;
    bool version = false;
};

void declare(CLI::App& app, Options& options) {
    app.add_option("config", options.config_file, "the run's configuration (TOML, docs/config.md)");
    app.add_option("--set", options.assignments, "section.key=value, wins over the file; may be repeated")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->take_all();
    app.add_option("--output", options.output, "folder for result.json, samples.jsonl, ledger.bin and log.txt")
        ->type_name("DIR");
    app.add_flag("--force", options.force, "remove the files of an old run from that folder");
    app.add_option("--progress", options.progress, "on standard output: text, json (one object per line) or none")
        ->check(CLI::IsMember({"text", "json", "none"}));
    app.add_flag("--check", options.check, "check the configuration, and run nothing");
    app.add_option("--spawn", options.spawn, "node processes to start here; the others are waited for (default: all)")
        ->type_name("N");
    app.add_option("--listen", options.listen, "address on which nodes join (default: a port of loopback)")
        ->type_name("HOST:PORT");
    app.add_option("--join", options.join, "be a node of the run at this address")->type_name("HOST:PORT");
    app.add_option("--node", options.node, "--join: be this node of the run")->type_name("N");
    app.add_option("--count", options.count, "--join: be so many nodes, a process each; --node is the first of them")
        ->type_name("N")
        ->check(CLI::Range(1, 4096));
    app.add_flag("--by-rank", options.by_rank,
                 "--join: be the node whose number is the rank that MPI's launcher gave this process")
        ->needs("--join")
        ->excludes("--node")
        ->excludes("--count");
    app.add_flag("--until-eof", options.until_eof, "--join with --count: end with standard input, too");
    app.add_option("--watched-by", options.watched_by,
                   "end when the process with this id ends; a run, early and in order")
        ->type_name("PID");
    app.add_option("--nodes-here", options.nodes_here, "--join: so many nodes of the run were started on this host")
        ->type_name("N");
    app.add_option("--token-file", options.token_file,
                   "file with the run's token, or - for standard input (default: the variable INCAST_TOKEN)")
        ->type_name("FILE");
    app.add_option("--info", options.info, "print transports, versions and machine")
        ->expected(0, 1)
        ->default_str("text")
        ->check(CLI::IsMember({"text", "json"}));
    app.add_option("--describe-fabric", options.fabric, "check a network (docs/fabrics.md), and print it as JSON")
        ->type_name("FILE");
    app.add_option("--flows", options.flows, "simulate the flows of this file, on --fabric (docs/flows.md)")
        ->type_name("FILE");
    app.add_option("--flows-name", options.flows_name, "--flows: what errors and the result call that file")
        ->type_name("NAME");
    app.add_option("--fabric", options.flows_fabric, "--flows: the network (docs/fabrics.md)")->type_name("FILE");
    app.add_option("--seed", options.seed, "--flows: of all that is random")->type_name("N");
    app.add_option("--until", options.until, "--flows: end at this virtual time (default: when all flows have ended)")
        ->type_name("TIME");
    app.add_flag("--no-alone", options.no_alone, "--flows: no slowdowns, which simulate each flow alone, too");
    app.add_flag("--print-config-reference", options.reference, "print docs/config.md");
    app.add_flag("--print-config-schema", options.schema, "print schema/config.schema.json");
    app.add_flag("--version", options.version, "print the version");
}

rt::Progress progress_of(const Options& options) {
    return options.progress == "json"   ? rt::Progress::json
           : options.progress == "text" ? rt::Progress::text
                                        : rt::Progress::none;
}

/// Not fmt::print, which throws where nobody reads.
int refuse(const std::string& text, int status = rt::exit_bad_config) {
    std::fputs(fmt::format("incast-node: {}\n", text).c_str(), stderr);
    return status;
}

int print(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return rt::exit_ok;
    return refuse("standard output: " + rt::reason_of(errno), rt::exit_failed);
}

Result<std::string> short_enough(const std::string& where, std::string token) {
    if (token.size() > rt::max_token) {
        return Error{fmt::format("{}: a token of {} bytes; allowed: up to {}", where, token.size(), rt::max_token)};
    }
    return token;
}

/// Of standard input, and nothing behind its end. False: it has none, or too long a one.
bool read_line(std::string& line) {
    char letter = 0;
    while (line.size() <= rt::max_token && read(STDIN_FILENO, &letter, 1) == 1) {
        if (letter == '\n') return !line.empty();
        line += letter;
    }
    return false;
}

Result<std::string> read_token(const Options& options) {
    if (options.token_file.empty()) {
        const char* const variable = std::getenv("INCAST_TOKEN");  // NOLINT(concurrency-mt-unsafe): the only thread
        return short_enough("INCAST_TOKEN", variable == nullptr ? "" : variable);
    }
    std::string token;
    const bool from_input = options.token_file == "-";
    if (std::ifstream file; from_input ? !read_line(token) : (file.open(options.token_file), !(file >> token))) {
        return Error{
            fmt::format("--token-file {}: no token can be read; allowed: a file with one word", options.token_file)};
    }
    return short_enough("--token-file " + options.token_file, std::move(token));
}

std::string default_output() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[32] = "";
    std::strftime(text, sizeof text, "results/%Y%m%d-%H%M%S", &local);
    // Whoever makes the folder has it: two runs of one second get two.
    std::error_code code;
    std::filesystem::create_directories("results", code);
    std::string candidate = text;
    for (int number = 2; !std::filesystem::create_directory(candidate, code) && !code; ++number) {
        candidate = fmt::format("{}-{}", text, number);
    }
    return candidate;
}

int run(const Options& options, const std::string& token) {
    rt::ConfigText config;
    if (!options.config_file.empty()) {
        if (Result<Ok> read = config.read_toml(options.config_file); !read) {
            return refuse(read.error().message);
        }
    }
    for (const std::string& assignment : options.assignments) {
        if (Result<Ok> done = config.assign(assignment); !done) {
            return refuse(done.error().message);
        }
    }
    rt::RunOptions run_options;
    run_options.check_only = options.check;
    run_options.output = options.output.empty() && !options.check ? default_output() : options.output;
    run_options.replace = options.force;
    run_options.watched_by = options.watched_by;
    run_options.progress = progress_of(options);
    run_options.spawn = options.spawn;
    run_options.listen = options.listen;
    run_options.token = token;
    return rt::run(config, run_options);
}

int run_flows(const Options& options) {
    if (options.flows_fabric.empty()) return refuse("--flows without --fabric; allowed: --flows FILE --fabric FILE");
    rt::FlowsOptions flows;
    flows.flows = options.flows;
    flows.name = options.flows_name.empty() ? options.flows : options.flows_name;
    flows.fabric = options.flows_fabric;
    flows.output = options.output.empty() ? default_output() : options.output;
    flows.replace = options.force;
    flows.progress = progress_of(options);
    flows.seed = options.seed;
    flows.alone = !options.no_alone;
    flows.watched_by = options.watched_by;
    if (!options.until.empty()) {
        const Result<incast::Time> until = incast::base::parse_duration(options.until);
        if (!until || *until == 0) return refuse("--until " + options.until + ": allowed: a time such as 50ms");
        flows.until = *until;
    }
    return rt::run_flows(flows);
}

}  // namespace

int main(int argc, char** argv) {
    rt::raise_file_limit();
    rt::say_so_at_the_end();
    for (const std::string_view word : std::vector<std::string_view>(argv + 1, argv + argc)) {
        // Paths and values end up in JSON and in what others read.
        if (!incast::base::is_utf8(word)) {
            return refuse(
                fmt::format("'{}' is not UTF-8; allowed: words and paths in UTF-8", incast::base::shown(word)));
        }
    }
    CLI::App app{"Builds events over any interconnect, real or simulated.", "incast-node"};
    Options options;
    declare(app, options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return error.get_exit_code() == 0 ? app.exit(error) : refuse(error.what());
    }
    if (options.version) {
        return print(fmt::format("incast-node {} ({})\n", rt::versions().incast, rt::versions().git));
    }
    if (options.reference || options.schema) {
        return print(options.reference ? rt::config_reference() : rt::config_schema());
    }
    if (app.count("--info") != 0) {
        return print(options.info == "json" ? rt::info_json() : rt::info_text());
    }
    if (!options.fabric.empty()) {
        const Result<std::string> described = rt::fabric_json(options.fabric);
        if (!described) {
            return refuse(described.error().message);
        }
        return print(*described);
    }
    if (!options.flows.empty()) return run_flows(options);
    Result<std::string> token = read_token(options);
    if (!token) {
        return refuse(token.error().message);
    }
    // Not for programs started from here, unless they are told on purpose.
    unsetenv("INCAST_TOKEN");  // NOLINT(concurrency-mt-unsafe): the only thread
    if (options.count > 0 && !options.join.empty()) {
        return rt::join_all({options.join, options.node, *token, options.output, 0, options.count}, options.count,
                            options.until_eof);
    }
    if (options.by_rank) {
        const std::optional<incast::transport::Rank> rank = incast::transport::launched_rank();
        if (!rank) {
            return refuse("--by-rank: no launcher of MPI started this process; allowed: mpirun ... incast-node --join");
        }
        options.node = rank->number;
    }
    if (!options.join.empty()) {
        return rt::join({options.join, options.node, *token, options.output, options.watched_by, options.nodes_here});
    }
    return run(options, *token);
}
