// A table in the folder of a run that is whole or not there. It may be long, so it is written in parts.
#pragma once

#include <string>
#include <string_view>

#include "runtime/record/record_file.h"
#include "runtime/report/report.h"

namespace incast::runtime {

class TableFile {
public:
    TableFile(Reporter& reporter, const char* name);
    /// What is there is written. If it cannot be, the table is removed, and the reporter is told.
    ~TableFile();
    TableFile(const TableFile&) = delete;
    TableFile& operator=(const TableFile&) = delete;

    /// A line with its end.
    void add(std::string_view line);

private:
    void write();

    Reporter& reporter_;
    const char* name_;
    Result<RecordFile> file_;
    std::string lines_;
    std::string why_;  // it cannot be written
};

}  // namespace incast::runtime
