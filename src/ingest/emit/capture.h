// Files of captured packets (pcap, pcapng), read by libpcap, which is loaded when the first one is opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <incast/result.h>

namespace incast::ingest {

class Capture {
public:
    /// `bytes` are good until the next frame is read.
    struct Frame {
        std::int64_t at_ns = 0;  // since 1970, of the host that captured
        std::size_t frame_bytes = 0;
        std::span<const std::byte> bytes;  // fewer, where the capture cut it
    };

    /// Errors: no libpcap, no such file, a file that is no capture.
    static Result<Capture> open(const std::string& path);

    /// nullopt: the end. Errors: a damaged file.
    Result<std::optional<Frame>> next();
    /// As pcap_datalink().
    [[nodiscard]] int link_type() const;

private:
    struct Close {
        void operator()(void* handle) const;
    };
    Capture(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}

    std::string path_;
    std::unique_ptr<void, Close> handle_;
};

}  // namespace incast::ingest
