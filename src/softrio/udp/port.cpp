#include "softrio/udp/port.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

namespace incast::softrio::udp {

namespace {

using wire::Status;

constexpr int wait_slice_ms = 50;
constexpr std::int64_t wait_slice_ns = wait_slice_ms * reliable::ms_ns;
constexpr std::int64_t longest_wait_ns = 3600 * std::int64_t{1'000'000'000};
constexpr std::uint32_t ip_and_udp_bytes = 28;
constexpr std::uint32_t ipv6_and_udp_bytes = 48;
constexpr std::uint32_t window_packets = 1024;  // some of which are for responses and messages: engine.cpp

constexpr std::int64_t linger_ms = 1000;  // for what is still on its way when a port closes
constexpr int host_ms = 3000;             // for an answer of the enumerating host
constexpr int probe_rounds = 3;
constexpr std::size_t most_tried = 256;  // endpoints with which sessions are opened though nobody asked
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
      socket_({.drop = options.udp.drop}, options.seed ^ random_number()),
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
    take_groups();
    return destid;
}

Membership::Changed Port::told() {
    return [this](std::uint32_t destid, const std::optional<Address>& at) {
        directory_.set(destid, at);
        engine_->relocate(destid);
    };
}

void Port::take_groups() {
    const std::lock_guard lock(groups_mutex_);
    groups_.clear();
    for (const MulticastGroup& each : membership_.groups())
        groups_.push_back(std::make_shared<const MulticastGroup>(each));
    has_groups_ = !groups_.empty();
}

std::shared_ptr<const MulticastGroup> Port::group(std::uint32_t destid) const {
    if (auto own = softrio::Port::group(destid)) return own;
    if (!has_groups_) return nullptr;
    const std::lock_guard lock(groups_mutex_);
    const auto found = std::ranges::find_if(groups_, [&](const auto& each) { return each->destid == destid; });
    return found == groups_.end() ? nullptr : *found;
}

Result<std::shared_ptr<Port>> Port::open(const Options& options, std::uint32_t mport, std::uint32_t wanted,
                                         Target* instead) {
    auto directory = Directory::parse(options.fabric);
    if (!directory) return directory.error();
    std::shared_ptr<Port> port(new Port(options, std::move(*directory)));
    port->instead_ = instead;
    const auto destid = port->choose(mport, wanted);
    if (!destid) return destid.error();
    if (options.udp.ids == 8 && *destid >= small_any_destid)
        return Error{"SoftRIO: destination id " + std::to_string(*destid) + " does not fit ids=8"};
    auto own = shm::Port::open_alone(options, *destid);
    if (!own) return own.error();
    port->own_ = std::move(*own);
    port->wake_ = os::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    port->poll_ = os::Descriptor(::epoll_create1(EPOLL_CLOEXEC));
    if (!port->wake_.is_open() || !port->poll_.is_open()) return system_error("a master port", errno);
    for (const int fd : {port->socket_.fd(), port->wake_.fd(), port->membership_.fd()})
        if (fd >= 0) port->watch(EPOLL_CTL_ADD, fd, EPOLLIN);
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
    poll_.close();
    thread_.detach();
}

// The thread

void Port::watch(int operation, int fd, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    (void)::epoll_ctl(poll_.fd(), operation, fd, &event);
}

void Port::run() {
    while (!ending_) {
        std::int64_t wait_ns = 0;
        {
            const auto held = lock();
            const std::int64_t now = now_ns();
            // A driver looks after all deadlines.
            sleeps_until_ns_ = driver_ == std::thread::id() ? engine_->next_deadline_ns() : now + wait_slice_ns;
            wait_ns = std::clamp<std::int64_t>(sleeps_until_ns_ - now, 0, longest_wait_ns);
        }
        std::array<epoll_event, 3> events;
        const auto wait_ms = static_cast<int>((wait_ns + reliable::ms_ns - 1) / reliable::ms_ns);
        const int count = ::epoll_wait(poll_.fd(), events.data(), events.size(), wait_ms);
        const auto held = lock();
        sleeps_until_ns_ = 0;  // awake: nobody needs to wake it
        bool has_errors = false;
        for (const epoll_event& each : std::span(events).first(static_cast<std::size_t>(std::max(count, 0)))) {
            if (each.data.fd == wake_.fd()) {
                std::uint64_t wakes = 0;
                // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): it does not block
                (void)!::read(wake_.fd(), &wakes, sizeof wakes);
            } else if (each.data.fd == socket_.fd()) {
                has_errors = (each.events & EPOLLERR) != 0;
            } else {
                membership_.take_in(told());
                take_groups();
            }
        }
        take_in(has_errors);
        pump();
        notify();
    }
}

void Port::begin_driving() {
    driver_ = std::this_thread::get_id();
    watch(EPOLL_CTL_MOD, socket_.fd(), 0);
}

void Port::end_driving() {
    driver_ = {};
    watch(EPOLL_CTL_MOD, socket_.fd(), EPOLLIN);
    tell_deadline();
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
              " packets were for addresses that are not inside one of its windows, or of one that their sender may not "
              "reach: "
              "nothing was moved");
        outside_ = outside;
    }
}

void Port::pump() {
    engine_->collect(now_ns(),
                     [&](const Engine::Output& output) { socket_.add(output.to, output.bytes, output.is_stable); });
    socket_.send();
    tell_deadline();
}

void Port::tell_deadline() {
    if (sleeps_until_ns_ == 0 || driver_ != std::thread::id() || engine_->next_deadline_ns() >= sleeps_until_ns_)
        return;
    sleeps_until_ns_ = 0;  // once is enough
    wake_thread();
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
    const timespec timeout = time_until(std::min(engine_->next_deadline_ns(), now_ns() + wait_slice_ns));
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
    (void)shm::futex_wait(changes_, before, wait_slice_ms);
    lock = this->lock();
    waiters_.fetch_sub(1);
}

bool Port::wait(Lock& lock, shm::Patience& patience) {
    pump();
    waiters_.fetch_add(1);
    const std::uint32_t before = changes_.load();
    lock.unlock();
    const bool goes_on = patience.wait(changes_, before, wait_slice_ms);
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
    if (!is_destid(destid) || group(destid)) return -EINVAL;
    if (options_.udp.ids == 8 && destid > 0xFF) return -EINVAL;
    auto held = lock();
    if (destid == this->destid()) return 0;
    for (const std::uint32_t each : directory_.all())
        settle(held, each, linger_ms);
    if (directory_.host()) return change_destid(held, destid);
    const auto address = directory_.find(destid);
    if (!address) return -EINVAL;
    os::Descriptor next;
    if (const int error = datagram::Socket::open(*address, next)) return error == EADDRINUSE ? -EBUSY : -EINVAL;
    // Said from the old address, once the new one is sure.
    engine_->close_all();
    pump();
    if (const int error = socket_.adopt(std::move(next))) return -error;
    watch(EPOLL_CTL_ADD, socket_.fd(), EPOLLIN);
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

std::vector<std::uint32_t> Port::reached() {
    auto held = lock();
    if (directory_.host()) hear_of_all(held);
    auto candidates = directory_.all();
    std::erase(candidates, destid());
    if (candidates.size() <= most_tried) {
        for (const std::uint32_t each : candidates)
            (void)engine_->open(now_ns(), each);
        pump();
    }
    std::erase_if(candidates, [&](std::uint32_t each) { return !engine_->is_established(each); });
    return candidates;
}

// What peers ask for

std::span<std::byte> Port::window(std::uint32_t source, Direction direction, std::uint64_t address, std::size_t bytes) {
    if (instead_ != nullptr) return instead_->window(source, direction, address, bytes);
    return inbound_ ? inbound_->at(source, direction, address, bytes) : std::span<std::byte>();
}

Status Port::ring(std::uint32_t source, std::uint16_t info) {
    if (instead_ != nullptr) return instead_->ring(source, info);
    const int error = own_->queue_doorbell({source, info});
    if (error == -ENOENT) {
        debug("endpoint " + std::to_string(destid()) + ": doorbell " + std::to_string(info) + " from endpoint " +
              std::to_string(source) + ", which nobody has enabled: lost");
    }
    return error == -EAGAIN ? Status::retry : Status::done;
}

std::uint32_t Port::read_register(std::uint32_t offset) {
    if (instead_ != nullptr) return instead_->read_register(offset);
    std::uint32_t value = 0;
    (void)own_->read_registers(destid(), offset, {&value, 1});
    return value;
}

Status Port::write_register(std::uint32_t offset, std::uint32_t value) {
    if (instead_ != nullptr) return instead_->write_register(offset, value);
    if (offset == base_device_id_register) return Status::error;  // its owner's alone
    return own_->write_register(destid(), offset, value) == 0 ? Status::done : Status::error;
}

void Port::take_message(std::uint32_t source, std::span<const std::byte> message) {
    channels_.take_message(source, message);
}

void Port::take_letter(std::uint32_t source, std::uint8_t mailbox, std::span<const std::byte> message) {
    if (instead_ != nullptr) return instead_->take_letter(source, mailbox, message);
    Target::take_letter(source, mailbox, message);
}

void Port::lose_peer(std::uint32_t destid, reliable::Loss why) {
    debug("endpoint " + std::to_string(this->destid()) + ": endpoint " + std::to_string(destid) +
          " is gone: " + to_string(why));
    channels_.lose_peer(destid);
    if (instead_ != nullptr) instead_->lose_peer(destid, why);
}

}  // namespace incast::softrio::udp
