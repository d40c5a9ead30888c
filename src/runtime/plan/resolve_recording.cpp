// Where the data decide: what was recorded, and what boards send.
#include <algorithm>

#include <fmt/format.h>

#include "datagram/address.h"
#include "runtime/plan/resolve_parts.h"
#include "runtime/sources/replay_files.h"
#include "source/layout.h"
#include "wire/mfp.h"

namespace incast::runtime {
namespace {

/// Reads what is replayed, unless it was handed over.
Result<Ok> open_recording(Plan& plan) {
    const RunConfig& config = plan.config;
    if (config.source_path.empty()) {
        return not_allowed("source.path", "\"\"", "nothing to replay",
                           "a folder with source-<id>.mfp files, or a file of MEPs");
    }
    if (plan.recorded) return Ok{};
    const Result<sources::Recording> recording = sources::Recording::open(config.source_path);
    if (!recording) {
        return not_allowed("source.path", config.source_path, recording.error().message,
                           "a folder with source-<id>.mfp files, or a file of MEPs");
    }
    plan.recorded.emplace(recording->numbering());
    for (const sources::RecordedSource& source : recording->sources) {
        plan.recorded->sources.push_back({source.id, source.largest_bytes});
        plan.inputs.files.push_back(source.input);
    }
    return Ok{};
}

}  // namespace

Result<Ok> fit_nodes(Plan& plan, const ConfigText& text) {
    RunConfig& config = plan.config;
    if (config.source_kind != SourceKind::mfp) return Ok{};
    if (Result<Ok> opened = open_recording(plan); !opened || !plan.recorded) return opened;
    const bool split = config.roles == Roles::split;
    const std::uint64_t most = plan.recorded->sources.size() * (split ? 2 : 1);
    const bool asked = text.given().contains("run.nodes") || config.rus != 0 || config.bus != 0;
    if (!asked && most < config.nodes) {
        config.nodes = most;
        plan.chosen.push_back({"nodes", fmt::format("there are {} sources", plan.recorded->sources.size())});
    }
    return Ok{};
}

Result<Ok> take_recording(Plan& plan) {
    const RunConfig& config = plan.config;
    if (!plan.recorded) return Ok{};  // it was read with the number of nodes
    const auto [packing, first_event, total_events] = plan.recorded->numbering;
    const std::size_t n = plan.recorded->sources.size();
    if (n < plan.n_rus) {
        return not_allowed(config.roles == Roles::split ? "run.readout_units" : "run.nodes", std::to_string(plan.n_rus),
                           fmt::format("'{}' holds {} source{}, and every readout unit needs one", config.source_path,
                                       n, n == 1 ? "" : "s"),
                           fmt::format("1..{}", n));
    }
    constexpr std::uint64_t most_events = 9'000'000'000'000'000;  // as run.events
    if (config.repeat > most_events / total_events) {
        return not_allowed("source.repeat", std::to_string(config.repeat),
                           fmt::format("the files hold {} events", total_events),
                           fmt::format("0..{}", most_events / total_events));
    }
    if (config.packing != 0 && config.packing != packing) {
        return not_allowed("protocol.packing", std::to_string(config.packing), "the files have their own",
                           fmt::format("auto, or {}", packing));
    }
    plan.packing = packing;
    plan.config.packing = packing;
    for (std::size_t index = 0; index < n; ++index) {
        const Recorded::Source& source = plan.recorded->sources[index];
        const auto ru = static_cast<std::uint32_t>(index * plan.n_rus / n);
        plan.protocol.sources.push_back({source.id, Peer{ru}, source.largest_bytes});
        plan.mfp_bytes = std::max<std::uint64_t>(plan.mfp_bytes, source.largest_bytes);
    }
    plan.cap_bytes = plan.mfp_bytes;
    const std::uint64_t meps = (total_events + packing - 1) / packing;
    plan.inputs.first_event = first_event;
    plan.inputs.events = total_events;
    plan.mep_events = {packing, meps, static_cast<std::uint32_t>(total_events - (meps - 1) * packing)};
    return Ok{};
}

namespace {

/// Where they come to.
Result<Ok> check_address(const Plan& plan) {
    const RunConfig& config = plan.config;
    if (config.source_kind == SourceKind::program) {
        if (source::is_name(config.source_name)) return Ok{};
        return not_allowed("source.name", config.source_name, "programs attach to it",
                           fmt::format("1..{} letters, digits, '.', '_' and '-'", source::max_name_bytes));
    }
    const std::optional<datagram::Address> at = datagram::parse_ip(config.board_address);
    if (!at) {
        return not_allowed("source.address", config.board_address, "not an IP address", "such as 127.0.0.1 or ::1");
    }
    if (config.board_port != 0 && config.board_port + plan.n_rus - 1 > 65535) {
        return not_allowed("source.port", std::to_string(config.board_port),
                           fmt::format("each of {} readout units has one", plan.n_rus),
                           fmt::format("0..{}", 65536 - plan.n_rus));
    }
    return Ok{};
}

}  // namespace

Result<Ok> size_boards(Plan& plan) {
    const RunConfig& config = plan.config;
    const bool boards = config.source_kind != SourceKind::program;
    const std::string who = boards ? "boards" : "programs";
    const std::string kind = config.source_kind == SourceKind::udp ? "udp" : boards ? "tcp" : "program";
    if (config.traits().simulated) {
        return not_allowed("source.kind", kind, who + " are real, and this network is simulated",
                           "generator, mfp, or another transport");
    }
    if (config.sink_kind == SinkKind::verify) {
        return not_allowed("sink.kind", "verify", fmt::format("nobody knows what {} send", who), "another sink");
    }
    if (config.trigger_rate != 0 || config.policy != sources::Policy::block) {
        return not_allowed("source.trigger_rate, source.policy", "given", who + " send when they do",
                           "neither of both");
    }
    if (Result<Ok> checked = check_address(plan); !checked) return checked;
    if (config.source_kind == SourceKind::tcp && config.board_format != ingest::Format::mfp) {
        return not_allowed("source.format", "mef", "over TCP MFPs come back to back", "mfp, or source.kind = udp");
    }
    if (config.packing == 0) {
        return not_allowed("protocol.packing", "auto",
                           fmt::format("how many events are in a packet is the {}' matter", who),
                           fmt::format("a multiple of what the {} pack", who));
    }
    const std::uint64_t n_sources = plan.n_rus * config.sources_per_ru;
    if (config.first_id + n_sources > 65535) {
        return not_allowed("source.first_id", std::to_string(config.first_id),
                           fmt::format("there are {} sources", n_sources), "ids up to 65534");
    }
    plan.packing = static_cast<std::uint32_t>(config.packing);
    const std::uint64_t least = wire::phantom_bytes(plan.packing) + plan.packing;
    if (config.largest_mfp < least) {
        return not_allowed("source.largest_mfp", bytes_text(config.largest_mfp),
                           fmt::format("{} events need more", plan.packing), fmt::format("at least {} B", least));
    }
    plan.mfp_bytes = plan.cap_bytes = config.largest_mfp;
    plan.source_caps.assign(std::min<std::uint64_t>(n_sources, 65535), plan.cap_bytes);
    return Ok{};
}

}  // namespace incast::runtime
