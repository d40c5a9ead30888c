#include "softrio/cpp/memory.h"

#include <utility>

#include <librsvdmem.h>
#include <softrio.h>

namespace incast::rio {

namespace {

constexpr std::uint64_t max_bytes = UINT32_MAX;  // what the C functions can say

std::string of_bytes(const char* what, std::uint64_t bytes) {
    return std::string(what) + " of " + std::to_string(bytes) + " bytes";
}

}  // namespace

Result<Memory> Memory::allocate(const MasterPort& port, std::uint64_t bytes) {
    const std::string what = of_bytes("RapidIO memory", bytes);
    if (bytes == 0 || bytes > max_bytes) return Error{what + ": must be 1.." + std::to_string(max_bytes)};
    std::uint64_t address = RIOMP_MAP_ANY_ADDR;
    const int error = riomp_dma_dbuf_alloc(port.get(), static_cast<std::uint32_t>(bytes), &address);
    if (error != 0) return error_line(what, error);
    return Memory(port.get(), address, bytes, true);
}

Result<Memory> Memory::reserved(const MasterPort& port, const char* name) {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    if (get_rsvd_phys_mem(const_cast<char*>(name), &address, &bytes) != 0)
        return Error{"RapidIO memory: nothing is reserved by the name " + std::string(name)};
    return Memory(port.get(), address, bytes, false);
}

Memory::Memory(Memory&& other) noexcept
    : port_(std::exchange(other.port_, nullptr)),
      address_(other.address_),
      bytes_(other.bytes_),
      allocated_(other.allocated_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
    if (this != &other) {
        free();
        port_ = std::exchange(other.port_, nullptr);
        address_ = other.address_;
        bytes_ = other.bytes_;
        allocated_ = other.allocated_;
    }
    return *this;
}

void Memory::free() {
    if (port_ != nullptr && allocated_) (void)riomp_dma_dbuf_free(port_, &address_);
    port_ = nullptr;
}

Result<int> Memory::share() const {
    const int file = softrio_share_memory(port_, address_);
    if (file < 0) return error_line("sharing RapidIO memory", file);
    return file;
}

Result<Mapping> Mapping::of(const MasterPort& port, const Memory& memory, std::uint64_t offset, std::uint64_t bytes) {
    void* at = nullptr;
    const int error = riomp_dma_map_memory(port.get(), bytes, static_cast<off_t>(memory.address() + offset), &at);
    if (error != 0) return error_line(of_bytes("mapping RapidIO memory", bytes), error);
    return Mapping(std::span(static_cast<std::byte*>(at), bytes));
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
    if (this != &other) {
        unmap();
        bytes_ = other.release();
    }
    return *this;
}

std::span<std::byte> Mapping::release() {
    return std::exchange(bytes_, {});
}

void Mapping::unmap() {
    if (!bytes_.empty()) (void)riomp_dma_unmap_memory(bytes_.size(), bytes_.data());
}

Result<Window> Window::open(Map map, const MasterPort& port, std::uint64_t local, std::uint64_t bytes,
                            std::uint64_t address, const char* most) {
    const std::string what = of_bytes("inbound window", bytes) + " at RapidIO address " + std::to_string(address);
    if (bytes == 0 || bytes > max_bytes) return Error{what + ": must have 1.." + std::to_string(max_bytes) + " bytes"};
    const int error = map(port.get(), &address, static_cast<std::uint32_t>(bytes), &local);
    if (error == -EBUSY) return Error{what + ": all " + most + " windows of this endpoint are open, or one is there"};
    if (error != 0) return error_line(what, error);
    return Window(port.get(), local, address, bytes);
}

Result<Window> Window::open(const MasterPort& port, const Memory& memory, std::uint64_t offset, std::uint64_t bytes,
                            std::uint64_t address) {
    return open(riomp_dma_ibwin_map, port, memory.address() + offset, bytes, address, "8");
}

Result<Window> Window::guarded(const MasterPort& port, const Memory& memory, std::uint64_t offset, std::uint64_t bytes,
                               std::uint64_t address) {
    return open(softrio_guarded_map, port, memory.address() + offset, bytes, address, "1024 guarded");
}

std::error_code Window::permit(Destid endpoint, Access access) const {
    return error_of(softrio_permit(port_, local_, endpoint, static_cast<unsigned>(access)));
}

void Window::forbid(Destid endpoint) const {
    (void)softrio_permit(port_, local_, endpoint, 0);
}

Window::Window(Window&& other) noexcept
    : port_(std::exchange(other.port_, nullptr)),
      local_(other.local_),
      address_(other.address_),
      bytes_(other.bytes_) {}

Window& Window::operator=(Window&& other) noexcept {
    if (this != &other) {
        (void)free();
        port_ = std::exchange(other.port_, nullptr);
        local_ = other.local_;
        address_ = other.address_;
        bytes_ = other.bytes_;
    }
    return *this;
}

int Window::free() {
    if (port_ == nullptr) return 0;
    const int error = riomp_dma_ibwin_free(port_, &local_);
    if (error == 0) port_ = nullptr;
    return error;
}

std::error_code Window::close() {
    return error_of(free());
}

}  // namespace incast::rio
