#include "softrio/shm/peer.h"

#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "softrio/options.h"

namespace incast::softrio::shm {

namespace {

std::uint32_t process_of(std::uint64_t writer) {
    return static_cast<std::uint32_t>(writer);
}

}  // namespace

std::shared_ptr<Peer> Peer::open(const Place& place) {
    auto peer = std::make_shared<Peer>();
    peer->place_ = place;
    // Watched first: if the process is still there after the block was opened, its number was not another's meanwhile.
    peer->watch_ = watch_process(place.process);
    peer->mapping_ = map_of(place.process, place.number, place.inode, sizeof(Block));
    if (peer->mapping_ == nullptr) {
        if (peer->watch_.is_open() && !has_ended(peer->watch_)) {
            debug("endpoint " + std::to_string(place.destid) + " (process " + std::to_string(place.process) +
                  ") cannot be reached: " + std::generic_category().message(errno) +
                  "; endpoints must be of one user, and of one version of SoftRIO");
        }
        return nullptr;
    }
    const Block& block = peer->block();
    if (block.magic.load() != layout_magic || block.destid.load() != place.destid || !peer->is_there_now()) {
        return nullptr;
    }
    return peer;
}

bool Peer::is_there_now() {
    checked_.store(ticks(), std::memory_order_relaxed);
    const Block& its = block();
    if (its.gone.load() == 0 && its.destid.load() == place_.destid && !has_ended(watch_)) return true;
    ended_.store(true);
    return false;
}

bool Peer::is_there() {
    if (ticks() - checked_.load(std::memory_order_relaxed) > ticks_of_1_ms) return is_there_now();
    const Block& its = block();
    return !ended_.load(std::memory_order_relaxed) && its.gone.load(std::memory_order_relaxed) == 0 &&
           its.destid.load(std::memory_order_relaxed) == place_.destid;
}

Writer* Peer::writer(std::uint64_t self) {
    if (Writer* known = writer_.load(std::memory_order_acquire)) return known;
    const std::lock_guard lock(mutex_);
    if (Writer* known = writer_.load(std::memory_order_acquire)) return known;
    for (const bool take_over : {false, true}) {
        for (Writer& each : block().writers) {
            std::uint64_t owner = each.process.load();
            if (owner != 0 && (!take_over || !process_is_gone(process_of(owner)))) continue;
            // Those who died while they wrote have left their mark.
            if (!each.process.compare_exchange_strong(owner, self)) continue;
            for (auto& busy : each.busy)
                busy.store(0);
            writer_.store(&each, std::memory_order_release);
            return &each;
        }
    }
    return nullptr;
}

void Peer::leave() {
    const std::lock_guard lock(mutex_);
    if (Writer* own = writer_.exchange(nullptr)) own->process.store(0);
}

std::shared_ptr<Mapping> Peer::map_window(std::uint32_t window, std::uint64_t generation) {
    const std::lock_guard lock(mutex_);
    Mapped& mapped = windows_[window];
    if (mapped.generation == generation && mapped.mapping != nullptr) return mapped.mapping;
    const SharedFile& file = block().windows[window].file;
    const std::uint32_t number = file.number.load();
    const std::uint64_t inode = file.inode.load();
    const std::uint64_t bytes = file.bytes.load();
    if (block().windows[window].open.load() != generation) return nullptr;
    mapped.mapping = map_of(place_.process, number, inode, bytes);
    mapped.generation = generation;
    return mapped.mapping;
}

std::optional<Reached> Peer::reach(std::uint64_t address, std::uint64_t bytes) {
    for (std::uint32_t number = 0; number < max_windows; ++number) {
        const Window& window = block().windows[number];
        const std::uint64_t generation = window.open.load(std::memory_order_acquire);
        if (generation % 2 == 0) continue;
        const std::uint64_t base = window.base.load(std::memory_order_relaxed);
        const std::uint64_t size = window.bytes.load(std::memory_order_relaxed);
        const std::uint64_t offset = window.offset.load(std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (window.open.load(std::memory_order_relaxed) != generation) continue;
        Reached reached{number, generation, base, size, offset, nullptr, may_all};
        if (!reached.holds(address, bytes)) continue;
        reached.mapping = map_window(number, generation);
        if (reached.mapping == nullptr) continue;
        const std::uint64_t mapped = reached.mapping->bytes().size();
        if (size > mapped || offset > mapped - size) continue;  // what it says makes no sense
        return reached;
    }
    return std::nullopt;
}

std::optional<Reached> Peer::reach_handed(Direction direction, std::uint64_t address, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto behind = handed_.upper_bound(address);
    if (behind == handed_.begin()) return std::nullopt;
    const Reached& reached = std::prev(behind)->second;
    const bool is_open = block().windows[reached.window].open.load() == reached.generation;
    if (!is_open || !allows(reached.access, direction) || !reached.holds(address, bytes)) return std::nullopt;
    return reached;
}

void Peer::take(const HandedFile& handed) {
    const Handed& what = handed.what;
    if (what.window < max_windows || what.window >= block().windows.size() || what.generation % 2 == 0) return;
    if (what.bytes > what.file_bytes || what.offset > what.file_bytes - what.bytes) return;
    auto mapping = map_handed(handed);
    if (mapping == nullptr) return;
    const std::lock_guard lock(mutex_);
    // Those that are closed meanwhile go.
    std::erase_if(handed_, [&](const auto& each) {
        return block().windows[each.second.window].open.load() != each.second.generation;
    });
    handed_[what.base] = {what.window, what.generation,    what.base,  what.bytes,
                          what.offset, std::move(mapping), what.access};
}

void Peer::ring(std::uint32_t sink) {
    const std::lock_guard lock(mutex_);
    Bell& bell = bells_[sink];
    const Sink& its = block().sinks[sink];
    const std::uint64_t generation = its.open.load();
    if (generation % 2 == 0) return;
    if (bell.generation != generation || !bell.pipe.is_open()) {
        bell.pipe = open_of(place_.process, its.bell.number.load(), its.bell.inode.load(), FileKind::pipe);
        bell.generation = generation;
    }
    // Opened for reading too, so that this never raises SIGPIPE; and never full for long: a byte stands for all.
    const char byte = 1;
    if (bell.pipe.is_open()) (void)!::write(bell.pipe.fd(), &byte, 1);
}

}  // namespace incast::softrio::shm
