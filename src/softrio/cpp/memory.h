// Local memory of a master port, and inbound windows that show it to peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "softrio/cpp/port.h"

namespace incast::rio {

inline constexpr std::size_t page_bytes = 4096;
constexpr std::uint64_t whole_pages(std::uint64_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/// Memory that windows can show, by its local ("physical") address: allocated here (and freed), or reserved.
class Memory {
public:
    /// At most 4 GiB - 4096. The port outlives it.
    static Result<Memory> allocate(const MasterPort& port, std::uint64_t bytes);
    /// What is set aside by that name (librsvdmem.h).
    static Result<Memory> reserved(const MasterPort& port, const char* name);
    Memory(Memory&& other) noexcept;
    Memory& operator=(Memory&& other) noexcept;
    ~Memory() { free(); }

    [[nodiscard]] std::uint64_t address() const { return address_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    /// A descriptor for reading, the caller's to close (softrio_share_memory); not of reserved memory.
    [[nodiscard]] Result<int> share() const;

private:
    Memory(riomp_mport_t port, std::uint64_t address, std::uint64_t bytes, bool allocated)
        : port_(port), address_(address), bytes_(bytes), allocated_(allocated) {}
    void free();

    riomp_mport_t port_ = nullptr;
    std::uint64_t address_ = 0;
    std::uint64_t bytes_ = 0;
    bool allocated_ = false;
};

/// Local memory in this process. It outlives the Memory.
class Mapping {
public:
    Mapping() = default;
    /// [offset, offset + bytes) of the memory, whole pages.
    static Result<Mapping> of(const MasterPort& port, const Memory& memory, std::uint64_t offset, std::uint64_t bytes);
    Mapping(Mapping&& other) noexcept : bytes_(other.release()) {}
    Mapping& operator=(Mapping&& other) noexcept;
    ~Mapping() { unmap(); }

    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
    /// The bytes are somebody else's to unmap from here on.
    std::span<std::byte> release();

private:
    explicit Mapping(std::span<std::byte> bytes) : bytes_(bytes) {}
    void unmap();

    std::span<std::byte> bytes_;
};

/// What an endpoint may do in a guarded window.
enum class Access : std::uint8_t { none = 0, read = 1, write = 2, all = 3 };
constexpr Access operator|(Access one, Access other) {
    return Access{static_cast<std::uint8_t>(static_cast<unsigned>(one) | static_cast<unsigned>(other))};
}

/// An inbound window: closed with its owner, which waits (at most 1 s) for peers in the middle of a write.
class Window {
public:
    /// Shows [offset, offset + bytes) of the memory at that RapidIO address, a multiple of 4096. An endpoint has 8.
    static Result<Window> open(const MasterPort& port, const Memory& memory, std::uint64_t offset, std::uint64_t bytes,
                               std::uint64_t address);
    /// The same, but nobody reaches it who is not permitted to (softrio_guarded_map). An endpoint has 1024 of these.
    static Result<Window> guarded(const MasterPort& port, const Memory& memory, std::uint64_t offset,
                                  std::uint64_t bytes, std::uint64_t address);
    /// What the endpoint may do in this guarded window from now on. resource_unavailable_try_again: later.
    [[nodiscard]] std::error_code permit(Destid endpoint, Access access) const;
    /// Nothing any more.
    void forbid(Destid endpoint) const;
    Window(Window&& other) noexcept;
    Window& operator=(Window&& other) noexcept;
    ~Window() { (void)free(); }

    [[nodiscard]] std::uint64_t address() const { return address_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    /// device_or_resource_busy: a peer that does not run is in the middle of a write; nobody can begin one.
    [[nodiscard]] std::error_code close();

private:
    Window(riomp_mport_t port, std::uint64_t local, std::uint64_t address, std::uint64_t bytes)
        : port_(port), local_(local), address_(address), bytes_(bytes) {}

    using Map = int (*)(riomp_mport_t, std::uint64_t*, std::uint32_t, std::uint64_t*);
    static Result<Window> open(Map map, const MasterPort& port, std::uint64_t local, std::uint64_t bytes,
                               std::uint64_t address, const char* most);
    int free();

    riomp_mport_t port_ = nullptr;  // nullptr: closed
    std::uint64_t local_ = 0;
    std::uint64_t address_ = 0;
    std::uint64_t bytes_ = 0;
};

}  // namespace incast::rio
