#include "ingest/emit/capture.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/time.h>

namespace incast::ingest {

namespace {

// What libpcap 1.5 and later offer (pcap/pcap.h; the man pages pcap_open_offline(3pcap), pcap_next_ex(3pcap)). Its
// header is not asked for: in Debian it brings D-Bus's and others' along.
constexpr const char* library = "libpcap.so.0.8";
constexpr std::size_t error_bytes = 256;  // PCAP_ERRBUF_SIZE
constexpr unsigned precision_ns = 1;      // PCAP_TSTAMP_PRECISION_NANO
constexpr int ended = -2;                 // PCAP_ERROR_BREAK
struct PacketHeader {
    timeval at;  // with nanoseconds in place of microseconds
    std::uint32_t captured_bytes;
    std::uint32_t frame_bytes;
};
struct Library {
    void* (*open_offline)(const char* path, unsigned precision, char* error);
    int (*next_ex)(void* handle, PacketHeader** header, const unsigned char** bytes);
    int (*datalink)(void* handle);
    char* (*geterr)(void* handle);
    void (*close)(void* handle);
};

/// nullptr: there is none, or it lacks a function.
const Library* pcap() {
    static const std::optional<Library> loaded = []() -> std::optional<Library> {
        void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) return std::nullopt;
        const std::array<void*, 5> found{::dlsym(handle, "pcap_open_offline_with_tstamp_precision"),
                                         ::dlsym(handle, "pcap_next_ex"), ::dlsym(handle, "pcap_datalink"),
                                         ::dlsym(handle, "pcap_geterr"), ::dlsym(handle, "pcap_close")};
        if (std::ranges::find(found, nullptr) != found.end()) return std::nullopt;
        return std::bit_cast<Library>(found);
    }();
    return loaded ? &*loaded : nullptr;
}

}  // namespace

void Capture::Close::operator()(void* handle) const {
    pcap()->close(handle);
}

Result<Capture> Capture::open(const std::string& path) {
    if (pcap() == nullptr) {
        return Error{fmt::format("{}: {} cannot be loaded; the package libpcap0.8 has it", path, library)};
    }
    std::array<char, error_bytes> error{};
    void* const handle = pcap()->open_offline(path.c_str(), precision_ns, error.data());
    if (handle == nullptr) {
        const std::string said(error.data(), ::strnlen(error.data(), error.size()));
        return Error{said.starts_with(path) ? said : fmt::format("{}: {}", path, said)};
    }
    return Capture(path, handle);
}

Result<std::optional<Capture::Frame>> Capture::next() {
    PacketHeader* header = nullptr;
    const unsigned char* bytes = nullptr;
    const int status = pcap()->next_ex(handle_.get(), &header, &bytes);
    if (status == ended) return std::optional<Frame>();
    if (status != 1) return Error{fmt::format("{}: {}", path_, pcap()->geterr(handle_.get()))};
    constexpr std::int64_t ns_per_s = 1'000'000'000;
    return std::optional(Frame{header->at.tv_sec * ns_per_s + header->at.tv_usec,
                               header->frame_bytes,
                               {reinterpret_cast<const std::byte*>(bytes), header->captured_bytes}});
}

int Capture::link_type() const {
    return pcap()->datalink(handle_.get());
}

}  // namespace incast::ingest
