#include "runtime/ledger.h"

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

namespace incast::runtime {
namespace {

constexpr std::uint64_t ledger_magic = 0x3147'4445'4C43'4E49;  // "INCLEDG1"
constexpr std::size_t window_records = std::size_t{1} << 15;   // 1 MiB: one system call per 32768 commits
constexpr std::size_t window_bytes = window_records * sizeof(LedgerRecord);
constexpr std::size_t header_bytes = 4096;  // a page, so that the records behind it can be mapped
constexpr std::uint8_t kind_commit = 1;
constexpr std::uint8_t flag_redelivered = 1;
constexpr std::uint8_t flag_rejected = 2;
constexpr std::uint8_t kind_view = 2;

Error system_error(const std::filesystem::path& file, const char* what) {
    return {fmt::format("ledger '{}' cannot be {}: {}", file.string(), what, std::generic_category().message(errno))};
}

}  // namespace

struct LedgerFile::Header {
    std::uint64_t magic;
    std::uint64_t records;
    std::uint64_t run;
    std::uint32_t events_per_mep;
    std::uint32_t record_bytes;
};

Result<std::unique_ptr<LedgerFile>> LedgerFile::create(const std::filesystem::path& file, std::uint64_t run,
                                                       std::uint32_t events_per_mep) {
    std::error_code code;
    std::filesystem::remove(file, code);
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
        return system_error(file, "made");
    }
    void* page = MAP_FAILED;
    if (posix_fallocate(fd, 0, header_bytes) == 0) {
        page = mmap(nullptr, header_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (page == MAP_FAILED) {
        const Error error = system_error(file, "mapped");
        close(fd);
        return error;
    }
    auto* header = static_cast<Header*>(page);
    *header = {ledger_magic, 0, run, events_per_mep, sizeof(LedgerRecord)};
    std::unique_ptr<LedgerFile> ledger(new LedgerFile(fd, header));
    if (!ledger->next_window()) {
        return system_error(file, "extended");
    }
    return ledger;
}

LedgerFile::~LedgerFile() {
    const std::uint64_t bytes = header_bytes + header_->records * sizeof(LedgerRecord);
    if (window_ != nullptr) {
        munmap(static_cast<void*>(window_), window_bytes);
    }
    munmap(static_cast<void*>(header_), header_bytes);
    // Left too long if this fails: the header's count says where the records end.
    [[maybe_unused]] const int result = ftruncate(fd_, static_cast<off_t>(bytes));
    close(fd_);
}

bool LedgerFile::next_window() {
    if (window_ != nullptr) {
        munmap(static_cast<void*>(window_), window_bytes);
        window_ = nullptr;
    }
    const auto offset = static_cast<off_t>(header_bytes + windows_ * window_bytes);
    // Real blocks now: a full disk is an error here, and not a bus error at some later store.
    if (posix_fallocate(fd_, offset, static_cast<off_t>(window_bytes)) != 0) {
        return false;
    }
    void* const mapped = mmap(nullptr, window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
    if (mapped == MAP_FAILED) {
        return false;
    }
    window_ = static_cast<LedgerRecord*>(mapped);
    in_window_ = 0;
    ++windows_;
    return true;
}

void LedgerFile::append(const LedgerRecord& record) {
    if (broken_ || (in_window_ == window_records && !next_window())) {
        broken_ = true;
        return;
    }
    window_[in_window_++] = record;
    // The record before the count, for whoever reads the file while it grows or after this process was killed.
    std::atomic_ref(header_->records).store(header_->records + 1, std::memory_order_release);
}

void LedgerFile::committed(const protocol::LedgerEntry& entry) {
    append(
        {entry.mep, entry.bu, entry.view, entry.missing_sources, entry.attempt, kind_commit,
         static_cast<std::uint8_t>((entry.redelivered ? flag_redelivered : 0U) | (entry.rejected ? flag_rejected : 0U)),
         0});
}

void LedgerFile::view_changed(Time now, std::uint32_t view, Peer node, std::uint32_t incarnation, wire::Change change) {
    append({incarnation, static_cast<std::uint32_t>(node), view, static_cast<std::uint32_t>(change), 0, kind_view, 0,
            static_cast<std::uint64_t>(now)});
}

Result<LedgerSummary> read_ledger(const std::filesystem::path& file,
                                  const std::function<void(const LedgerRecord&)>& each) {
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
            summary.flagged += record.value != 0 && !rejected ? 1 : 0;
            summary.rejected += rejected ? 1 : 0;
            summary.redelivered += (record.flags & flag_redelivered) != 0 ? 1 : 0;
            if (record.id >= seen.size()) {
                if (record.id > header.records + (std::uint64_t{1} << 24U)) {
                    return Error{fmt::format("ledger '{}' names MEP {}, far beyond its {} records", file.string(),
                                             record.id, header.records)};
                }
                seen.resize(record.id + 1 + record.id / 2);
            }
            summary.distinct_meps += seen[record.id] ? 0 : 1;
            seen[record.id] = true;
        }
    }
    while (summary.committed_below < seen.size() && seen[summary.committed_below]) {
        ++summary.committed_below;
    }
    return summary;
}

}  // namespace incast::runtime
