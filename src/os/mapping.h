// Mapped memory, unmapped with its last owner.
#pragma once

#include <cstddef>
#include <span>

#include <sys/mman.h>

namespace incast::os {

class Mapping {
public:
    explicit Mapping(std::span<std::byte> bytes) : bytes_(bytes) {}
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() { ::munmap(bytes_.data(), bytes_.size()); }
    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

private:
    std::span<std::byte> bytes_;
};

}  // namespace incast::os
