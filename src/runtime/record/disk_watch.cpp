#include "runtime/record/disk_watch.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include "base/units.h"

namespace incast::runtime {
namespace {

constexpr std::uint64_t little = 16U << 20U;
constexpr Time stretch = 10 * ps_per_s;  // over which the rate of writing is taken, whoever writes

}  // namespace

std::optional<std::string> DiskWatch::look(Time now, std::optional<Time> left) {
    struct statvfs disk{};
    if (warned_ || ::statvfs(folder_.c_str(), &disk) != 0 || disk.f_blocks == 0) {
        return std::nullopt;
    }
    return judge(now, static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize, left);
}

std::optional<std::string> DiskWatch::judge(Time now, std::uint64_t free_bytes, std::optional<Time> left) {
    if (warned_) {
        return std::nullopt;
    }
    const std::string free = base::format_bytes(static_cast<double>(free_bytes));
    if (free_bytes < little) {
        warned_ = true;
        return fmt::format("the disk of {} is almost full: {} are free", folder_.string(), free);
    }
    if (!since_) {
        since_ = now;
        free_then_ = free_bytes;
    }
    if (now - *since_ < stretch) {
        return std::nullopt;
    }
    const double seconds = base::seconds(now - *since_);
    const double rate = free_bytes < free_then_ ? static_cast<double>(free_then_ - free_bytes) / seconds : 0;
    since_ = now;
    free_then_ = free_bytes;
    if (!left || rate <= 0 || static_cast<double>(free_bytes) / rate >= base::seconds(*left)) {
        return std::nullopt;
    }
    warned_ = true;
    const double lasts = static_cast<double>(free_bytes) / rate;
    return fmt::format(
        "the disk of {} will be full in {}, and the run takes {} more: {} are free, and {}/s are written",
        folder_.string(), base::format_duration(static_cast<Time>(lasts * 1e12)), base::format_duration(*left), free,
        base::format_bytes(rate));
}

}  // namespace incast::runtime
