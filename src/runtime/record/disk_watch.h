// Says in time that a disk will be full before the run is over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <incast/transport.h>

namespace incast::runtime {

/// One disk, known by a folder on it.
class DiskWatch {
public:
    explicit DiskWatch(std::filesystem::path folder) : folder_(std::move(folder)) {}

    /// Once, a line for a person. `left`: until the end of the run; nothing: not known.
    std::optional<std::string> look(Time now, std::optional<Time> left);
    /// The same, with what is free given.
    std::optional<std::string> judge(Time now, std::uint64_t free_bytes, std::optional<Time> left);

private:
    std::filesystem::path folder_;
    std::optional<Time> since_;
    std::uint64_t free_then_ = 0;
    bool warned_ = false;
};

}  // namespace incast::runtime
