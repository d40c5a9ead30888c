// For tests: a folder that goes away again, and MFP files in it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/prng.h"
#include "wire/mfp.h"

namespace incast::sources {

class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "incast-test-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("cannot make " + name);
        }
        path_ = name;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

/// One MFP with fragments of 0 to `most` bytes, different for every source and event.
inline std::vector<std::byte> recorded_mfp(std::uint16_t source, std::uint64_t first_event, std::uint32_t n_events,
                                           std::uint32_t most = 300) {
    std::vector<std::byte> out(wire::mfp_bytes(n_events, most, 3).packet_bytes);
    auto writer =
        wire::MfpWriter::begin(
            out, {.first_event = first_event, .n_fragments = n_events, .source = source, .fragment_version = 4})
            .value();
    for (std::uint32_t index = 0; index < n_events; ++index) {
        base::Prng prng(base::mix64(source) + first_event + index);
        std::vector<std::byte> fragment(prng.below(most + 1));
        for (std::byte& byte : fragment) {
            byte = static_cast<std::byte>(prng.next());
        }
        writer.add(7, fragment);
    }
    out.resize(writer.finish().value());
    return out;
}

inline void append(const std::filesystem::path& file, std::span<const std::byte> bytes) {
    std::ofstream out(file, std::ios::binary | std::ios::app);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

inline std::filesystem::path source_file(const std::filesystem::path& folder, std::uint16_t source) {
    return folder / ("source-" + std::to_string(source) + ".mfp");
}

/// `n_events` events from `first_event` on, `packing` to an MFP.
inline void record(const std::filesystem::path& folder, std::uint16_t source, std::uint64_t first_event,
                   std::uint64_t n_events, std::uint32_t packing) {
    for (std::uint64_t done = 0; done < n_events; done += packing) {
        const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(packing, n_events - done));
        append(source_file(folder, source), recorded_mfp(source, first_event + done, n));
    }
}

}  // namespace incast::sources
