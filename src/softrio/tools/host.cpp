// The host of a fabric, which may be its switch, too, until it is interrupted.
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/signalfd.h>

#include "base/allowance.h"
#include "os/descriptor.h"
#include "os/signals.h"
#include "softrio/shm/system.h"
#include "softrio/tools/tool.h"
#include "softrio/udp/enumerator.h"

namespace incast::softrio::tools {

namespace {

using softrio::udp::Address;
using softrio::udp::DataPlane;
using softrio::udp::Enumerator;
using softrio::udp::RoutingTable;

constexpr int look_at_signals_ms = 200;
// Of a flood of strangers, so many lines at once, and then one in so much time.
constexpr unsigned most_refused_lines = 20;
constexpr Time refused_gap = ps_per_s;

/// SIGUSR1, and SIGHUP where there is a table to read again, become something to read; else they stay what they were.
os::Descriptor take_signals(bool has_table) {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    if (has_table) sigaddset(&wanted, SIGHUP);
    if (pthread_sigmask(SIG_BLOCK, &wanted, nullptr) != 0) return {};
    return os::Descriptor(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
}

/// 0: none has come.
std::uint32_t next_signal(const os::Descriptor& signals) {
    signalfd_siginfo one{};
    return ::read(signals.fd(), &one, sizeof one) == ssize_t{sizeof one} ? one.ssi_signo : 0;
}

Result<Ok> program(Enumerator& host, const std::string& file) {
    if (file.empty()) return Ok{};
    auto table = RoutingTable::read(file);
    if (!table) return table.error();
    const auto done = host.program(std::move(*table));
    if (!done) return Error{file + ": " + done.error().message};
    return Ok{};
}

void print_counters(const softrio::udp::Switch& state) {
    for (const auto& [number, port] : state.ports()) {
        const std::string who = port.destid == 0 ? "nobody" : fmt::format("endpoint {}", port.destid);
        fmt::print("port {}, {}: in {} datagrams, {} bytes, {} discarded; out {} datagrams, {} bytes\n", number, who,
                   port.counters.datagrams_in, port.counters.bytes_in, port.counters.discarded,
                   port.counters.datagrams_out, port.counters.bytes_out);
    }
    fmt::print("from strangers: {} datagrams, dropped\n", state.strangers());
    std::fflush(stdout);
}

void answer(std::uint32_t signal, Enumerator& host, const HostOptions& options) {
    if (signal == SIGUSR1) return print_counters(host.plane()->state());
    const auto done = program(host, options.table);
    if (done) {
        fmt::print("table {}\n", options.table);
        std::fflush(stdout);
    } else {
        fmt::print(stderr, "softrio switch: {}; the table before stays\n", done.error().message);
    }
}

}  // namespace

int host(const HostOptions& options) {
    const auto at = softrio::udp::parse_address(options.listen, softrio::udp::Ports::any_too);
    if (!at) return fail(at.error().message);
    std::unique_ptr<DataPlane> made;
    os::Descriptor signals;
    if (options.is_switch) {
        auto opened = DataPlane::open(*at);
        if (!opened) return fail(opened.error().message);
        made = std::move(*opened);
        signals = take_signals(!options.table.empty());
    }
    const DataPlane* plane = made.get();
    Enumerator::Observer observer;
    observer.changed = [plane](std::uint32_t destid, const Address* where) {
        std::string place = where == nullptr ? "gone" : to_string(*where);
        if (where != nullptr && plane != nullptr) place += fmt::format(", port {}", plane->state().port_of(destid));
        fmt::print("endpoint {}: {}\n", destid, place);
        std::fflush(stdout);
    };
    const char* name = options.is_switch ? "switch" : "enumerate";
    base::Allowance allowance(most_refused_lines, refused_gap);
    std::uint64_t unsaid = 0;
    observer.refused = [name, &allowance, &unsaid](const std::string& line) {
        if (!allowance.take(softrio::shm::now_ms() * ps_per_ms)) {
            ++unsaid;
            return;
        }
        const std::string more = unsaid == 0 ? "" : fmt::format("; and before it {} more", std::exchange(unsaid, 0));
        fmt::print(stderr, "softrio {}: {}{}\n", name, line, more);
    };
    auto listening = Enumerator::listen(*at, options.first, std::move(observer), std::move(made));
    if (!listening) return fail(listening.error().message);
    Enumerator& host = **listening;
    if (const auto done = program(host, options.table); !done) {
        (void)fail(done.error().message);
        return exit_bad_usage;
    }
    os::count_interrupts();
    fmt::print("RIO_FABRIC=udp:host:{}\n", to_string(host.address()));
    std::fflush(stdout);
    while (os::interrupts() == 0) {
        host.serve(look_at_signals_ms);
        while (const std::uint32_t signal = signals.is_open() ? next_signal(signals) : 0)
            answer(signal, host, options);
    }
    if (unsaid > 0) fmt::print(stderr, "incast-node rio {}: {} more were refused\n", name, unsaid);
    if (plane != nullptr) print_counters(plane->state());
    return 0;
}

}  // namespace incast::softrio::tools
