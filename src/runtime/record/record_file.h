// A file of whole records that a full disk cannot tear: a record is in the file from its first to its last byte, or it
// is not there at all and is counted. When there is room again, the file goes on. docs/running.md, "Disks".
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <incast/result.h>

#include "os/descriptor.h"

namespace incast::runtime {

using os::Descriptor;

class RecordFile {
public:
    /// Begins the file anew. Error: "<file> cannot be made: <reason>".
    static Result<RecordFile> create(const std::filesystem::path& file);
    /// With what is there still in it, until begin_anew().
    static Result<RecordFile> open(const std::filesystem::path& file);
    Result<Ok> begin_anew();

    /// Whole lines, with their ends: so many records. False: nothing of it is in the file, and reason() says why. May
    /// block on the disk.
    bool append(std::string_view text, std::uint64_t records = 1);

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    /// Records that are not in the file.
    [[nodiscard]] std::uint64_t missing() const { return missing_; }
    /// Whether the last record could be written.
    [[nodiscard]] bool well() const { return well_; }
    /// Why the last record that is missing is missing; empty if none is.
    [[nodiscard]] const std::string& reason() const { return reason_; }
    /// For a lock that lasts as long as the file is open.
    [[nodiscard]] int fd() const { return file_.fd(); }

private:
    RecordFile(os::Descriptor file, std::filesystem::path path) : file_(std::move(file)), path_(std::move(path)) {}
    bool cut_back();

    os::Descriptor file_;
    std::filesystem::path path_;
    std::uint64_t bytes_ = 0;  // of whole records
    std::uint64_t missing_ = 0;
    std::string reason_;
    bool well_ = true;
    bool torn_ = false;  // behind the whole records is a part of one
};

/// Puts the file there whole, or leaves what was there. Error: "<file> cannot be written: <reason>".
Result<Ok> write_whole(const std::filesystem::path& file, std::string_view content);
/// Takes room for so many bytes of a later write_whole of that file, so that it succeeds on a disk that is full by
/// then.
bool reserve_for(const std::filesystem::path& file, std::uint64_t bytes);
/// Gives that room back.
void give_up_reserve(const std::filesystem::path& file);

/// In words, as "No space left on device".
std::string reason_of(int error_number);

}  // namespace incast::runtime
