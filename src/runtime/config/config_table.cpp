#include "runtime/config/config_table.h"

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <fmt/format.h>

namespace incast::runtime {
namespace {

using base::Kind;
using Words = std::span<const std::string_view>;
constexpr double ps_s = static_cast<double>(ps_per_s);
constexpr double ps_ms = static_cast<double>(ps_per_ms);
constexpr double kib = 1024;
constexpr double gib = kib * kib * kib;

constexpr std::array<std::string_view, 2> task_words{"build", "net"};
constexpr std::array<std::string_view, 2> roles_words{"folded", "split"};
constexpr std::array<std::string_view, 2> em_words{"shared", "own"};
constexpr std::array<std::string_view, 3> pin_words{"auto", "network", "never"};
constexpr std::array<std::string_view, 2> loss_words{"continue", "stop"};
constexpr std::array<std::string_view, 5> scheme_words{"push", "pull", "push-pull", "pull-pull", "pull-read"};
constexpr std::array scheme_aliases{base::Alias{"pull-write", "pull"}};
constexpr std::array<std::string_view, 2> stage_words{"rest", "all"};
constexpr std::array<std::string_view, 3> filter_words{"random", "plugin", "command"};
constexpr std::array filter_aliases{base::Alias{"share", "random"}};
constexpr std::array<std::string_view, 3> assignment_words{"em", "static", "source-credits"};
constexpr std::array<std::string_view, 3> overrun_words{"skip", "slip", "overlap"};
constexpr std::array<std::string_view, 2> self_words{"copy", "pointer"};
constexpr std::array<std::string_view, 3> checksum_words{"off", "sampled", "full"};
constexpr std::array<std::string_view, 5> source_words{"generator", "mfp", "udp", "program", "tcp"};
constexpr std::array<std::string_view, 2> board_words{"mfp", "mef"};
constexpr std::array<std::string_view, 5> distribution_words{"fixed", "normal", "lognormal", "exponential",
                                                             "histogram"};
constexpr std::array<std::string_view, 4> arrival_words{"fixed", "poisson", "bunch-train", "trace"};
constexpr std::array<std::string_view, 3> policy_words{"block", "throttle", "drop"};
constexpr std::array<std::string_view, 2> fill_words{"prefilled", "generated"};
constexpr auto sink_words = [] {
    std::array<std::string_view, sinks::kinds.size()> words;
    std::ranges::transform(sinks::kinds, words.begin(), &sinks::KindTraits::word);
    return words;
}();
constexpr std::array<std::string_view, 3> fsync_words{"commit", "interval", "never"};
constexpr std::array<std::string_view, 2> failure_words{"stop", "continue"};
constexpr std::array<std::string_view, 2> missing_words{"incast", "lhcb"};
constexpr std::array<std::string_view, 2> full_words{"stop", "wait"};
constexpr std::array<std::string_view, 2> delivery_words{"one", "all"};
constexpr std::array<std::string_view, 2> consumer_policy_words{"block", "drop"};
constexpr std::array<std::string_view, 2> farm_network_words{"shared", "own"};
constexpr std::array<std::string_view, 3> verify_words{"full", "sampled", "header"};
constexpr std::array<std::string_view, 6> pattern_words{"one-to-one", "many-to-one", "one-to-many",
                                                        "pairs",      "all-to-all",  "bipartite"};
constexpr std::array<std::string_view, 3> measure_words{"bandwidth", "latency", "loaded"};
constexpr std::array<std::string_view, 2> operation_words{"write", "read"};
constexpr std::array<std::string_view, 2> buffers_words{"cycled", "one"};

/// The words of a choice stand in the order of its enum.
template <auto member>
void choose(RunConfig& config, std::size_t index) {
    using Enum = std::remove_reference_t<decltype(config.*member)>;
    config.*member = static_cast<Enum>(index);
}

constexpr KeySpec number(Kind kind, std::string_view key, Field field, std::string_view value, double min, double max,
                         std::string_view help) {
    return {base::number(kind, key, value, min, max, help), field};
}

template <auto member>
constexpr KeySpec choice(std::string_view key, std::string_view value, Words words, std::string_view help,
                         std::span<const base::Alias> aliases = {}) {
    return {base::choice(key, value, words, help, aliases), Field{&choose<member>}};
}

constexpr KeySpec text(std::string_view key, Field field, std::string_view value, std::string_view help,
                       std::string_view form = "text") {
    return {base::text(key, value, help, form), field};
}

constexpr KeySpec flag(std::string_view key, Field field, std::string_view help) {
    return {base::flag(key, help), field};
}

constexpr std::array table{
    choice<&RunConfig::task>("run.task", "build", task_words,
                             "build events; or move messages without event building, as [net] says (incast net)"),
    number(Kind::count, "run.nodes", &RunConfig::nodes, "4", 1, 4096,
           "nodes that read out or build; em = \"own\" adds one more"),
    choice<&RunConfig::roles>("run.roles", "folded", roles_words,
                              "every node reads out and builds, or each does one of the two"),
    number(Kind::count, "run.readout_units", &RunConfig::rus, "auto", 1, 4095, "split roles; auto: half of the nodes"),
    number(Kind::count, "run.builder_units", &RunConfig::bus, "auto", 1, 4095, "split roles; auto: the other nodes"),
    choice<&RunConfig::em>("run.em", "shared", em_words,
                           "the event manager lives on node 0, or on a node of its own behind the others"),
    number(Kind::duration, "run.duration", &RunConfig::duration, "auto", ps_ms, 2000 * 3600.0 * ps_s,
           "measured time; auto: 10s, but no limit if the number of events or the source ends the run"),
    number(Kind::count, "run.events", &RunConfig::events, "0", 0, 9e15,
           "events to build; the run is then measured from the first to the last; 0: no limit"),
    number(Kind::duration, "run.warm_up", &RunConfig::warm_up, "1s", 0, 36e2 * ps_s,
           "time after all nodes joined that is not measured; a run with an end of its own is measured whole"),
    number(Kind::count, "run.seed", &RunConfig::seed, "1", 0, 9e15,
           "of everything random: sizes, content, arrivals, schedules, simulation"),
    number(Kind::duration, "run.sample_interval", &RunConfig::sample_interval, "auto", 10 * ps_ms, 36e2 * ps_s,
           "between samples; auto: 500ms, 2s for runs longer than two minutes"),
    text("run.metrics", &RunConfig::metrics, "off",
         "off, or HOST:PORT: every node serves /metrics to Prometheus there, node n on PORT + n; port 0: any "
         "(docs/metrics.md)"),
    text("run.network", &RunConfig::network, "",
         "the data's network: each host's interface (ib0) or a subnet (10.1.0.0/16), at whose address nodes listen; "
         "empty: the one by which a node reached the coordinator"),
    text("run.ports", &RunConfig::ports, "any",
         "ports at which nodes listen for each other, as 40000-40999, where a firewall lets only these through; any: "
         "the kernel chooses"),
    choice<&RunConfig::on_loss>("run.on_loss", "continue", loss_words,
                                "what to do when a node is lost: go on without it, or end the run"),
    number(Kind::count, "run.least_readout_units", &RunConfig::least_rus, "1", 1, 65536,
           "the run ends when a loss leaves fewer readout units"),
    number(Kind::count, "run.least_builder_units", &RunConfig::least_bus, "1", 1, 65536,
           "the run ends when a loss leaves fewer builder units"),
    number(Kind::real, "run.fail_above_incomplete", &RunConfig::fail_above_incomplete, "0.01", 0, 1,
           "share of the events; a run with more of them incomplete or left out fails (docs/formats.md); 1: never"),
    flag("run.respawn", &RunConfig::respawn, "start a node again that was started here and died"),
    number(Kind::count, "run.yields", &RunConfig::yields, "100", 0, 1e6,
           "how often a node without work lets others run before it sleeps; 0: it sleeps at once"),
    choice<&RunConfig::pin>(
        "run.pin", "auto", pin_words,
        "on a host with several memory nodes each node and its memory are beside its network interface, if the cores "
        "there are enough; nodes started here stay on one core each while no other program wants the cores, if as many "
        "go on each. network: beside the interface even if its cores are fewer than the nodes; never: the kernel "
        "places them"),
    number(Kind::duration, "run.join_deadline", &RunConfig::join_deadline, "60s", 100 * ps_ms, 864e2 * ps_s,
           "time for all nodes to join before the run is given up"),
    number(Kind::duration, "run.drain_deadline", &RunConfig::drain_deadline, "30s", 100 * ps_ms, 36e2 * ps_s,
           "time for all admitted events to be built once admission has stopped"),

    choice<&RunConfig::scheme>("protocol.scheme", "push", scheme_words,
                               "readout units write as told by the event manager (push), or as asked by builder units "
                               "(pull); push-pull, pull-pull: the first stage so, the rest pulled if the filter says "
                               "so; pull-read: builder units read",
                               scheme_aliases),
    flag("protocol.views", &RunConfig::views,
         "pull-read: events stay in the memory of readout units, where the transport can show it, and are not read"),
    number(Kind::real, "protocol.first_stage", &RunConfig::first_stage, "0.5", 0, 1,
           "push-pull, pull-pull: share of the readout units, at least one, in the first stage"),
    choice<&RunConfig::second_stage>("protocol.second_stage", "rest", stage_words,
                                     "pull-pull: what is pulled of an accepted MEP: what is not there yet, or all"),
    number(Kind::duration, "protocol.decision_deadline", &RunConfig::decision_deadline, "1s", ps_ms, 600 * ps_s,
           "a MEP whose filter has not decided by then is accepted"),
    choice<&RunConfig::schedule>("protocol.schedule", "linear-shift", protocol::schedule_words,
                                 "the order in which destinations (push) or sources (pull) are served"),
    choice<&RunConfig::assignment>("protocol.assignment", "em", assignment_words,
                                   "who builds a MEP: a builder unit with credit, in turn (em), or the one at its id "
                                   "modulo their number, when it has credit (static), or before, and readout units "
                                   "keep the credits and pass over who has none (source-credits)"),
    choice<&RunConfig::layout>("protocol.layout", "contiguous", protocol::layout_words,
                               "what a builder unit exposes as one buffer: all its slots, each slot (per-mep), each "
                               "source's place in each slot (segmented), or its places in all slots (per-source)"),
    number(Kind::bytes, "protocol.max_buffer_size", &RunConfig::max_buffer_bytes, "0", 0, 1024 * 1024 * gib,
           "largest buffer that the fabric allows (old RapidIO libraries: 2 MiB); 0: no limit"),
    number(Kind::count, "protocol.max_buffers", &RunConfig::max_buffers, "0", 0, 65535,
           "buffers that the fabric allows a builder unit (old RapidIO libraries: 8); 0: no limit"),
    number(Kind::duration, "protocol.inter_send_gap", &RunConfig::inter_send_gap, "0s", 0, ps_s,
           "at least, between the beginnings of two contributions of a readout unit"),
    number(Kind::duration, "protocol.barrier_deadline", &RunConfig::barrier_deadline, "100ms", ps_ms / 10, 60 * ps_s,
           "barrel-barrier, lockstep: after it a phase ends without the readout units that are not done"),
    number(Kind::duration, "protocol.slot_time", &RunConfig::slot_time, "1ms", ps_ms / 1000, ps_s,
           "barrel-time-slot: length of a slot, in which a readout unit sends one contribution"),
    choice<&RunConfig::overrun>("protocol.overrun", "skip", overrun_words,
                                "barrel-time-slot: a slot that begins before the last contribution is known to be "
                                "placed is left out, or the order goes on behind the clock, or it is used"),
    choice<&RunConfig::self_traffic>("protocol.self_traffic", "copy", self_words,
                                     "fragments of a node for itself: copied into the slot, or left where they are"),
    choice<&RunConfig::checksum>("protocol.checksum", "off", checksum_words,
                                 "of which MFPs readout units make CRC-32C checksums and builder units look at them: "
                                 "none, those of every 16th MEP, or all; what is damaged is flagged bad-checksum"),
    number(Kind::count, "protocol.credits", &RunConfig::credits, "auto", 1, 16384,
           "MEPs a builder unit may have in flight; auto: as many as keep all slots within half of the last-level "
           "cache (counted as 8 MiB per core at most; simulated nodes: 16 MiB), on shm within twice of it where the "
           "sink reads no bodies; 2 to 64, on shm to 256; from 1 on inproc, and on shm where nodes share cores"),
    number(Kind::count, "protocol.quarantine_slots", &RunConfig::quarantine_slots, "2", 0, 1024,
           "further slots of a builder unit, used while others wait for a silent writer"),
    number(Kind::count, "protocol.parallel_requests", &RunConfig::parallel_requests, "0", 0, 65535,
           "pull: requests a builder unit has out at a time; 0: no limit"),
    number(Kind::count, "protocol.parallel_sends", &RunConfig::parallel_sends, "0", 0, 65535,
           "contributions a readout unit has not yet seen placed; 0: no limit but credits"),
    number(Kind::bytes, "protocol.message_size", &RunConfig::write_bytes, "0", 0, gib,
           "payload of one write; 0: an MFP is one write, whatever its size"),
    flag("protocol.ack_per_write", &RunConfig::ack_per_write,
         "builder units acknowledge every write, not every contribution"),
    number(Kind::count, "protocol.outstanding_writes", &RunConfig::outstanding_writes, "0", 0, 65535,
           "writes to one builder unit that are not acknowledged; 0: no limit; else needs ack_per_write"),
    number(Kind::count, "protocol.packing", &RunConfig::packing, "auto", 1, 65535,
           "events in an MFP; auto: as many mean fragments as fit into mfp_size"),
    number(Kind::bytes, "protocol.mfp_size", &RunConfig::mfp_size, "64KiB", 32, gib,
           "size that an MFP should have, if packing is auto"),
    number(Kind::bytes, "protocol.slot_size", &RunConfig::slot_bytes, "auto", 128, 1024 * gib,
           "size of one MEP slot, shared evenly by all sources; longer MFPs are cut and flagged; auto: what the sizes "
           "ask for"),
    number(Kind::duration, "protocol.heartbeat", &RunConfig::heartbeat, "200ms", ps_ms, 60 * ps_s,
           "between signs of life"),
    number(Kind::duration, "protocol.detection_deadline", &RunConfig::detection_deadline, "3s", 10 * ps_ms, 600 * ps_s,
           "silence after which a node is dead"),
    number(Kind::duration, "protocol.late_after", &RunConfig::late_after, "2s", 10 * ps_ms, 600 * ps_s,
           "time from its assignment after which a MEP is late and is given to another builder unit"),
    number(
        Kind::duration, "protocol.max_wait", &RunConfig::max_wait, "1s", 0, 600 * ps_s,
        "open loop: a MEP whose first event is older is closed early, by the event manager for all sources alike; 0: "
        "it waits until it is full"),
    number(Kind::duration, "protocol.suspect_grace", &RunConfig::suspect_grace, "300ms", 0, 60 * ps_s,
           "between a lost data connection and the event manager's decision"),
    number(Kind::count, "protocol.max_attempts", &RunConfig::max_attempts, "3", 1, 100,
           "late attempts at a MEP before readout units that two builder units found not to deliver are unreachable"),

    choice<&RunConfig::filter_kind>(
        "filter.kind", "random", filter_words,
        "push-pull, pull-pull: what decides: chance, a shared object (filter.h), or a command "
        "(formats.md)",
        filter_aliases),
    number(Kind::real, "filter.accept", &RunConfig::filter_accept, "1", 0, 1,
           "random: share of all MEPs that is accepted"),
    text("filter.path", &RunConfig::filter_path, "", "plugin: the shared object"),
    text("filter.argument", &RunConfig::filter_argument, "", "plugin: what it is opened with"),
    text("filter.command", &RunConfig::filter_command, "",
         "command: what is started, by /bin/sh, for each builder unit"),

    choice<&RunConfig::source_kind>(
        "source.kind", "generator", source_words,
        "made-up fragments, MFP files replayed, what boards send by datagrams or TCP, or what "
        "programs of the host hand over (dataflow.md)"),
    text("source.path", &RunConfig::source_path, "",
         "mfp: the folder with the MFP files, or a file, or a folder of files, of MEPs"),
    number(Kind::count, "source.repeat", &RunConfig::repeat, "1", 0, 9e15,
           "mfp: how often the files are sent, with event ids that go on; 0: over and over"),
    number(Kind::bytes, "source.fragment_size", &RunConfig::fragment_size, "1KiB", 1, gib / 4,
           "mean bytes of a generated fragment"),
    choice<&RunConfig::size_distribution>("source.size_distribution", "fixed", distribution_words,
                                          "of generated fragments; histogram: from a file"),
    number(Kind::real, "source.size_sigma", &RunConfig::size_sigma, "0.25", 0, 10,
           "standard deviation of the sizes over their mean (normal, lognormal)"),
    text("source.size_histogram", &RunConfig::size_histogram, "",
         "histogram: the file with bin edges and weights (docs/formats.md); fragment_size is then its mean"),
    number(Kind::real, "source.size_correlation", &RunConfig::size_correlation, "0", 0, 1,
           "of the sizes of an event's fragments in different sources, by a factor all of them share"),
    number(Kind::count, "source.correlated_events", &RunConfig::correlated_events, "1", 1, 1e9,
           "consecutive events that share this factor: with more than a few, packing does not average it away"),
    number(Kind::real, "source.mean_ratio", &RunConfig::mean_ratio, "1", 1, 1e4,
           "the last source's mean size over the first one's, geometric in between; the mean over all stays"),
    number(Kind::real, "source.hot_factor", &RunConfig::hot_factor, "1", 0.001, 1000,
           "by which one source's fragments are larger still"),
    number(Kind::count, "source.hot_source", &RunConfig::hot_source, "0", 0, 65534, "which source that is"),
    number(Kind::count, "source.sources_per_ru", &RunConfig::sources_per_ru, "1", 1, 65535,
           "sources that each readout unit reads"),
    number(Kind::frequency, "source.trigger_rate", &RunConfig::trigger_rate, "0", 0, 1e10,
           "events per second (open loop), up to 1e8 where each is drawn (poisson, trace, bunch-train); 0: as fast as "
           "they are built (closed loop)"),
    text("source.trigger_steps", &RunConfig::trigger_steps, "",
         "other rates from given times on, counted from the first trigger, warm-up included: 120kHz@5s,80kHz@10s"),
    choice<&RunConfig::arrivals>("source.arrivals", "fixed", arrival_words,
                                 "open loop: equal distances, random ones, filled bunches alone, or recorded ones"),
    text("source.arrival_trace", &RunConfig::arrival_trace, "",
         "trace: the file with a gap in ns per line, played over and over; trigger_rate 0 is the recording's own rate"),
    number(Kind::duration, "source.bunch_spacing", &RunConfig::bunch_spacing, "25ns", 1000, ps_s,
           "bunch-train: between the slots of an orbit"),
    number(Kind::count, "source.orbit_bunches", &RunConfig::orbit_bunches, "3564", 1, 1e9,
           "bunch-train: slots of an orbit, filled or empty"),
    number(Kind::count, "source.trains", &RunConfig::trains, "39", 1, 1e6, "bunch-train: trains of an orbit"),
    number(Kind::count, "source.train_bunches", &RunConfig::train_bunches, "72", 1, 1e6,
           "bunch-train: filled slots of a train"),
    number(Kind::count, "source.train_gap", &RunConfig::train_gap, "8", 0, 1e6,
           "bunch-train: empty slots behind each train; the rest of the orbit is empty too"),
    choice<&RunConfig::policy>(
        "source.policy", "block", policy_words,
        "open loop, an event is due and the readout unit's memory is full: it waits, its trigger is inhibited, or the "
        "unit's fragments of it are dropped"),
    choice<&RunConfig::fill>("source.fill", "prefilled", fill_words,
                             "payload made before the run, or anew for every event"),
    number(
        Kind::bytes, "source.memory", &RunConfig::memory, "auto", 1, 1024 * gib,
        "memory of a readout unit, in which MFPs are kept until they are built; auto: what losing no event asks for"),
    number(Kind::bytes, "source.prefill_size", &RunConfig::prefill_bytes, "auto", 1, 1024 * gib,
           "prefilled: bytes of payload a readout unit cycles through; auto: beyond four times the last-level cache "
           "over all nodes of the host"),
    text("source.address", &RunConfig::board_address, "127.0.0.1",
         "udp, tcp: the IP address of this host that boards send to"),
    number(
        Kind::count, "source.port", &RunConfig::board_port, "0", 0, 65535,
        "udp, tcp: the first readout unit's port, the others' follow; 0: the kernel chooses, and the log says which"),
    choice<&RunConfig::board_format>("source.format", "mfp", board_words,
                                     "udp: what a datagram holds, an MFP or LHCb's older multi-event fragment "
                                     "(formats.md)"),
    text("source.name", &RunConfig::source_name, "incast", "program: what programs attach to"),
    number(Kind::count, "source.first_id", &RunConfig::first_id, "0", 0, 65534,
           "udp, tcp, program: the id in the packets of the first source; the others' follow"),
    number(Kind::bytes, "source.largest_mfp", &RunConfig::largest_mfp, "64KiB", 64, gib,
           "udp, tcp, program: room for the packing events of a source; what does not fit is cut and flagged"),
    number(
        Kind::count, "source.window", &RunConfig::window_meps, "64", 2, 65536,
        "udp, tcp, program: MEPs that are filled at once; what is further ahead makes udp give up the oldest; others "
        "wait"),
    number(Kind::duration, "source.patience", &RunConfig::board_patience, "1s", 0, 600 * ps_s,
           "udp, tcp, program: what is still missing of a MEP this long after the first of it came is given up, and "
           "flagged "
           "late"),

    choice<&RunConfig::sink_kind>("sink.kind", "verify", sink_words,
                                  "what becomes of built events: compared, read, dropped, written to MEP files or to a "
                                  "command's standard input, read by other processes of the host, or sent to the farm "
                                  "of a simulated network"),
    choice<&RunConfig::verify>(
        "sink.verify", "full", verify_words,
        "what is compared: every byte, one MEP in 64 as a whole and the headers of all, or headers"),
    text("sink.path", &RunConfig::sink_path, "", "mep: the folder for the MEP files"),
    choice<&RunConfig::missing>("sink.missing", "incast", missing_words,
                                "mep, command: how a missing fragment says so, by Incast's own types, by which it is "
                                "told from data, or as LHCb's error banks (formats.md)"),
    number(Kind::bytes, "sink.file_size", &RunConfig::file_bytes, "4GiB", 1, 1024 * gib,
           "mep: a file that reaches this size is closed, and the next one begun"),
    number(Kind::duration, "sink.file_time", &RunConfig::file_time, "0", 0, 1000 * 3600 * ps_s,
           "mep: so is one that is this old; 0: no limit"),
    choice<&RunConfig::fsync>(
        "sink.fsync", "commit", fsync_words,
        "mep: what is committed is on the disk, is on it at most fsync_interval later, or is left "
        "to the system (docs/running.md says what each promises)"),
    number(Kind::duration, "sink.fsync_interval", &RunConfig::fsync_interval, "1s", ps_ms, 3600 * ps_s,
           "mep, fsync = interval: between synchronisations"),
    choice<&RunConfig::on_full>("sink.on_full", "stop", full_words,
                                "mep, the disk is full: end the run as failed, or build nothing until there is room"),
    text("sink.command", &RunConfig::command, "",
         "command: what /bin/sh runs, once per builder unit, with MEPs on its standard input"),
    number(Kind::bytes, "sink.buffer_size", &RunConfig::buffer_bytes, "64MiB", 1, 1024 * gib,
           "command: built events that wait for it; when they are more, the builder unit takes no further ones"),
    choice<&RunConfig::on_failure>("sink.on_failure", "stop", failure_words,
                                   "command: what to do when it ends early: end the run as failed, or go on and count "
                                   "what was not delivered"),

    text("sink.name", &RunConfig::sink_name, "incast",
         "consumer: what processes attach to; up to 64 letters, digits, '.', '_' and '-'"),
    choice<&RunConfig::delivery>("sink.delivery", "one", delivery_words,
                                 "consumer: each MEP goes to one process (a farm), or to all that are attached"),
    choice<&RunConfig::consumer_policy>(
        "sink.policy", "block", consumer_policy_words,
        "consumer: without a process that has room, building waits and nothing is lost; or the MEP is dropped and "
        "counted"),
    number(Kind::count, "sink.consumers", &RunConfig::sink_consumers, "4", 1, 64,
           "consumer: processes that may be attached to a builder unit at a time"),
    number(Kind::count, "sink.window", &RunConfig::window, "4", 1, 256,
           "consumer: MEPs that a process may have before it gives one back; farm: MEPs that a builder unit's "
           "dispatcher may have; each takes a slot"),
    number(Kind::duration, "sink.reuse_wait", &RunConfig::reuse_wait, "1ms", 0, 10 * ps_s,
           "consumer: memory of a MEP that a process has is waited for so long before further memory is used, as it is "
           "still in the cache; only over shm with plain stores where nodes share cores and a window is too large for "
           "the cache, and while MEPs do come back as soon; 0: never"),
    number(Kind::duration, "sink.patience", &RunConfig::patience, "0", 0, 864e2 * ps_s,
           "consumer: a process that has MEPs and gives none back for so long is ejected; 0: never"),

    number(Kind::count, "farm.nodes", &RunConfig::farm_nodes, "1", 1, 4096,
           "sink farm: farm nodes, which are the hosts of the fabric behind those of the run's nodes (docs/farm.md)"),
    choice<&RunConfig::farm_network>("farm.network", "shared", farm_network_words,
                                     "sink farm: dispatchers send by their builder unit's host, or each by a host of "
                                     "its own, behind the farm nodes in the fabric"),
    number(Kind::count, "farm.dispatchers", &RunConfig::farm_dispatchers, "0", 0, 4096,
           "sink farm: dispatchers that each farm node takes MEPs from; 0: all"),
    number(Kind::count, "farm.window", &RunConfig::farm_window, "8", 1, 64,
           "sink farm: MEPs that a farm node has of each dispatcher"),
    number(Kind::count, "farm.processes", &RunConfig::farm_processes, "1", 1, 1024,
           "sink farm: processes of a farm node, each of which has one MEP at a time"),
    number(Kind::duration, "farm.work", &RunConfig::farm_work, "0", 0, 3600 * ps_s,
           "sink farm: time that a process takes for a MEP; 0: none, MEPs are dropped"),

    choice<&RunConfig::net_pattern>("net.pattern", "all-to-all", pattern_words,
                                    "who sends to whom: 0 to 1, all others to 0, 0 to all others, each of the first "
                                    "half to one of the second, everybody to all others, producers to consumers"),
    number(Kind::count, "net.producers", &RunConfig::producers, "auto", 1, 4095,
           "bipartite: the first nodes, which send; auto: half of the nodes"),
    number(Kind::count, "net.consumers", &RunConfig::consumers, "auto", 1, 4095,
           "bipartite: the last nodes, which receive; auto: the other nodes"),
    flag("net.duplex", &RunConfig::duplex, "every pair in both directions at once"),
    choice<&RunConfig::measure>("net.measure", "bandwidth", measure_words,
                                "as many messages as credits allow; or ping-pong: each is answered by one as long; or "
                                "both, a ping-pong on a queue of its own beside the load of the others"),
    choice<&RunConfig::operation>("net.operation", "write", operation_words,
                                  "the sender of a pair writes, with a notice; or the receiver reads, and the sender "
                                  "does nothing"),
    number(Kind::bytes, "net.message_size", &RunConfig::message_size, "64KiB", 1, gib / 2,
           "body of a message; a head of 64 bytes comes before it, as in event building"),
    number(Kind::count, "net.queues", &RunConfig::queues, "1", 1, net::max_queues,
           "independent streams of every pair, each with slots of its own at the receiver"),
    number(
        Kind::count, "net.outstanding", &RunConfig::outstanding, "auto", 1, net::max_slots_per_pair,
        "messages a queue may have in flight; auto: as many as keep the slots of a receiver within 512 KiB, 2 to 64; "
        "latency: 1"),
    number(Kind::count, "net.sends", &RunConfig::sends, "auto", 1, net::max_slots_per_pair,
           "writes of a queue that may be posted and not yet complete; auto: as many as may be in flight"),
    number(Kind::bytes, "net.ping_size", &RunConfig::ping_size, "64", 1, gib / 2,
           "loaded: body of a ping, and of its answer"),
    number(Kind::count, "net.messages", &RunConfig::messages, "0", 0, 9e15,
           "that every queue sends; the run is then measured from the first to the last; 0: no limit"),
    choice<&RunConfig::buffers>("net.buffers", "cycled", buffers_words,
                                "cycled: a sender goes through its working set; one: it sends one buffer again and "
                                "again, out of its caches, as the tests of perftest and UCX do"),
    number(Kind::bytes, "net.working_set", &RunConfig::working_set, "auto", 1, 1024 * gib,
           "bytes of payload a sender cycles through; auto: beyond four times the last-level cache over all senders, "
           "or one message with net.buffers = one"),
    flag("net.verify", &RunConfig::net_verify,
         "compare every byte that arrives; the order of messages is always checked"),

};

/// Names of an earlier version. They go with the next one.
constexpr std::array former_list{
    base::FormerName{"run.rus", "run.readout_units", ""},
    base::FormerName{"run.bus", "run.builder_units", ""},
    base::FormerName{"protocol.max_buffer_bytes", "protocol.max_buffer_size", ""},
    base::FormerName{"protocol.slot_bytes", "protocol.slot_size", ""},
    base::FormerName{"source.prefill_bytes", "source.prefill_size", ""},
    base::FormerName{"sink.file_bytes", "sink.file_size", ""},
    base::FormerName{"sink.buffer_bytes", "sink.buffer_size", ""},
};

/// auto, and what the list of transports holds.
Words transport_words() {
    static const std::vector<std::string_view> words = [] {
        std::vector<std::string_view> found{"auto"};
        for (const transport::Descriptor& builtin : transport::builtin_transports())
            found.push_back(builtin.name);
        std::ranges::copy(transport::outside_transports(), std::back_inserter(found));
        return found;
    }();
    return words;
}

void choose_transport(RunConfig& config, std::size_t index) {
    config.transport = transport_words()[index];
}

}  // namespace

std::span<const KeySpec> config_keys() {
    static const std::vector<KeySpec> keys = [] {
        static const std::string help = fmt::format(
            "auto: {}, or {} where some nodes are started elsewhere (--spawn); see [transport.<name>] for the "
            "settings of each",
            transport::chosen_transport(false).name, transport::chosen_transport(true).name);
        std::vector<KeySpec> all(table.begin(), table.end());
        all.push_back({base::choice("transport.name", "auto", transport_words(), help), Field{&choose_transport}});
        return all;
    }();
    return keys;
}

const KeySpec* find_key(std::string_view key) {
    const std::span<const KeySpec> keys = config_keys();
    const auto found = std::ranges::find(keys, key, &KeySpec::name);
    return found == keys.end() ? nullptr : &*found;
}

const base::Setting* find_setting(std::string_view key) {
    if (const KeySpec* spec = find_key(key)) return spec;
    constexpr std::string_view section = "transport.";
    if (!key.starts_with(section)) return nullptr;
    const std::string_view rest = key.substr(section.size());
    const std::size_t dot = rest.find('.');
    const transport::Descriptor* builtin = transport::find_transport(rest.substr(0, dot));
    if (dot == std::string_view::npos || builtin == nullptr) return nullptr;
    const auto found = std::ranges::find(builtin->settings, rest.substr(dot + 1), &base::Setting::name);
    return found == builtin->settings.end() ? nullptr : &*found;
}

std::span<const FormerKey> former_names() {
    static const std::vector<FormerKey> keys = [] {
        std::vector<FormerKey> all;
        all.reserve(former_list.size());
        for (const base::FormerName& name : former_list) {
            all.push_back({std::string(name.former), std::string(name.present), name.unit});
        }
        for (const transport::Descriptor& builtin : transport::builtin_transports()) {
            const std::string section = fmt::format("transport.{}.", builtin.name);
            for (const base::FormerName& name : builtin.former_names) {
                all.push_back({section + std::string(name.former), section + std::string(name.present), name.unit});
            }
        }
        return all;
    }();
    return keys;
}

Result<Ok> apply_key(const KeySpec& spec, std::string_view value, RunConfig& config) {
    const Result<base::Value> parsed = base::parse(spec, value);
    if (!parsed) return base::refuse(spec.name, spec, value, parsed.error().message);
    std::visit(
        [&](auto field) {
            if constexpr (std::is_same_v<decltype(field), void (*)(RunConfig&, std::size_t)>) {
                field(config, std::get<std::uint64_t>(*parsed));
            } else {
                config.*field = std::get<std::remove_reference_t<decltype(config.*field)>>(*parsed);
            }
        },
        spec.field);
    return Ok{};
}

}  // namespace incast::runtime
