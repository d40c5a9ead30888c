#include "farm/simulated/farm_host.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace incast::farm::simulated {

namespace {

constexpr std::size_t most_polled = 64;
constexpr std::uint32_t nobody = ~std::uint32_t{0};

}  // namespace

Result<std::unique_ptr<FarmHost>> FarmHost::make(sim::World& world, const FarmHostOptions& options,
                                                 std::vector<Whereabouts> dispatchers) {
    std::unique_ptr<FarmHost> made(new FarmHost(world, options));
    made->actor_ = world.add_actor(*made);
    if (const auto opened = made->open(std::move(dispatchers)); !opened) {
        return opened.error();
    }
    world.bind(*made->transport_, made->actor_);
    return made;
}

Result<Ok> FarmHost::open(std::vector<Whereabouts> dispatchers) {
    transport::EndpointOptions endpoint;
    endpoint.self = options_.self;
    endpoint.incarnation = options_.incarnation;
    endpoint.run = options_.run;
    endpoint.max_peers = options_.hosts;
    auto transport = world_.endpoint(endpoint);
    if (!transport) {
        return transport.error();
    }
    transport_ = std::move(*transport);
    by_peer_.assign(options_.hosts, nobody);
    slots_.resize(dispatchers.size() * options_.window);
    for (std::uint32_t index = 0; index < dispatchers.size(); ++index) {
        auto supplier = std::make_unique<Supplier>();
        const auto ring = transport_->allocate(options_.place_bytes * options_.window);
        if (!ring) {
            return ring.error();
        }
        supplier->ring = *ring;
        for (std::uint32_t slot = 0; slot < options_.window; ++slot) {
            supplier->supply.add_slot(index * options_.window + slot);
        }
        by_peer_[static_cast<std::size_t>(dispatchers[index].peer)] = index;
        supplier->link.set_up(*transport_, *ring);
        supplier->link.expect(dispatchers[index]);
        suppliers_.push_back(std::move(supplier));
    }
    return Ok{};
}

FarmHost::~FarmHost() {
    world_.remove_actor(actor_);
}

Whereabouts FarmHost::whereabouts(std::size_t dispatcher) const {
    return {options_.self, options_.incarnation, transport_->address(),
            transport_->expose(suppliers_[dispatcher]->ring, {}).value()};
}

void FarmHost::leave() {
    is_leaving_ = true;
    next_look_ = 0;
    world_.wake(actor_);
}

FarmHostCounts FarmHost::counts(Time now) const {
    FarmHostCounts counts = counts_;
    // Whoever is at work has not been paid yet: since when is known by when it ends.
    auto running = running_;
    for (; !running.empty(); running.pop()) {
        counts.busy += std::min(now, running.top().first) - (running.top().first - options_.work);
    }
    return counts;
}

std::uint32_t FarmHost::supplier_of(Peer peer) const {
    return static_cast<std::size_t>(peer) < by_peer_.size() ? by_peer_[static_cast<std::size_t>(peer)] : nobody;
}

void FarmHost::hear(const Event& event) {
    const std::uint32_t index = supplier_of(event.peer);
    if (index == nobody) {
        return;
    }
    Supplier& supplier = *suppliers_[index];
    touched_.push_back(index);
    switch (event.kind) {
        case Event::Kind::peer_up:
            if (supplier.link.came_up(event)) {
                ++supplier.life;
                supplier.supply.begin();
                supplier.replies.clear();
                supplier.heard = supplier.said = now_;
                supplier.is_welcomed = supplier.is_leaving = false;
                supplier.link.say(bytes_of(Hello{}));
            }
            break;
        case Event::Kind::peer_down:
            lose(index);
            supplier.link.went_down(now_);
            break;
        case Event::Kind::message:
            heard(supplier, {event.data, event.size_or_value});
            break;
        case Event::Kind::notice:
            take(index, event.size_or_value);
            break;
        default:
            break;
    }
}

void FarmHost::heard(Supplier& supplier, Bytes message) {
    supplier.heard = now_;
    Welcome welcome;
    if (!supplier.link.is_up() || message.size() != sizeof welcome) {
        return;  // a word, that says nothing but that it is there
    }
    std::memcpy(&welcome, message.data(), sizeof welcome);
    supplier.is_welcomed = is_sane(welcome) && welcome.run == options_.run;
}

void FarmHost::take(std::uint32_t index, std::uint16_t place) {
    Supplier& supplier = *suppliers_[index];
    supplier.heard = now_;
    if (!supplier.is_welcomed) {
        return;
    }
    MepFrame frame;
    const Bytes head =
        transport_->local({.region = supplier.ring, .length = sizeof frame, .offset = place * options_.place_bytes});
    std::memcpy(&frame, head.data(), std::min(head.size(), sizeof frame));
    const auto slot = supplier.supply.take(frame);
    if (!slot) {
        lose(index);
        return;
    }
    slots_[*slot] = {index, supplier.life, frame};
    ++counts_.meps;
    counts_.events += frame.n_events;
    counts_.goodput_bytes += frame.goodput_bytes;
    counts_.repeated_meps += (frame.flags & MepFrame::repeated) != 0 ? 1 : 0;
    waiting_.push_back(*slot);
}

void FarmHost::lose(std::uint32_t index) {
    Supplier& supplier = *suppliers_[index];
    supplier.is_welcomed = false;
    supplier.replies.clear();
    supplier.link.drop(now_);
    // What waits is the dispatcher's again; what processes have they may finish.
    std::erase_if(waiting_, [&](std::uint32_t slot) {
        const bool is_its = slots_[slot].supplier == index;
        if (is_its) supplier.supply.give_back(slot);
        return is_its;
    });
}

void FarmHost::finish_all() {
    while (!running_.empty() && running_.top().first <= now_) {
        const std::uint32_t slot = running_.top().second;
        running_.pop();
        counts_.busy += options_.work;
        settle(slot);
    }
}

void FarmHost::hand_out() {
    while (!waiting_.empty() && running_.size() < options_.processes) {
        const std::uint32_t slot = waiting_.front();
        waiting_.pop_front();
        if (witness_ != nullptr) witness_->came(number_, slots_[slot].frame);
        if (options_.work == 0) {
            settle(slot);
        } else {
            running_.emplace(now_ + options_.work, slot);
        }
    }
}

void FarmHost::settle(std::uint32_t slot) {
    const Slot& each = slots_[slot];
    Supplier& supplier = *suppliers_[each.supplier];
    supplier.supply.give_back(slot);
    ++counts_.done_meps;
    if (supplier.is_welcomed && supplier.life == each.life) {
        supplier.replies.push_back({.says = Says::done, .ticket = each.frame.ticket});
    } else {
        ++counts_.late_meps;
    }
    touched_.push_back(each.supplier);
}

/// What there is to say, to those of whom something was heard or finished.
void FarmHost::grant_all() {
    constexpr std::size_t most_together = max_message_bytes / sizeof(Reply);
    for (const std::uint32_t index : touched_) {
        Supplier& supplier = *suppliers_[index];
        if (supplier.is_welcomed && !is_leaving_) {
            if (const auto credit = supplier.supply.grant()) supplier.replies.push_back(*credit);
        }
        for (std::span<const Reply> rest(supplier.replies); !rest.empty();) {
            const auto together = rest.first(std::min(rest.size(), most_together));
            supplier.link.say(std::as_bytes(together));
            supplier.said = now_;
            rest = rest.subspan(together.size());
        }
        supplier.replies.clear();
        supplier.link.push();
        next_look_ = std::min(next_look_, supplier.link.next_call());
    }
    touched_.clear();
}

/// Silent ones, and those who are to hear that this one lives, or leaves.
void FarmHost::look_after_all() {
    if (now_ < next_look_) {
        return;
    }
    next_look_ = time_never;
    for (std::uint32_t index = 0; index < suppliers_.size(); ++index) {
        Supplier& supplier = *suppliers_[index];
        if (supplier.link.is_up() && now_ - supplier.heard > options_.silence) {
            lose(index);
        }
        if (supplier.is_welcomed && is_leaving_ && !supplier.is_leaving) {
            supplier.is_leaving = true;
            supplier.replies.push_back({.says = Says::leave});
            touched_.push_back(index);
        } else if (supplier.is_welcomed && now_ - supplier.said > alive_interval) {
            supplier.replies.push_back({.says = Says::alive});
            touched_.push_back(index);
        }
        supplier.link.call(now_);
        next_look_ = std::min(next_look_, supplier.link.next_call());
        if (supplier.link.is_up()) {
            next_look_ = std::min({next_look_, supplier.heard + options_.silence + 1,
                                   std::max(supplier.said, now_) + alive_interval + 1});
        }
    }
}

bool FarmHost::step(Time now) {
    now_ = now;
    std::array<Event, most_polled> events;
    const std::size_t count = transport_->poll(now, events);
    for (std::size_t index = 0; index < count; ++index) {
        if (events[index].kind == Event::Kind::peer_up) next_look_ = 0;
        hear(events[index]);
    }
    finish_all();
    hand_out();
    look_after_all();
    grant_all();
    return count == events.size();
}

Time FarmHost::next_deadline() const {
    return running_.empty() ? next_look_ : std::min(next_look_, running_.top().first);
}

}  // namespace incast::farm::simulated
