#include "softrio/shm/port.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <unistd.h>

namespace incast::softrio::shm {

namespace {

/// Tells endpoints of one process apart, as writers.
std::atomic<std::uint32_t> endpoints_made = 0;

constexpr std::uint32_t highest_automatic = 0xFFF;

Error system_error(const std::string& what, int error) {
    return Error{"SoftRIO: " + what + ": " + std::generic_category().message(error)};
}

}  // namespace

int Port::take_destid(std::uint32_t destid) {
    Descriptor name = take_name(destid_name(options_.fabric, destid));
    if (!name.is_open()) return errno;
    const Place place{destid, static_cast<std::uint32_t>(::getpid()), static_cast<std::uint32_t>(memory_.file.fd()),
                      memory_.inode};
    // Peers that find the place look at the block: it has to say the same by then.
    block_->destid.store(destid);
    Descriptor where = take_name(place_name(options_.fabric, place));
    if (!where.is_open()) return errno;
    destid_name_ = std::move(name);
    place_name_ = std::move(where);
    return 0;
}

Result<std::shared_ptr<Port>> Port::open(const Options& options, std::uint32_t mport, std::uint32_t wanted) {
    std::shared_ptr<Port> port(new Port);
    port->options_ = options;
    port->self_ = static_cast<std::uint64_t>(++endpoints_made) << 32 | static_cast<std::uint32_t>(::getpid());
    auto memory = make_memory(sizeof(Block));
    if (!memory) return system_error("memory of an endpoint", errno);
    port->memory_ = std::move(*memory);
    port->mapping_ = map(port->memory_.file, port->memory_.bytes);
    if (port->mapping_ == nullptr) return system_error("memory of an endpoint", errno);
    port->block_ = reinterpret_cast<Block*>(port->mapping_->bytes().data());
    port->block_->registers.host_lock.store(0xFFFF);
    port->block_->magic.store(layout_magic);
    if (const auto reserved = port->reserve(); !reserved) return reserved.error();
    if (options.destid != 0) {
        const std::uint32_t destid = options.destid + mport;
        if (!is_destid(destid)) {
            return Error{"SoftRIO: destination id " + std::to_string(destid) + " of master port " +
                         std::to_string(mport) + " is no destination id"};
        }
        if (const int error = port->take_destid(destid)) {
            if (error != EADDRINUSE) return system_error("joining fabric " + options.fabric, error);
            return Error{"SoftRIO: destination id " + std::to_string(destid) + " of fabric " + options.fabric +
                         " is taken by another process"};
        }
        return port;
    }
    if (wanted != 0 && port->take_destid(wanted) == 0) return port;
    for (std::uint32_t destid = 1; destid <= highest_automatic; ++destid) {
        if (!is_destid(destid) || options.group(destid) != nullptr) continue;
        const int error = port->take_destid(destid);
        if (error == 0) return port;
        if (error != EADDRINUSE) return system_error("joining fabric " + options.fabric, error);
    }
    return Error{"SoftRIO: fabric " + options.fabric + " has no free destination id up to " +
                 std::to_string(highest_automatic)};
}

Port::~Port() {
    if (abandoned_) return;
    if (block_ != nullptr) block_->gone.store(1);
    for (auto& [destid, peer] : peers_)
        peer->leave();
}

void Port::abandon() {
    abandoned_ = true;
    // The descriptors would keep the parent's names and pipes alive after its end.
    destid_name_.close();
    place_name_.close();
    memory_.file.close();
    for (OwnSink& sink : sinks_) {
        sink.bell.close();
        sink.bell_end.close();
    }
    for (auto& [start, allocation] : allocations_)
        allocation.memory.file.close();
}

int Port::set_destid(std::uint32_t destid) {
    if (!is_destid(destid) || options_.group(destid) != nullptr) return -EINVAL;
    if (destid == this->destid()) return 0;
    const std::uint32_t before = this->destid();
    const int error = take_destid(destid);
    if (error == 0) return 0;
    block_->destid.store(before);
    return error == EADDRINUSE ? -EBUSY : -error;
}

std::vector<std::uint32_t> Port::others() const {
    std::vector<std::uint32_t> found;
    for (const Place& place : places(options_.fabric)) {
        if (place.destid != destid() && (found.empty() || found.back() != place.destid)) found.push_back(place.destid);
    }
    return found;
}

std::shared_ptr<Peer> Port::peer(std::uint32_t destid, bool now) {
    const std::lock_guard lock(peers_mutex_);
    const auto known = peers_.find(destid);
    if (known != peers_.end() && (now ? known->second->is_there_now() : known->second->is_there()))
        return known->second;
    // Seldom here: what is mapped of all that have ended goes.
    std::erase_if(peers_, [](const auto& each) {
        const bool ended = !each.second->is_there_now();
        if (ended) each.second->leave();
        return ended;
    });
    const auto place = place_of(options_.fabric, destid);
    if (!place) return nullptr;
    auto peer = Peer::open(*place);
    if (peer != nullptr) peers_.emplace(destid, peer);
    return peer;
}

}  // namespace incast::softrio::shm
