// Local memory and windows.
#include <algorithm>
#include <cerrno>
#include <ctime>
#include <iterator>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

#include "softrio/shm/port.h"

namespace incast::softrio::shm {

namespace {

constexpr std::uint64_t any = ~std::uint64_t{0};
constexpr std::uint64_t alignment = std::uint64_t{2} << 20;  // of local addresses
constexpr std::uint64_t old_limit_bytes = std::uint64_t{2} << 20;
constexpr std::uint32_t old_limit_count = 8;
constexpr std::size_t max_allocations = 4096;
constexpr std::uint64_t outbound_stride = std::uint64_t{1} << 32;  // above every size, which has 32 bits
constexpr std::int64_t drain_ms = 1000;

}  // namespace

Result<Ok> Port::reserve() {
    auto reserved = reserved_of_environment();
    if (!reserved) return reserved.error();
    for (const Reserved& each : *reserved) {
        Allocation allocation;
        allocation.start = each.start;
        allocation.bytes = each.bytes;
        allocation.kind = Allocation::Kind::reserved;
        allocation.owner = max_sinks;  // of no handle
        allocations_.emplace(each.start, std::move(allocation));
    }
    return Ok{};
}

Allocation* Port::find(std::uint64_t address, std::uint64_t bytes) {
    auto next = allocations_.upper_bound(address);
    if (next == allocations_.begin()) return nullptr;
    Allocation& found = std::prev(next)->second;
    const std::uint64_t size = whole_pages(found.bytes);
    if (address - found.start > size || bytes > size - (address - found.start)) return nullptr;
    // Reserved memory is made when it is first used.
    if (!found.memory.file.is_open()) {
        auto memory = make_memory(found.bytes);
        if (!memory) return nullptr;
        found.memory = std::move(*memory);
    }
    return &found;
}

int Port::allocate(std::uint32_t owner, std::uint64_t bytes, std::uint64_t& local) {
    if (bytes == 0 || bytes > max_size) return -EINVAL;
    const std::lock_guard lock(memory_mutex_);
    if (local != any) return find(local, bytes) != nullptr ? 0 : -ENOMEM;
    const auto made = std::ranges::count_if(
        allocations_, [](const auto& each) { return each.second.kind != Allocation::Kind::reserved; });
    if (options_.limits == Options::Limits::old && (bytes > old_limit_bytes || made >= old_limit_count)) return -ENOMEM;
    if (static_cast<std::size_t>(made) >= max_allocations) return -ENOMEM;
    auto memory = make_memory(bytes);
    if (!memory) return -ENOMEM;
    Allocation allocation;
    allocation.start = next_local_;
    allocation.bytes = bytes;
    allocation.memory = std::move(*memory);
    allocation.owner = owner;
    local = next_local_;
    next_local_ += (bytes + alignment - 1) / alignment * alignment;
    allocations_.emplace(local, std::move(allocation));
    return 0;
}

int Port::free_allocation(std::uint64_t local) {
    const std::lock_guard lock(memory_mutex_);
    const auto found = allocations_.find(local);
    if (found != allocations_.end() && found->second.kind == Allocation::Kind::buffer) {
        const bool shown = std::ranges::any_of(windows_, [&](const OwnWindow& each) {
            return each.used && each.local >= local && each.local - local < found->second.bytes;
        });
        if (shown) return -EBUSY;
        allocations_.erase(found);
        return 0;
    }
    // A buffer in reserved memory takes nothing, and gives nothing back.
    return find(local, 1) != nullptr ? 0 : -EINVAL;
}

int Port::map_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) {
    return open_window(owner, base, bytes, local, false);
}

int Port::map_guarded(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) {
    return open_window(owner, base, bytes, local, true);
}

int Port::open_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local,
                      bool is_guarded) {
    if (bytes == 0 || (base != any && base % page_bytes != 0) || (local != any && local % page_bytes != 0))
        return -EINVAL;
    const bool fresh = local == any;
    if (const int error = allocate(owner, bytes, local)) return error;
    const std::lock_guard lock(memory_mutex_);
    const auto refuse = [&](int error) {
        if (fresh) {
            allocations_.erase(local);
            local = any;
        }
        return error;
    };
    const std::uint64_t size = whole_pages(bytes);
    const std::uint64_t at = base == any ? local : base;
    if (at > any - size) return refuse(-EINVAL);
    const auto next = shown_.lower_bound(at + size);
    if (next != shown_.begin()) {
        const OwnWindow& before = windows_[std::prev(next)->second];
        if (at < before.base + before.bytes) return refuse(-EBUSY);
    }
    const auto first = windows_.begin() + (is_guarded ? max_windows : 0);
    const auto last = is_guarded ? windows_.end() : first + max_windows;
    const auto free = std::find_if(first, last, [](const OwnWindow& each) { return !each.used; });
    const auto number = static_cast<std::uint32_t>(free - windows_.begin());
    if (number == (is_guarded ? max_windows + max_guarded : max_windows)) return refuse(-EBUSY);
    Allocation* memory = find(local, size);
    if (memory == nullptr) return refuse(-ENOMEM);
    if (fresh) memory->kind = Allocation::Kind::window;
    if (number == windows_.size()) windows_.emplace_back();
    windows_[number] = {.used = true,
                        .base = at,
                        .bytes = size,
                        .local = local,
                        .owner = owner,
                        .is_guarded = is_guarded,
                        .permits = {}};
    shown_.emplace(at, number);
    Window& window = block_->windows[number];
    if (!is_guarded) {
        window.base.store(at);
        window.bytes.store(size);
        window.offset.store(local - memory->start);
        window.file.number.store(static_cast<std::uint32_t>(memory->memory.file.fd()));
        window.file.inode.store(memory->memory.inode);
        window.file.bytes.store(memory->memory.bytes);
    }
    window.open.fetch_add(1, std::memory_order_seq_cst);
    base = at;
    return 0;
}

int Port::permit(std::uint64_t local, std::uint32_t destid, Access access) {
    if (!is_destid(destid) || (access & ~may_all) != 0) return -EINVAL;
    const std::lock_guard lock(memory_mutex_);
    const auto found = std::ranges::find_if(
        windows_, [&](const OwnWindow& each) { return each.used && each.is_guarded && each.local == local; });
    if (found == windows_.end()) return -EINVAL;
    const auto number = static_cast<std::uint32_t>(found - windows_.begin());
    // On a fabric of shm whoever reaches it has its file: without that it is told of nothing.
    const bool hands_over = !is_alone_ && access != 0;
    if (const int error = hands_over ? hand_over(number, destid, access) : 0) return -error;
    if (access == 0) {
        found->permits.erase(destid);
    } else {
        found->permits[destid] = access;
    }
    return 0;
}

/// Returns 0 or an errno.
int Port::hand_over(std::uint32_t window, std::uint32_t destid, Access access) {
    const OwnWindow& own = windows_[window];
    const Allocation* memory = find(own.local, own.bytes);
    if (memory == nullptr) return ENOMEM;
    const Handed what{.destid = this->destid(),
                      .window = window,
                      .generation = block_->windows[window].open.load(),
                      .base = own.base,
                      .bytes = own.bytes,
                      .offset = own.local - memory->start,
                      .file_bytes = memory->memory.bytes,
                      .access = access};
    const std::string name = files_name(options_.fabric, destid);
    if ((access & may_write) != 0) return hand_file(name, what, memory->memory.file);
    const Descriptor file = for_reading(memory->memory.file);
    return file.is_open() ? hand_file(name, what, file) : EAGAIN;
}

/// Under another destination id this is another endpoint for those who had been handed anything.
void Port::hand_over_all() {
    const std::lock_guard lock(memory_mutex_);
    for (std::uint32_t number = max_windows; number < windows_.size(); ++number) {
        for (const auto& [destid, access] : windows_[number].permits)
            (void)hand_over(number, destid, access);
    }
}

void Port::take_files() {
    const std::lock_guard lock(files_mutex_);
    while (const auto handed = files_.take()) {
        auto owner = peer(handed->what.destid);
        // Another process may have the id by now.
        if (owner != nullptr && owner->process() != handed->process) owner = peer(handed->what.destid, true);
        if (owner != nullptr && owner->process() == handed->process) owner->take(*handed);
    }
}

int Port::drain(std::uint32_t window) {
    const std::int64_t until = now_ms() + drain_ms;
    for (Writer& writer : block_->writers) {
        const auto is_in = [&] {
            return std::ranges::any_of(writer.busy, [&](auto& each) { return each.load() == window + 1; });
        };
        while (is_in()) {
            const std::uint64_t process = writer.process.load();
            if (process == 0 || process_is_gone(static_cast<std::uint32_t>(process))) {
                for (auto& busy : writer.busy)
                    busy.store(0);
                break;
            }
            if (now_ms() >= until) return -EBUSY;
            const timespec moment{0, 50'000};
            ::nanosleep(&moment, nullptr);
        }
    }
    return 0;
}

int Port::free_window(std::uint64_t local) {
    const std::lock_guard lock(memory_mutex_);
    const auto found =
        std::ranges::find_if(windows_, [&](const OwnWindow& each) { return each.used && each.local == local; });
    if (found == windows_.end()) return -EINVAL;
    const auto number = static_cast<std::uint32_t>(found - windows_.begin());
    auto& open = block_->windows[number].open;
    if (open.load() % 2 == 1) open.fetch_add(1, std::memory_order_seq_cst);
    if (const int error = drain(number)) return error;
    shown_.erase(found->base);
    *found = {};
    const auto memory = allocations_.find(local);
    if (memory != allocations_.end() && memory->second.kind == Allocation::Kind::window) allocations_.erase(memory);
    return 0;
}

int Port::map_outbound(std::uint32_t owner, std::uint32_t destid, std::uint64_t base, std::uint64_t bytes,
                       std::uint64_t& handle) {
    if (bytes == 0 || base % page_bytes != 0) return -EINVAL;
    if (!is_destid(destid)) return -EINVAL;
    const std::lock_guard lock(memory_mutex_);
    for (std::uint32_t number = 0; number < outbound_.size(); ++number) {
        if (outbound_[number].used) continue;
        outbound_[number] = {true, destid, base, bytes, owner};
        handle = outbound_base + number * outbound_stride;
        return 0;
    }
    return -EBUSY;
}

int Port::free_outbound(std::uint64_t handle) {
    const std::lock_guard lock(memory_mutex_);
    const std::uint64_t number = (handle - outbound_base) / outbound_stride;
    if (handle < outbound_base || handle % outbound_stride != 0 || number >= outbound_.size() ||
        !outbound_[number].used) {
        return -EINVAL;
    }
    outbound_[number] = {};
    return 0;
}

int Port::open_memory(std::uint64_t local, std::uint64_t bytes, std::uint64_t& offset) {
    if (bytes == 0) return -EINVAL;
    if (local >= outbound_base) {
        Outbound window;
        {
            const std::lock_guard lock(memory_mutex_);
            const std::uint64_t number = (local - outbound_base) / outbound_stride;
            if (number >= outbound_.size() || !outbound_[number].used) return -EINVAL;
            window = outbound_[number];
        }
        const std::uint64_t into = local % outbound_stride;
        if (into > window.bytes || bytes > window.bytes - into) return -EINVAL;
        const auto target = peer(window.destid);
        if (target == nullptr) return -ENODEV;
        const auto reached = target->reach(window.base + into, bytes);
        if (!reached) return -EIO;
        const SharedFile& file = target->block().windows[reached->window].file;
        Descriptor memory = open_of(target->process(), file.number.load(), file.inode.load(), FileKind::memory);
        if (!is_sealed(memory, reached->mapping->bytes().size())) return -EIO;
        offset = reached->file_offset(window.base + into);
        return memory.release();
    }
    const std::lock_guard lock(memory_mutex_);
    const Allocation* memory = find(local, bytes);
    if (memory == nullptr) return -EINVAL;
    offset = local - memory->start;
    const int file = ::fcntl(memory->memory.file.fd(), F_DUPFD_CLOEXEC, 0);
    return file >= 0 ? file : -errno;
}

int Port::share_memory(std::uint64_t local) {
    const std::lock_guard lock(memory_mutex_);
    const Allocation* memory = find(local, 1);
    if (memory == nullptr || memory->start != local) return -EINVAL;
    Descriptor file = for_reading(memory->memory.file);
    return file.is_open() ? file.release() : -errno;
}

std::span<std::byte> Port::local(std::uint64_t address, std::uint64_t bytes, Keep& keep) {
    const std::lock_guard lock(memory_mutex_);
    Allocation* memory = find(address, bytes);
    if (memory == nullptr) return {};
    if (memory->mapping == nullptr) memory->mapping = map(memory->memory.file, memory->memory.bytes);
    keep = memory->mapping;
    if (keep == nullptr) return {};
    return memory->mapping->bytes().subspan(address - memory->start, bytes);
}

bool Inbound::find(std::uint64_t address, std::uint64_t bytes) {
    const auto behind = port_->shown_.upper_bound(address);
    if (behind == port_->shown_.begin()) return false;
    const OwnWindow& window = port_->windows_[std::prev(behind)->second];
    if (address - window.base > window.bytes || bytes > window.bytes - (address - window.base)) return false;
    Allocation* memory = port_->find(window.local, window.bytes);
    if (memory == nullptr) return false;
    if (memory->mapping == nullptr) memory->mapping = map(memory->memory.file, memory->memory.bytes);
    if (memory->mapping == nullptr) return false;
    window_ = &window;
    base_ = window.base;
    memory_ = memory->mapping->bytes().subspan(window.local - memory->start, window.bytes);
    return true;
}

std::span<std::byte> Inbound::at(std::uint32_t source, Direction direction, std::uint64_t address,
                                 std::uint64_t bytes) {
    const bool is_known =
        address >= base_ && address - base_ <= memory_.size() && bytes <= memory_.size() - (address - base_);
    if ((!is_known || window_ == nullptr) && !find(address, bytes)) return {};
    return window_->allows(source, direction) ? memory_.subspan(address - base_, bytes) : std::span<std::byte>{};
}

void Port::free_all(std::uint32_t owner) {
    std::vector<std::uint64_t> shown;
    {
        const std::lock_guard lock(memory_mutex_);
        for (const OwnWindow& each : windows_) {
            if (each.used && each.owner == owner) shown.push_back(each.local);
        }
    }
    for (const std::uint64_t local : shown)
        (void)free_window(local);
    const std::lock_guard lock(memory_mutex_);
    for (Outbound& each : outbound_) {
        if (each.used && each.owner == owner) each = {};
    }
    std::erase_if(allocations_, [&](const auto& each) {
        return each.second.owner == owner && each.second.kind == Allocation::Kind::buffer;
    });
}

}  // namespace incast::softrio::shm
