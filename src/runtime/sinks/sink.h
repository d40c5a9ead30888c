// Where a BU's events go: nowhere (null), past the CPU (touch), through a check (verify), into files (mep) or to other
// processes (consumer).
// The runtime fills the options from its config.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <incast/result.h>

#include "base/histogram.h"
#include "protocol/interfaces.h"
#include "runtime/sinks/kinds.h"
#include "runtime/sources/source.h"

namespace incast::sinks {

/// Structure is the heads, MFP headers and tables of every MFP; lines are all bytes of all fragments.
enum class Verify : std::uint8_t {
    full,     // structure and lines of every MEP
    sampled,  // structure of every MEP, lines of every sample_every-th
    header,   // structure alone; all there is to check where bodies are phantom
};

/// What a commit of MEP files waits for (docs/running.md).
enum class Fsync : std::uint8_t {
    commit,    // bytes and manifest are synchronised: survives the loss of power
    interval,  // bytes and manifest are written; both are synchronised every so often
    never,     // bytes and manifest are written: survives the process, not the machine
};

/// What a sink does whose consumer is gone.
enum class OnFailure : std::uint8_t { stop, carry_on };

/// What a sink does whose disk has no room.
enum class OnFull : std::uint8_t { stop, wait };

/// How MEPs say that a fragment is missing (docs/formats.md): by Incast's own types, or by LHCb's error banks.
enum class Missing : std::uint8_t { incast, lhcb };

struct CommandOptions {
    std::string command;                      // for /bin/sh
    std::uint64_t buffer_bytes = 64U << 20U;  // beyond it the sink is busy; one MEP always fits
    OnFailure on_failure = OnFailure::stop;
};

struct MepFileOptions {
    std::string path;                                    // folder; made if it is missing
    std::uint64_t commit_bytes = 64U << 20U;             // a commit begins once so much was written since the last one,
    Time commit_interval = 5 * ps_per_ms;                // or so much time passed
    std::uint64_t roll_bytes = std::uint64_t{4} << 30U;  // a file that reaches it is closed, and the next one begun
    Time roll_interval = 0;                              // so is one that is this old; 0 = no limit
    Fsync fsync = Fsync::commit;
    Time fsync_interval = ps_per_s;  // of Fsync::interval
    OnFull on_full = OnFull::stop;
    std::uint64_t most_uncommitted_bytes = std::uint64_t{256} << 20U;  // beyond it the sink is busy
};

struct ConsumerOptions {
    enum class Delivery : std::uint8_t { one, all };  // of the processes that are attached
    enum class Policy : std::uint8_t { block, drop };
    std::string name = "incast";  // they attach to it; consumer::is_name
    Delivery delivery = Delivery::one;
    Policy policy = Policy::block;
    std::uint32_t consumers = 4;  // attached at a time, at most; 1..consumer::max_consumers
    std::uint32_t window = 4;     // MEPs that one may have at a time; 1..consumer::max_window
    Time patience = 0;            // one that has MEPs and gives none back for so long is ejected; 0: never
};

struct SinkOptions {
    Kind kind = Kind::null;
    Verify verify = Verify::full;
    std::uint32_t sample_every = 16;
    sources::SourceOptions source;      // what feeds the run, hence what verify expects
    Missing missing = Missing::incast;  // in MEPs, of files and for a command
    MepFileOptions files;
    CommandOptions command;
    ConsumerOptions consumer;
    std::uint32_t node = 0;  // whose sink: names its files, and where processes attach
    std::uint32_t incarnation = 1;
    sources::Policy policy = sources::Policy::block;  // of the sources
    bool open_loop = false;                           // heads carry intended trigger times (EB-M2)
    bool phantom_bodies = false;                      // of the transport (EB-T9)
    Time (*cpu_clock)() =
        nullptr;  // CPU time of the calling thread, to tell the sink's work apart (EB-M5); nullptr: not measured
};

/// taken = done + abandoned + those still held; meps = taken + dropped.
struct ConsumerStats {
    std::uint64_t attached = 0;        // processes that came
    std::uint64_t left = 0;            // of these, detached or died
    std::uint64_t ejected = 0;         // of these, dropped by this side
    std::uint64_t refused = 0;         // processes that could not attach
    std::uint64_t taken_meps = 0;      // handed to at least one process
    std::uint64_t done_meps = 0;       // given back by at least one
    std::uint64_t dropped_meps = 0;    // handed to nobody (drop)
    std::uint64_t abandoned_meps = 0;  // given back by nobody: all who had it died (drop)
    std::uint64_t repeated_meps = 0;   // handed out again, because all who had it died (block)
    std::uint64_t judged_meps = 0;     // given back with a verdict, of which the first counts:
    std::uint64_t accepted_events = 0;
    std::uint64_t rejected_events = 0;
    std::uint64_t missed_meps = 0;  // all, drop: MEPs that a process did not get while it was attached
};

/// Counted since start by the BU's one thread. Durations in nanoseconds.
struct SinkStats {
    std::uint64_t meps = 0;
    std::uint64_t events = 0;
    std::uint64_t goodput_bytes = 0;
    std::uint64_t incomplete_meps = 0;  // with flagged sources; not an error
    std::uint64_t redelivered_meps = 0;
    std::uint64_t undelivered_meps = 0;  // committed, though the consumer was gone (OnFailure::carry_on)
    std::uint64_t structure_checked_mfps = 0;
    std::uint64_t lines_checked_meps = 0;   // of which every byte was compared
    std::uint64_t verify_errors = 0;        // MFPs or MEPs that are not what was sent
    std::vector<std::string> first_errors;  // one line each, the first few
    base::Histogram service_ns;             // from assignment until taken, or durable where that comes later
    base::Histogram
        trigger_ns;  // open loop: from the intended time of the last event (of the first source that is there)
    std::uint64_t delay_ns = 0;           // sum of what the histogram of this loop got
    std::uint64_t timed_meps = 0;         // of how many
    std::uint64_t trigger_spread_ns = 0;  // throttle: largest difference of intended times within a MEP
    Time cpu = 0;                         // spent in checking, touching or writing
    ConsumerStats consumers;
};

class RuntimeSink : public protocol::Sink {
public:
    [[nodiscard]] virtual const SinkStats& stats() const = 0;
    /// The measured window begins: latencies start anew.
    virtual void clear_latencies() = 0;
    /// Not empty: the sink cannot go on, in one line; it takes nothing any more, and what it did not confirm is not
    /// durable.
    [[nodiscard]] virtual std::string failure() const = 0;
    /// Not empty: the sink is busy until there is room again, and why, in one line.
    [[nodiscard]] virtual std::string shortage() const { return {}; }
    /// Everything was committed and nothing more will come. May block for a second or two; afterwards failure() may
    /// have more to say.
    virtual void close() {}

    // A sink that has to do with other processes is looked after by whoever drives its node.
    /// Before every step of the node.
    virtual void tick(Time) {}
    /// Before sleeping. False: there is something to tend.
    virtual bool prepare_wait() { return true; }
    /// Readable when there is something to tend, after prepare_wait() was true; -1: there never is.
    [[nodiscard]] virtual int wait_fd() const { return -1; }
};

/// Errors name the option or the path and why it cannot be used.
Result<std::unique_ptr<RuntimeSink>> make_sink(const SinkOptions& options, const protocol::Config& config);

}  // namespace incast::sinks
