// Whether this is still the process that made it: a child of it reads another word. One load, no system call.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/mman.h>

namespace incast::channel {

class ForkGuard {
public:
    ForkGuard() {
        void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return;
        if (::madvise(memory, bytes, MADV_WIPEONFORK) != 0) {
            ::munmap(memory, bytes);
            return;
        }
        word_ = static_cast<std::uint32_t*>(memory);
        *word_ = 1;
    }
    ForkGuard(const ForkGuard&) = delete;
    ForkGuard& operator=(const ForkGuard&) = delete;
    ~ForkGuard() {
        if (word_ != nullptr) ::munmap(word_, bytes);
    }
    /// Never where the kernel cannot tell (before Linux 4.14).
    [[nodiscard]] bool is_child() const {
        return word_ != nullptr && *static_cast<volatile std::uint32_t*>(word_) == 0;
    }

private:
    static constexpr std::size_t bytes = 4096;
    std::uint32_t* word_ = nullptr;
};

}  // namespace incast::channel
