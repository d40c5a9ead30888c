// The event manager's ledger as a file: who committed which MEP, and who came and went. EB-F2, EB-F4.
//
// ledger.bin, little-endian: a header page, then 32-byte records, append-only.
//   header  u64 magic "INCLEDG1" | u64 records written | u64 run | u32 events per MEP | u32 record bytes (32) |
//   u64 records missing | u32 why (errno) | zeros to 4096
//   record  u64 id | u32 node | u32 view | u32 value | u16 attempt | u8 kind | u8 flags | u64 time
//     kind 1 commit: id = MEP, node = its builder unit, value = sources flagged, flags bit 0 = redelivered, bit 1 =
//     rejected by a filter, time = its events (0: not counted) kind 2 view:   id = incarnation, node = who changed,
//     value = 1 up, 2 dead, 3 unreachable, 4 distrusted, time in ps of the run's clock
// The file is mapped: a record is written, then the count, so whatever happens to the process (kill -9 included) the
// kernel keeps every record that the count covers. It does not survive a crash of the whole machine. While the disk is
// full records are left out, and counted as missing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <incast/result.h>

#include "protocol/interfaces.h"
#include "runtime/record/mep_events.h"
#include "runtime/record/metrics.h"

namespace incast::runtime {

struct LedgerRecord {
    std::uint64_t id = 0;
    std::uint32_t node = 0;
    std::uint32_t view = 0;
    std::uint32_t value = 0;
    std::uint16_t attempt = 0;
    std::uint8_t kind = 0;
    std::uint8_t flags = 0;
    std::uint64_t time = 0;  // commit: events of the MEP; 0: as many as the header says, or the last one's rest
};
static_assert(sizeof(LedgerRecord) == 32);

class LedgerFile final : public protocol::Ledger {
public:
    /// Makes a new file; an old one of that name is replaced. Error: the system's.
    static Result<std::unique_ptr<LedgerFile>> create(const std::filesystem::path& file, std::uint64_t run,
                                                      std::uint32_t events_per_mep);
    /// Cuts the file to its records.
    ~LedgerFile() override;

    void committed(const protocol::LedgerEntry& entry) override;
    void view_changed(Time now, std::uint32_t view, Peer node, std::uint32_t incarnation, wire::Change change,
                      protocol::Cause cause) override;
    /// Changes of the view since this was last taken; of many only the last ones.
    [[nodiscard]] std::vector<ViewChange> take_changes() { return std::exchange(changes_, {}); }
    [[nodiscard]] bool has_changes() const { return !changes_.empty(); }

    /// Records that are not in the file, as the disk was full.
    [[nodiscard]] std::uint64_t missing() const;
    /// Why, in words; empty: none is missing.
    [[nodiscard]] std::string reason() const;
    /// Whether the last record is in the file.
    [[nodiscard]] bool well() const { return !broken_; }

    struct Header;

private:
    LedgerFile(int fd, Header* header) : fd_(fd), header_(header) {}
    void append(const LedgerRecord& record);
    /// Zero, or why there is none.
    int next_window();
    int map_window(std::size_t bytes);
    void unmap_window();

    int fd_;
    Header* header_;
    LedgerRecord* window_ = nullptr;  // one part of the file at a time is mapped
    std::uint64_t in_window_ = 0;
    std::uint64_t window_records_ = 0;
    std::uint64_t window_end_ = 0;  // in the file
    bool broken_ = false;
    std::uint32_t until_next_try_ = 0;  // records, while it is broken
    std::vector<ViewChange> changes_;
};

struct LedgerSummary {
    std::uint64_t commits = 0;
    std::uint64_t distinct_meps = 0;
    std::uint64_t events = 0;           // in these
    std::uint64_t flagged_events = 0;   // delivered incomplete
    std::uint64_t rejected_events = 0;  // not delivered
    std::uint64_t committed_below = 0;  // every MEP below is committed
    std::uint64_t flagged = 0;
    std::uint64_t redelivered = 0;
    std::uint64_t rejected = 0;
    std::uint64_t losses = 0;   // nodes declared dead or unreachable
    std::uint64_t returns = 0;  // incarnations that came in after a loss
    std::uint64_t missing = 0;  // records that are not there, as the disk was full
    std::string reason;         // why, if any is missing
};

/// Reads a ledger, also of a run that ended badly, and calls `each` (may be empty) for every record. `sizes`: for the
/// counts of events. Error: not a ledger, or cut short.
Result<LedgerSummary> read_ledger(const std::filesystem::path& file,
                                  const std::function<void(const LedgerRecord&)>& each, const MepEvents& sizes = {});

}  // namespace incast::runtime
