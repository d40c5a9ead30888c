#include "softrio/api/shared_port.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/mapping.h"
#include "softrio/shm/system.h"

namespace incast::softrio::api {

namespace {

constexpr std::uint64_t page_bytes = 4096;
constexpr std::int64_t slice_ms = 50;
constexpr int look_again_ms = 100;

/// A socket of the process that has the port open, by its number.
class RemoteSocket final : public Socket {
public:
    RemoteSocket(std::shared_ptr<SharedPort> port, std::uint64_t id) : port_(std::move(port)), id_(id) {}
    ~RemoteSocket() override { (void)port_->call(Operation::close_socket, {id_}); }
    RemoteSocket(const RemoteSocket&) = delete;
    RemoteSocket& operator=(const RemoteSocket&) = delete;

    [[nodiscard]] bool is_usable() const override { return true; }
    [[nodiscard]] std::uint64_t id() const override { return id_; }
    int bind(std::uint16_t channel) override { return port_->call(Operation::bind, {id_, channel}); }
    int listen() override { return port_->call(Operation::listen, {id_}); }
    int accept(Socket& into, std::uint32_t timeout_ms, const volatile int* stop) override {
        return in_slices(timeout_ms, stop,
                         [&](std::uint64_t ms) { return port_->call(Operation::accept, {id_, into.id(), ms}); });
    }
    int connect(std::uint32_t destid, std::uint16_t channel, const volatile int* stop) override {
        while (true) {
            const int error = port_->call(Operation::connect, {id_, destid, channel});
            if (error != -ETIME || stop == nullptr || is_set(stop)) return error;
        }
    }
    int send(std::span<const std::byte> message, const volatile int* stop) override {
        if (message.size() < min_message || message.size() > max_message) return -EINVAL;
        while (true) {
            Answer answer;
            const int error = port_->call(Operation::send, {id_}, answer, message);
            if (error != -ETIME || (stop != nullptr && is_set(stop))) return error;
        }
    }
    int receive(std::span<std::byte> into, std::uint32_t timeout_ms, const volatile int* stop) override {
        return in_slices(timeout_ms, stop, [&](std::uint64_t ms) {
            Answer answer;
            return port_->call(Operation::receive, {id_, ms}, answer, {}, into);
        });
    }

private:
    static bool is_set(const volatile int* stop) { return __atomic_load_n(stop, __ATOMIC_RELAXED) != 0; }

    /// The other process does not see this one's request to stop, nor its end.
    template <class Attempt>
    static int in_slices(std::uint32_t timeout_ms, const volatile int* stop, Attempt&& attempt) {
        if (stop != nullptr && is_set(stop)) stop = nullptr;
        const bool ends = timeout_ms != 0 && stop == nullptr;
        const std::int64_t until = shm::now_ms() + timeout_ms;
        while (true) {
            const std::int64_t left = ends ? std::max<std::int64_t>(until - shm::now_ms(), 1) : slice_ms;
            const int error = attempt(static_cast<std::uint64_t>(std::min(left, slice_ms)));
            if (error != -ETIME || (stop != nullptr && is_set(stop)) || (ends && shm::now_ms() >= until)) return error;
        }
    }

    std::shared_ptr<SharedPort> port_;
    std::uint64_t id_;
};

}  // namespace

std::shared_ptr<SharedPort> SharedPort::attach(const Options& options, const std::string& name) {
    auto port = std::make_shared<SharedPort>(options, name, 0, os::Descriptor());
    Answer answer;
    if (port->call(Operation::attach, {}, answer, {}, {}, &port->life_) != 0) return nullptr;
    port->process_ = static_cast<std::uint32_t>(answer.values[0]);
    return port;
}

void SharedPort::prepare_fork() {
    Answer answer;
    child_life_.close();
    child_process_ = 0;
    if (call(Operation::fork, {}, answer, {}, {}, &child_life_) == 0)
        child_process_ = static_cast<std::uint32_t>(answer.values[0]);
}

void SharedPort::become_child() {
    idle_.clear();  // the parent talks there
    process_ = child_process_;
    life_ = std::move(child_life_);
}

os::Descriptor SharedPort::connection() {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            auto last = std::move(idle_.back());
            idle_.pop_back();
            return last;
        }
    }
    return connect_to(name_);
}

int SharedPort::call(Operation operation, std::array<std::uint64_t, 6> values, Answer& answer,
                     std::span<const std::byte> bytes, std::span<std::byte> into, os::Descriptor* file,
                     std::vector<std::byte>* more, int given) {
    os::Descriptor socket = connection();
    const Call call{operation, process_, values, bytes.size()};
    if (!socket.is_open() || !send_all(socket.fd(), bytes_of(call), given) || !send_all(socket.fd(), bytes) ||
        !receive_all(socket.fd(), bytes_of(answer), file)) {
        return -ENODEV;
    }
    if (more != nullptr && answer.bytes <= most_call_bytes) {
        more->resize(answer.bytes);
        into = *more;
    }
    if (answer.bytes > into.size() || !receive_all(socket.fd(), into.first(answer.bytes))) return -ENODEV;
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(socket));
    return answer.status;
}

std::uint32_t SharedPort::destid() const {
    Answer answer;
    (void)const_cast<SharedPort*>(this)->call(Operation::destid, {}, answer);
    return static_cast<std::uint32_t>(answer.values[0]);
}

std::vector<std::uint32_t> SharedPort::others() {
    Answer answer;
    std::vector<std::byte> bytes;
    if (call(Operation::others, {}, answer, {}, {}, nullptr, &bytes) != 0) return {};
    std::vector<std::uint32_t> found(bytes.size() / sizeof(std::uint32_t));
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(found)).begin());
    return found;
}

int SharedPort::read(std::uint32_t destid, std::uint64_t way, std::uint32_t offset, std::span<std::uint32_t> values) {
    constexpr std::size_t most = most_call_bytes / sizeof(std::uint32_t);
    int error = 0;
    while (error == 0 && !values.empty()) {
        const auto some = values.first(std::min(most, values.size()));
        Answer answer;
        error = call(Operation::read_registers, {destid, offset, some.size(), way}, answer, {},
                     std::as_writable_bytes(some));
        values = values.subspan(some.size());
        offset += static_cast<std::uint32_t>(some.size_bytes());
    }
    return error;
}

int SharedPort::allocate(std::uint32_t owner, std::uint64_t bytes, std::uint64_t& local) {
    Answer answer;
    const int error = call(Operation::allocate, {owner, bytes, local}, answer);
    if (error == 0) local = answer.values[0];
    return error;
}

int SharedPort::map_window(std::uint32_t owner, std::uint64_t& base, std::uint64_t bytes, std::uint64_t& local) {
    Answer answer;
    const int error = call(Operation::map_window, {owner, base, bytes, local}, answer);
    if (error != 0) return error;
    base = answer.values[0];
    local = answer.values[1];
    return 0;
}

int SharedPort::map_guarded(std::uint32_t /*owner*/, std::uint64_t& /*base*/, std::uint64_t /*bytes*/,
                            std::uint64_t& /*local*/) {
    return -EOPNOTSUPP;
}

int SharedPort::permit(std::uint64_t /*local*/, std::uint32_t /*destid*/, Access /*access*/) {
    return -EOPNOTSUPP;
}

int SharedPort::share_memory(std::uint64_t /*local*/) {
    return -EOPNOTSUPP;
}

int SharedPort::map_outbound(std::uint32_t owner, std::uint32_t destid, std::uint64_t base, std::uint64_t bytes,
                             std::uint64_t& handle) {
    Answer answer;
    const int error = call(Operation::map_outbound, {owner, destid, base, bytes}, answer);
    if (error == 0) handle = answer.values[0];
    return error;
}

int SharedPort::open_memory(std::uint64_t local, std::uint64_t bytes, std::uint64_t& offset) {
    Answer answer;
    os::Descriptor file;
    const int error = call(Operation::open_memory, {local, bytes}, answer, {}, {}, &file);
    if (error != 0) return error;
    offset = answer.values[0];
    return file.is_open() ? file.release() : -ENOMEM;
}

std::span<std::byte> SharedPort::local(std::uint64_t address, std::uint64_t bytes, Keep& keep) {
    if (bytes == 0) return {};
    std::uint64_t offset = 0;
    const os::Descriptor file(open_memory(address, bytes, offset));
    if (!file.is_open()) return {};
    const std::uint64_t into = offset % page_bytes;
    void* at =
        ::mmap(nullptr, bytes + into, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), static_cast<off_t>(offset - into));
    if (at == MAP_FAILED) return {};
    auto mapping = std::make_shared<os::Mapping>(std::span(static_cast<std::byte*>(at), bytes + into));
    keep = mapping;
    return mapping->bytes().subspan(into, bytes);
}

std::int64_t SharedPort::arrival_ns(Direction direction, std::uint32_t destid, std::uint64_t bytes) {
    if (options_.link == Options::Link::none) return 0;
    Answer answer;
    (void)call(Operation::arrival, {direction == Direction::write ? 0U : 1U, destid, bytes}, answer);
    return static_cast<std::int64_t>(answer.values[0]);
}

int SharedPort::transfer(const Transfer& transfer) {
    const bool writes = transfer.direction == Direction::write;
    const std::uint64_t flags = (writes ? 1U : 0U) | (transfer.has_response ? 2U : 0U) |
                                (transfer.is_streaming ? 4U : 0U) | (transfer.answers_each ? 8U : 0U);
    const std::array<std::uint64_t, 6> values{flags, transfer.channel, transfer.destid, transfer.address,
                                              transfer.bytes.size()};
    if (transfer.bytes.size() > most_call_bytes) return transfer_in_file(transfer, values);
    Answer answer;
    return call(Operation::transfer, values, answer,
                writes ? std::span<const std::byte>(transfer.bytes) : std::span<const std::byte>(),
                writes ? std::span<std::byte>() : transfer.bytes);
}

/// In pieces it would not be one transfer: the other process is given all of it at once, without a copy of its own.
int SharedPort::transfer_in_file(const Transfer& transfer, const std::array<std::uint64_t, 6>& values) {
    const auto memory = shm::make_memory(transfer.bytes.size());
    if (!memory) return -ENOMEM;
    const bool writes = transfer.direction == Direction::write;
    if (const int error = writes ? shm::copy_into(memory->file, transfer.bytes) : 0) return error;
    Answer answer;
    const int error = call(Operation::transfer, values, answer, {}, {}, nullptr, nullptr, memory->file.fd());
    return error != 0 || writes ? error : shm::copy_out_of(memory->file, transfer.bytes);
}

int SharedPort::open_sink(std::uint32_t& sink, bool on_demand) {
    Answer answer;
    os::Descriptor bell;
    const int error = call(Operation::open_sink, {on_demand ? 1U : 0U}, answer, {}, {}, &bell);
    if (error != 0) return error;
    sink = static_cast<std::uint32_t>(answer.values[0]);
    const std::lock_guard lock(mutex_);
    bells_[sink] = std::move(bell);
    return 0;
}

void SharedPort::keep_bell(std::uint32_t sink, int fd) {
    bells_[sink] = os::Descriptor(fd);
}

int SharedPort::bell(std::uint32_t sink) const {
    const std::lock_guard lock(mutex_);
    const auto found = bells_.find(sink);
    return found == bells_.end() ? -1 : found->second.fd();
}

std::uint32_t SharedPort::event_mask(std::uint32_t sink) const {
    Answer answer;
    (void)const_cast<SharedPort*>(this)->call(Operation::events, {sink}, answer);
    return static_cast<std::uint32_t>(answer.values[0]);
}

int SharedPort::get_doorbell(std::uint32_t sink, bool wait, Doorbell& doorbell) {
    while (true) {
        Answer answer;
        const int error = call(Operation::get_doorbell, {sink}, answer);
        if (error == 0) {
            doorbell = {static_cast<std::uint32_t>(answer.values[0]), static_cast<std::uint16_t>(answer.values[1])};
            return 0;
        }
        if (error != -EAGAIN || !wait) return error;
        pollfd one{bell(sink), POLLIN, 0};
        if (::poll(&one, 1, look_again_ms) < 0) return -errno;
    }
}

std::unique_ptr<Socket> SharedPort::make_socket() {
    Answer answer;
    if (call(Operation::make_socket, {}, answer) != 0) answer.values[0] = 0;  // no socket: its calls fail
    return socket_of(answer.values[0]);
}

std::unique_ptr<Socket> SharedPort::socket_of(std::uint64_t id) {
    return std::make_unique<RemoteSocket>(shared_from_this(), id);
}

}  // namespace incast::softrio::api
