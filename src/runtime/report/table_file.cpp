#include "runtime/report/table_file.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

namespace incast::runtime {

TableFile::TableFile(Reporter& reporter, const char* name)
    : reporter_(reporter), name_(name), file_(RecordFile::create(reporter.directory() / name)) {
    why_ = file_ ? "" : file_.error().message;
}

TableFile::~TableFile() {
    write();
    if (why_.empty()) return;
    std::error_code code;
    std::filesystem::remove(reporter_.directory() / name_, code);
    reporter_.notice(Level::warning, fmt::format("{} is not written: {}", name_, why_));
    reporter_.is_incomplete(name_, {}, why_);
}

void TableFile::add(std::string_view line) {
    constexpr std::size_t part_bytes = 1U << 16U;
    lines_ += line;
    if (lines_.size() > part_bytes) write();
}

void TableFile::write() {
    if (why_.empty() && !file_->append(lines_)) why_ = file_->reason();
    lines_.clear();
}

}  // namespace incast::runtime
