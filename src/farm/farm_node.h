// A farm node: takes MEPs from dispatchers over the network, and hands them to the processes of its host as a builder
// unit does (docs/farm.md). They attach to it by its name, with the library and the module that they have.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <incast/channel.h>
#include <incast/result.h>
#include <incast/transport.h>

#include "farm/book/frames.h"
#include "farm/book/supply.h"
#include "farm/book/taker.h"
#include "farm/once_sink.h"
#include "farm/outbox.h"
#include "farm/wires.h"
#include "protocol/config.h"
#include "protocol/interfaces.h"
#include "runtime/sinks/consumer/consumer_sink.h"

namespace incast::farm {

struct FarmNodeOptions {
    std::vector<std::string> addresses;  // of dispatchers, all of one transport
    std::string name = "farm";           // that processes attach to
    std::int64_t node = -1;              // and the number; -1: the lowest that nobody has
    std::uint32_t window = 8;            // MEPs that it has of each dispatcher
    std::uint32_t process_window = 4;    // and each process of it
    std::uint32_t processes = 64;
    Time patience = 0;             // a process that has MEPs and gives none back for so long is ejected; 0: never
    Time timeout = 60 * ps_per_s;  // for a dispatcher to come, or to come back
    Time silence = 5 * ps_per_s;   // after which a dispatcher that says nothing is given up
    bool drop = false;             // takes MEPs and drops them: for measurements
    std::string files;             // or writes them to this folder, as MEP files
    bool once = false;             // one file for each MEP, whoever of all that share the folder writes it
    std::string command;           // or to the standard input of this command
    WireSettings wires;
};

struct FarmNodeCounts {
    std::uint64_t meps = 0;  // that came
    std::uint64_t events = 0;
    std::uint64_t goodput_bytes = 0;
    std::uint64_t repeated_meps = 0;  // of those that came, marked
    std::uint64_t done_meps = 0;
    std::uint64_t refused_meps = 0;
    std::uint64_t late_meps = 0;  // done when the dispatcher was gone, which had given them to others
};

class FarmNode {
public:
    FarmNode(FarmNodeOptions options, Wires wires);
    FarmNode(const FarmNode&) = delete;
    FarmNode& operator=(const FarmNode&) = delete;
    ~FarmNode();

    /// Until all dispatchers have ended, or after an interrupt, what it has is done. Errors: one of them did not come
    /// in time, or was lost and did not come back.
    Result<Ok> run();
    [[nodiscard]] std::string summary() const;

private:
    enum class Reads : std::uint8_t { welcome, numbers, frame, table, bodies };
    /// To one dispatcher.
    struct Link {
        std::string address;
        incast_channel* channel = nullptr;
        std::uint32_t life = 0;  // of the connection: what came by an earlier one is nobody's
        Outbox out;
        Reads reads = Reads::welcome;
        Welcome welcome;
        std::vector<std::uint16_t> numbers;  // of its sources
        MepFrame frame;
        std::vector<SourceFrame> table;
        std::span<std::byte> rest;  // of what is being read
        std::uint32_t slot = 0;     // that it goes to
        std::size_t source = 0;     // whose MFP is being read
        Supply supply;              // the slots of this link
        Time next_call = 0;
        Time gone_since = 0;  // not connected, or not welcomed yet
        Time heard = 0;
        Time said = 0;
        bool is_welcomed = false;
        bool has_ended = false;  // in order
        bool is_leaving = false;
        bool may_read = true;
    };
    struct Slot {
        Link* link = nullptr;
        std::uint32_t life = 0;
        std::uint64_t ticket = 0;
        bool is_repeated = false;
        protocol::BuiltMep mep;
        std::vector<protocol::BuiltSource> sources;
    };

    bool drive();
    void wait();
    Result<Ok> call_all();
    void call(Link& link);
    void greet(Link& link);
    void hear(Link& link);
    /// False: the dispatcher broke the rules.
    bool took(Link& link);
    bool take_welcome(Link& link);
    bool take_numbers(Link& link);
    bool take_frame(Link& link);
    bool take_table(Link& link);
    bool next_body(Link& link);
    void came(Link& link);
    void hand_out();
    void collect();
    void refuse(std::uint32_t slot, bool was_seen);
    void settle(std::uint32_t slot, Says says, std::uint64_t value);
    void grant_all();
    void lose(Link& link, const std::string& why);
    void reply(Link& link, const Reply& what);
    Result<Ok> open(const Link& link);
    Result<Ok> open_sink();
    [[nodiscard]] std::size_t takers() const { return door_ != nullptr ? door_->processes() : slot_bytes_ > 0 ? 1 : 0; }
    [[nodiscard]] bool is_done() const;
    [[nodiscard]] std::uint32_t slots() const {
        return options_.window * static_cast<std::uint32_t>(options_.addresses.size());
    }

    FarmNodeOptions options_;
    Wires wires_;
    FarmNodeCounts counts_;
    std::vector<std::unique_ptr<Link>> links_;
    std::vector<Slot> slots_;
    std::deque<std::uint32_t> waiting_;  // slots that came and nobody has room for
    Welcome welcome_;                    // of the run, once one came
    protocol::Config config_;
    sinks::SharedPages memory_;
    const OnceSink* once_ = nullptr;            // the sink, if it is that one
    std::unique_ptr<sinks::RuntimeSink> sink_;  // ends before the memory that it shows; null: MEPs are dropped
    sinks::ConsumerSink* door_ = nullptr;       // the sink, where it is processes
    std::deque<std::uint32_t> pending_;         // slots whose MEPs another sink took, and has not made durable
    std::uint64_t slot_bytes_ = 0;
    std::vector<std::uint16_t> numbers_;  // the detector's, of all sources, once a dispatcher said them
    Time now_ = 0;
    bool is_woken_ = true;
    bool is_leaving_ = false;
    std::string failure_;
};

}  // namespace incast::farm
