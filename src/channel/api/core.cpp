// Listeners and channels: how they come and go.
#include "channel/api/core.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <tuple>
#include <utility>

#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "transport/shm/shm.h"

namespace incast::channel::api {

namespace {

constexpr Peer self{0};

int error_of(Fault fault) {
    switch (fault) {
        case Fault::none:
            return 0;
        case Fault::nobody:
            return ECONNREFUSED;
        case Fault::refused:
        case Fault::broken:
            return EPROTO;
        case Fault::full:
            return ENOBUFS;
        case Fault::lost:
        case Fault::reset:
            return ECONNRESET;
        case Fault::forked:
            return ECHILD;
    }
    return EPROTO;
}

std::string short_name(Scheme scheme, const HubId& hub) {
    std::string name(to_string(scheme));
    name += " hub ";
    for (std::size_t at = 0; at < 4; ++at) {
        constexpr std::string_view digits = "0123456789abcdef";
        name += digits[static_cast<unsigned>(hub[at]) >> 4U];
        name += digits[static_cast<unsigned>(hub[at]) & 15U];
    }
    return name;
}

}  // namespace

Core::Core(HubChoices choices)
    : choices_(std::move(choices)),
      id_(random_id()),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      spin_(choices_.longest_spin) {
    if (!wake_.is_open() || !timer_.is_open() || !poller_.add(wake_, EPOLLIN, wake_id) ||
        !poller_.add(timer_, EPOLLIN, timer_id))
        throw system_failure(errno, "a hub of " + std::string(to_string(choices_.scheme)));
    if (choices_.scheme == Scheme::rio) cm_ = cm_port(fabric_of(choices_));
    directory_ = std::make_unique<Directory>(
        poller_, directory_id, has_answers(choices_.scheme),
        [this](const auto& socket, const auto& door, std::uint32_t port) { return offer(socket, door, port); });
    if (choices_.is_own_loop) return;
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error& error) {
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw system_failure(error.code().value(), "the thread of a hub");
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Core::~Core() {
    if (!thread_.joinable()) return;
    {
        Entry entry(*this);
        stops_ = true;
        wake();
        lead_is_free_.notify_all();
    }
    thread_.join();
}

std::string Core::with_log(std::string line) {
    if (!last_log_.empty()) line += "; " + std::exchange(last_log_, {});
    return line;
}

void Core::make_hub(const Address& first, Use use) {
    if (hub_ != nullptr) return;
    endpoint_ = make_endpoint(choices_, first, use, [this](std::string_view line) { last_log_ = line; });
    const HubSettings settings{.max_channels = choices_.max_channels,
                               .longest_ring_bytes = choices_.longest_ring_bytes};
    hub_ = std::make_unique<Hub>(*endpoint_.transport, self, settings);
    epoll_event event{.events = EPOLLIN, .data = {.u64 = endpoint_id}};
    if (hub_->wait_fd() >= 0 && ::epoll_ctl(poller_.fd(), EPOLL_CTL_ADD, hub_->wait_fd(), &event) != 0)
        throw system_failure(errno, first.text());
}

Card Core::card(Card::What what) const {
    return {.what = what, .scheme = static_cast<std::uint8_t>(choices_.scheme), .incarnation = 1, .hub = id_};
}

WholeCard Core::offer(const os::Descriptor& socket, const Address& door, std::uint32_t port) const {
    WholeCard made{card(Card::What::offer), address_by(endpoint_, choices_.scheme, socket)};
    made.card.port = port;
    // A path may be shared by network namespaces, in each of which the endpoint's name is another one.
    if (!door.is_path()) return made;
    made.way = transport::shm::way_for_caller(*endpoint_.transport, now());
    if (!made.way.is_open()) return {card(Card::What::again), {}};
    return made;
}

// --- listeners

incast_channel_listener* Core::listen(const Address& address, Kind kind, std::uint32_t longest_message,
                                      std::uint32_t backlog) {
    Door door = cm_ != nullptr ? open_door_of_cm(cm_, address) : open_door(address);
    make_hub(door.address, Use::listen);
    if (!endpoint_.host.empty() && !endpoint_.is_everywhere && choices_.bind.empty() &&
        (door.address.is_any_host || door.address.host != endpoint_.host)) {
        const std::string right = choices_.scheme == Scheme::verbs ? door.address.host : "0.0.0.0";
        throw Failure{EADDRNOTAVAIL, address.text() + ": the data of this hub goes by " + endpoint_.host +
                                         " alone; make it with bind = " + right};
    }
    auto made = std::make_unique<incast_channel_listener>(*this);
    made->port = next_port_++;
    made->kind = kind;
    made->longest_message = longest_message;
    made->address = door.address.text();
    directory_->open(std::move(door), made->port);
    (void)hub_->listen(made->port, kind, backlog);
    listeners_.push_back(std::move(made));
    return listeners_.back().get();
}

void Core::close(incast_channel_listener* listener) {
    directory_->close(listener->port);
    hub_->unlisten(listener->port);
    while (!listener->waiting.empty()) {
        incast_channel* const channel = listener->waiting.front();
        listener->waiting.pop_front();
        close(channel, true);
    }
    std::erase_if(listeners_, [&](const auto& each) { return each.get() == listener; });
    settle();
}

void Core::accept_all() {
    for (const auto& listener : listeners_) {
        while (const auto id = hub_->accept(listener->port)) {
            incast_channel* const channel = add_channel();
            channel->id = *id;
            channel->has_id = true;
            channel->options = hub_->options_of(*id).value_or(Options{});
            channel->longest_message = listener->longest_message;
            channel->state = incast_channel::State::open;
            const Peer peer = hub_->peer_of(*id).value_or(self);
            const auto found = std::ranges::find(remotes_, peer, &Remote::peer);
            channel->peer_name = short_name(choices_.scheme, found == remotes_.end() ? id_ : found->hub);
            begin_messages(*channel);
            listener->waiting.push_back(channel);
            listener->news.set(true);
        }
    }
}

// --- channels

incast_channel* Core::add_channel() {
    channels_.push_back(std::make_unique<incast_channel>(*this));
    return channels_.back().get();
}

void Core::remove(incast_channel* channel) {
    std::erase(opening_, channel);
    std::erase(pushing_, channel);
    std::erase_if(channels_, [&](const auto& each) { return each.get() == channel; });
}

incast_channel* Core::connect(const Address& address, const Options& options, std::uint32_t longest_message,
                              Time patience) {
    make_hub(address, Use::connect);
    const std::uint32_t call = call_for(address);
    incast_channel* const channel = add_channel();
    channel->address = address;
    channel->peer_name = address.text();
    channel->options = options;
    channel->longest_message = longest_message;
    channel->deadline = now() + patience;
    channel->spare = patience;
    channel->call = call;
    opening_.push_back(channel);
    look_ = true;  // the call may have failed by now
    settle();
    return channel;
}

std::uint32_t Core::call_for(const Address& address) {
    return cm_ != nullptr ? directory_->call_by(call_by_cm(cm_, address), address) : directory_->call(address, now());
}

void Core::begin_messages(incast_channel& channel) {
    if (channel.options.kind != Kind::messages) return;
    channel.stream = {hub_.get(), channel.id};
    channel.writer = std::make_unique<BasicMessageWriter<HubStream>>(channel.stream);
    channel.reader = std::make_unique<BasicMessageReader<HubStream>>(channel.stream, channel.longest_message);
}

void Core::close(incast_channel* channel, bool is_aborted) {
    if (channel->state == incast_channel::State::calling) {
        directory_->give_up(channel->call);
        look_ = true;  // it may be the turn of another one
    }
    if (channel->has_id && !is_aborted && !push_rest(*channel)) {
        channel->is_given_back = true;
        (void)hub_->take_descriptors(channel->id);
        return settle();
    }
    if (channel->has_id) is_aborted ? hub_->abort(channel->id) : hub_->close(channel->id);
    remove(channel);
    settle();
}

/// There is a way to its peer.
void Core::open_to(incast_channel& channel, Peer peer) {
    if (peer == self) {
        const auto found = std::ranges::find(listeners_, channel.port, [](const auto& each) { return each->port; });
        if (found == listeners_.end()) return fail(channel, ECONNREFUSED, to_string(Fault::nobody));
        if ((*found)->kind != channel.options.kind) return fail(channel, EPROTO, to_string(Fault::refused));
    }
    auto id = hub_->connect(peer, channel.port, channel.options);
    if (!id)
        return fail(channel, hub_->channels() >= choices_.max_channels || peer == self ? ENOBUFS : ENOMEM,
                    id.error().message);
    channel.id = *id;
    channel.has_id = true;
    channel.state = incast_channel::State::opening;
    hub_->set_descriptors(*id, std::move(channel.data), std::move(channel.room));
    begin_messages(channel);
}

void Core::fail(incast_channel& channel, int error, std::string line) {
    channel.state = incast_channel::State::ended;
    channel.error = error;
    channel.line = std::move(line);
    if (channel.has_id) return;
    channel.data.set(true);
    channel.room.set(true);
}

int Core::state(const incast_channel& channel) const {
    if (channel.state == incast_channel::State::ended) return -channel.error;
    if (channel.state != incast_channel::State::open) return 0;
    const Fault fault = hub_->fault(channel.id);
    return fault == Fault::none ? 1 : -error_of(fault);
}

std::string Core::message(const incast_channel& channel) const {
    if (channel.state == incast_channel::State::ended) return channel.line;
    if (channel.state != incast_channel::State::open) return "opening";
    const Fault fault = hub_->fault(channel.id);
    return fault == Fault::none ? "open" : channel.peer_name + ": " + hub_->why(channel.id);
}

bool Core::push_rest(incast_channel& channel) {
    while (channel.rest_at < channel.rest.size()) {
        const std::size_t done = channel.writer->write(Bytes(channel.rest).subspan(channel.rest_at));
        channel.rest_at += done;
        if (done == 0) break;
    }
    const bool is_over = channel.rest_at == channel.rest.size() && channel.writer != nullptr &&
                         (channel.writer->is_whole() || channel.writer->write({}) == 0) && channel.writer->is_whole();
    const bool is_done = !channel.writer || is_over || hub_->fault(channel.id) != Fault::none;
    if (!is_done) {
        if (std::ranges::find(pushing_, &channel) == pushing_.end()) pushing_.push_back(&channel);
        return false;
    }
    channel.rest.clear();
    channel.rest_at = 0;
    std::erase(pushing_, &channel);
    if (channel.has_finished && channel.has_id) hub_->finish(channel.id);
    return true;
}

bool Core::has_data(incast_channel& channel) {
    if (!channel.has_id) return channel.state == incast_channel::State::ended;
    return !hub_->readable(channel.id).empty() || hub_->has_ended(channel.id) || hub_->fault(channel.id) != Fault::none;
}

bool Core::has_room(const incast_channel& channel) const {
    if (!channel.has_id) return channel.state == incast_channel::State::ended;
    return hub_->has_room(channel.id) || hub_->fault(channel.id) != Fault::none;
}

std::pair<incast_channel*, std::uint32_t> Core::next_ready() {
    reports_ready_ = true;
    while (next_ready_ < channels_.size()) {
        incast_channel& channel = *channels_[next_ready_++];
        std::uint32_t what = 0;
        if (channel.is_given_back) continue;
        if (channel.waits_for_data && has_data(channel)) what |= INCAST_CHANNEL_HAS_DATA;
        if (channel.waits_for_room && has_room(channel)) what |= INCAST_CHANNEL_HAS_ROOM;
        if (what == 0) continue;
        if ((what & INCAST_CHANNEL_HAS_DATA) != 0) channel.waits_for_data = false;
        if ((what & INCAST_CHANNEL_HAS_ROOM) != 0) channel.waits_for_room = false;
        return {&channel, what};
    }
    next_ready_ = 0;
    return {nullptr, 0};
}

bool Core::is_drained() const {
    if (hub_ == nullptr) return true;
    const auto in_use =
        std::ranges::count_if(channels_, [](const auto& each) { return each->has_id && !each->is_given_back; });
    const bool has_rest = std::ranges::any_of(channels_, [](const auto& each) { return each->is_given_back; });
    return !has_rest && hub_->channels() <= static_cast<std::size_t>(in_use) && endpoint_.transport->drained();
}

bool Core::sends_in_place() const {
    return endpoint_.transport != nullptr && endpoint_.transport->capabilities().nature.any_memory;
}

// --- what the hub and the directory say

void Core::take_peer_events() {
    while (const auto said = hub_->next_peer_event()) {
        const Peer peer = said->event.peer;
        const auto known = std::ranges::find(remotes_, peer, &Remote::peer);
        switch (said->event.kind) {
            case Event::Kind::knock: {
                const auto greeting = read_greeting(said->greeting);
                if (!greeting) {
                    endpoint_.transport->disconnect(peer);
                    break;
                }
                remotes_.push_back({greeting->hub, peer, false});
                if (endpoint_.transport->accept(peer) == Post::refused) remotes_.pop_back();
                break;
            }
            case Event::Kind::peer_up:
                if (known == remotes_.end()) break;
                known->is_up = true;
                for (std::size_t at = 0; at < opening_.size(); ++at)
                    if (opening_[at]->state == incast_channel::State::dialling && opening_[at]->peer == peer)
                        open_to(*opening_[at], peer);
                break;
            case Event::Kind::peer_down:
                if (known != remotes_.end()) remotes_.erase(known);
                lose(peer, ECONNREFUSED, with_log("turned away, or gone by now"));
                break;
            default:
                break;
        }
    }
}

incast_channel* Core::find_call(std::uint32_t call) {
    const auto found = std::ranges::find_if(opening_, [&](const incast_channel* each) {
        return each->state == incast_channel::State::calling && each->call == call;
    });
    return found == opening_.end() ? nullptr : *found;
}

void Core::take_directory_events() {
    while (auto event = directory_->next()) {
        if (event->what == Directory::Event::What::answered) {
            take_answer(event->number, event->said);
            continue;
        }
        incast_channel* const channel = find_call(event->number);
        if (channel == nullptr) {
            end_exchange(*event);
            continue;
        }
        if (event->what == Directory::Event::What::failed)
            fail(*channel, event->failure.error, std::move(event->failure.line));
        else if (event->what == Directory::Event::What::again)
            call_again(*channel, now() + come_again_after);
        else if (event->what == Directory::Event::What::offered)
            channel->offer = std::move(event->said);
    }
    take_offers();
}

/// Channels to one address open in the order in which they were asked for, though calls may be answered in another one.
void Core::take_offers() {
    for (std::size_t at = 0; at < opening_.size(); ++at) {
        incast_channel& channel = *opening_[at];
        if (channel.state != incast_channel::State::calling || !channel.offer.has_value()) continue;
        const bool is_its_turn = std::none_of(
            opening_.begin(), opening_.begin() + static_cast<std::ptrdiff_t>(at), [&](const incast_channel* before) {
                return before->state == incast_channel::State::calling && before->address == channel.address;
            });
        if (!is_its_turn) {
            strip(channel);
            continue;
        }
        if (auto said = std::exchange(channel.offer, std::nullopt)) take_offer(channel, std::move(*said));
    }
}

/// A listener waits for who was made an offer for 2 s, and a turn may come later. What comes with the offer is given
/// back, and if it is needed then the channel calls once more.
void Core::strip(incast_channel& channel) {
    if (channel.is_bare || !channel.offer.has_value() || !(has_answers(choices_.scheme) || channel.address.is_path()))
        return;
    channel.is_bare = true;
    channel.offer->way.close();
    directory_->give_up(std::exchange(channel.call, 0));
}

/// The channel is to call, then.
void Core::call_again(incast_channel& channel, Time at) {
    channel.state = incast_channel::State::calling;
    channel.call = 0;
    channel.call_at = at;
    channel.is_bare = false;
}

void Core::take_offer(incast_channel& channel, WholeCard said) {
    if (said.card.scheme != static_cast<std::uint8_t>(choices_.scheme))
        return fail(channel, EPROTO, channel.address.text() + ": a listener of another transport");
    channel.port = said.card.port;
    if (said.card.hub == id_) {
        if (has_answers(choices_.scheme)) directory_->give_up(channel.call);
        return open_to(channel, self);
    }
    auto known = std::ranges::find(remotes_, said.card.hub, &Remote::hub);
    if (known == remotes_.end() && !channel.is_bare && has_answers(choices_.scheme))
        return begin_exchange(channel, said);
    if (has_answers(choices_.scheme)) directory_->give_up(channel.call);
    if (known == remotes_.end() && channel.is_bare) return call_again(channel, now());
    if (known == remotes_.end()) {
        const Greeting greeting{.hub = id_};
        last_log_.clear();
        const Bytes bytes = std::as_bytes(std::span(&greeting, 1));
        Transport& transport = *endpoint_.transport;
        const auto peer = choices_.scheme == Scheme::shm
                              ? transport::shm::dial_by(transport, std::move(said.way), said.address, bytes)
                              : transport.dial(said.address, bytes);
        if (!peer) return fail(channel, ENOBUFS, channel.address.text() + ": " + peer.error().message);
        remotes_.push_back({said.card.hub, *peer, false});
        known = remotes_.end() - 1;
    }
    channel.peer = known->peer;
    channel.state = incast_channel::State::dialling;
    if (known->is_up) open_to(channel, known->peer);
}

/// Of channels that are being opened. True: one is that no more.
bool Core::advance(Time now) {
    for (incast_channel* const channel : opening_) {
        if (channel->state == incast_channel::State::opening) {
            const Fault fault = hub_->fault(channel->id);
            if (fault != Fault::none)
                fail(*channel, error_of(fault), channel->address.text() + ": " + hub_->why(channel->id));
            else if (hub_->is_open(channel->id))
                channel->state = incast_channel::State::open;
        }
        if (channel->state == incast_channel::State::calling && now >= channel->call_at) {
            channel->call_at = time_never;
            look_ = true;  // it may have failed by now
            try {
                channel->call = call_for(channel->address);
            } catch (const Failure& failure) {
                fail(*channel, failure.error, failure.line);
            } catch (const std::system_error& error) {  // no thread can be made
                fail(*channel, error.code().value(), channel->address.text() + ": " + error.what());
            }
        }
        if (channel->state >= incast_channel::State::open || now < channel->deadline) continue;
        if (channel->state == incast_channel::State::calling) directory_->give_up(channel->call);
        fail(*channel, ETIMEDOUT, channel->address.text() + ": no answer in time");
        if (!channel->has_id) continue;
        std::tie(channel->data, channel->room) = hub_->take_descriptors(channel->id);
        hub_->abort(channel->id);
        channel->has_id = false;
        channel->data.set(true);
        channel->room.set(true);
    }
    const std::size_t ended =
        std::erase_if(opening_, [](const incast_channel* each) { return each->state >= incast_channel::State::open; });
    took_ = took_ || ended > 0;
    if (ended > 0) take_offers();
    return ended > 0;
}

}  // namespace incast::channel::api
