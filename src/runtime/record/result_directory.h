// The folder of one run: taken by one engine at a time, and never with the result of another run in it.
#pragma once

#include <filesystem>

#include <incast/result.h>

#include "runtime/record/record_file.h"

namespace incast::runtime {

/// Makes the folder, and begins its log.txt, which is locked until it is closed: the lock goes with the process.
/// `replace`: an old run's files are removed, and no others. Error, a line for a person: the folder cannot be written,
/// a run is at work in it, or it holds files of a run.
Result<RecordFile> take_directory(const std::filesystem::path& directory, bool replace);

}  // namespace incast::runtime
