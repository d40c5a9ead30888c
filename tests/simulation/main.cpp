// incast-adversary: plays seeds against the event-building protocol and says which of its promises they break
// (docs/simulation.md).
#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "run.h"

namespace incast::adversary {
namespace {

const std::map<std::string, protocol::Plant>& plants() {
    using protocol::Plant;
    static const std::map<std::string, Plant> names = {
        {"no_generation_check", Plant::no_generation_check},
        {"no_attempt_check", Plant::no_attempt_check},
        {"early_release", Plant::early_release},
        {"double_credit", Plant::double_credit},
        {"no_quarantine", Plant::no_quarantine},
        {"skipped_commit", Plant::skipped_commit},
        {"double_commit", Plant::double_commit},
        {"unconfirmed_missing", Plant::unconfirmed_missing},
        {"forgotten_reassign", Plant::forgotten_reassign},
        {"unmarked_redelivery", Plant::unmarked_redelivery},
        {"admit_unretained", Plant::admit_unretained},
        {"stale_incarnation", Plant::stale_incarnation},
        {"unordered_abort_ack", Plant::unordered_abort_ack},
        {"undecided_reject", Plant::undecided_reject},
        {"ignored_reject", Plant::ignored_reject},
        {"wrong_phase_order", Plant::wrong_phase_order},
        {"early_phase", Plant::early_phase},
        {"open_barrier", Plant::open_barrier},
        {"hasty_send", Plant::hasty_send},
        {"wrong_builder", Plant::wrong_builder},
        {"early_reuse", Plant::early_reuse},
        {"uncredited_send", Plant::uncredited_send},
        {"uneven_grant", Plant::uneven_grant},
        {"kept_credits", Plant::kept_credits},
        {"lone_close", Plant::lone_close},
        {"unfinished_read", Plant::unfinished_read},
        {"unseen_damage", Plant::unseen_damage},
        {"believed_late", Plant::believed_late},
        {"believed_loss", Plant::believed_loss},
        {"believed_missing", Plant::believed_missing},
        {"believed_grant", Plant::believed_grant},
        {"believed_abort", Plant::believed_abort},
    };
    return names;
}

const std::map<std::string, Lie>& lies() {
    static const std::map<std::string, Lie> names = {
        {"late", Lie::late},       {"withheld", Lie::withheld}, {"loss", Lie::loss},
        {"missing", Lie::missing}, {"grant", Lie::grant},       {"abort", Lie::abort},
    };
    return names;
}

/// False, after a line, if that is none of them.
template <class Value>
bool choose(const char* option, const std::string& name, const std::map<std::string, Value>& names, Value& chosen) {
    if (name.empty()) return true;
    const auto found = names.find(name);
    if (found != names.end()) {
        chosen = found->second;
        return true;
    }
    std::string known;
    for (const auto& [each, value] : names)
        known += " " + each;
    fmt::print(stderr, "{} = '{}': expected one of{}\n", option, name, known);
    return false;
}

/// What a healthy set of runs exercises: every kind of fault and every branch of the protocol.
constexpr const char* expected_marks[] = {
    "abort acknowledged",
    "admission stopped",
    "announced ahead of its credit",
    "assigned ahead",
    "passed over without credit",
    "abort by a BU",
    "abort by the EM",
    "again",
    "assigned again",
    "closed early",
    "committed as rejected",
    "assigned statically",
    "barrier expired",
    "connection down",
    "delivered again",
    "delivered flagged",
    "delivered torn",
    "delivered with nothing",
    "exit: EM silent",
    "exit: evicted",
    "fault: BU crash",
    "fault: EM pause",
    "fault: RU crash",
    "fault: RU mute to the EM",
    "fault: again",
    "fault: connect again",
    "fault: connect refused",
    "fault: connection cut",
    "fault: done at once",
    "fault: heavy delay",
    "fault: landed after the end",
    "fault: lost body",
    "fault: lost in flight",
    "fault: overtaking",
    "fault: pause, network too",
    "fault: pause, writes go on",
    "fault: scattered read",
    "fault: scattered write",
    "fault: stall",
    "fault: unfenced landing",
    "filter: accept",
    "filter: reject",
    "filter: undecided",
    "landed in an unused slot",
    "landed in part",
    "landed whole",
    "layout: contiguous",
    "layout: per-mep",
    "layout: per-source",
    "layout: segmented",
    "late",
    "lost peer reported",
    "placed",
    "quarantined slot",
    "read delivered",
    "read in part",
    "read into an unused slot",
    "read whole",
    "read: cancelled",
    "reassigned",
    "restart",
    "send gap",
    "sink busy",
    "sink pending",
    "slot in time",
    "slot overrun",
    "sink holds",
    "source not ready",
    "outstanding writes at the limit",
    "verdict: no",
    "verdict: yes",
    "verdict: yes, again",
    "write: continued",
    "told to fill",
    "view: dead",
    "view: unreachable",
    "view: up",
    "view: up again",
};
constexpr std::uint64_t marks_min_per_1000_seeds = 100;
/// One per seed.
constexpr const char* drawn_marks[] = {
    "assignment: em",
    "assignment: source-credits",
    "assignment: static",
    "schedule: barrel-barrier",
    "schedule: barrel-time-slot",
    "schedule: linear-shift",
    "schedule: lockstep",
    "schedule: none",
    "schedule: random",
    "schedule: sequential",
    "scheme: pull",
    "scheme: pull-pull",
    "scheme: pull-read",
    "scheme: push",
    "scheme: push-pull",
};
constexpr std::uint64_t drawn_marks_min_per_1000_seeds = 50;
/// Fences leave little for the check of a contribution's generation to catch: 100 times in 100,000 seeds is what can be
/// asked for. And one seed in six reads.
constexpr const char* rare_marks[] = {
    "fault: owner crash in mid-read",
    "fault: reader crash in mid-read",
    "read: owner lost",
    "stale contribution",
};
constexpr std::uint64_t rare_marks_min_per_1000_seeds = 1;

struct Totals {
    std::mutex mutex;
    std::map<std::uint64_t, Outcome> failures;
    Marks marks;
    Time virtual_time = 0;
    std::uint64_t traces = 0;  // the sum of all trace hashes: whoever plays which seed first
};

void play_all(std::uint64_t first, std::uint64_t count, const RunOptions& options, unsigned threads, bool stop_early,
              Totals& totals) {
    std::atomic<std::uint64_t> next = 0;
    std::atomic<bool> found = false;
    const auto work = [&] {
        while (!(stop_early && found)) {
            const std::uint64_t index = next++;
            if (index >= count) return;
            Outcome outcome = play(first + index, options);
            const std::lock_guard lock(totals.mutex);
            for (const auto& [name, hits] : outcome.marks)
                totals.marks[name] += hits;
            totals.virtual_time += outcome.ended;
            totals.traces += outcome.trace_hash;
            if (!outcome.violations.empty()) {
                found = true;
                totals.failures.emplace(outcome.seed, std::move(outcome));
            }
        }
    };
    std::vector<std::thread> pool;
    for (unsigned index = 1; index < threads; ++index)
        pool.emplace_back(work);
    work();
    for (std::thread& each : pool)
        each.join();
}

bool report_coverage(const Totals& totals, std::uint64_t seeds) {
    bool covered = true;
    fmt::print("{:<32} {:>14}\n", "mark", "times");
    for (const auto& [name, hits] : totals.marks)
        fmt::print("{:<32} {:>14}\n", name, hits);
    const auto check = [&](std::span<const char* const> names, std::uint64_t min_per_1000_seeds) {
        const std::uint64_t wanted = std::max<std::uint64_t>(1, min_per_1000_seeds * seeds / 1000);
        for (const char* name : names) {
            const auto found = totals.marks.find(name);
            const std::uint64_t hits = found == totals.marks.end() ? 0 : found->second;
            if (hits < wanted) {
                fmt::print("not covered: {} ({} times, {} wanted)\n", name, hits, wanted);
                covered = false;
            }
        }
    };
    check(expected_marks, marks_min_per_1000_seeds);
    check(drawn_marks, drawn_marks_min_per_1000_seeds);
    check(rare_marks, rare_marks_min_per_1000_seeds);
    return covered;
}

struct Seeds {
    std::uint64_t first = 1;
    std::uint64_t count = 1000;
};

std::optional<Seeds> parse_seeds(const std::string& text) {
    Seeds seeds;
    const auto colon = text.find(':');
    if (colon == std::string::npos) return {};
    const auto number = [&](std::size_t from, std::size_t to, std::uint64_t& value) {
        const auto [end, error] = std::from_chars(text.data() + from, text.data() + to, value);
        return error == std::errc{} && end == text.data() + to;
    };
    if (!number(0, colon, seeds.first) || !number(colon + 1, text.size(), seeds.count) || seeds.count == 0) return {};
    return seeds;
}

int main_of(int argc, char** argv) {
    CLI::App app(
        "Plays seeds of faults against the event-building protocol, in virtual time, and reports every broken "
        "promise.");
    std::string seeds_text = "1:1000";
    std::string plant_name;
    std::string lie_name;
    unsigned threads = std::max(1U, std::thread::hardware_concurrency());
    bool coverage = false;
    bool all = false;
    std::uint64_t replay = 0;
    std::string traces;
    app.add_option("--seeds", seeds_text, "FIRST:COUNT")->capture_default_str();
    app.add_option("--plant", plant_name,
                   "a deliberate bug, which the checkers must find; the first seed that shows it ends the run");
    app.add_option("--lie", lie_name, "one node lies so, and nothing else goes wrong");
    app.add_option("--threads", threads, "seeds played at the same time")
        ->check(CLI::Range(1U, 1024U))
        ->capture_default_str();
    app.add_flag("--coverage", coverage, "also print what was exercised, and fail if something hardly was");
    app.add_flag("--all", all, "with --plant: go on after the first seed that shows it");
    CLI::Option* replay_option = app.add_option("--replay", replay, "tell the story of one seed");
    app.add_option("--traces", traces, "what the traces of these seeds must add up to, as the last line says it");
    CLI11_PARSE(app, argc, argv);

    RunOptions options;
    if (!choose("--plant", plant_name, plants(), options.plant) || !choose("--lie", lie_name, lies(), options.lie)) {
        return 2;
    }
    if (replay_option->count() > 0) {
        options.story = true;
        const Outcome outcome = play(replay, options);
        fmt::print("seed {}: {} violations, trace {:016x}\n", replay, outcome.violations.size(), outcome.trace_hash);
        return outcome.violations.empty() ? 0 : 1;
    }
    const auto seeds = parse_seeds(seeds_text);
    if (!seeds) {
        fmt::print(stderr, "--seeds = '{}': expected FIRST:COUNT, as in 1:1000\n", seeds_text);
        return 2;
    }
    Totals totals;
    play_all(seeds->first, seeds->count, options, threads, !plant_name.empty() && !all, totals);
    for (const auto& [seed, outcome] : totals.failures) {
        for (const Violation& violation : outcome.violations) {
            fmt::print("seed {}: at {:.3f} us: {}: {}\n", seed,
                       static_cast<double>(violation.time) / static_cast<double>(ps_per_us), violation.rule,
                       violation.what);
        }
    }
    const bool covered = !coverage || report_coverage(totals, seeds->count);
    const std::string seen = fmt::format("{:016x}", totals.traces);
    fmt::print("seeds {}: {} of {} with violations, {:.3f} s of virtual time, traces {}\n", seeds_text,
               totals.failures.size(), seeds->count,
               static_cast<double>(totals.virtual_time) / static_cast<double>(ps_per_s), seen);
    const bool same = traces.empty() || traces == seen;
    if (!same) fmt::print("traces were {}: nodes say something else now, or at another time\n", traces);
    return totals.failures.empty() && covered && same ? 0 : 1;
}

}  // namespace
}  // namespace incast::adversary

int main(int argc, char** argv) {
    return incast::adversary::main_of(argc, argv);
}
