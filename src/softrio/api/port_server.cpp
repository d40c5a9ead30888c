#include "softrio/api/port_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "softrio/api/calls.h"
#include "softrio/api/endpoints.h"
#include "softrio/api/transfers.h"
#include "softrio/shm/system.h"

namespace incast::softrio::api {

namespace {

constexpr std::uint64_t most_registers = most_call_bytes / sizeof(std::uint32_t);
constexpr volatile int once = 1;
constexpr int pause_ms = 10;  // where there are no descriptors

/// Nothing here is meant for the program's handlers.
template <class Body>
bool start_thread(Body&& body) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
        std::thread(std::forward<Body>(body)).detach();
    } catch (const std::system_error&) {
        started = false;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

}  // namespace

struct PortServer::State {
    struct Process {
        os::Descriptor life;
        std::set<std::uint32_t> sinks;
        std::set<std::uint64_t> sockets;  // that it made
        std::shared_ptr<Endpoint> keeps;  // open as long as it may be used
    };

    std::weak_ptr<Endpoint> endpoint;
    std::string fabric;
    std::string own_name;
    os::Descriptor by_process;  // where children come
    os::Descriptor by_destid;   // and others
    os::Descriptor wake;
    bool ending = false;
    std::mutex mutex;
    std::uint32_t last_process = 0;
    std::map<std::uint32_t, Process> processes;
    std::set<int> serving;  // connections

    Ticket add(const std::shared_ptr<Endpoint>& of, std::set<std::uint32_t> sinks) {
        std::array<int, 2> ends{-1, -1};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return {};
        for (const std::uint32_t sink : sinks)
            of->use_sink(sink);
        Ticket made{++last_process, os::Descriptor(ends[1])};
        processes[made.process] = {os::Descriptor(ends[0]), std::move(sinks), {}, of};
        return made;
    }
    void notify() const {
        const std::uint64_t one = 1;
        (void)!::write(wake.fd(), &one, sizeof one);
    }
    void serve(os::Descriptor socket, const std::shared_ptr<Endpoint>& of);
    /// `file`: what came with the call, and then what goes with the answer.
    int answer(const std::shared_ptr<Endpoint>& of, const Call& call, std::vector<std::byte>& bytes, Answer& answer,
               os::Descriptor& file);
    int answer_socket(const Call& call, std::vector<std::byte>& bytes);
    void end(Process process);
};

std::unique_ptr<PortServer> PortServer::start(const std::shared_ptr<Endpoint>& endpoint) {
    static std::atomic<std::uint32_t> started = 0;
    auto state = std::make_shared<State>();
    state->endpoint = endpoint;
    state->fabric = endpoint->port->options().fabric;
    state->own_name = "softrio/process/" + std::to_string(::getpid()) + "/" + std::to_string(++started) + "/calls";
    state->wake = os::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    state->by_process = listen_at(state->own_name);
    state->by_destid = listen_at(share_name(state->fabric, endpoint->port->destid()));
    if (!state->wake.is_open() || !state->by_process.is_open()) return nullptr;
    if (!start_thread([state] { run(state); })) return nullptr;
    return std::unique_ptr<PortServer>(new PortServer(std::move(state)));
}

PortServer::~PortServer() {
    if (state_ == nullptr) return;
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    state_->by_process.close();
    state_->by_destid.close();
    state_->notify();
}

const std::string& PortServer::name() const {
    return state_->own_name;
}

void PortServer::abandon() {
    state_->by_process.close();
    state_->by_destid.close();
    state_->wake.close();
    for (const int socket : state_->serving)
        ::close(socket);
    // Locks in it may be those of threads that are not here.
    static std::vector<std::shared_ptr<State>>& left = *new std::vector<std::shared_ptr<State>>;
    for (auto& [number, process] : state_->processes)
        process.life.close();
    left.push_back(std::move(state_));
}

PortServer::Ticket PortServer::prepare_fork() {
    const auto endpoint = state_->endpoint.lock();
    if (endpoint == nullptr) return {};
    const std::lock_guard lock(state_->mutex);
    Ticket made = state_->add(endpoint, endpoint->sinks_in_use());
    state_->notify();
    return made;
}

void PortServer::rename() {
    const auto endpoint = state_->endpoint.lock();
    if (endpoint == nullptr) return;
    const std::lock_guard lock(state_->mutex);
    state_->by_destid = listen_at(share_name(state_->fabric, endpoint->port->destid()));
    state_->notify();
}

void PortServer::run(const std::shared_ptr<State>& state) {
    std::vector<pollfd> polled;
    std::vector<std::uint32_t> numbers;
    while (true) {
        polled.clear();
        numbers.clear();
        {
            const std::lock_guard lock(state->mutex);
            if (state->ending) return;
            for (const auto* each : {&state->wake, &state->by_process, &state->by_destid})
                polled.push_back({each->fd(), POLLIN, 0});
            for (const auto& [number, process] : state->processes) {
                polled.push_back({process.life.fd(), POLLIN, 0});
                numbers.push_back(number);
            }
        }
        if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
        std::uint64_t count = 0;
        (void)!::read(state->wake.fd(), &count, sizeof count);  // NOLINT(clang-analyzer-unix.BlockInCriticalSection)
        for (const std::size_t listener : {std::size_t{1}, std::size_t{2}}) {
            if (polled[listener].revents == 0) continue;
            os::Descriptor socket;
            std::shared_ptr<Endpoint> endpoint = state->endpoint.lock();
            {
                const std::lock_guard lock(state->mutex);
                const os::Descriptor& from = listener == 1 ? state->by_process : state->by_destid;
                if (from.is_open()) socket = os::Descriptor(::accept4(from.fd(), nullptr, nullptr, SOCK_CLOEXEC));
            }
            if (!socket.is_open() && (errno == EMFILE || errno == ENFILE)) ::poll(nullptr, 0, pause_ms);
            if (!socket.is_open() || endpoint == nullptr || !is_same_user(socket.fd())) continue;
            (void)start_thread([state, endpoint = std::move(endpoint), fd = socket.release()] {
                state->serve(os::Descriptor(fd), endpoint);
            });
        }
        for (std::size_t number = 0; number < numbers.size(); ++number) {
            if (polled[number + 3].revents == 0) continue;
            State::Process ended;
            {
                const std::lock_guard lock(state->mutex);
                const auto found = state->processes.find(numbers[number]);
                if (found == state->processes.end()) continue;
                ended = std::move(found->second);
                state->processes.erase(found);
            }
            state->end(std::move(ended));
        }
    }
}

void PortServer::State::end(Process process) {
    for (const std::uint64_t id : process.sockets)
        close_socket(id);
    for (const std::uint32_t sink : process.sinks)
        process.keeps->leave_sink(sink);
}

void PortServer::State::serve(os::Descriptor socket, const std::shared_ptr<Endpoint>& of) {
    const auto forget = [this](const os::Descriptor* of_this) {
        const std::lock_guard lock(mutex);
        serving.erase(of_this->fd());
    };
    {
        const std::lock_guard lock(mutex);
        serving.insert(socket.fd());
    }
    const std::unique_ptr<const os::Descriptor, decltype(forget)> registered(&socket, forget);
    std::vector<std::byte> bytes;
    os::Descriptor file;
    for (Call call; receive_all(socket.fd(), bytes_of(call), &file); file.close()) {
        if (call.bytes > most_call_bytes) return;
        bytes.resize(call.bytes);
        if (!receive_all(socket.fd(), bytes)) return;
        Answer told;
        told.status = answer(of, call, bytes, told, file);
        if (told.bytes == 0) bytes.clear();
        bytes.resize(told.bytes);
        if (!send_all(socket.fd(), bytes_of(told), file.fd()) || !send_all(socket.fd(), bytes)) return;
    }
}

int PortServer::State::answer(const std::shared_ptr<Endpoint>& of, const Call& call, std::vector<std::byte>& bytes,
                              Answer& told, os::Descriptor& file) {
    const os::Descriptor given = std::exchange(file, os::Descriptor());
    Port& port = *of->port;
    const auto& value = call.values;
    const auto word = [&](std::size_t index) { return static_cast<std::uint32_t>(value[index]); };
    const auto half = [&](std::size_t index) { return static_cast<std::uint16_t>(value[index]); };
    const auto process = [&](auto&& change) {
        const std::lock_guard lock(mutex);
        if (const auto found = processes.find(call.process); found != processes.end()) change(found->second);
    };
    switch (call.operation) {
        case Operation::attach:
        case Operation::fork: {
            const std::lock_guard lock(mutex);
            const auto parent = processes.find(call.process);
            auto made = add(of, parent == processes.end() ? std::set<std::uint32_t>{} : parent->second.sinks);
            told.values[0] = made.process;
            file = std::move(made.life);
            notify();
            return file.is_open() ? 0 : -EMFILE;
        }
        case Operation::destid:
            told.values[0] = port.destid();
            return 0;
        case Operation::set_destid: {
            const int error = port.set_destid(word(0));
            if (error == 0 && of->server != nullptr) of->server->rename();
            return error;
        }
        case Operation::others: {
            const auto found = port.others();
            const auto raw = std::as_bytes(std::span(found));
            bytes.assign(raw.begin(), raw.end());
            told.bytes = bytes.size();
            return 0;
        }
        case Operation::read_registers: {
            if (value[2] > most_registers) return -EINVAL;
            std::vector<std::uint32_t> registers(value[2]);
            const int error = value[3] == 0 ? port.read_registers(word(0), word(1), registers)
                                            : port.read_on_the_way(word(0), word(3) - 1, word(1), registers);
            const auto raw = std::as_bytes(std::span(registers));
            bytes.assign(raw.begin(), raw.end());
            told.bytes = bytes.size();
            return error;
        }
        case Operation::write_register:
            return value[3] == 0 ? port.write_register(word(0), word(1), word(2))
                                 : port.write_on_the_way(word(0), word(3) - 1, word(1), word(2));
        case Operation::allocate:
            if (!of->has_sink(word(0))) return -EBADF;
            told.values[0] = value[2];
            return port.allocate(word(0), value[1], told.values[0]);
        case Operation::free_allocation:
            return port.free_allocation(value[0]);
        case Operation::map_window:
            if (!of->has_sink(word(0))) return -EBADF;
            told.values = {value[1], value[3], 0};
            return port.map_window(word(0), told.values[0], value[2], told.values[1]);
        case Operation::free_window:
            return port.free_window(value[0]);
        case Operation::map_outbound:
            if (!of->has_sink(word(0))) return -EBADF;
            return port.map_outbound(word(0), word(1), value[2], value[3], told.values[0]);
        case Operation::free_outbound:
            return port.free_outbound(value[0]);
        case Operation::open_memory: {
            const int fd = port.open_memory(value[0], value[1], told.values[0]);
            if (fd >= 0) file = os::Descriptor(fd);
            return std::min(fd, 0);
        }
        case Operation::arrival:
            if (value[2] > max_size) return -EINVAL;
            told.values[0] = static_cast<std::uint64_t>(
                port.arrival_ns(value[0] == 0 ? Direction::write : Direction::read, word(1), value[2]));
            return 0;
        case Operation::transfer: {
            const bool writes = (value[0] & 1) != 0;
            const bool is_large = value[4] > most_call_bytes;
            const auto memory = is_large && value[4] <= max_size ? shm::map_sealed(given, shm::whole_pages(value[4]))
                                                                 : std::shared_ptr<os::Mapping>();
            if (is_large ? memory == nullptr : writes && bytes.size() != value[4]) return -EINVAL;
            if (!is_large) bytes.resize(value[4]);
            const int error = deliver(port, {.direction = writes ? Direction::write : Direction::read,
                                             .has_response = (value[0] & 2) != 0,
                                             .channel = word(1) % dma_channels,
                                             .destid = word(2),
                                             .address = value[3],
                                             .bytes = is_large ? memory->bytes().first(value[4]) : std::span(bytes),
                                             .is_streaming = (value[0] & 4) != 0,
                                             .answers_each = (value[0] & 8) != 0});
            told.bytes = writes || is_large || error != 0 ? 0 : bytes.size();
            return error;
        }
        case Operation::open_sink: {
            std::uint32_t sink = 0;
            if (const int error = port.open_sink(sink, value[0] != 0)) return error;
            of->use_sink(sink);
            process([&](Process& its) { its.sinks.insert(sink); });
            told.values[0] = sink;
            file = os::Descriptor(::fcntl(port.bell(sink), F_DUPFD_CLOEXEC, 0));
            return 0;
        }
        case Operation::close_sink: {
            bool had = false;
            process([&](Process& its) { had = its.sinks.erase(word(0)) != 0; });
            if (had) of->leave_sink(word(0));
            return had ? 0 : -EBADF;
        }
        case Operation::send_doorbell:
            return port.send_doorbell({word(0), half(1)}, value[2] != 0);
        case Operation::make_socket: {
            const std::uint64_t id = add_socket(of);
            process([&](Process& its) { its.sockets.insert(id); });
            told.values[0] = id;
            return 0;
        }
        case Operation::close_socket:
            process([&](Process& its) { its.sockets.erase(value[0]); });
            close_socket(value[0]);
            return 0;
        default:
            break;
    }
    if (call.operation >= Operation::bind) {
        const int error = answer_socket(call, bytes);
        if (call.operation == Operation::receive && error == 0) told.bytes = bytes.size();
        return error;
    }
    // The rest is about one handle's events.
    if (!of->has_sink(word(0))) return -EBADF;
    switch (call.operation) {
        case Operation::arm:
            return port.arm(word(0));
        case Operation::set_events:
            port.set_event_mask(word(0), word(1));
            return 0;
        case Operation::events:
            told.values[0] = port.event_mask(word(0));
            return 0;
        case Operation::enable_range:
            return port.enable_range(word(0), word(1), half(2), half(3));
        case Operation::disable_range:
            return port.disable_range(word(0), word(1), half(2), half(3));
        case Operation::get_doorbell: {
            Doorbell doorbell;
            const int error = port.get_doorbell(word(0), false, doorbell);
            told.values = {doorbell.destid, doorbell.payload, 0};
            return error;
        }
        default:
            return -EINVAL;
    }
}

int PortServer::State::answer_socket(const Call& call, std::vector<std::byte>& bytes) {
    const auto opened = find_socket(call.values[0]);
    if (opened == nullptr) return -EBADF;
    Socket& socket = *opened->socket;
    const auto half = static_cast<std::uint16_t>(call.values[1]);
    switch (call.operation) {
        case Operation::bind:
            return socket.bind(half);
        case Operation::listen:
            return socket.listen();
        case Operation::accept: {
            const auto into = find_socket(call.values[1]);
            if (into == nullptr || into == opened || into->endpoint != opened->endpoint) return -EINVAL;
            return socket.accept(*into->socket, static_cast<std::uint32_t>(call.values[2]), &once);
        }
        case Operation::connect:
            return socket.connect(static_cast<std::uint32_t>(call.values[1]),
                                  static_cast<std::uint16_t>(call.values[2]), &once);
        case Operation::send:
            return socket.send(bytes, &once);
        case Operation::receive:
            bytes.resize(max_message);
            return socket.receive(bytes, static_cast<std::uint32_t>(call.values[1]), &once);
        default:
            return -EINVAL;
    }
}

}  // namespace incast::softrio::api
