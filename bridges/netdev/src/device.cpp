#include "device.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include "control.h"
#include "failure.h"
#include "privileges.h"

namespace incast::netdev {

namespace {

std::string text_of(const Mac& mac) {
    return fmt::format("{:02x}", fmt::join(mac, ":"));
}

}  // namespace

Device::Device(Settings settings) : settings_(std::move(settings)), stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!stop_.is_open()) throw system_failure("an event", errno);
    keep_what_makes_devices(!settings_.netns.empty());
    std::vector<Descriptor> queues;
    {
        const InNamespace within(settings_.netns);
        questions_ = listen_for_questions(settings_.name);
        queues = make_tap({.name = settings_.name,
                           .mac = mac_of(settings_.id),
                           .mtu = settings_.mtu,
                           .queues = settings_.queues,
                           .addresses = settings_.addresses});
    }
    keep_no_capability();
    // The id of this process in the fabric of rio; nothing else reads it, and there are no threads yet.
    ::setenv("RIO_DESTID", std::to_string(settings_.id).c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    for (std::uint32_t queue = 0; queue < settings_.queues; ++queue) {
        workers_.push_back(std::make_unique<Worker>(settings_, queue, std::move(queues[queue])));
        workers_.back()->open();
    }
}

Device::~Device() {
    const std::uint64_t one = 1;
    (void)!::write(stop_.fd(), &one, sizeof one);
    for (std::thread& thread : threads_)
        thread.join();
}

bool Device::run() {
    for (const auto& worker : workers_)
        threads_.emplace_back([this, &worker] {
            if (worker->run(stop_.fd())) return;
            is_gone_ = true;
            const std::uint64_t one = 1;
            (void)!::write(stop_.fd(), &one, sizeof one);
        });
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
        ::sigaddset(&signals, number);
    const Descriptor signal(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    std::array<pollfd, 3> watched{pollfd{.fd = signal.fd(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = stop_.fd(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = questions_.fd(), .events = POLLIN, .revents = 0}};
    while (is_wanted_) {
        if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) break;
        if (watched[0].revents != 0 || watched[1].revents != 0) break;
        if (watched[2].revents != 0) answer_one(questions_, [this](const std::string& text) { return answer(text); });
    }
    return !is_gone_;
}

std::string Device::summary() const {
    return fmt::format("{}: up over {}, id {}, {}, MTU {}, {} queue{}, {} peer{}", settings_.name, settings_.transport,
                       settings_.id, text_of(mac_of(settings_.id)), settings_.mtu, settings_.queues,
                       settings_.queues == 1 ? "" : "s", settings_.members.size(),
                       settings_.members.size() == 1 ? "" : "s");
}

std::string Device::answer(const std::string& question) {
    if (question == "status") return status();
    if (question != "down") return "{}";
    is_wanted_ = false;
    return "{\"down\":true}";
}

std::string Device::status() const {
    nlohmann::ordered_json peers = nlohmann::ordered_json::array();
    std::uint64_t dropped_nobody = 0;
    for (const auto& worker : workers_)
        dropped_nobody += worker->dropped_nobody();
    for (std::size_t index = 0; index < settings_.members.size(); ++index) {
        std::uint32_t queues_up = 0;
        std::uint32_t mtu = 0;
        std::size_t waiting_bytes = 0;
        std::string why;
        for (const auto& worker : workers_) {
            const Worker::PeerState state = worker->peer(index);
            queues_up += state.is_up ? 1 : 0;
            waiting_bytes += state.waiting_bytes;
            if (state.mtu != 0) mtu = state.mtu;
            if (!state.is_up && why.empty()) why = state.why;
        }
        const Member& member = settings_.members[index];
        nlohmann::ordered_json peer{{"id", member.id},
                                    {"mac", text_of(mac_of(member.id))},
                                    {"address", member.address},
                                    {"queues_up", queues_up},
                                    {"mtu", mtu},
                                    {"why_not_up", why},
                                    {"waiting_bytes", waiting_bytes}};
        for (const CounterName& each : counter_names) {
            std::uint64_t sum = 0;
            for (const auto& worker : workers_)
                sum += (worker->counters(index).*each.counter).get();
            peer[each.name] = sum;
        }
        peers.push_back(std::move(peer));
    }
    const nlohmann::ordered_json all{{"schema", 1},
                                     {"device", settings_.name},
                                     {"id", settings_.id},
                                     {"mac", text_of(mac_of(settings_.id))},
                                     {"transport", settings_.transport},
                                     {"address", settings_.address},
                                     {"mtu", settings_.mtu},
                                     {"queues", settings_.queues},
                                     {"pid", ::getpid()},
                                     {"dropped_nobody", dropped_nobody},
                                     {"peers", std::move(peers)}};
    return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace incast::netdev
