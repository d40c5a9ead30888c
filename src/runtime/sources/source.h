// What feeds readout units: the generator, the replay of MFP files, boards, and programs. The runtime fills the options
// from its config.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <incast/result.h>

#include "ingest/packet.h"
#include "ingest/window.h"
#include "protocol/interfaces.h"
#include "runtime/sources/replay_files.h"
#include "runtime/sources/sizes.h"
#include "runtime/sources/triggers.h"

namespace incast::sources {

/// EB-M5: `generated` writes every byte of every MFP when it is produced; `prefilled` writes a ring once and then only
/// numbers its MFPs.
enum class Fill : std::uint8_t { generated, prefilled };

struct GeneratorOptions {
    std::uint64_t seed = 1;
    SizeOptions sizes;
    std::uint32_t packing = 1;       // events in an MFP
    std::uint64_t total_events = 0;  // 0 = no end; the last MFP may be short (EB-S5)
    Fill fill = Fill::generated;
    std::uint64_t prefill_bytes = 0;  // prefilled: bytes of MFPs an RU cycles through, at least, on average (EB-M4)
    TriggerOptions triggers;          // rate 0: closed loop
};

struct ReplayOptions {
    std::string path;                    // of MFP or MEP files with all sources of the run (docs/formats.md)
    std::uint64_t repeat = 1;            // how often the recording is sent, event ids going on; 0 = without end
    TriggerOptions triggers;             // rate 0: closed loop
    std::optional<Numbering> numbering;  // of the run, whatever the files of this host are; nothing: they decide
};

/// Of fragments that come from elsewhere (EB-C9).
struct ArrivalOptions {
    std::uint32_t packing = 1;       // events in a MEP
    std::uint64_t total_events = 0;  // 0 = no end
    std::uint32_t window_meps = 64;  // open at once; at least 2
    Time patience = ps_per_s;        // for what others were heard of
};

/// Boards that send datagrams, or connect by TCP.
struct BoardOptions : ArrivalOptions {
    std::string address = "127.0.0.1";            // to listen at: an IP address
    std::uint16_t port = 0;                       // of the first readout unit, the others follow; 0: the kernel chooses
    ingest::Format format = ingest::Format::mfp;  // of datagrams
};

/// Programs of this host that hand fragments over in shared memory (docs/source.md).
struct ProgramOptions : ArrivalOptions {
    std::string name = "incast";  // they attach to
};

struct SourceOptions {
    enum class Kind : std::uint8_t { generator, replay, boards, streams, programs };
    Kind kind = Kind::generator;
    GeneratorOptions generator;
    ReplayOptions replay;
    BoardOptions boards;  // or streams
    ProgramOptions programs;
};

/// Counted since start by the RU's one thread.
struct SourceStats {
    std::uint64_t meps = 0;
    std::uint64_t accepted_events = 0;  // read out
    // Open loop: meant to happen until now, or until the last event of the run; closed loop: the same as accepted.
    // offered = accepted + inhibited + dropped + those that still wait.
    std::uint64_t offered_events = 0;
    std::uint64_t inhibited_events = 0;    // throttle: their triggers came while there was no room, and never happened
    std::uint64_t dropped_events = 0;      // drop: happened, without the fragments of this RU
    std::uint64_t dropped_mfps = 0;        // drop: empty ones that were made instead
    Time dead_time = 0;                    // open loop: while events beyond the RU's memory were due (EB-M1)
    std::uint64_t held_mep_ns = 0;         // open loop: MEPs with data in the RU's memory, integrated over time
    std::uint64_t peak_held_meps = 0;      // open loop: the most since clear_peak()
    std::uint64_t goodput_bytes = 0;       // fragment bytes of accepted events
    std::uint64_t truncated_mfps = 0;      // larger than their place in the slot (EB-S4)
    std::uint64_t desync_mfps = 0;         // phantoms, where the recording has no fitting MFP (EB-S5)
    std::uint64_t ring_bytes = 0;          // memory that produced MFPs cycle through: the source's working set (EB-M4)
    std::uint64_t refused_datagrams = 0;   // boards, programs: damaged, or of a source that is not theirs to send
    std::uint64_t overflow_datagrams = 0;  // boards: the kernel had no room for them
    ingest::Counts boards;                 // or programs: of all sources of the readout unit
};

class RuntimeSource : public protocol::Source {
public:
    /// Open loop: event 0 of the run is meant to happen at `origin`, and nothing happens before this is called: an RU
    /// that joined early would otherwise begin with a backlog, and each RU count from another time. Closed loop:
    /// nothing.
    virtual void start_triggers(Time origin) = 0;
    /// Not const: what was offered is counted when it is asked for.
    [[nodiscard]] virtual SourceStats stats(Time now) = 0;
    /// The measured window begins.
    virtual void clear_peak() = 0;
    /// Boards: what came of each source, in the order of the configuration.
    [[nodiscard]] virtual std::vector<ingest::Counts> counts_of_boards() const { return {}; }
    /// What a person should know, once: where boards send to, who fell silent.
    [[nodiscard]] virtual std::vector<std::string> take_news(Time) { return {}; }
};

/// Errors name the option, or the file and the offset in it.
Result<std::unique_ptr<RuntimeSource>> make_source(const SourceOptions& options);

}  // namespace incast::sources
