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
    {
        const std::lock_guard lock(files_mutex_);
        if (!files_.listen(files_name(options_.fabric, destid))) return errno;
    }
    destid_name_ = std::move(name);
    place_name_ = std::move(where);
    return 0;
}

Result<Ok> Port::prepare(const Options& options) {
    options_ = options;
    self_ = static_cast<std::uint64_t>(++endpoints_made) << 32 | static_cast<std::uint32_t>(::getpid());
    auto memory = make_memory(sizeof(Block));
    if (!memory) return system_error("memory of an endpoint", errno);
    memory_ = std::move(*memory);
    mapping_ = map(memory_.file, memory_.bytes);
    if (mapping_ == nullptr) return system_error("memory of an endpoint", errno);
    block_ = reinterpret_cast<Block*>(mapping_->bytes().data());
    block_->registers.host_lock.store(no_host);
    start_doorbells();
    block_->magic.store(layout_magic);
    return reserve();
}

Result<std::shared_ptr<Port>> Port::open_alone(const Options& options, std::uint32_t destid) {
    std::shared_ptr<Port> port(new Port);
    if (const auto done = port->prepare(options); !done) return done.error();
    port->block_->destid.store(destid);
    port->is_alone_ = true;
    return port;
}

Result<std::shared_ptr<Port>> Port::open(const Options& options, std::uint32_t mport, std::uint32_t wanted) {
    std::shared_ptr<Port> port(new Port);
    if (const auto done = port->prepare(options); !done) return done.error();
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
    files_.close();
    memory_.file.close();
    // What polls stays: handles of the child are the parent's.
    for (OwnSink& sink : sinks_)
        sink.bell_end.close();
    for (auto& [start, allocation] : allocations_)
        allocation.memory.file.close();
}

int Port::set_destid(std::uint32_t destid) {
    if (!is_destid(destid) || options_.group(destid) != nullptr) return -EINVAL;
    if (destid == this->destid()) return 0;
    take_files();  // they come under the id of before
    const std::uint32_t before = this->destid();
    const int error = take_destid(destid);
    if (error == 0) {
        hand_over_all();
        return 0;
    }
    block_->destid.store(before);
    return error == EADDRINUSE ? -EBUSY : -error;
}

std::vector<std::uint32_t> Port::others() {
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

int Port::read_registers(std::uint32_t destid, std::uint32_t offset, std::span<std::uint32_t> values) {
    const bool own = destid == this->destid();
    const auto target = own ? nullptr : peer(destid);
    if (!own && target == nullptr) return -ENODEV;
    const Block& of = own ? *block_ : target->block();
    const RegisterState state{of.destid.load(), of.registers.host_lock.load(), of.registers.component_tag.load()};
    for (std::uint32_t& value : values) {
        value = read_register(state, offset);
        offset += sizeof value;
    }
    return 0;
}

int Port::write_register(std::uint32_t destid, std::uint32_t offset, std::uint32_t value) {
    const bool own = destid == this->destid();
    const auto target = own ? nullptr : peer(destid);
    if (!own && target == nullptr) return -ENODEV;
    if (offset == base_device_id_register) return own ? set_destid(value & 0xFFFF) : -EPERM;
    Registers& registers = own ? block_->registers : target->block().registers;
    if (offset == component_tag_register) registers.component_tag.store(value);
    if (offset == host_lock_register) {
        // The first host that writes its id has it; the same host writing again gives it back.
        std::uint32_t holder = no_host;
        const std::uint32_t id = value & 0xFFFF;
        if (!registers.host_lock.compare_exchange_strong(holder, id) && holder == id)
            registers.host_lock.compare_exchange_strong(holder, no_host);
    }
    return 0;
}

}  // namespace incast::softrio::shm
