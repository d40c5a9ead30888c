#include "softrio/udp/port.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

namespace incast::softrio::udp {

namespace {

using wire::Operation;
using wire::Packet;
using wire::Status;

constexpr std::uint8_t ordered_lane = 1;
constexpr std::uint8_t first_dma_lane = 2;
constexpr int slice_ms = 50;
constexpr std::uint32_t ip_and_udp_bytes = 28;
constexpr std::uint32_t ipv6_and_udp_bytes = 48;
constexpr std::uint32_t window_packets = 512;  // some of which are for responses and messages: engine.cpp
constexpr std::size_t driven_bytes = 65'536;   // a transfer of that size is worth it

constexpr std::int64_t linger_ms = 1000;  // for what is still on its way when a port closes
constexpr int host_ms = 3000;             // for an answer of the enumerating host
constexpr int probe_rounds = 3;
constexpr std::int64_t probe_round_ms = 40;

std::int64_t now_ns() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::uint64_t random_number() {
    std::uint64_t number = 0;
    while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    }
    return number;
}

timespec time_until(std::int64_t at_ns) {
    const std::int64_t wait_ns = std::clamp<std::int64_t>(at_ns - now_ns(), 0, 3'600'000'000'000);
    return {wait_ns / 1'000'000'000, static_cast<long>(wait_ns % 1'000'000'000)};
}

Error system_error(const std::string& what, int error) {
    return Error{"SoftRIO: " + what + ": " + std::generic_category().message(error)};
}

}  // namespace

Port::Port(const Options& options, Directory directory)
    : options_(options),
      directory_(std::move(directory)),
      socket_(options.udp.drop, options.seed ^ random_number()),
      engine_(std::make_unique<Engine>(
          Engine::Settings{
              .destid = 0,
              .has_small_ids = options.udp.ids == 8,
              .session = {.datagram_bytes = Engine::filled_bytes(
                              options.udp.mtu - (directory_.has_v6() ? ipv6_and_udp_bytes : ip_and_udp_bytes)),
                          .window_packets = window_packets,
                          .deadline_ns = options.udp.deadline_ms * reliable::ms_ns}},
          directory_, static_cast<Target&>(*this), random_number)),
      channels_(*engine_) {}

int Port::bind(std::uint32_t destid) {
    const auto address = directory_.find(destid);
    return address ? socket_.bind(*address) : EADDRNOTAVAIL;
}

Result<std::uint32_t> Port::choose(std::uint32_t mport, std::uint32_t wanted) {
    const auto place = [&](std::uint32_t destid) {
        const auto address = directory_.find(destid);
        return "destination id " + std::to_string(destid) + (address ? " (" + to_string(*address) + ")" : "");
    };
    if (const auto& host = directory_.host()) return join(*host, mport, wanted);
    if (options_.destid != 0) {
        const std::uint32_t destid = options_.destid + mport;
        const int error = bind(destid);
        if (error == 0) return destid;
        if (error == EADDRINUSE)
            return Error{"SoftRIO: " + place(destid) + " of fabric " + options_.fabric +
                         " is taken by another process"};
        return system_error(place(destid) + " of fabric " + options_.fabric, error);
    }
    if (wanted != 0 && bind(wanted) == 0) return wanted;
    for (const std::uint32_t destid : directory_.all()) {
        if (options_.group(destid) == nullptr && bind(destid) == 0) return destid;
    }
    return Error{"SoftRIO: fabric " + options_.fabric + " has no address that this host has and nobody uses"};
}

Result<std::uint32_t> Port::join(const Address& host, std::uint32_t mport, std::uint32_t wanted) {
    auto connected = Membership::connect(host, host_ms);
    if (!connected) return connected.error();
    membership_ = std::move(*connected);
    if (const int error = socket_.bind(membership_.own_ip())) return system_error("a UDP port", error);
    const std::uint16_t port = socket_.local_port();
    const auto with = [&](std::uint32_t destid) { return membership_.join(destid, port, host_ms, told()); };
    auto destid = with(options_.destid != 0 ? options_.destid + mport : wanted);
    if (!destid && options_.destid == 0 && wanted != 0) destid = with(0);
    if (!destid) return destid.error();
    if (options_.group(*destid) != nullptr)
        return Error{"SoftRIO: the enumerating host gave destination id " + std::to_string(*destid) +
                     ", which is a multicast group here: it must begin behind it"};
    Address own = membership_.own_ip();
    own.port = port;
    directory_.set(*destid, own);
    return destid;
}

Membership::Changed Port::told() {
    return [this](std::uint32_t destid, const std::optional<Address>& at) {
        directory_.set(destid, at);
        engine_->relocate(destid);
    };
}

Result<std::shared_ptr<Port>> Port::open(const Options& options, std::uint32_t mport, std::uint32_t wanted) {
    auto directory = Directory::parse(options.fabric);
    if (!directory) return directory.error();
    std::shared_ptr<Port> port(new Port(options, std::move(*directory)));
    const auto destid = port->choose(mport, wanted);
    if (!destid) return destid.error();
    if (options.udp.ids == 8 && *destid >= small_any_destid)
        return Error{"SoftRIO: destination id " + std::to_string(*destid) + " does not fit ids=8"};
    auto own = shm::Port::open_alone(options, *destid);
    if (!own) return own.error();
    port->own_ = std::move(*own);
    port->wake_ = transport::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!port->wake_.is_open()) return system_error("a master port", errno);
    port->engine_->restart(*destid);
    port->thread_ = std::thread([raw = port.get()] { raw->run(); });
    return port;
}

Port::~Port() {
    if (abandoned_) {
        // Its memory holds a lock that a thread of the parent may have had, and sessions that are the parent's.
        [[maybe_unused]] const Engine* leaked = engine_.release();
        return;
    }
    if (thread_.joinable()) {
        auto held = lock();
        for (const std::uint32_t destid : directory_.all())
            settle(held, destid, linger_ms);
        engine_->close_all();
        pump();
        ending_ = true;
        wake_thread();
        held.unlock();
        thread_.join();
    }
}

void Port::abandon() {
    abandoned_ = true;
    own_->abandon();
    membership_.close();
    socket_.close();
    wake_.close();
    thread_.detach();
}

// The thread

void Port::run() {
    while (!ending_) {
        timespec timeout{};
        bool is_driven = false;
        int host = -1;
        {
            const auto held = lock();
            host = membership_.fd();
            is_driven = driver_ != std::thread::id();
            sleeps_until_ns_ = is_driven ? 0 : engine_->next_deadline_ns();
            timeout = time_until(sleeps_until_ns_);
        }
        // Negative descriptors are not looked at.
        pollfd all[] = {{is_driven ? -1 : socket_.fd(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}, {host, POLLIN, 0}};
        (void)::ppoll(all, 3, is_driven ? nullptr : &timeout, nullptr);
        if (all[1].revents != 0) {
            std::uint64_t count = 0;
            // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): the lock is not held here
            (void)!::read(wake_.fd(), &count, sizeof count);
        }
        const auto held = lock();
        sleeps_until_ns_ = 0;  // awake: nobody needs to wake it
        if (all[2].revents != 0) {
            membership_.take_in(told());
            notify();
        }
        if (driver_ != std::thread::id()) continue;
        take_in((all[0].revents & POLLERR) != 0);
        pump();
        notify();
    }
}

Port::Lock Port::lock() {
    Lock held(mutex_, std::try_to_lock);
    if (held.owns_lock()) return held;
    waiting_.fetch_add(1);
    held.lock();
    waiting_.fetch_sub(1);
    turns_.fetch_add(1);
    return held;
}

void Port::take_in(bool has_errors) {
    std::uint64_t outside = 0;
    {
        inbound_.emplace(*own_);
        const std::int64_t now = now_ns();
        if (has_errors) {
            socket_.take_refused(
                [&](const Address& at, std::span<const std::byte> bytes) { engine_->refuse(at, bytes); });
        }
        (void)socket_.receive(
            [&](const Address& from, std::span<const std::byte> bytes) { engine_->receive(now, from, bytes); });
        engine_->advance(now);
        inbound_.reset();
        outside = engine_->counters().outside;
    }
    if (outside != outside_) {
        debug("endpoint " + std::to_string(destid()) + ": " + std::to_string(outside - outside_) +
              " packets were for addresses that are not inside one of its windows: nothing was moved");
        outside_ = outside;
    }
}

void Port::pump() {
    engine_->collect(now_ns(),
                     [&](const Engine::Output& output) { socket_.add(output.to, output.bytes, output.is_stable); });
    socket_.send();
    if (sleeps_until_ns_ != 0 && !drives() && engine_->next_deadline_ns() < sleeps_until_ns_) {
        sleeps_until_ns_ = 0;  // once is enough
        wake_thread();
    }
}

void Port::wake_thread() {
    const std::uint64_t one = 1;
    (void)!::write(wake_.fd(), &one, sizeof one);
}

void Port::notify() {
    changes_.fetch_add(1);
    if (waiters_.load() > 0) shm::futex_wake(changes_);
}

void Port::wait_for_packets(Lock& lock) {
    const timespec timeout = time_until(std::min(engine_->next_deadline_ns(), now_ns() + slice_ms * reliable::ms_ns));
    lock.unlock();
    pollfd one{socket_.fd(), POLLIN, 0};
    (void)::ppoll(&one, 1, &timeout, nullptr);
    lock = this->lock();
    take_in((one.revents & POLLERR) != 0);
    notify();
}

void Port::wait(Lock& lock) {
    pump();
    if (drives()) {
        wait_for_packets(lock);
        return;
    }
    waiters_.fetch_add(1);
    const std::uint32_t before = changes_.load();
    lock.unlock();
    (void)shm::futex_wait(changes_, before, slice_ms);
    lock = this->lock();
    waiters_.fetch_sub(1);
}

bool Port::wait(Lock& lock, shm::Patience& patience) {
    pump();
    waiters_.fetch_add(1);
    const std::uint32_t before = changes_.load();
    lock.unlock();
    const bool goes_on = patience.wait(changes_, before, slice_ms);
    lock = this->lock();
    waiters_.fetch_sub(1);
    return goes_on;
}

void Port::breathe(Lock& lock) {
    if (drives()) {
        take_in(false);
        notify();
    }
    if (waiting_ == 0) return;
    // A mutex goes to whoever is there first, which is the one that has just given it up.
    const std::uint32_t before = turns_;
    lock.unlock();
    while (waiting_ != 0 && turns_ == before)
        std::this_thread::yield();
    lock = this->lock();
}

// Sessions

template <class Answered>
void Port::wait_for_host(Lock& lock, Answered&& answered) {
    for (const std::int64_t until = shm::now_ms() + host_ms; !answered() && shm::now_ms() < until;)
        wait(lock);
}

void Port::hear_of_all(Lock& lock) {
    const std::uint32_t number = membership_.sync();
    wait_for_host(lock, [&] { return membership_.is_synced(number); });
}

bool Port::open(Lock& lock, std::uint32_t destid) {
    if (engine_->open(now_ns(), destid)) return true;
    if (!directory_.host() || !is_destid(destid)) return false;
    hear_of_all(lock);
    return engine_->open(now_ns(), destid);
}

int Port::connect(Lock& lock, std::uint32_t destid) {
    if (!open(lock, destid)) return -ENODEV;
    const std::uint32_t losses = engine_->losses(destid);
    while (!engine_->is_established(destid)) {
        if (engine_->losses(destid) != losses) return -ENODEV;
        wait(lock);
    }
    return 0;
}

void Port::settle(Lock& lock, std::uint32_t destid, std::int64_t at_most_ms) {
    const std::int64_t until = shm::now_ms() + at_most_ms;
    while (!engine_->is_settled(destid) && shm::now_ms() < until)
        wait(lock);
}

int Port::set_destid(std::uint32_t destid) {
    if (!is_destid(destid) || options_.group(destid) != nullptr) return -EINVAL;
    if (options_.udp.ids == 8 && destid > 0xFF) return -EINVAL;
    auto held = lock();
    if (destid == this->destid()) return 0;
    for (const std::uint32_t each : directory_.all())
        settle(held, each, linger_ms);
    if (directory_.host()) return change_destid(held, destid);
    const auto address = directory_.find(destid);
    if (!address) return -EINVAL;
    transport::Descriptor next;
    if (const int error = Socket::open(*address, next)) return error == EADDRINUSE ? -EBUSY : -EINVAL;
    // Said from the old address, once the new one is sure.
    engine_->close_all();
    pump();
    if (const int error = socket_.adopt(std::move(next))) return -error;
    engine_->restart(destid);
    own_->block().destid.store(destid);
    wake_thread();
    return 0;
}

int Port::change_destid(Lock& lock, std::uint32_t destid) {
    const std::uint32_t before = this->destid();
    membership_.change(destid);
    wait_for_host(lock, [&] { return membership_.is_answered(); });
    if (membership_.destid() != destid) return membership_.fd() < 0 ? -ENETUNREACH : -EBUSY;
    directory_.set(destid, directory_.find(before));
    directory_.set(before, std::nullopt);
    engine_->close_all();
    pump();
    engine_->restart(destid);
    own_->block().destid.store(destid);
    wake_thread();
    return 0;
}

std::vector<std::uint32_t> Port::others() {
    const std::lock_guard probing(probing_);
    auto held = lock();
    if (directory_.host()) hear_of_all(held);
    auto candidates = directory_.all();
    std::erase(candidates, destid());
    if (directory_.host()) return candidates;
    engine_->begin_probes(random_number(), std::move(candidates));
    for (int round = 0; round < probe_rounds && !engine_->unanswered().empty(); ++round) {
        for (const std::uint32_t each : engine_->unanswered()) {
            const Engine::Output probe = engine_->probe(each);
            socket_.add(probe.to, probe.bytes, false);
        }
        socket_.send();
        const std::int64_t until = shm::now_ms() + probe_round_ms;
        while (!engine_->unanswered().empty() && shm::now_ms() < until)
            wait(held);
    }
    return engine_->alive();
}

// Transfers

template <class Attempt>
bool Port::persist(Lock& lock, std::uint32_t destid, std::uint32_t losses, Attempt&& attempt) {
    while (engine_->losses(destid) == losses) {
        if (attempt()) return true;
        wait(lock);
    }
    return false;
}

int Port::finish(Lock& lock, const Request& request) {
    while (!request.is_done())
        wait(lock);
    return request.error;
}

int Port::transfer(const Transfer& transfer) {
    auto held = lock();
    if (const int error = connect(held, transfer.destid)) return error;
    const std::uint32_t losses = engine_->losses(transfer.destid);
    const bool becomes_driver = transfer.bytes.size() >= driven_bytes && driver_ == std::thread::id();
    if (becomes_driver) driver_ = std::this_thread::get_id();
    const int error =
        transfer.direction == Direction::write ? write(held, transfer, losses) : read(held, transfer, losses);
    if (becomes_driver) {
        driver_ = {};
        wake_thread();
    }
    return error;
}

int Port::write(Lock& lock, const Transfer& transfer, std::uint32_t losses) {
    const bool is_strict = options_.order == Options::Order::strict;
    const auto lane = static_cast<std::uint8_t>(is_strict ? ordered_lane : first_dma_lane + transfer.channel);
    Request request;
    Packet packet;
    const auto begin = [&] { return engine_->begin(transfer.destid, request, {}, packet.transaction); };
    // All packets of a transfer carry the transaction of its response: that one says if any of them fell outside.
    if (transfer.has_response && !transfer.answers_each && !persist(lock, transfer.destid, losses, begin))
        return -ENODEV;
    packet.address = transfer.address;
    const Operation unanswered =
        transfer.is_streaming && !transfer.has_response ? Operation::swrite : Operation::nwrite;
    packet.operation = unanswered;
    const wire::WriteRun run = engine_->run_to(transfer.destid, packet);
    // What one call of the socket takes.
    const std::size_t burst_bytes =
        engine_->run_bytes_per_datagram() * Socket::datagrams_per_piece(engine_->datagram_bytes());
    auto left = std::span<const std::byte>(transfer.bytes);
    bool is_lost = false;
    for (std::size_t filled = 0; !left.empty() && !is_lost;) {
        std::size_t bytes = 0;
        // All but the last packet are alike, from a double word on.
        const bool is_run = !transfer.answers_each && packet.address % wire::double_word == 0;
        if (const std::size_t alike = (left.size() - 1) / wire::max_payload * wire::max_payload; is_run && alike != 0) {
            const auto part = left.first(std::min(alike, burst_bytes));
            is_lost = !persist(lock, transfer.destid, losses, [&] {
                bytes = engine_->send_run(transfer.destid, lane, run, packet.address, part);
                return bytes != 0;
            });
        } else {
            bytes = wire::piece(packet.address, left.size(), false);
            const bool is_answered = transfer.has_response && (transfer.answers_each || bytes == left.size());
            packet.operation = is_answered ? Operation::nwrite_r : unanswered;
            packet.bytes = static_cast<std::uint16_t>(bytes);
            packet.data = left.first(bytes);
            if (transfer.answers_each) is_lost = !persist(lock, transfer.destid, losses, begin);
            const auto send = [&] { return engine_->send(transfer.destid, lane, packet); };
            is_lost = is_lost || !persist(lock, transfer.destid, losses, send);
        }
        left = left.subspan(bytes);
        packet.address += bytes;
        filled += bytes;
        if (filled < burst_bytes) continue;
        filled = 0;
        pump();
        breathe(lock);
    }
    pump();
    const int error = finish(lock, request);
    return is_lost ? -ENODEV : error;
}

int Port::read(Lock& lock, const Transfer& transfer, std::uint32_t losses) {
    const bool is_strict = options_.order == Options::Order::strict;
    const auto lane = static_cast<std::uint8_t>(is_strict ? ordered_lane : first_dma_lane + transfer.channel);
    Request request;
    Packet packet;
    packet.operation = Operation::nread;
    packet.address = transfer.address;
    bool is_lost = false;
    for (auto left = transfer.bytes; !left.empty() && !is_lost && request.error == 0;) {
        const std::size_t bytes = wire::piece(packet.address, left.size(), true);
        packet.bytes = static_cast<std::uint16_t>(bytes);
        is_lost = !persist(lock, transfer.destid, losses, [&] {
            return engine_->begin(transfer.destid, request, {left.data(), packet.address, packet.bytes},
                                  packet.transaction);
        }) || !persist(lock, transfer.destid, losses, [&] { return engine_->send(transfer.destid, lane, packet); });
        left = left.subspan(bytes);
        packet.address += bytes;
    }
    pump();
    const int error = finish(lock, request);
    return is_lost ? -ENODEV : error;
}

int Port::map_outbound(std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t&) {
    return -EOPNOTSUPP;
}

int Port::send_doorbell(const Doorbell& doorbell, bool wait) {
    const std::int64_t until = shm::now_ms() + options_.retry_ms;
    while (true) {
        auto held = lock();
        if (const int error = connect(held, doorbell.destid)) return error;
        const std::uint32_t losses = engine_->losses(doorbell.destid);
        Request request;
        Packet packet;
        packet.operation = Operation::doorbell;
        packet.info = doorbell.payload;
        const bool is_sent =
            persist(held, doorbell.destid, losses,
                    [&] { return engine_->begin(doorbell.destid, request, {}, packet.transaction); }) &&
            persist(held, doorbell.destid, losses,
                    [&] { return engine_->send(doorbell.destid, ordered_lane, packet); });
        pump();
        const int error = finish(held, request);
        if (!is_sent) return -ENODEV;
        // The answer is RETRY: the sender tries again.
        if (error != -EAGAIN || !wait || shm::now_ms() >= until) return error;
        held.unlock();
        const timespec moment{0, 200'000};
        ::nanosleep(&moment, nullptr);
    }
}

int Port::read_registers(std::uint32_t destid, std::uint32_t offset, std::span<std::uint32_t> values) {
    if (destid == this->destid()) return own_->read_registers(destid, offset, values);
    auto held = lock();
    if (const int error = connect(held, destid)) return error;
    const std::uint32_t losses = engine_->losses(destid);
    Request request;
    Packet packet;
    packet.operation = Operation::maintenance_read;
    packet.hop_count = 0xFF;
    packet.bytes = sizeof(std::uint32_t);
    bool is_lost = false;
    for (std::size_t index = 0; index < values.size() && !is_lost; ++index) {
        packet.address = offset + index * sizeof(std::uint32_t);
        is_lost = !persist(held, destid, losses, [&] {
            return engine_->begin(destid, request,
                                  {reinterpret_cast<std::byte*>(&values[index]), packet.address, sizeof(std::uint32_t)},
                                  packet.transaction);
        }) || !persist(held, destid, losses, [&] { return engine_->send(destid, ordered_lane, packet); });
    }
    pump();
    const int error = finish(held, request);
    for (std::uint32_t& value : values)
        value = __builtin_bswap32(value);
    return is_lost ? -ENODEV : error;
}

int Port::write_register(std::uint32_t destid, std::uint32_t offset, std::uint32_t value) {
    if (destid == this->destid()) {
        return offset == base_device_id_register ? set_destid(value & 0xFFFF)
                                                 : own_->write_register(destid, offset, value);
    }
    auto held = lock();
    if (const int error = connect(held, destid)) return error;
    const std::uint32_t losses = engine_->losses(destid);
    Request request;
    Packet packet;
    packet.operation = Operation::maintenance_write;
    packet.hop_count = 0xFF;
    packet.bytes = sizeof value;
    packet.address = offset;
    const std::uint32_t big_endian = __builtin_bswap32(value);
    packet.data = std::as_bytes(std::span(&big_endian, 1));
    const bool is_sent =
        persist(held, destid, losses, [&] { return engine_->begin(destid, request, {}, packet.transaction); }) &&
        persist(held, destid, losses, [&] { return engine_->send(destid, ordered_lane, packet); });
    pump();
    const int error = finish(held, request);
    if (!is_sent) return -ENODEV;
    return error == -EIO ? -EPERM : error;
}

std::unique_ptr<softrio::Socket> Port::make_socket() {
    return std::make_unique<CmSocket>(shared_from_this());
}

// What peers ask for

std::span<std::byte> Port::window(std::uint64_t address, std::size_t bytes) {
    return inbound_ ? inbound_->at(address, bytes) : std::span<std::byte>();
}

Status Port::ring(std::uint32_t source, std::uint16_t info) {
    const int error = own_->queue_doorbell({source, info});
    if (error == -ENOENT) {
        debug("endpoint " + std::to_string(destid()) + ": doorbell " + std::to_string(info) + " from endpoint " +
              std::to_string(source) + ", which nobody has enabled: lost");
    }
    return error == -EAGAIN ? Status::retry : Status::done;
}

std::uint32_t Port::read_register(std::uint32_t offset) {
    std::uint32_t value = 0;
    (void)own_->read_registers(destid(), offset, {&value, 1});
    return value;
}

Status Port::write_register(std::uint32_t offset, std::uint32_t value) {
    if (offset == base_device_id_register) return Status::error;  // its owner's alone
    return own_->write_register(destid(), offset, value) == 0 ? Status::done : Status::error;
}

void Port::take_message(std::uint32_t source, std::span<const std::byte> message) {
    channels_.take_message(source, message);
}

void Port::lose_peer(std::uint32_t destid) {
    channels_.lose_peer(destid);
}

}  // namespace incast::softrio::udp
