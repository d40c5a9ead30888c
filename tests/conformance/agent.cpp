#include "agent.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include <poll.h>
#include <sys/mman.h>

#include "os/descriptor.h"
#include "planted.h"
#include "transport/builtin/builtin.h"
#include "transport/decorator/count.h"
#include "transport/decorator/fault.h"
#include "transport/decorator/pad.h"
#include "transport/decorator/trace.h"

namespace incast::conformance {

namespace {

/// Reads every byte it is given: what a trace may see must be there.
class Checksum final : public transport::decorator::TraceSink {
public:
    void record(const transport::decorator::TraceRecord& record) override {
        for (const std::byte byte : record.bytes)
            sum_ += std::to_integer<std::uint64_t>(byte);
    }

private:
    std::uint64_t sum_ = 0;
};

Time real_now() {
    static const auto begin = std::chrono::steady_clock::now();
    const auto since = std::chrono::steady_clock::now() - begin;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() * ps_per_ns;
}

Slice slice_of(const Command& command) {
    return {Local{command.region}, static_cast<std::uint32_t>(command.length), command.offset};
}

}  // namespace

struct Agent::Extras {
    transport::decorator::Counts counts;
    Checksum checksum;
};

Agent::Agent(Recipe recipe, std::shared_ptr<transport::Medium> medium)
    : recipe_(std::move(recipe)), medium_(std::move(medium)), extras_(std::make_unique<Extras>()) {}

Agent::~Agent() = default;

Reply Agent::execute(const Command& command) {
    Reply reply;
    switch (command.op) {
        case Op::create:
            create(command, reply);
            break;
        case Op::destroy:
            traffic_.reset();
            transport_.reset();
            return reply;
        case Op::address:
            reply.blob = transport_->address();
            break;
        case Op::connect:
            reply.post = transport_->connect(Peer{command.peer}, command.blob, command.incarnation);
            break;
        case Op::disconnect:
            transport_->disconnect(Peer{command.peer});
            break;
        case Op::dial: {
            std::vector<std::byte> greeting(command.length);
            fill_pattern(greeting, command.seed);
            const auto peer = transport_->dial(command.blob, greeting);
            reply.ok = peer.ok();
            if (peer) {
                reply.number = static_cast<std::uint32_t>(*peer);
            } else {
                reply.text = peer.error().message;
            }
            break;
        }
        case Op::accept:
            reply.post = transport_->accept(Peer{command.peer});
            break;
        case Op::ended:
            transport_->ended(Peer{command.peer}, command.incarnation);
            break;
        case Op::drained:
            reply.ok = transport_->drained();
            break;
        case Op::allocate: {
            const auto region = transport_->allocate(command.length);
            reply.ok = region.ok();
            if (region) {
                reply.number = static_cast<std::uint32_t>(*region);
            } else {
                reply.text = region.error().message;
            }
            break;
        }
        case Op::memory: {
            const auto memory = transport_->memory(Local{command.region});
            reply.length = memory.size();
            reply.ok = reinterpret_cast<std::uintptr_t>(memory.data()) % 64 == 0;
            break;
        }
        case Op::is_zero: {
            const Bytes bytes = transport_->local(slice_of(command));
            reply.ok = same_bytes(bytes, std::vector<std::byte>(command.length));
            break;
        }
        case Op::fill: {
            const auto memory = transport_->memory(Local{command.region});
            if (memory.empty()) break;  // phantom bodies
            fill_pattern(memory.subspan(command.offset, command.length), command.seed);
            break;
        }
        case Op::matches:
            reply.ok = matches(transport_->local(slice_of(command)), command);
            break;
        case Op::local: {
            const Bytes bytes = transport_->local(slice_of(command));
            reply.text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
            break;
        }
        case Op::grant:
        case Op::expose: {
            const Grant grant{.peer = Peer{command.peer},
                              .read = (command.head_bytes & 1U) != 0,
                              .write = (command.head_bytes & 2U) != 0,
                              .offset = command.offset,
                              .length = command.length,
                              .stride = command.remote_offset,
                              .count = static_cast<std::uint32_t>(command.repeat)};
            const auto key = transport_->expose(Local{command.region}, command.op == Op::grant ? grant : Grant{});
            reply.ok = key.ok();
            if (key) {
                reply.blob = *key;
            } else {
                reply.text = key.error().message;
            }
            break;
        }
        case Op::share:
            share(command, reply);
            break;
        case Op::import_key: {
            const auto remote = transport_->import_key(Peer{command.peer}, command.blob);
            reply.ok = remote.ok();
            if (remote) {
                reply.number = static_cast<std::uint32_t>(*remote);
            } else {
                reply.text = remote.error().message;
            }
            break;
        }
        case Op::release:
        case Op::release_import: {
            const auto released = command.op == Op::release ? transport_->release(Local{command.region})
                                                            : transport_->release(Remote{command.remote});
            reply.ok = released.ok();
            reply.text = released ? "" : released.error().message;
            break;
        }
        case Op::send:
            send(command, reply);
            break;
        case Op::write:
        case Op::write_from:
            write(command, reply);
            break;
        case Op::read:
            reply.post = transport_->read(Peer{command.peer}, {Remote{command.remote}, command.remote_offset},
                                          slice_of(command), command.token);
            break;
        case Op::view:
        case Op::hold_view: {
            const Bytes bytes = transport_->view({Remote{command.remote}, command.remote_offset},
                                                 static_cast<std::uint32_t>(command.length));
            if (command.op == Op::hold_view) held_view_ = bytes;
            reply.length = bytes.size();
            reply.ok = matches(bytes, command);
            break;
        }
        case Op::copied:
            reply.length = transport_->copied_bytes();
            break;
        case Op::held_view:
            reply.ok = matches(held_view_, command);
            break;
        case Op::poll:
            poll(command.length, command.now, reply);
            break;
        case Op::prepare_wait:
            reply.ok = transport_->prepare_wait();
            break;
        case Op::sleep:
            sleep(command, reply);
            break;
        case Op::traffic:
            traffic_ = std::make_unique<Traffic>(
                *transport_, Traffic::Setup{.peer = Peer{command.peer},
                                            .received = Local{command.region},
                                            .source = Local{static_cast<std::uint16_t>(command.region + 1)},
                                            .remote = Remote{command.remote},
                                            .remote_source = Remote{command.remote + 1},
                                            .send_seed = command.seed + command.incarnation,
                                            .receive_seed = command.seed + command.peer,
                                            .items = static_cast<std::uint32_t>(command.length)});
            break;
        case Op::traffic_step:
            reply.ok = traffic_->step(command.now);
            reply.text = traffic_->failure();
            break;
        case Op::traffic_run:
            run_traffic(command, reply);
            break;
    }
    if (transport_ != nullptr) {
        reply.capabilities = transport_->capabilities();
        reply.next_deadline = transport_->next_deadline();
    }
    return reply;
}

void Agent::share(const Command& command, Reply& reply) {
    const auto shared = transport_->share(Local{command.region});
    if (!shared) {
        reply.text = shared.error().message;
        return;
    }
    const os::Descriptor file(*shared);
    const std::size_t size = transport_->memory(Local{command.region}).size();
    void* writable = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
    void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd(), 0);
    if (writable != MAP_FAILED || memory == MAP_FAILED) {
        reply.text = writable != MAP_FAILED ? "it can be mapped for writing" : "it cannot be mapped";
        return;
    }
    reply.ok =
        matches(Bytes(static_cast<const std::byte*>(memory), size).subspan(command.offset, command.length), command);
    reply.text = reply.ok ? "" : "other bytes";
    ::munmap(memory, size);
}

void Agent::create(const Command& command, Reply& reply) {
    transport::EndpointOptions options;
    options.self = Peer{command.peer};
    options.incarnation = command.incarnation;
    options.run = command.run;
    options.token = command.token;
    options.max_peers = command.max_peers;
    options.max_dialled = command.max_dialled;
    options.max_posted = command.max_posted;
    options.shareable = command.shareable;
    if (medium_ == nullptr) {
        auto medium = transport::make_medium(*transport::find_transport(recipe_.transport), recipe_.settings);
        if (!medium) {
            reply.text = medium.error().message;
            return;
        }
        medium_ = std::move(*medium);
    }
    auto endpoint = medium_->endpoint(options);
    reply.ok = endpoint.ok();
    if (!endpoint) {
        reply.text = endpoint.error().message;
        return;
    }
    switch (recipe_.decoration) {
        case Decoration::none:
            transport_ = std::move(*endpoint);
            break;
        case Decoration::trace:
            transport_ = transport::decorator::make_trace(std::move(*endpoint), options.self, extras_->checksum);
            break;
        case Decoration::count:
            transport_ = transport::decorator::make_count(std::move(*endpoint), extras_->counts);
            break;
        case Decoration::fault:
            transport_ = transport::decorator::make_fault(std::move(*endpoint), {});
            break;
        case Decoration::pad:
            transport_ = transport::decorator::make_pad(std::move(*endpoint));
            break;
    }
    if (const Planted* planted = planted_here()) transport_ = make_planted(std::move(transport_), *planted);
}

void Agent::poll(std::uint64_t events_at_a_time, Time now, Reply& reply) {
    std::vector<Event> events(events_at_a_time);
    const std::size_t count = transport_->poll(now, events);
    for (const Event& event : std::span(events).first(count)) {
        Seen seen{.kind = event.kind, .status = event.status, .peer = static_cast<std::uint32_t>(event.peer)};
        switch (event.kind) {
            case Event::Kind::completed:
                seen.token = event.token;
                break;
            case Event::Kind::message:
                seen.message.assign(reinterpret_cast<const char*>(event.data), event.size_or_value);
                break;
            case Event::Kind::notice:
                seen.value = event.size_or_value;
                break;
            case Event::Kind::peer_up:
            case Event::Kind::peer_down:
                seen.incarnation = event.incarnation;
                break;
            case Event::Kind::room:
                break;
            case Event::Kind::knock:
                seen.message.assign(reinterpret_cast<const char*>(event.data), event.size_or_value);
                seen.incarnation = event.incarnation;
                break;
        }
        reply.events.push_back(std::move(seen));
    }
}

void Agent::send(const Command& command, Reply& reply) {
    std::vector<std::byte> message(command.length);
    for (std::uint64_t n = 0; n < command.repeat; ++n) {
        fill_pattern(message, command.seed + n);
        reply.post = transport_->send(Peer{command.peer}, message);
        // Copied by the call: what happens to it afterwards is nobody's business.
        std::ranges::fill(message, std::byte{0xEE});
        if (reply.post != Post::done) break;
        ++reply.length;
    }
}

void Agent::write(const Command& command, Reply& reply) {
    std::vector<std::byte> head(command.head_bytes);
    fill_pattern(head, command.seed);
    const Notice notice = command.has_notice ? Notice{command.notice} : Notice{};
    const Target target{Remote{command.remote}, command.remote_offset};
    if (command.op == Op::write) {
        reply.post = transport_->write(Peer{command.peer}, head, slice_of(command), target, notice, command.token);
    } else {
        std::vector<std::byte>& body = bodies_.emplace_back(command.length);
        fill_pattern(body, command.offset);
        reply.post = transport_->write_from(Peer{command.peer}, head, body, target, notice, command.token);
        if (reply.post != Post::pending) std::ranges::fill(body, std::byte{0xEE});
    }
    std::ranges::fill(head, std::byte{0xEE});
}

void Agent::sleep(const Command& command, Reply& reply) {
    const Time end = real_now() + static_cast<Time>(command.length) * ps_per_ms;
    for (Time now = real_now(); reply.events.empty() && now < end; now = real_now()) {
        poll(64, now, reply);
        if (!reply.events.empty() || !transport_->prepare_wait()) continue;
        const Time until = std::min(end, transport_->next_deadline());
        pollfd wait{.fd = transport_->wait_fd(), .events = POLLIN, .revents = 0};
        (void)::poll(&wait, 1, until <= now ? 0 : static_cast<int>((until - now) / ps_per_ms) + 1);
    }
}

void Agent::run_traffic(const Command& command, Reply& reply) {
    const Time end = real_now() + static_cast<Time>(command.length) * ps_per_ms;
    while (traffic_->step(real_now())) {
        if (real_now() > end) {
            reply.text = "not finished in time";
            return;
        }
        std::this_thread::yield();
    }
    reply.text = traffic_->failure();
}

bool Agent::matches(Bytes bytes, const Command& command) const {
    std::vector<std::byte> expected(command.length);
    fill_pattern(expected, command.seed);
    return same_bytes(bytes, expected);
}

}  // namespace incast::conformance
