#include "transport/verbs/rails.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include "transport/verbs/descriptor/descriptor.h"

namespace incast::transport::verbs {

Result<std::unique_ptr<Transport>> Rails::make(const EndpointSettings& settings, const EndpointOptions& options) {
    std::vector<std::unique_ptr<Endpoint>> rails;
    const auto pool = std::make_shared<Endpoint::Pool>(options.shareable);
    for (std::uint32_t rail = 0; rail < settings.rails; ++rail) {
        auto made = Endpoint::make_rail(settings, options, rail, pool);
        if (!made) return made.error();
        rails.push_back(std::move(*made));
    }
    std::unique_ptr<Rails> made(new Rails(static_cast<std::uint32_t>(options.self), std::move(rails)));
    for (const auto& rail : made->rails_) {
        epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
        if (::epoll_ctl(made->poller_.fd(), EPOLL_CTL_ADD, rail->wait_fd(), &event) != 0)
            return Error{std::string(transport_name) + ": epoll: " + reason(errno)};
    }
    return std::unique_ptr<Transport>(std::move(made));
}

Blob Rails::address() const {
    Blob all;
    for (const auto& rail : rails_) {
        const Blob one = rail->address();
        all.bytes.insert(all.bytes.end(), one.bytes.begin(), one.bytes.end());
    }
    return all;
}

Blob Rails::address_for(Peer peer) {
    if (std::ranges::any_of(rails_, [&](const auto& rail) { return !rail->is_idle(peer); })) return {};
    Blob all;
    for (const auto& rail : rails_) {
        const Blob one = rail->address_for(peer);
        all.bytes.insert(all.bytes.end(), one.bytes.begin(), one.bytes.end());
    }
    return all;
}

Post Rails::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    const std::optional<Address> address = address_in(blob, 0);
    if (address && of(peer).is_idle(peer))
        there_[static_cast<std::size_t>(peer)] = address->invitation != 0 ? address->node : self_;
    return of(peer).connect(peer, blob, incarnation);
}

bool Rails::drained() const {
    return std::ranges::all_of(rails_, [](const auto& rail) { return rail->drained(); });
}

Result<Local> Rails::allocate(std::size_t bytes) {
    Result<Local> made = rails_.front()->allocate(bytes);
    if (!made) return made;
    for (std::size_t rail = 1; rail < rails_.size(); ++rail) {
        const Result<Ok> registered = rails_[rail]->register_region(*made);
        if (registered) continue;
        (void)release(*made);
        return registered.error();
    }
    return made;
}

Result<Blob> Rails::expose(Local region, const Grant& grant) {
    Result<Blob> made = rails_.front()->expose(region, grant);
    Key key;
    if (!made || !from_blob(*made, key)) return made;
    for (std::size_t rail = 0; rail < rails_.size(); ++rail)
        key.rkeys[rail] = rails_[rail]->rkey(region);
    if (grant.peer != any_peer) key.owner = of(grant.peer).there(grant.peer);
    return to_blob(key);
}

Result<Remote> Rails::import_key(Peer peer, const Blob& blob) {
    const Result<Remote> made = of(peer).import_key(peer, blob);
    if (!made) return made.error();
    return Remote{static_cast<std::uint32_t>(*made) | rail_of(peer) << rail_shift};
}

Result<Ok> Rails::release(Local region) {
    for (std::size_t rail = 1; rail < rails_.size(); ++rail)
        rails_[rail]->retire(region);
    return rails_.front()->release(region);
}

Result<Ok> Rails::release(Remote import) {
    const std::uint32_t rail = rail_in(import);
    if (rail >= rails_.size())
        return Error{"release: there is no import " + std::to_string(static_cast<std::uint32_t>(import))};
    return rails_[rail]->release(without_rail(import));
}

std::size_t Rails::poll(Time now, std::span<Event> events) {
    std::size_t count = 0;
    for (std::size_t turn = 0; turn < rails_.size(); ++turn)
        count += rails_[(first_ + turn) % rails_.size()]->poll(now, events.subspan(count));
    first_ = (first_ + 1) % rails_.size();
    return count;
}

Time Rails::next_deadline() const {
    Time next = time_never;
    for (const auto& rail : rails_)
        next = std::min(next, rail->next_deadline());
    return next;
}

bool Rails::prepare_wait() {
    return std::ranges::all_of(rails_, [](const auto& rail) { return rail->prepare_wait(); });
}

}  // namespace incast::transport::verbs
