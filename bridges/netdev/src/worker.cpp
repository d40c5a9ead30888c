#include "worker.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "failure.h"

namespace incast::netdev {

namespace {

constexpr int frames_at_once = 64;  // before the loop looks at everything else
constexpr int rounds_at_once = 4;
constexpr std::int64_t ns_per_ms = 1'000'000;
constexpr std::int64_t least_pause_ns = 100 * ns_per_ms;  // between calls
constexpr std::int64_t most_pause_ns = 2000 * ns_per_ms;
constexpr std::int64_t patience_ns = 10'000 * ns_per_ms;  // for a greeting
constexpr std::uint32_t connect_timeout_ms = 5000;
constexpr std::size_t most_strangers = 64;  // that have not said who they are

std::int64_t clock_ns() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

Worker::Worker(const Settings& settings, std::uint32_t queue, Descriptor tap)
    : settings_(settings), queue_(queue), tap_(std::move(tap)), buffer_(most_message_bytes) {
    options_.kind = INCAST_CHANNEL_MESSAGES;
    options_.longest_message = most_message_bytes;
    options_.connect_timeout_ms = connect_timeout_ms;
    options_.buffers = settings.buffers;
    options_.buffer_bytes = settings.buffer_bytes;
    for (const Member& member : settings.members)
        links_.push_back(std::make_unique<Link>(member, settings.backlog_bytes));
}

Worker::~Worker() {
    incast_channel_hub_free(hub_);
}

void Worker::open() {
    incast_channel_hub_options options = INCAST_CHANNEL_HUB_OPTIONS;
    options.flags = INCAST_CHANNEL_OWN_LOOP;
    options.max_peers = static_cast<std::uint32_t>(links_.size() + 1);
    options.max_channels = static_cast<std::uint32_t>(2 * links_.size() + most_strangers);
    options.secret = settings_.secret;
    options.fabric = settings_.fabric.empty() ? nullptr : settings_.fabric.c_str();
    options.bind = settings_.bind.empty() ? nullptr : settings_.bind.c_str();
    options.settings = settings_.transport_settings.empty() ? nullptr : settings_.transport_settings.c_str();
    const std::string address = address_of_queue(settings_.address, queue_);
    if (incast_channel_hub_make(settings_.transport.c_str(), &options, &hub_) < 0 ||
        incast_channel_listen(hub_, address.c_str(), &options_, &listener_) < 0)
        throw Failure(incast_channel_message());
}

Worker::PeerState Worker::peer(std::size_t index) const {
    const Link& link = *links_[index];
    const std::lock_guard lock(mutex_);
    return {.is_up = link.is_up, .mtu = link.mtu, .why = link.why, .waiting_bytes = link.waiting_bytes};
}

Worker::Link* Worker::link_of(std::uint16_t id) {
    const auto found = std::lower_bound(links_.begin(), links_.end(), id, [](const auto& link, std::uint16_t wanted) {
        return link->member.id < wanted;
    });
    return found == links_.end() || (*found)->member.id != id ? nullptr : found->get();
}

bool Worker::run(int stop) {
    enum : std::size_t { device, hub, end_of_it };
    std::array<pollfd, 3> watched{pollfd{.fd = tap_.fd(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = incast_channel_hub_fd(hub_), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = stop, .events = POLLIN, .revents = 0}};
    now_ns_ = clock_ns();
    call_and_expire();
    drive(true);
    for (;;) {
        if (::poll(watched.data(), watched.size(), timeout_ms()) < 0 && errno != EINTR) return false;
        if (watched[end_of_it].revents != 0) return true;
        now_ns_ = clock_ns();
        if (watched[device].revents != 0 && !read_device()) return false;
        drive(watched[hub].revents != 0);
        call_and_expire();
    }
}

int Worker::timeout_ms() const {
    if (has_more_) return 0;
    std::int64_t next = -1;
    const auto sooner = [&next](std::int64_t at) { next = next < 0 ? at : std::min(next, at); };
    for (const auto& link : links_)
        if (link->talk == nullptr && link->member.id < settings_.id) sooner(link->next_call_ns);
    for (const auto& talk : talks_)
        if (!talk->is_greeted) sooner(talk->give_up_ns);
    if (next < 0) return -1;
    return static_cast<int>(std::max<std::int64_t>(0, next - now_ns_) / ns_per_ms + 1);
}

/// The contract of a loop of one's own: include/incast/channel.h. It ends although there is more, so that the device is
/// looked at in time.
void Worker::drive(bool is_woken) {
    has_more_ = true;
    for (int round = 0; round < rounds_at_once && has_more_; ++round) {
        (void)(is_woken && round == 0 ? incast_channel_hub_poll(hub_) : incast_channel_hub_poll_unwoken(hub_));
        incast_channel* channel = nullptr;
        std::uint32_t what = 0;
        while (incast_channel_hub_next_ready(hub_, &channel, &what) == 1) {
            auto* const talk = static_cast<Talk*>(incast_channel_user(channel));
            if (talk == nullptr || talk->is_over) continue;
            if ((what & INCAST_CHANNEL_HAS_DATA) != 0) talk->may_have_data = true;
            if ((what & INCAST_CHANNEL_HAS_ROOM) == 0) continue;
            if (!talk->has_greeted) greet(*talk);
            if (talk->is_greeted && !talk->is_over) send_waiting(*talk->link);
        }
        accept_all();
        for (std::size_t index = 0; index < talks_.size(); ++index)
            if (talks_[index]->may_have_data && !talks_[index]->is_over) take_data(*talks_[index]);
        remove_ended();
        const bool has_data =
            std::any_of(talks_.begin(), talks_.end(), [](const auto& talk) { return talk->may_have_data; });
        has_more_ = incast_channel_hub_prepare_wait(hub_) == 0 || has_data;
    }
}

// --- who is there

void Worker::call_and_expire() {
    for (const auto& talk : talks_)
        if (!talk->is_greeted && now_ns_ >= talk->give_up_ns) end(*talk, "it did not say who it is in time");
    remove_ended();
    for (const auto& link : links_)
        if (link->talk == nullptr && link->member.id < settings_.id && now_ns_ >= link->next_call_ns) call(*link);
}

void Worker::call(Link& link) {
    link.pause_ns = std::clamp(2 * link.pause_ns, least_pause_ns, most_pause_ns);
    link.next_call_ns = now_ns_ + link.pause_ns;
    incast_channel* channel = nullptr;
    const std::string address = address_of_queue(link.member.address, queue_);
    if (incast_channel_connect(hub_, address.c_str(), &options_, &channel) < 0) {
        const std::lock_guard lock(mutex_);
        link.why = incast_channel_message();
        return;
    }
    link.talk = &add_talk(channel, &link);
    has_more_ = true;
}

void Worker::accept_all() {
    incast_channel* channel = nullptr;
    while (incast_channel_accept(listener_, 0, &channel) == 0) {
        const auto strangers =
            std::count_if(talks_.begin(), talks_.end(), [](const auto& talk) { return talk->link == nullptr; });
        if (static_cast<std::size_t>(strangers) >= most_strangers) {
            incast_channel_abort(channel);
            continue;
        }
        greet(add_talk(channel, nullptr));
    }
}

Worker::Talk& Worker::add_talk(incast_channel* channel, Link* link) {
    talks_.push_back(std::make_unique<Talk>());
    Talk& talk = *talks_.back();
    talk.channel = channel;
    talk.link = link;
    talk.give_up_ns = now_ns_ + patience_ns;
    incast_channel_set_user(channel, &talk);
    return talk;
}

void Worker::greet(Talk& talk) {
    const auto bytes = encode({.id = settings_.id,
                               .queue = static_cast<std::uint16_t>(queue_),
                               .queues = static_cast<std::uint16_t>(settings_.queues),
                               .mtu = settings_.mtu});
    const int error = incast_channel_send(talk.channel, bytes.data(), bytes.size(), 0);
    if (error == 0) talk.has_greeted = true;
    if (error < 0 && error != -EAGAIN) end(talk, incast_channel_state_message(talk.channel));
}

void Worker::heard(Talk& talk, Bytes message) {
    const auto said = decode_greeting(message);
    if (!said) return end(talk, "it does not speak as these devices do");
    Link* const link = link_of(said->id);
    const bool is_who_was_called = talk.link == nullptr || talk.link->member.id == said->id;
    // Whoever has the lower id is called, and does not call.
    const bool is_caller = talk.link != nullptr || said->id > settings_.id;
    if (link == nullptr || !is_who_was_called || !is_caller)
        return end(talk, fmt::format("it says that it is {}, which is not in --peers, or another one", said->id));
    if (said->queues != settings_.queues || said->queue != queue_) {
        if (talk.link == nullptr) talk.link = link;
        return end(talk, fmt::format("it has {} queues, and this one has {}", said->queues, settings_.queues));
    }
    come_up(talk, *link, *said);
}

void Worker::come_up(Talk& talk, Link& link, const Greeting& said) {
    if (link.talk != nullptr && link.talk != &talk) end(*link.talk, "it has called anew");
    talk.link = &link;
    talk.is_greeted = true;
    link.talk = &talk;
    link.pause_ns = 0;
    link.mtu = said.mtu;
    link.is_up = true;
    {
        const std::lock_guard lock(mutex_);
        link.why.clear();
    }
    say(link, said.mtu == settings_.mtu ? "up" : fmt::format("up; its MTU is {}, not {}", said.mtu, settings_.mtu));
}

void Worker::end(Talk& talk, const std::string& why) {
    if (talk.is_over) return;
    talk.is_over = true;
    talk.may_have_data = false;
    has_ended_ = true;
    if (talk.link == nullptr) return;
    Link& link = *talk.link;
    if (link.talk != nullptr && link.talk != &talk) return;  // another one is up
    link.talk = nullptr;
    link.next_call_ns = now_ns_ + std::max(link.pause_ns, least_pause_ns);
    link.counters.dropped_lost.add(link.queue.frames());
    link.queue.clear();
    link.waiting_bytes = 0;
    if (link.is_up.exchange(false)) say(link, why);
    const std::lock_guard lock(mutex_);
    link.why = why;
}

void Worker::remove_ended() {
    if (!has_ended_) return;
    has_ended_ = false;
    std::erase_if(talks_, [](const auto& talk) {
        if (talk->is_over) incast_channel_abort(talk->channel);
        return talk->is_over;
    });
    has_more_ = true;
}

// --- from peers to the device

void Worker::take_data(Talk& talk) {
    for (int frame = 0; frame < frames_at_once && !talk.is_over; ++frame) {
        const std::int64_t bytes = incast_channel_receive(talk.channel, buffer_.data(), buffer_.size(), 0);
        if (bytes == -EAGAIN) {
            talk.may_have_data = false;
            return;
        }
        if (bytes < 0) return end(talk, bytes == -ENODATA ? "it has closed" : incast_channel_message());
        const Bytes message(buffer_.data(), static_cast<std::size_t>(bytes));
        if (talk.is_greeted)
            give_to_device(*talk.link, message);
        else
            heard(talk, message);
    }
}

void Worker::give_to_device(Link& link, Bytes message) {
    if (fault_of(message, link.member.id)) return link.counters.received_faulty.add(1);
    const ssize_t written = ::write(tap_.fd(), message.data(), message.size());
    if (written == static_cast<ssize_t>(message.size())) {
        link.counters.received_frames.add(1);
        link.counters.received_bytes.add(message.size());
    } else if (written < 0 && errno == EINVAL) {  // the kernel looks closer than fault_of()
        link.counters.received_faulty.add(1);
    } else {
        link.counters.received_refused.add(1);
    }
}

// --- from the device to peers

bool Worker::read_device() {
    for (int frame = 0; frame < frames_at_once; ++frame) {
        const ssize_t bytes = ::read(tap_.fd(), buffer_.data(), buffer_.size());
        if (bytes < 0) return errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM;
        const Bytes message(buffer_.data(), static_cast<std::size_t>(bytes));
        if (message.size() <= offload_bytes) continue;
        const Target target = target_of(message.subspan(offload_bytes));
        if (target.kind == Target::Kind::all) {
            for (const auto& link : links_)
                send(*link, message);
            continue;
        }
        Link* const link = target.kind == Target::Kind::one ? link_of(target.destid) : nullptr;
        if (link == nullptr)
            dropped_nobody_.add(1);
        else
            send(*link, message);
    }
    return true;
}

void Worker::send(Link& link, Bytes message) {
    if (!link.is_up) return link.counters.dropped_lost.add(1);
    if (link.queue.is_empty() && try_send(link, message)) return;
    if (!link.is_up) return link.counters.dropped_lost.add(1);
    if (!link.queue.push(message, clock_ns())) link.counters.dropped_full.add(1);
    link.waiting_bytes = link.queue.bytes();
}

bool Worker::try_send(Link& link, Bytes message) {
    const int error = incast_channel_send(link.talk->channel, message.data(), message.size(), 0);
    if (error == 0) {
        link.counters.sent_frames.add(1);
        link.counters.sent_bytes.add(message.size());
        return true;
    }
    if (error != -EAGAIN) end(*link.talk, incast_channel_message());
    return false;
}

void Worker::send_waiting(Link& link) {
    while (!link.queue.is_empty()) {
        const FrameQueue::Head head = link.queue.front(clock_ns());
        link.counters.marked_codel.add(head.marked);
        link.counters.dropped_codel.add(head.dropped);
        if (head.message.empty() || !try_send(link, head.message)) break;
        link.queue.pop();
    }
    link.waiting_bytes = link.queue.bytes();
}

void Worker::say(const Link& link, const std::string& what) const {
    if (queue_ == 0) fmt::print(stderr, "{}: peer {}: {}\n", settings_.name, link.member.id, what);
}

}  // namespace incast::netdev
