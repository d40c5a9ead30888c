#include "softrio/device/port.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/rio_cm_cdev.h>
#include <linux/rio_mport_cdev.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "softrio/device/channels.h"
#include "softrio/shm/system.h"

namespace incast::softrio::device {

namespace {

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t any = ~std::uint64_t{0};
constexpr std::uint8_t to_the_endpoint = 0xFF;  // hop count
constexpr const char* cm_path = "/dev/rio_cm";

constexpr std::uint64_t whole_pages(std::uint64_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

std::string path_of(std::uint32_t number) {
    return "/dev/rio_mport" + std::to_string(number);
}

/// The lock says whose port it is; the kernel lets any number of processes open it.
os::Descriptor take(const std::string& path, int& error) {
    os::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    error = file.is_open() && ::flock(file.fd(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (error != 0) file.close();
    return file;
}

}  // namespace

Result<std::shared_ptr<Port>> Port::open(const Options& options, std::uint32_t mport) {
    const bool is_any = options.fabric == "any";
    std::uint32_t number = is_any ? 0 : static_cast<std::uint32_t>(options.fabric[0] - '0') + mport;
    int error = 0;
    os::Descriptor file = take(path_of(number), error);
    while (is_any && error != 0 && ++number < max_mports)
        file = take(path_of(number), error);
    if (is_any && error != 0) return Error{"SoftRIO: no master port of this host is free (/dev/rio_mport*)"};
    if (error == EWOULDBLOCK) return Error{"SoftRIO: " + path_of(number) + " is taken by another process"};
    if (error != 0) return Error{"SoftRIO: " + path_of(number) + ": " + std::generic_category().message(error)};
    std::shared_ptr<Port> port(new Port(options, number, path_of(number), std::move(file)));
    if (options.destid != 0 && port->destid() != options.destid + mport) {
        return Error{"SoftRIO: " + path_of(number) + " has destination id " + std::to_string(port->destid()) +
                     ", and not " + std::to_string(options.destid + mport) + ": the kernel's enumeration gives it"};
    }
    return port;
}

std::uint32_t Port::destid() const {
    rio_mport_properties properties{};
    return ::ioctl(file_.fd(), RIO_MPORT_GET_PROPERTIES, &properties) == 0 ? properties.hdid : any_destid;
}

void Port::abandon() {
    is_abandoned_ = true;
    events_.abandon();
}

int Port::set_destid(std::uint32_t destid) {
    if (!is_destid(destid)) return -EINVAL;
    auto id = static_cast<std::uint16_t>(destid);
    return ::ioctl(file_.fd(), RIO_MPORT_MAINT_HDID_SET, &id) == 0 ? 0 : -errno;
}

std::vector<std::uint32_t> Port::others() {
    const os::Descriptor cm(::open(cm_path, O_RDWR | O_CLOEXEC));
    std::uint32_t count = number_;
    if (!cm.is_open() || ::ioctl(cm.fd(), RIO_CM_EP_GET_LIST_SIZE, &count) != 0) return {};
    // The driver takes the exact number only.
    std::vector<std::uint32_t> list(std::size_t{count} + 2);
    list[0] = count;
    list[1] = number_;
    if (count == 0 || ::ioctl(cm.fd(), RIO_CM_EP_GET_LIST, list.data()) != 0) return {};
    list.erase(list.begin(), list.begin() + 2);
    std::ranges::sort(list);
    return list;
}

int Port::access(unsigned long request, std::uint32_t destid, std::uint32_t hops, std::uint32_t offset,
                 std::span<std::uint32_t> values) {
    rio_mport_maint_io io{};
    io.rioid = static_cast<std::uint16_t>(destid);
    io.hopcount = static_cast<std::uint8_t>(hops);
    io.offset = offset;
    io.length = static_cast<std::uint32_t>(values.size_bytes());
    io.buffer = reinterpret_cast<std::uintptr_t>(values.data());
    if (::ioctl(file_.fd(), request, &io) == 0) return 0;
    return errno == EIO ? -ENODEV : -errno;
}

int Port::read_registers(std::uint32_t destid, std::uint32_t offset, std::span<std::uint32_t> values) {
    const bool is_own = destid == this->destid();
    return access(is_own ? RIO_MPORT_MAINT_READ_LOCAL : RIO_MPORT_MAINT_READ_REMOTE, destid, to_the_endpoint, offset,
                  values);
}

int Port::write_register(std::uint32_t destid, std::uint32_t offset, std::uint32_t value) {
    const bool is_own = destid == this->destid();
    return access(is_own ? RIO_MPORT_MAINT_WRITE_LOCAL : RIO_MPORT_MAINT_WRITE_REMOTE, destid, to_the_endpoint, offset,
                  {&value, 1});
}

int Port::read_on_the_way(std::uint32_t destid, std::uint32_t switches, std::uint32_t offset,
                          std::span<std::uint32_t> values) {
    return access(RIO_MPORT_MAINT_READ_REMOTE, destid, switches, offset, values);
}

int Port::write_on_the_way(std::uint32_t destid, std::uint32_t switches, std::uint32_t offset, std::uint32_t value) {
    return access(RIO_MPORT_MAINT_WRITE_REMOTE, destid, switches, offset, {&value, 1});
}

bool Port::is_there(std::uint32_t destid) {
    std::uint32_t identity = 0;
    return read_registers(destid, 0, {&identity, 1}) == 0;
}

// Memory

std::uint64_t Port::add(std::uint64_t bytes, std::uint32_t owner) {
    const std::uint64_t local = next_local_;
    const std::uint64_t size = whole_pages(bytes);
    next_local_ += size + page_bytes;
    Memory& memory = memory_[local];
    memory.bytes = size;
    memory.owner = owner;
    return local;
}

/// nullptr: not all of it is one piece of memory.
Port::Memory* Port::find(std::uint64_t local, std::uint64_t bytes, std::uint64_t& offset) {
    const auto next = memory_.upper_bound(local);
    if (next == memory_.begin()) return nullptr;
    auto& [start, memory] = *std::prev(next);
    offset = local - start;
    return offset < memory.bytes && bytes <= memory.bytes - offset ? &memory : nullptr;
}

int Port::map(Memory& memory) {
    void* at = ::mmap(nullptr, memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd(),
                      static_cast<off_t>(memory.handle));
    if (at == MAP_FAILED) {
        const int error = errno;
        (void)unmake(memory);
        return -error;
    }
    memory.mapping = std::make_shared<os::Mapping>(std::span(static_cast<std::byte*>(at), memory.bytes));
    return 0;
}

int Port::make_buffer(Memory& memory) {
    if (memory.made != Made::no) return 0;
    rio_dma_mem request{};
    request.length = memory.bytes;
    if (::ioctl(file_.fd(), RIO_ALLOC_DMA, &request) != 0) return -errno;
    memory.made = Made::buffer;
    memory.handle = request.dma_handle;
    return map(memory);
}

/// For the kernel a window stays open as long as anybody has its memory mapped.
int Port::unmake(Memory& memory) {
    const Made made = std::exchange(memory.made, memory.made == Made::no ? Made::no : Made::spent);
    memory.mapping.reset();
    if (made == Made::no || made == Made::spent) return 0;
    // Asked for the same outbound window again, the driver gives the one that is there, and closes it once for all.
    if (made == Made::outbound && std::ranges::any_of(memory_, [&](const auto& each) {
            return each.second.made == Made::outbound && each.second.handle == memory.handle;
        })) {
        return 0;
    }
    const unsigned long request = made == Made::buffer   ? RIO_FREE_DMA
                                  : made == Made::window ? RIO_UNMAP_INBOUND
                                                         : RIO_UNMAP_OUTBOUND;
    return ::ioctl(file_.fd(), request, &memory.handle) == 0 ? 0 : -errno;
}

int Port::allocate(std::uint32_t owner, std::uint64_t bytes, std::uint64_t& local) {
    if (bytes == 0 || bytes > max_size) return -EINVAL;
    const std::lock_guard lock(mutex_);
    if (local != any) {
        std::uint64_t offset = 0;
        return find(local, bytes, offset) != nullptr ? 0 : -ENOMEM;
    }
    local = add(bytes, owner);
    memory_[local].is_allocated = true;
    return 0;
}

int Port::free_allocation(std::uint64_t local) {
    const std::lock_guard lock(mutex_);
    const auto found = memory_.find(local);
    if (found == memory_.end() || !found->second.is_allocated) return -EINVAL;
    if (found->second.made == Made::window) return -EBUSY;
    const int error = unmake(found->second);
    memory_.erase(found);
    return error;
}

int Port::map_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) {
    if (bytes == 0 || bytes > max_size || (base != any && base % page_bytes != 0)) return -EINVAL;
    const std::lock_guard lock(mutex_);
    const bool is_fresh = local == any;
    const std::uint64_t at = is_fresh ? add(bytes, owner) : local;
    const auto found = memory_.find(at);
    // Over a part of a buffer, or one that is in use already, the driver opens none.
    if (found == memory_.end() || found->second.bytes != whole_pages(bytes) || found->second.made != Made::no)
        return -EOPNOTSUPP;
    Memory& memory = found->second;
    rio_mmap window{};
    window.rio_addr = base;
    window.length = memory.bytes;
    int error = ::ioctl(file_.fd(), RIO_MAP_INBOUND, &window) == 0 ? 0 : -errno;
    // Asked for the same again, the driver gives the window that is there.
    const bool is_there = error == 0 && std::ranges::any_of(memory_, [&](const auto& each) {
                              return each.second.made == Made::window && each.second.handle == window.handle;
                          });
    if (is_there) error = -EBUSY;
    if (error == 0) {
        memory.made = Made::window;
        memory.handle = window.handle;
        error = map(memory);
    }
    if (error != 0) {
        if (is_fresh) memory_.erase(at);
        return error;
    }
    base = window.rio_addr;
    local = at;
    return 0;
}

int Port::free_window(std::uint64_t local) {
    const std::lock_guard lock(mutex_);
    const auto found = memory_.find(local);
    if (found == memory_.end() || found->second.made != Made::window) return -EINVAL;
    const int error = unmake(found->second);
    if (!found->second.is_allocated) memory_.erase(found);
    return error;
}

int Port::free_outbound(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = memory_.find(handle);
    if (found == memory_.end() || found->second.made != Made::outbound) return -EINVAL;
    const int error = unmake(found->second);
    memory_.erase(found);
    return error;
}

void Port::free_all(std::uint32_t owner) {
    const std::lock_guard lock(mutex_);
    for (auto each = memory_.begin(); each != memory_.end();) {
        if (each->second.owner != owner) {
            ++each;
            continue;
        }
        (void)unmake(each->second);
        each = memory_.erase(each);
    }
}

int Port::map_guarded(std::uint32_t /*owner*/, std::uint64_t& /*base*/, std::uint64_t /*bytes*/,
                      std::uint64_t& /*local*/) {
    return -EOPNOTSUPP;
}

int Port::permit(std::uint64_t /*local*/, std::uint32_t /*destid*/, Access /*access*/) {
    return -EOPNOTSUPP;
}

int Port::share_memory(std::uint64_t /*local*/) {
    return -EOPNOTSUPP;
}

int Port::map_outbound(std::uint32_t owner, std::uint32_t destid, std::uint64_t base, std::uint64_t bytes,
                       std::uint64_t& handle) {
    if (bytes == 0 || bytes > max_size || base % page_bytes != 0) return -EINVAL;
    const std::lock_guard lock(mutex_);
    rio_mmap window{};
    window.rioid = static_cast<std::uint16_t>(destid);
    window.rio_addr = base;
    window.length = whole_pages(bytes);
    if (::ioctl(file_.fd(), RIO_MAP_OUTBOUND, &window) != 0) return errno == ENXIO ? -EIO : -errno;
    handle = add(bytes, owner);
    memory_[handle].made = Made::outbound;
    memory_[handle].handle = window.handle;
    return 0;
}

int Port::open_memory(std::uint64_t local, std::uint64_t bytes, std::uint64_t& offset) {
    const std::lock_guard lock(mutex_);
    Memory* memory = find(local, bytes, offset);
    if (memory == nullptr || memory->made == Made::spent) return -EINVAL;
    if (const int error = make_buffer(*memory)) return error;
    offset += memory->handle;
    const int file = ::fcntl(file_.fd(), F_DUPFD_CLOEXEC, 0);
    return file < 0 ? -errno : file;
}

std::span<std::byte> Port::local(std::uint64_t address, std::uint64_t bytes, Keep& keep) {
    const std::lock_guard lock(mutex_);
    std::uint64_t offset = 0;
    Memory* memory = find(address, bytes, offset);
    if (memory == nullptr || make_buffer(*memory) != 0 || memory->mapping == nullptr) return {};
    keep = memory->mapping;
    return memory->mapping->bytes().subspan(offset, bytes);
}

// Transfers and doorbells

int Port::channel(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    os::Descriptor& file = channels_[number % dma_channels];
    if (!file.is_open()) file = os::Descriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    return file.fd();
}

/// Begun and waited for in two calls: a signal ends the wait, and not what is waited for.
int Port::move(const Transfer& transfer, int file) {
    rio_transfer_io io{};
    io.rioid = static_cast<std::uint16_t>(transfer.destid);
    io.rio_addr = transfer.address;
    io.loc_addr = reinterpret_cast<std::uintptr_t>(transfer.bytes.data());
    Keep keep;
    {
        // Of its own memory the driver takes a handle alone.
        const std::lock_guard lock(mutex_);
        for (const auto& [local, memory] : memory_) {
            if (memory.mapping == nullptr) continue;
            const std::span<std::byte> mapped = memory.mapping->bytes();
            if (transfer.bytes.data() < mapped.data() || transfer.bytes.data() >= mapped.data() + mapped.size())
                continue;
            keep = memory.mapping;
            io.handle = memory.handle;
            io.offset = static_cast<std::uint64_t>(transfer.bytes.data() - mapped.data());
            io.loc_addr = 0;
            break;
        }
    }
    io.length = transfer.bytes.size();
    // The driver knows no SWRITE.
    io.method = static_cast<std::uint16_t>(transfer.answers_each   ? RIO_EXCHANGE_NWRITE_R_ALL
                                           : transfer.has_response ? RIO_EXCHANGE_NWRITE_R
                                                                   : RIO_EXCHANGE_NWRITE);
    rio_transaction request{};
    request.block = reinterpret_cast<std::uintptr_t>(&io);
    request.count = 1;
    request.transfer_mode = RIO_TRANSFER_MODE_TRANSFER;
    request.sync = RIO_TRANSFER_ASYNC;
    request.dir = transfer.direction == Direction::read ? RIO_TRANSFER_DIR_READ : RIO_TRANSFER_DIR_WRITE;
    const int cookie = ::ioctl(file, RIO_TRANSFER, &request);
    if (cookie < 0) return -errno;
    rio_async_tx_wait wait{};
    wait.token = static_cast<std::uint32_t>(cookie);
    wait.timeout = dma_ms;
    while (::ioctl(file, RIO_WAIT_FOR_ASYNC, &wait) != 0)
        if (errno != EINTR) return -errno;
    return 0;
}

int Port::transfer(const Transfer& transfer) {
    if (transfer.bytes.empty()) return -EINVAL;
    const int file = channel(transfer.channel);
    if (file < 0) return -ENODEV;
    // A driver may take an end beyond the last address for nonsense: no window is there.
    if (transfer.bytes.size() - 1 > ~transfer.address) return -EIO;
    const int error = move_pinnable(transfer, file);
    // To the driver it is all one.
    return error == -EIO && !is_there(transfer.destid) ? -ENODEV : error;
}

/// What a program has mapped of the driver's memory the driver cannot pin: that goes by way of memory that it can.
int Port::move_pinnable(const Transfer& transfer, int file) {
    if (const int error = move(transfer, file); error != -EFAULT) return error;
    const auto copy = shm::make_memory(transfer.bytes.size());
    if (!copy) return -ENOMEM;
    const auto mapped = shm::map(copy->file, copy->bytes);
    if (mapped == nullptr) return -ENOMEM;
    const bool writes = transfer.direction == Direction::write;
    if (const int error = writes ? shm::copy_into(copy->file, transfer.bytes) : 0) return error;
    Transfer by_way = transfer;
    by_way.bytes = mapped->bytes().first(transfer.bytes.size());
    const int error = move(by_way, file);
    return error != 0 || writes ? error : shm::copy_out_of(copy->file, transfer.bytes);
}

/// For those who share the port, which ask for doorbells alone.
int Port::get_doorbell(std::uint32_t sink, bool wait, Doorbell& doorbell) {
    Event event;
    int error = 0;
    do {
        error = events_.get_event(sink, wait, event);
    } while (error == 0 && event.is_portwrite);
    doorbell = event.doorbell;
    return error;
}

int Port::send_doorbell(const Doorbell& doorbell, bool wait) {
    rio_event event{};
    event.header = RIO_DOORBELL;
    event.u.doorbell.rioid = static_cast<std::uint16_t>(doorbell.destid);
    event.u.doorbell.payload = doorbell.payload;
    const std::int64_t until = shm::now_ms() + (wait ? options_.retry_ms : 0);
    while (::write(file_.fd(), &event, sizeof event) != sizeof event) {
        if (errno != EAGAIN || shm::now_ms() >= until) return -errno;
        (void)::poll(nullptr, 0, 1);
    }
    return 0;
}

std::unique_ptr<softrio::Socket> Port::make_socket() {
    return std::make_unique<Socket>(os::Descriptor(::open(cm_path, O_RDWR | O_CLOEXEC)), number_);
}

}  // namespace incast::softrio::device
