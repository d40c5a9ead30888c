#include "channel/hub/hub.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace incast::channel {

namespace {
constexpr std::uint32_t most_channels = 1U << 15U;  // a notice names one, with a bit for its direction
}

Hub::Hub(Transport& endpoint, Peer self, const HubSettings& settings)
    : endpoint_(endpoint),
      self_(self),
      settings_(settings),
      posts_copy_(endpoint.capabilities().nature.any_memory &&
                  endpoint.capabilities().nature.copies == Copies::processor) {
    settings_.max_channels = std::clamp(settings_.max_channels, 1U, most_channels);
    channels_.resize(settings_.max_channels);
    generations_.resize(settings_.max_channels);
    used_ = base::Bitmap(settings_.max_channels);
    busy_ = base::Bitmap(settings_.max_channels);
    looked_ = base::Bitmap(settings_.max_channels);
}

Hub::~Hub() = default;

Id Hub::id_of(std::uint16_t number) const {
    return Id{std::uint32_t{generations_[number]} << 16U | number};
}

Channel* Hub::find(Id id) const {
    const auto number = static_cast<std::uint16_t>(id);
    if (fork_guard_.is_child() || number >= channels_.size() || !channels_[number] || id_of(number) != id)
        return nullptr;
    return channels_[number]->is_given_back ? nullptr : channels_[number].get();
}

// --- coming and going

Result<Ok> Hub::listen(std::uint32_t port, Kind kind, std::uint32_t backlog) {
    if (fork_guard_.is_child()) return Error{to_string(Fault::forked)};
    if (!ports_.try_emplace(port, Port{kind, backlog > 0 ? backlog : settings_.backlog, {}}).second)
        return Error{"port " + std::to_string(port) + " is taken"};
    return Ok{};
}

void Hub::unlisten(std::uint32_t port) {
    const auto found = ports_.find(port);
    if (found == ports_.end() || fork_guard_.is_child()) return;
    const std::deque<std::uint16_t> waiting = std::move(found->second.waiting);
    ports_.erase(found);
    for (const std::uint16_t number : waiting)
        abort(id_of(number));
}

std::optional<Id> Hub::accept(std::uint32_t port) {
    const auto found = ports_.find(port);
    if (found == ports_.end() || fork_guard_.is_child()) return std::nullopt;
    std::deque<std::uint16_t>& waiting = found->second.waiting;
    if (waiting.empty()) return std::nullopt;
    const std::uint16_t number = waiting.front();
    waiting.pop_front();
    return id_of(number);
}

Result<Channel*> Hub::make(Peer peer, const Options& options) {
    const Capabilities& can = endpoint_.capabilities();
    const bool is_within = peer == self_;
    if (!is_valid(options.shape))
        return Error{"a ring of " + std::to_string(options.shape.buffers) + " buffers of " +
                     std::to_string(options.shape.buffer_bytes) + " bytes, with a credit for " +
                     std::to_string(options.shape.batch) + ", is none (docs/channel.md has the ranges)"};
    if (!is_within && can.phantom_bodies && options.shape.buffer_bytes > max_head_bytes)
        return Error{"bodies do not move in this simulation: buffers must have 64 bytes, which travel in heads"};
    if (!is_within && can.lossy_bodies) return Error{"channels need a transport that loses nothing"};
    if (used_.count() == channels_.size())
        return Error{"all " + std::to_string(channels_.size()) + " channels are in use"};
    while (used_.test(next_number_))
        next_number_ = static_cast<std::uint16_t>((next_number_ + 1U) % channels_.size());

    auto channel = std::make_unique<Channel>();
    channel->peer = peer;
    channel->number = next_number_;
    channel->shape = options.shape;
    channel->kind = options.kind;
    channel->announce = is_within ? Way::doorbell : options.announce;
    channel->acknowledge = is_within ? Way::doorbell : options.acknowledge;
    if (auto given = give_memory(*channel); !given) return given.error();
    const std::span<std::byte> memory = channel->memory;
    channel->sender = std::make_unique<Sender>(
        SenderSettings{.shape = options.shape, .announce = channel->announce, .acknowledge = channel->acknowledge},
        memory.subspan(channel->staging_at(), options.shape.bytes()),
        memory.first(options.shape.cells() * sizeof(CreditCell)));
    channel->receiver = std::make_unique<Receiver>(
        ReceiverSettings{.shape = options.shape, .announce = channel->announce, .acknowledge = channel->acknowledge},
        memory.subspan(channel->cells_bytes(), options.shape.bytes()));
    used_.set(channel->number);
    looked_.assign(channel->number, channel->announce != Way::doorbell || channel->acknowledge == Way::memory);
    channels_[channel->number] = std::move(channel);
    return channels_[next_number_].get();
}

Result<Ok> Hub::give_memory(Channel& channel) {
    if (channel.peer == self_) {
        channel.own.resize(channel.all_bytes());
        channel.memory = channel.own;
        return Ok{};
    }
    channel.is_mirrored = endpoint_.capabilities().phantom_bodies;
    auto region = endpoint_.allocate(channel.is_mirrored ? channel.shared_bytes() : channel.all_bytes());
    if (!region) return region.error();
    const Grant grant{
        .peer = channel.peer, .read = false, .write = true, .offset = 0, .length = channel.shared_bytes()};
    auto key = endpoint_.expose(*region, grant);
    if (!key) {
        (void)endpoint_.release(*region);
        return key.error();
    }
    channel.region = *region;
    channel.has_region = true;
    channel.key = std::move(key->bytes);
    channel.memory = endpoint_.memory(*region);
    if (channel.is_mirrored) {
        channel.own.resize(channel.all_bytes());
        channel.memory = channel.own;
    }
    return Ok{};
}

Result<Id> Hub::connect(Peer peer, std::uint32_t port, const Options& options) {
    if (fork_guard_.is_child()) return Error{to_string(Fault::forked)};
    if (peer == self_) return connect_within(port, options);
    if (!up_.contains(static_cast<std::uint32_t>(peer)))
        return Error{"peer " + std::to_string(static_cast<std::uint32_t>(peer)) + " is not connected"};
    auto made = make(peer, options);
    if (!made) return made.error();
    Channel& channel = **made;
    channel.port = port;
    channel.says_open = true;
    touch(channel);
    return id_of(channel.number);
}

Result<Id> Hub::connect_within(std::uint32_t port, const Options& options) {
    const auto found = ports_.find(port);
    const Fault fault = found == ports_.end()                                   ? Fault::nobody
                        : found->second.kind != options.kind                    ? Fault::refused
                        : found->second.waiting.size() >= found->second.backlog ? Fault::full
                                                                                : Fault::none;
    if (fault != Fault::none) return Error{"port " + std::to_string(port) + ": " + to_string(fault)};
    auto here = make(self_, options);
    if (!here) return here.error();
    auto there = make(self_, options);
    if (!there) {
        free(**here);
        return there.error();
    }
    (*here)->twin = *there;
    (*there)->twin = *here;
    (*here)->is_opened = (*there)->is_opened = has_taken_ = true;
    found->second.waiting.push_back((*there)->number);
    return id_of((*here)->number);
}

void Hub::give_back(Channel& channel) {
    channel.is_given_back = true;
    channel.data = Level();
    channel.room = Level();
}

void Hub::close(Id id) {
    Channel* channel = find(id);
    if (channel == nullptr) return;
    give_back(*channel);
    channel->sender->finish();
    touch(*channel);
}

void Hub::abort(Id id) {
    Channel* channel = find(id);
    if (channel == nullptr) return;
    give_back(*channel);
    channel->is_aborted = true;
    touch(*channel);
}

void Hub::disconnect(Id id) {
    Channel* channel = find(id);
    if (channel == nullptr) return;
    if (channel->peer != self_) return leave(channel->peer, Fault::lost);
    if (channel->twin != nullptr) fail(*channel->twin, Fault::lost);
    fail(*channel, Fault::lost);
}

void Hub::fail(Channel& channel, Fault fault) {
    if (channel.fault == Fault::none) channel.fault = fault;
    touch(channel);
}

void Hub::free(Channel& channel) {
    if (channel.has_remote) (void)endpoint_.release(channel.remote);
    if (channel.has_region) (void)endpoint_.release(channel.region);
    if (channel.twin != nullptr) channel.twin->twin = nullptr;
    const std::uint16_t number = channel.number;
    used_.reset(number);
    busy_.reset(number);
    looked_.reset(number);
    ++generations_[number];
    channels_[number].reset();
}

// --- driving

bool Hub::poll(Time now) {
    if (fork_guard_.is_child()) return false;
    has_happened_ = false;
    std::array<Event, 64> events;
    const std::size_t count = endpoint_.poll(now, events);
    for (std::size_t at = 0; at < count; ++at)
        take(events[at]);
    for (std::size_t at = looked_.next(0); at != base::Bitmap::none; at = looked_.next(at + 1))
        look(*channels_[at]);
    has_taken_ = has_taken_ || has_happened_ || count > 0;
    refuse();
    for (std::size_t at = busy_.next(0); at != base::Bitmap::none; at = busy_.next(at + 1))
        if (!is_blocked(channels_[at]->peer)) work(*channels_[at]);
    return has_happened_ || count > 0;
}

bool Hub::prepare_wait() {
    if (fork_guard_.is_child()) return false;
    for (std::size_t at = busy_.next(0); at != base::Bitmap::none; at = busy_.next(at + 1))
        if (!is_blocked(channels_[at]->peer)) return false;
    return endpoint_.prepare_wait();
}

bool Hub::must_look() const {
    for (std::size_t at = looked_.next(0); at != base::Bitmap::none; at = looked_.next(at + 1)) {
        const Channel& channel = *channels_[at];
        if (channel.fault == Fault::none && (channel.acknowledge == Way::memory || channel.receiver->must_look()))
            return true;
    }
    return false;
}

std::optional<Hub::PeerEvent> Hub::next_peer_event() {
    if (peer_events_.empty()) return std::nullopt;
    PeerEvent event = std::move(peer_events_.front());
    peer_events_.pop_front();
    return event;
}

// --- data

bool Hub::is_open(Id id) const {
    const Channel* channel = find(id);
    return channel != nullptr && channel->is_opened && channel->fault == Fault::none;
}

Fault Hub::fault(Id id) const {
    if (fork_guard_.is_child()) return Fault::forked;
    const Channel* channel = find(id);
    if (channel == nullptr) return Fault::nobody;
    if (channel->fault == Fault::none && channel->is_closed_there && !channel->sender->is_finished())
        return Fault::reset;
    return channel->fault;
}

std::string Hub::why(Id id) const {
    const Fault fault = this->fault(id);
    std::string text = to_string(fault);
    if (fault == Fault::broken) text += std::string(": ") + find(id)->broken;
    return text;
}

std::size_t Hub::write(Id id, Bytes bytes) {
    Channel* channel = find(id);
    if (channel == nullptr || !channel->can_write()) return 0;
    std::size_t done = write_now(*channel, bytes);
    while (done < bytes.size() && take_credits(*channel))
        done += write_now(*channel, bytes.subspan(done));
    if (done > 0) touch(*channel);
    update(*channel);
    return done;
}

std::size_t Hub::write_now(Channel& channel, Bytes bytes) {
    const std::size_t done = write_through(channel, bytes);
    return done + channel.sender->write(bytes.subspan(done));
}

std::size_t Hub::write_in_place(Id id, Bytes bytes) {
    Channel* channel = find(id);
    if (channel == nullptr || !channel->can_write()) return 0;
    if (channel->peer != self_ && !endpoint_.capabilities().nature.any_memory) return write(id, bytes);
    std::size_t done = channel->sender->write_in_place(bytes);
    while (done < bytes.size() && take_credits(*channel))
        done += channel->sender->write_in_place(bytes.subspan(done));
    if (done > 0) touch(*channel);
    update(*channel);
    return done;
}

std::uint64_t Hub::written(Id id) const {
    const Channel* channel = find(id);
    return channel == nullptr ? 0 : channel->sender->written();
}

std::uint64_t Hub::released(Id id) const {
    const Channel* channel = find(id);
    if (channel == nullptr) return 0;
    const bool is_over = channel->fault != Fault::none && !channel->sender->has_pending();
    return is_over ? channel->sender->written() : channel->sender->released();
}

bool Hub::has_room(Id id) const {
    const Channel* channel = find(id);
    return channel != nullptr && channel->can_write() && channel->sender->has_room();
}

void Hub::flush(Id id) {
    Channel* channel = find(id);
    if (channel != nullptr && !is_blocked(channel->peer)) work(*channel);
}

void Hub::finish(Id id) {
    Channel* channel = find(id);
    if (channel == nullptr) return;
    channel->sender->finish();
    touch(*channel);
}

bool Hub::is_finished(Id id) const {
    const Channel* channel = find(id);
    return channel != nullptr && channel->sender->is_finished();
}

Bytes Hub::readable(Id id) {
    Channel* channel = find(id);
    return channel == nullptr ? Bytes{} : readable(*channel);
}

Bytes Hub::readable(Channel& channel) {
    if (!channel.is_opened || channel.fault == Fault::broken) return {};
    mirror_buffer(channel);
    return channel.receiver->readable();
}

void Hub::consume(Id id, std::size_t bytes) {
    Channel* channel = find(id);
    if (channel == nullptr) return;
    channel->receiver->consume(bytes);
    after_reading(*channel);
}

std::size_t Hub::read(Id id, std::span<std::byte> into) {
    Channel* channel = find(id);
    if (channel == nullptr) return 0;
    std::size_t done = 0;
    while (done < into.size()) {
        const Bytes from = readable(*channel);
        if (from.empty()) break;
        const std::size_t part = std::min(from.size(), into.size() - done);
        std::memcpy(into.data() + done, from.data(), part);
        channel->receiver->consume(part);
        done += part;
    }
    after_reading(*channel);
    return done;
}

void Hub::after_reading(Channel& channel) {
    channel.was_readable = false;  // what comes next is news, even if it comes before the next look
    if (channel.receiver->is_broken() || channel.receiver->credit()) touch(channel);
    update(channel);
}

bool Hub::has_ended(Id id) const {
    const Channel* channel = find(id);
    return channel != nullptr && channel->receiver->has_ended();
}

std::optional<Peer> Hub::peer_of(Id id) const {
    const Channel* channel = find(id);
    return channel == nullptr ? std::nullopt : std::optional(channel->peer);
}

std::optional<Options> Hub::options_of(Id id) const {
    const Channel* channel = find(id);
    if (channel == nullptr) return std::nullopt;
    return Options{.shape = channel->shape,
                   .kind = channel->kind,
                   .announce = channel->announce,
                   .acknowledge = channel->acknowledge};
}

// --- descriptors

void Hub::update(Channel& channel) {
    if (!channel.data.is_open() && !channel.room.is_open()) return;
    const bool is_over = channel.fault != Fault::none;
    if (!channel.is_data_held) channel.data.set(!readable(channel).empty() || channel.receiver->has_ended() || is_over);
    channel.room.set(is_over || channel.is_closed_there || (channel.is_opened && channel.sender->has_room()));
}

Result<int> Hub::data_fd(Id id) {
    Channel* channel = find(id);
    if (channel == nullptr) return Error{to_string(fault(id))};
    if (!channel->data.open())
        return Error{std::string("no descriptor for a channel: ") + std::generic_category().message(errno)};
    update(*channel);
    return channel->data.fd();
}

Result<int> Hub::room_fd(Id id) {
    Channel* channel = find(id);
    if (channel == nullptr) return Error{to_string(fault(id))};
    if (!channel->room.open())
        return Error{std::string("no descriptor for a channel: ") + std::generic_category().message(errno)};
    update(*channel);
    return channel->room.fd();
}

void Hub::hold_data(Id id, bool is_held) {
    Channel* channel = find(id);
    if (channel == nullptr) return;
    channel->is_data_held = is_held;
    if (!is_held) update(*channel);
}

void Hub::set_descriptors(Id id, Level data, Level room) {
    Channel* channel = find(id);
    if (channel == nullptr) return;
    if (data.is_open()) channel->data = std::move(data);
    if (room.is_open()) channel->room = std::move(room);
    update(*channel);
}

std::pair<Level, Level> Hub::take_descriptors(Id id) {
    Channel* channel = find(id);
    if (channel == nullptr) return {};
    return {std::exchange(channel->data, Level()), std::exchange(channel->room, Level())};
}

}  // namespace incast::channel
