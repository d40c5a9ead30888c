// An endpoint that answers: a window, doorbells that come back, messages, and words written back.
#include <atomic>
#include <cstring>
#include <deque>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include "os/signals.h"
#include "softrio/tools/tool.h"

namespace incast::softrio::tools {

namespace {

constexpr std::uint32_t look_at_end_ms = 50;  // whether this is to end
constexpr double spin_s = 0.002;              // after the last ping: the next one is answered without sleeping before

void answer_doorbells(api::MasterPort& port, const std::atomic<bool>& ending) {
    auto last = std::chrono::steady_clock::now();
    while (!ending) {
        while (const auto doorbell = port.hear()) {
            // Who has ended gets no answer.
            if (!port.ring(doorbell->source, doorbell->payload)) last = std::chrono::steady_clock::now();
        }
        if (seconds_since(last) < spin_s) {
            std::this_thread::yield();
            continue;
        }
        pollfd one{port.fd(), POLLIN, 0};
        (void)::poll(&one, 1, look_at_end_ms);
    }
}

void answer_pings(const api::MasterPort& port, std::byte* place, const std::atomic<bool>& ending) {
    auto& sequence = *reinterpret_cast<std::atomic<std::uint64_t>*>(place);
    std::uint64_t answered = 0;
    auto last = std::chrono::steady_clock::now();
    while (!ending) {
        if (sequence.load(std::memory_order_acquire) == answered) {
            if (seconds_since(last) < spin_s) {
                std::this_thread::yield();
            } else {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            continue;
        }
        Ping ping;
        std::memcpy(static_cast<void*>(&ping), place, sizeof ping);
        answered = ping.sequence;
        const auto back = std::as_bytes(std::span(&answered, 1));
        if (!port.write(static_cast<api::Destid>(ping.destid), ping.address, back, api::Completion::left))
            last = std::chrono::steady_clock::now();
    }
}

void answer_messages(api::Socket socket, const Info& info, const std::atomic<bool>& ending) {
    api::Letter letter;
    while (!ending) {
        const std::error_code error = socket.receive(letter, look_at_end_ms);
        if (error == std::errc::timed_out) continue;
        if (error) return;
        Note note;
        std::memcpy(&note, letter.payload().data(), sizeof note);
        if (note.kind == Note::Kind::sink) continue;
        if (note.kind == Note::Kind::info) std::memcpy(letter.payload().data() + sizeof note, &info, sizeof info);
        if (socket.send(letter, api::max_payload_bytes)) return;
    }
}

}  // namespace

int serve(const ServeOptions& options) {
    auto port = api::MasterPort::open(0, O_NONBLOCK);
    if (!port) return fail(port.error().message);
    auto bells = port->again(O_NONBLOCK);
    auto pings = port->again(O_NONBLOCK);
    if (!bells || !pings) return fail((bells ? pings : bells).error().message);
    auto memory = api::Memory::allocate(*port, options.bytes);
    if (!memory) return fail(memory.error().message);
    // First: the kernel's ports open no window over memory that is in use.
    auto window = api::Window::open(*port, *memory, 0, options.bytes, options.address);
    if (!window) return fail(window.error().message);
    auto mapping = api::Mapping::of(*port, *memory, 0, options.bytes);
    if (!mapping) return fail(mapping.error().message);
    auto mailbox = api::Mailbox::open(*port);
    if (!mailbox) return fail(mailbox.error().message);
    api::Socket listener = mailbox->socket();
    if (const auto error = listener.listen(service_channel)) return fail("CM: " + error.message());
    if (const auto error = bells->listen(0, UINT16_MAX)) return fail("doorbells: " + error.message());

    os::count_interrupts();
    fmt::print("endpoint {}: a window of {} bytes at 0x{:x}; doorbells come back; channel {}\n", port->destid(),
               options.bytes, options.address, service_channel);
    std::fflush(stdout);
    std::atomic<bool> ending = false;
    std::deque<std::thread> threads;
    threads.emplace_back([&] { answer_doorbells(*bells, ending); });
    threads.emplace_back([&] { answer_pings(*pings, mapping->bytes().data() + options.bytes - ping_bytes, ending); });
    const auto start = std::chrono::steady_clock::now();
    const Info info{options.address, options.bytes};
    while (os::interrupts() == 0 && (options.seconds == 0 || seconds_since(start) < options.seconds)) {
        api::Socket made;
        if (listener.accept(made, look_at_end_ms)) continue;
        threads.emplace_back(
            [&, socket = std::move(made)]() mutable { answer_messages(std::move(socket), info, ending); });
    }
    ending = true;
    for (std::thread& each : threads)
        each.join();
    return 0;
}

}  // namespace incast::softrio::tools
