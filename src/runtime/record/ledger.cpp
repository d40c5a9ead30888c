#include "runtime/record/ledger.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/record/record_file.h"

namespace incast::runtime {
namespace {

constexpr std::uint64_t ledger_magic = 0x3147'4445'4C43'4E49;  // "INCLEDG1"
// 1 MiB: one system call per 32768 commits. Less where the disk has no room for that.
constexpr std::size_t window_sizes[]{std::size_t{1} << 20U, std::size_t{1} << 16U, std::size_t{1} << 12U};
constexpr std::uint32_t records_between_tries = 256;  // while the disk is full: a try is a system call
constexpr std::size_t header_bytes = 4096;            // a page, so that the records behind it can be mapped
constexpr std::uint8_t kind_commit = 1;
constexpr std::uint8_t flag_redelivered = 1;
constexpr std::uint8_t flag_rejected = 2;
constexpr std::uint8_t kind_view = 2;

Error system_error(const std::filesystem::path& file, const char* what, int error) {
    return {fmt::format("ledger '{}' cannot be {}: {}", file.string(), what, reason_of(error))};
}

/// Real blocks now: a full disk is an error here, and not a bus error at some later store. Zero, or the error, which
/// errno does not have.
int allocate(int fd, off_t offset, std::size_t bytes) {
    int error = EINTR;
    while (error == EINTR) {
        error = posix_fallocate(fd, offset, static_cast<off_t>(bytes));
    }
    return error;
}

}  // namespace

struct LedgerFile::Header {
    std::uint64_t magic;
    std::uint64_t records;
    std::uint64_t run;
    std::uint32_t events_per_mep;
    std::uint32_t record_bytes;
    std::uint64_t missing;
    std::uint32_t error;  // of the last that is missing
    std::uint32_t zero;
};

Result<std::unique_ptr<LedgerFile>> LedgerFile::create(const std::filesystem::path& file, std::uint64_t run,
                                                       std::uint32_t events_per_mep) {
    std::error_code code;
    std::filesystem::remove(file, code);
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
        return system_error(file, "made", errno);
    }
    int error = allocate(fd, 0, header_bytes);
    void* page = MAP_FAILED;
    if (error == 0) {
        page = mmap(nullptr, header_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = page == MAP_FAILED ? errno : 0;
    }
    if (error != 0) {
        close(fd);
        std::filesystem::remove(file, code);
        return system_error(file, "made", error);
    }
    auto* header = static_cast<Header*>(page);
    *header = {ledger_magic, 0, run, events_per_mep, sizeof(LedgerRecord), 0, 0, 0};
    std::unique_ptr<LedgerFile> ledger(new LedgerFile(fd, header));
    ledger->window_end_ = header_bytes;
    if (const int why = ledger->next_window(); why != 0) {
        ledger.reset();
        std::filesystem::remove(file, code);
        return system_error(file, "extended", why);
    }
    return ledger;
}

LedgerFile::~LedgerFile() {
    const std::uint64_t bytes = header_bytes + header_->records * sizeof(LedgerRecord);
    unmap_window();
    munmap(static_cast<void*>(header_), header_bytes);
    // Left too long if this fails: the header's count says where the records end.
    [[maybe_unused]] const int result = ftruncate(fd_, static_cast<off_t>(bytes));
    close(fd_);
}

std::uint64_t LedgerFile::missing() const {
    return header_->missing;
}

std::string LedgerFile::reason() const {
    return header_->missing == 0 ? "" : reason_of(static_cast<int>(header_->error));
}

void LedgerFile::unmap_window() {
    if (window_ != nullptr) {
        munmap(static_cast<void*>(window_), window_records_ * sizeof(LedgerRecord));
        window_ = nullptr;
    }
    window_records_ = 0;
    in_window_ = 0;
}

int LedgerFile::map_window(std::size_t bytes) {
    const auto offset = static_cast<off_t>(window_end_);
    if (const int error = allocate(fd_, offset, bytes); error != 0) {
        return error;
    }
    void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
    if (mapped == MAP_FAILED) {
        return errno;
    }
    window_ = static_cast<LedgerRecord*>(mapped);
    window_records_ = bytes / sizeof(LedgerRecord);
    window_end_ += bytes;
    return 0;
}

int LedgerFile::next_window() {
    unmap_window();
    int error = 0;
    for (const std::size_t bytes : window_sizes) {
        error = map_window(bytes);
        if (error != ENOSPC && error != EDQUOT && error != EFBIG) {
            break;
        }
    }
    return error;
}

void LedgerFile::append(const LedgerRecord& record) {
    if (in_window_ == window_records_) {
        int error = static_cast<int>(header_->error);
        if (until_next_try_ == 0) {
            error = next_window();
            broken_ = window_ == nullptr;
            until_next_try_ = broken_ ? records_between_tries : 0;
        }
        if (broken_) {
            --until_next_try_;
            header_->error = static_cast<std::uint32_t>(error);
            std::atomic_ref(header_->missing).store(header_->missing + 1, std::memory_order_release);
            return;
        }
    }
    window_[in_window_++] = record;
    // The record before the count, for whoever reads the file while it grows or after this process was killed.
    std::atomic_ref(header_->records).store(header_->records + 1, std::memory_order_release);
}

void LedgerFile::committed(const protocol::LedgerEntry& entry) {
    append(
        {entry.mep, entry.bu, entry.view, entry.flagged_sources, entry.attempt, kind_commit,
         static_cast<std::uint8_t>((entry.redelivered ? flag_redelivered : 0U) | (entry.rejected ? flag_rejected : 0U)),
         entry.n_events});
}

void LedgerFile::view_changed(Time now, std::uint32_t view, Peer node, std::uint32_t incarnation, wire::Change change,
                              protocol::Cause cause) {
    append({incarnation, static_cast<std::uint32_t>(node), view, static_cast<std::uint32_t>(change), 0, kind_view, 0,
            static_cast<std::uint64_t>(now)});
    if (changes_.size() >= most_view_changes) {
        changes_.erase(changes_.begin());
    }
    changes_.push_back({now, static_cast<std::uint32_t>(node), incarnation, cause});
}

Result<LedgerSummary> read_ledger(const std::filesystem::path& file,
                                  const std::function<void(const LedgerRecord&)>& each, const MepEvents& sizes) {
    std::ifstream input(file, std::ios::binary);
    std::array<char, header_bytes> head{};
    if (!input.read(head.data(), head.size())) {
        return Error{fmt::format("ledger '{}' cannot be read, or is shorter than its header", file.string())};
    }
    LedgerFile::Header header{};
    std::memcpy(&header, head.data(), sizeof header);
    if (header.magic != ledger_magic || header.record_bytes != sizeof(LedgerRecord)) {
        return Error{fmt::format("'{}' is not a ledger of this version", file.string())};
    }
    LedgerSummary summary;
    summary.missing = header.missing;
    summary.reason = header.missing == 0 ? "" : reason_of(static_cast<int>(header.error));
    std::vector<bool> seen;
    std::vector<LedgerRecord> block(4096);
    for (std::uint64_t left = header.records; left > 0;) {
        const std::size_t n = std::min<std::uint64_t>(left, block.size());
        if (!input.read(reinterpret_cast<char*>(block.data()),
                        static_cast<std::streamsize>(n * sizeof(LedgerRecord)))) {
            const std::uint64_t there = static_cast<std::uint64_t>(input.gcount()) / sizeof(LedgerRecord);
            return Error{fmt::format("ledger '{}' ends {} records before its count", file.string(), left - there)};
        }
        left -= n;
        for (std::size_t index = 0; index < n; ++index) {
            const LedgerRecord& record = block[index];
            if (each) {
                each(record);
            }
            if (record.kind == kind_view) {
                summary.losses += record.value != static_cast<std::uint32_t>(wire::Change::up) ? 1 : 0;
                summary.returns +=
                    record.value == static_cast<std::uint32_t>(wire::Change::up) && summary.losses > 0 ? 1 : 0;
                continue;
            }
            ++summary.commits;
            const bool rejected = (record.flags & flag_rejected) != 0;
            const bool flagged = record.value != 0 && !rejected;
            summary.flagged += flagged ? 1 : 0;
            summary.rejected += rejected ? 1 : 0;
            summary.redelivered += (record.flags & flag_redelivered) != 0 ? 1 : 0;
            if (record.id >= seen.size()) {
                if (record.id > header.records + header.missing + (std::uint64_t{1} << 24U)) {
                    return Error{fmt::format("ledger '{}' names MEP {}, far beyond its {} records", file.string(),
                                             record.id, header.records)};
                }
                seen.resize(record.id + 1 + record.id / 2);
            }
            if (!seen[record.id]) {
                const std::uint64_t events = record.time != 0 ? record.time : sizes.of(record.id);
                ++summary.distinct_meps;
                summary.events += events;
                summary.flagged_events += flagged ? events : 0;
                summary.rejected_events += rejected ? events : 0;
            }
            seen[record.id] = true;
        }
    }
    while (summary.committed_below < seen.size() && seen[summary.committed_below]) {
        ++summary.committed_below;
    }
    return summary;
}

}  // namespace incast::runtime
