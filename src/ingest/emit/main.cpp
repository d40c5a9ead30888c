// incast-emit: boards that send datagrams or streams to readout units (docs/dataflow.md), and say on standard output
// what they sent.
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/units.h"
#include "datagram/address.h"
#include "ingest/emit/emit.h"
#include "ingest/emit/replay.h"

namespace {

namespace ingest = incast::ingest;
using incast::Error;
using incast::Result;

const std::map<std::string, ingest::Carrier> carriers{{"udp", ingest::Carrier::udp}, {"tcp", ingest::Carrier::tcp}};
constexpr std::size_t most_stream_packet_bytes = std::size_t{16} << 20U;

volatile std::sig_atomic_t stop = 0;

void on_signal(int) {
    stop = 1;
}

struct Words {
    std::vector<std::string> to;
    std::string format = "mfp";
    std::string carrier = "udp";
    std::string rate = "0";
    std::string fragment_size = "100";
    std::string loss = "0";
    std::string duplicate = "0";
    std::string reorder = "0";
    std::vector<std::string> restart;
    std::vector<std::string> silent;
    std::vector<std::string> repack;
};

/// A capture in place of boards: then no option that describes boards has a meaning.
void declare_capture(CLI::App& app, ingest::ReplaySettings& settings) {
    CLI::Option* const file =
        app.add_option("--pcap", settings.file, "sends the UDP datagrams of this capture again")->type_name("FILE");
    for (CLI::Option* const option : app.get_options()) {
        if (option != file && option->check_lname("to") == false && option->check_lname("help") == false) {
            file->excludes(option);
        }
    }
    app.add_option("--pace", settings.pace, "times as fast as captured; 0: as fast as can be")
        ->type_name("FACTOR")
        ->check(CLI::NonNegativeNumber)
        ->needs(file);
    app.add_option("--captured-port", settings.ports, "only what was sent to these ports")
        ->type_name("PORT")
        ->delimiter(',')
        ->check(CLI::Range(1, 65535))
        ->needs(file);
}

void declare(CLI::App& app, ingest::EmitSettings& settings, Words& words) {
    app.add_option("--to", words.to, "addresses of readout units, with commas in between; boards are shared out evenly")
        ->type_name("IP:PORT")
        ->delimiter(',')
        ->required();
    app.add_option("--boards", settings.n_boards, "boards, one source each")
        ->type_name("N")
        ->check(CLI::Range(1, 65535));
    app.add_option("--first-id", settings.first_id, "source id of the first; the others' follow")->type_name("N");
    CLI::Option* const transport =
        app.add_option("--transport", words.carrier, "udp: datagrams; tcp: MFPs back to back over connections")
            ->type_name("udp|tcp")
            ->check(CLI::IsMember({"udp", "tcp"}));
    app.add_option("--boards-per-connection", settings.boards_per_connection, "tcp: boards that share a connection")
        ->type_name("N")
        ->check(CLI::Range(1, 65535))
        ->needs(transport);
    app.add_option("--first-event", settings.boards.first_event, "id of the first event")->type_name("N");
    app.add_option("--events", settings.boards.events, "that each board makes; 0: until it is stopped")->type_name("N");
    app.add_option("--packing", settings.boards.packet_events, "events in a packet")
        ->type_name("N")
        ->check(CLI::Range(1, 65535));
    app.add_option("--format", words.format, "of packets: Run-3 MFPs, or LHCb's older multi-event fragments")
        ->check(CLI::IsMember({"mfp", "mef"}));
    app.add_option("--fragment-size", words.fragment_size, "mean bytes of a fragment")->type_name("SIZE");
    app.add_option("--spread", settings.boards.spread, "sizes are even between 1 - SPREAD and 1 + SPREAD times that")
        ->type_name("SPREAD")
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--rate", words.rate, "events per second of each board; 0: as fast as can be")->type_name("HZ");
    app.add_option("--loss", words.loss, "share of packets that is never sent: 0.001 or 0.1%")->type_name("SHARE");
    app.add_option("--duplicate", words.duplicate, "share of packets that is sent twice")->type_name("SHARE");
    app.add_option("--reorder", words.reorder, "share of packets that is sent behind the next few")->type_name("SHARE");
    app.add_option("--restart", words.restart, "this source counts from 0 again after so many events")
        ->type_name("SOURCE@EVENTS");
    app.add_option("--silent", words.silent, "this source sends nothing any more after so many events")
        ->type_name("SOURCE@EVENTS");
    app.add_option("--repack", words.repack, "this source packs N events after so many")->type_name("SOURCE@EVENTS:N");
    app.add_option("--seed", settings.boards.seed, "of all that is random")->type_name("N");
    app.add_option("--record", settings.record, "file for a line per packet: source, first event, events, fate")
        ->type_name("FILE");
}

std::optional<std::uint32_t> per_million(std::string_view text) {
    const bool percent = text.ends_with('%');
    if (percent) text.remove_suffix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    value *= percent ? 0.01 : 1;
    if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 1)) return std::nullopt;
    return static_cast<std::uint32_t>(std::lround(value * 1e6));
}

template <class Number>
bool take_number(std::string_view& text, Number& into) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
}

bool take_sign(std::string_view& text, char sign) {
    if (!text.starts_with(sign)) return false;
    text.remove_prefix(1);
    return true;
}

/// "5@1000", "5@1000:4"
std::optional<ingest::Turn> turn_of(std::string_view text, bool has_events) {
    ingest::Turn turn;
    if (!take_number(text, turn.source) || !take_sign(text, '@') || !take_number(text, turn.at)) return std::nullopt;
    if (has_events && (!take_sign(text, ':') || !take_number(text, turn.events) || turn.events == 0)) {
        return std::nullopt;
    }
    return text.empty() ? std::optional(turn) : std::nullopt;
}

std::optional<incast::datagram::Address> address_of(const std::string& text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0) return std::nullopt;
    std::string ip = text.substr(0, colon);
    if (ip.size() > 2 && ip.front() == '[' && ip.back() == ']') ip = ip.substr(1, ip.size() - 2);
    std::optional<incast::datagram::Address> address = incast::datagram::parse_ip(ip);
    std::string_view port = std::string_view(text).substr(colon + 1);
    if (!address || !take_number(port, address->port) || !port.empty() || address->port == 0) return std::nullopt;
    return address;
}

Error wrong(std::string_view option, const std::string& value, std::string_view allowed) {
    return {fmt::format("{} {}: not understood; allowed: {}", option, value, allowed)};
}

/// What is written as words.
Result<incast::Ok> read(const Words& words, ingest::EmitSettings& settings) {
    ingest::BoardSettings& boards = settings.boards;
    for (const std::string& word : words.to) {
        const auto address = address_of(word);
        if (!address) return wrong("--to", word, "IP:PORT, as 127.0.0.1:4000 or [::1]:4000");
        settings.to.push_back(*address);
    }
    boards.format = words.format == "mef" ? ingest::Format::mef : ingest::Format::mfp;
    settings.carrier = carriers.at(words.carrier);
    if (settings.carrier == ingest::Carrier::tcp) {
        if (boards.format == ingest::Format::mef) {
            return Error{"--format mef: over TCP MFPs go back to back; allowed: mfp"};
        }
        boards.most_bytes = most_stream_packet_bytes;
    }
    const auto rate = incast::base::parse_frequency_hz(words.rate);
    if (!rate) return rate.error();
    settings.rate_hz = *rate;
    const auto bytes = incast::base::parse_bytes(words.fragment_size);
    if (!bytes) return bytes.error();
    if (*bytes > ingest::most_packet_bytes) {
        return wrong("--fragment-size", words.fragment_size, "what fits into a datagram");
    }
    boards.fragment_bytes = static_cast<std::uint32_t>(*bytes);
    const struct {
        std::string_view option;
        const std::string& word;
        std::uint32_t& into;
    } shares[]{{"--loss", words.loss, boards.lost_per_million},
               {"--duplicate", words.duplicate, boards.twice_per_million},
               {"--reorder", words.reorder, boards.late_per_million}};
    for (const auto& [option, word, into] : shares) {
        const auto share = per_million(word);
        if (!share) return wrong(option, word, "0 to 1, or 0% to 100%");
        into = *share;
    }
    const struct {
        std::string_view option;
        const std::vector<std::string>& words;
        std::vector<ingest::Turn>& into;
        bool has_events;
    } turns[]{{"--restart", words.restart, boards.restarts, false},
              {"--silent", words.silent, boards.silences, false},
              {"--repack", words.repack, boards.sizes, true}};
    for (const auto& [option, given, into, has_events] : turns) {
        for (const std::string& word : given) {
            const auto turn = turn_of(word, has_events);
            if (!turn) return wrong(option, word, has_events ? "SOURCE@EVENTS:N" : "SOURCE@EVENTS");
            into.push_back(*turn);
        }
    }
    if (settings.first_id + settings.n_boards > 65536) {
        return Error{
            fmt::format("--first-id {}: {} boards; allowed: ids up to 65535", settings.first_id, settings.n_boards)};
    }
    return incast::Ok{};
}

Result<ingest::Replayed> sent_by_boards(const ingest::EmitSettings& settings) {
    Result<ingest::Emitted> sent = ingest::emit(settings, stop);
    if (!sent) return sent.error();
    return ingest::Replayed{std::move(sent->json), std::move(sent->error)};
}

int refuse(const std::string& why, int status) {
    std::fputs(fmt::format("incast-emit: {}\n", why).c_str(), stderr);
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Boards that send to readout units, or a capture of such (docs/dataflow.md)", "incast emit");
    ingest::EmitSettings settings;
    Words words;
    ingest::ReplaySettings capture;
    declare(app, settings, words);
    declare_capture(app, capture);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& asked) {
        return app.exit(asked);
    } catch (const CLI::Error& error) {
        return refuse(error.what(), 2);
    }
    if (const Result<incast::Ok> done = read(words, settings); !done) return refuse(done.error().message, 2);
    struct sigaction action{};
    action.sa_handler = &on_signal;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    capture.to = settings.to;
    const Result<ingest::Replayed> sent =
        capture.file.empty() ? sent_by_boards(settings) : ingest::replay(capture, stop);
    if (!sent) return refuse(sent.error().message, 1);
    if (std::puts(sent->json.c_str()) < 0 || std::fflush(stdout) != 0) {
        return refuse("standard output cannot be written", 1);
    }
    return sent->error.empty() ? 0 : refuse(sent->error, 1);
}
