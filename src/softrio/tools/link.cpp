// The far end of the link of a kernel's master port (kernel/link.c): the port is an endpoint of a udp fabric. What the
// kernel asks for goes out by threads that wait for their answers; what peers ask for is handed in as it comes.
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/rio_mport_cdev.h>
#include <rio_soft_link.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "os/descriptor.h"
#include "os/signals.h"
#include "softrio/options.h"
#include "softrio/registers.h"
#include "softrio/tools/tool.h"
#include "softrio/udp/kernel_channels.h"
#include "softrio/udp/newcomers.h"
#include "softrio/udp/port.h"

namespace incast::softrio::tools {

namespace {

using softrio::Direction;
using softrio::wire::Status;
using Lock = std::unique_lock<std::mutex>;

constexpr std::uint32_t look_for_end_ms = 200;
constexpr auto look_around = std::chrono::seconds(1);
constexpr std::size_t transfer_threads = 4;
constexpr std::uint32_t features_register = 0x10;
constexpr std::uint32_t has_large_ids = 0x10;
constexpr std::uint8_t no_hops = 0xFF;
/// Of rio_cm's messages: its preset. On the fabric they go in mailbox 0, and what the kernel has in 0, which is
/// rionet's, goes in 1.
constexpr std::uint8_t kernel_mailbox = 1;
constexpr std::uint8_t swapped(std::uint8_t mailbox) {
    return mailbox < 2 ? mailbox ^ kernel_mailbox : mailbox;
}

std::uint64_t place_of(const void* data) {
    return reinterpret_cast<std::uint64_t>(data);
}

class Link final : public softrio::udp::Target {
public:
    explicit Link(os::Descriptor device) : device_(std::move(device)) {}
    ~Link() override;
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    [[nodiscard]] std::uint32_t destid();
    void begin(std::shared_ptr<softrio::udp::Port> port);
    /// Nothing comes or goes any more.
    void end();
    /// Closes windows that the kernel has closed.
    void sweep();
    /// Waits, not for long, for endpoints that want to be known to the kernel.
    std::vector<std::uint32_t> newcomers();
    /// Its device object is made, or cannot be: then what it said is forgotten.
    void introduce(std::uint32_t endpoint, bool is_made);

    std::span<std::byte> window(std::uint32_t source, Direction direction, std::uint64_t address,
                                std::size_t bytes) override;
    Status ring(std::uint32_t source, std::uint16_t info) override;
    std::uint32_t read_register(std::uint32_t offset) override;
    Status write_register(std::uint32_t offset, std::uint32_t value) override;
    void take_message(std::uint32_t source, std::span<const std::byte> message) override;
    void take_letter(std::uint32_t source, std::uint8_t mailbox, std::span<const std::byte> message) override;
    void lose_peer(std::uint32_t destid, reliable::Loss why) override;

private:
    struct Window {
        std::uint64_t start = 0;
        std::span<std::byte> memory;
    };
    struct Note {
        std::uint32_t target = 0;
        softrio::udp::KernelChannels::Header message{};
    };

    /// 0, or a negative errno.
    int call(unsigned long request, void* argument) const {
        return ::ioctl(device_.fd(), request, argument) == 0 ? 0 : -errno;
    }
    void hand_in(std::uint32_t source, std::uint8_t mailbox, std::span<const std::byte> message);
    void hand_in_channel(std::uint32_t source, std::span<const std::byte> message);  // with the mutex
    void carry(std::uint32_t kinds);
    int serve(const rs_link_request& request, std::span<std::byte> data);
    int send(const rs_link_request& request, std::span<std::byte> data);
    void send_notes();

    os::Descriptor device_;
    std::shared_ptr<softrio::udp::Port> port_;
    std::map<std::uint64_t, Window> windows_;  // by number; under the port's lock
    std::deque<std::thread> threads_;
    std::mutex mutex_;  // all below
    std::condition_variable changed_;
    softrio::udp::KernelChannels channels_;
    softrio::udp::Newcomers newcomers_;
    std::deque<Note> notes_;
    std::atomic<bool> ending_ = false;
};

Link::~Link() {
    for (const auto& [number, each] : windows_)
        (void)::munmap(each.memory.data(), each.memory.size());
}

std::uint32_t Link::destid() {
    const std::uint32_t value = read_register(base_device_id_register);
    return (read_register(features_register) & has_large_ids) != 0 ? value & 0xFFFF : value >> 16 & 0xFF;
}

void Link::begin(std::shared_ptr<softrio::udp::Port> port) {
    port_ = std::move(port);
    threads_.emplace_back([this] { carry(RS_LINK_DOORBELL); });
    threads_.emplace_back([this] { carry(RS_LINK_MESSAGE); });
    threads_.emplace_back([this] { carry(RS_LINK_READ_REGISTER | RS_LINK_WRITE_REGISTER); });
    for (std::size_t number = 0; number < transfer_threads; ++number)
        threads_.emplace_back([this] { carry(RS_LINK_READ | RS_LINK_WRITE); });
    threads_.emplace_back([this] { send_notes(); });
}

void Link::end() {
    {
        const Lock held(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& each : threads_)
        each.join();
    port_.reset();
}

// From the fabric

std::span<std::byte> Link::window(std::uint32_t /*source*/, Direction /*direction*/, std::uint64_t address,
                                  std::size_t bytes) {
    rs_link_window found{.address = address, .bytes = 0, .number = 0};
    if (call(RS_LINK_IOCTL_WINDOW, &found) != 0 || bytes > found.bytes - (address - found.address)) return {};
    auto known = windows_.find(found.number);
    if (known == windows_.end()) {
        void* memory = ::mmap(nullptr, found.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device_.fd(),
                              static_cast<off_t>(found.address));
        if (memory == MAP_FAILED) return {};
        const Window made{found.address, {static_cast<std::byte*>(memory), found.bytes}};
        rs_link_window again{.address = address, .bytes = 0, .number = 0};
        if (call(RS_LINK_IOCTL_WINDOW, &again) != 0 || again.number != found.number) {
            (void)::munmap(memory, found.bytes);  // that was another one
            return {};
        }
        known = windows_.emplace(found.number, made).first;
    }
    return known->second.memory.subspan(address - found.address, bytes);
}

void Link::sweep() {
    const auto held = port_->lock();
    std::erase_if(windows_, [&](const auto& each) {
        const auto& [number, known] = each;
        rs_link_window found{.address = known.start, .bytes = 0, .number = 0};
        if (call(RS_LINK_IOCTL_WINDOW, &found) == 0 && found.number == number) return false;
        (void)::munmap(known.memory.data(), known.memory.size());
        return true;
    });
}

Status Link::ring(std::uint32_t source, std::uint16_t info) {
    rs_link_doorbell bell{static_cast<std::uint16_t>(source), info};
    return call(RS_LINK_IOCTL_DOORBELL, &bell) == -EAGAIN ? Status::retry : Status::done;
}

std::uint32_t Link::read_register(std::uint32_t offset) {
    rs_link_register one{.offset = offset, .value = 0, .is_write = 0};
    (void)call(RS_LINK_IOCTL_REGISTER, &one);
    return one.value;
}

Status Link::write_register(std::uint32_t offset, std::uint32_t value) {
    rs_link_register one{.offset = offset, .value = value, .is_write = 1};
    return call(RS_LINK_IOCTL_REGISTER, &one) == 0 ? Status::done : Status::error;
}

void Link::hand_in(std::uint32_t source, std::uint8_t mailbox, std::span<const std::byte> message) {
    rs_link_message one{.data = place_of(message.data()),
                        .bytes = static_cast<std::uint32_t>(message.size()),
                        .source = static_cast<std::uint16_t>(source),
                        .mailbox = mailbox};
    if (const int error = call(RS_LINK_IOCTL_MESSAGE, &one))
        debug(fmt::format("a message from endpoint {} is lost: {}", source, std::strerror(-error)));
}

void Link::hand_in_channel(std::uint32_t source, std::span<const std::byte> message) {
    std::optional<softrio::udp::KernelChannels::Header> note;
    if (channels_.hand_in(source, message, note)) hand_in(source, swapped(0), message);
    if (note) notes_.push_back({source, *note});
}

void Link::take_message(std::uint32_t source, std::span<const std::byte> message) {
    const Lock held(mutex_);
    if (!newcomers_.keep(source, message)) hand_in_channel(source, message);
    changed_.notify_all();
}

std::vector<std::uint32_t> Link::newcomers() {
    Lock held(mutex_);
    changed_.wait_for(held, std::chrono::milliseconds(look_for_end_ms), [&] { return !newcomers_.waiting().empty(); });
    return newcomers_.waiting();
}

void Link::introduce(std::uint32_t endpoint, bool is_made) {
    const Lock held(mutex_);
    if (!is_made) return newcomers_.forget(endpoint);
    for (const auto& message : newcomers_.know(endpoint))
        hand_in_channel(endpoint, message);
    changed_.notify_all();
}

void Link::take_letter(std::uint32_t source, std::uint8_t mailbox, std::span<const std::byte> message) {
    if (mailbox == 0) return take_message(source, message);
    hand_in(source, swapped(mailbox), message);
}

void Link::lose_peer(std::uint32_t destid, reliable::Loss /*why*/) {
    const Lock held(mutex_);
    newcomers_.forget(destid);
    for (const auto& each : channels_.lose_peer(destid))
        hand_in(destid, kernel_mailbox, each);
    changed_.notify_all();
}

// From the kernel

int Link::send(const rs_link_request& request, std::span<std::byte> data) {
    const auto mailbox = swapped(static_cast<std::uint8_t>(request.info));
    if (mailbox == 0) {
        Lock held(mutex_);
        changed_.wait(held, [&] {
            return ending_ || channels_.hand_out(request.destid, data) == softrio::udp::KernelChannels::Way::go;
        });
    }
    return port_->send_letter(request.destid, mailbox, data);
}

void Link::send_notes() {
    while (true) {
        Note note;
        {
            Lock held(mutex_);
            changed_.wait(held, [&] { return ending_ || !notes_.empty(); });
            if (ending_) return;
            note = notes_.front();
            notes_.pop_front();
        }
        (void)port_->send_letter(note.target, 0, note.message);
    }
}

int Link::serve(const rs_link_request& request, std::span<std::byte> data) {
    const auto offset = static_cast<std::uint32_t>(request.address);
    std::uint32_t value = 0;
    switch (request.kind) {
        case RS_LINK_DOORBELL:
            return port_->send_doorbell({request.destid, request.info}, true);
        case RS_LINK_MESSAGE:
            return send(request, data);
        case RS_LINK_READ_REGISTER: {
            const int error = port_->read_registers(request.destid, offset, {&value, 1});
            std::memcpy(data.data(), &value, sizeof value);
            return error;
        }
        case RS_LINK_WRITE_REGISTER:
            std::memcpy(&value, data.data(), sizeof value);
            return port_->write_register(request.destid, offset, value);
        default: {
            const bool is_read = request.kind == RS_LINK_READ;
            return port_->transfer({.direction = is_read ? Direction::read : Direction::write,
                                    .has_response = is_read || (request.flags & RS_LINK_ANSWERED) != 0,
                                    .channel = request.lane,
                                    .destid = request.destid,
                                    .address = request.address,
                                    .bytes = data});
        }
    }
}

void Link::carry(std::uint32_t kinds) {
    std::vector<std::byte> room(RS_LINK_MAX_BYTES);
    rs_link_next next{.data = place_of(room.data()), .kinds = kinds, .timeout_ms = look_for_end_ms, .request = {}};
    while (!ending_) {
        if (call(RS_LINK_IOCTL_NEXT, &next) != 0) continue;
        const rs_link_request& request = next.request;
        const auto data = std::span(room).first(request.bytes);
        const int error = serve(request, data);
        if (error != 0)
            debug(fmt::format("request {} of the kernel for endpoint {}: {}", request.kind, request.destid,
                              std::strerror(-error)));
        if (request.id == 0) continue;
        rs_link_answer answer{
            .id = request.id, .error = error, .data = place_of(room.data()), .bytes = request.bytes, .reserved = 0};
        (void)call(RS_LINK_IOCTL_ANSWER, &answer);
    }
}

/// Makes device objects of the endpoints that are there, as a host that enumerates does: rio_cm and rionet talk to
/// those alone. They stay when the endpoint goes.
class Devices {
public:
    explicit Devices(os::Descriptor port) : port_(std::move(port)) {}

    /// False of one that does not say what it is.
    bool add(std::uint32_t endpoint) {
        if (known_.contains(endpoint)) return true;
        rio_rdev_info device{};
        device.destid = static_cast<std::uint16_t>(endpoint);
        device.hopcount = no_hops;
        device.comptag = endpoint;
        if (::ioctl(port_.fd(), RIO_DEV_ADD, &device) != 0 && errno != EEXIST) return false;
        known_.insert(endpoint);
        fmt::print("endpoint {} is there\n", endpoint);
        std::fflush(stdout);
        return true;
    }

private:
    os::Descriptor port_;
    std::set<std::uint32_t> known_;
};

std::string why() {
    return std::generic_category().message(errno);
}

}  // namespace

int link(const LinkOptions& options) {
    const std::string path = fmt::format("/dev/rio_soft_link{}", options.number);
    const std::string port_path =
        fmt::format("/dev/rio_mport{}", options.mport == LinkOptions::same ? options.number : options.mport);
    os::Descriptor device(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!device.is_open()) return fail(path + ": " + why());
    auto chosen = options_of_environment();
    if (!chosen) return fail(chosen.error().message);
    if (chosen->kind != softrio::Options::Kind::udp)
        return fail("a link leads to a fabric of udp: and RIO_FABRIC names another");
    Link link(std::move(device));
    const std::uint32_t destid = link.destid();
    if (chosen->destid == 0) chosen->destid = destid;
    if (chosen->destid != destid)
        return fail(
            fmt::format("the kernel's port has destination id {}, and RIO_DESTID asks for {}", destid, chosen->destid));
    if (!is_destid(destid) || destid == 0)
        return fail(fmt::format("the kernel's port has no destination id: load rapidio with hdid=..."));
    Devices devices(os::Descriptor(::open(port_path.c_str(), O_RDWR | O_CLOEXEC)));
    auto port = softrio::udp::Port::open(*chosen, 0, 0, &link);
    if (!port) return fail(port.error().message);
    os::count_interrupts();
    link.begin(*port);
    fmt::print("endpoint {}: the kernel's, by {}\n", destid, path);
    std::fflush(stdout);
    for (auto last = std::chrono::steady_clock::time_point(); os::interrupts() == 0;) {
        if (std::chrono::steady_clock::now() - last > look_around) {
            for (const std::uint32_t each : (*port)->reached())
                devices.add(each);
            link.sweep();
            last = std::chrono::steady_clock::now();
        }
        for (const std::uint32_t each : link.newcomers())
            link.introduce(each, devices.add(each));
    }
    port->reset();
    link.end();
    return 0;
}

}  // namespace incast::softrio::tools
