#include "transport/mpi/hub.h"

#include <algorithm>
#include <utility>

namespace incast::transport::mpi {

namespace {

constexpr std::size_t call_places = 16;
constexpr std::uint64_t said_bit = std::uint64_t{1} << 31U;

}  // namespace

Result<Hub*> Hub::of_process() {
    static const Result<Hub*> made = [] {
        const Result<Library*> library = start_library();
        return library ? Result<Hub*>(new Hub(**library)) : Result<Hub*>(library.error());  // until the process ends
    }();
    return made;
}

Hub::Hub(Library& library) : library_(library), seats_(1), heard_(call_places) {
    for (std::size_t place = 0; place < heard_.size(); ++place)
        listen(place);
}

void Hub::listen(std::size_t place) {
    library_.receive(any_rank, call_tag, std::as_writable_bytes(std::span(&heard_[place], 1)), place);
}

void Hub::enroll(Mailbox& mailbox) {
    mailbox.number = ++endpoints_;
    mailboxes_.emplace(mailbox.number, &mailbox);
}

void Hub::leave(Mailbox& mailbox) {
    mailboxes_.erase(mailbox.number);
    for (Seat& seat : seats_)
        if (seat.mailbox == &mailbox) seat.mailbox = nullptr;
}

void Hub::say(int rank, const Call& call) {
    std::size_t place = said_.size();
    if (free_said_.empty()) {
        said_.push_back(std::make_unique<Call>());
    } else {
        place = free_said_.back();
        free_said_.pop_back();
    }
    *said_[place] = call;
    library_.send(rank, call_tag, std::as_bytes(std::span(said_[place].get(), 1)), said_bit | place);
}

std::uint32_t Hub::take_tags(std::uint32_t streams) {
    if (next_tag_ + 2 * streams >= library_.tags()) next_tag_ = call_tag + 1;
    return std::exchange(next_tag_, next_tag_ + 2 * streams);
}

std::uint32_t Hub::take_number(Mailbox& mailbox, Peer peer) {
    auto number = static_cast<std::uint32_t>(seats_.size());
    if (free_.empty()) {
        seats_.emplace_back();
    } else {
        number = free_.back();
        free_.pop_back();
    }
    seats_[number].mailbox = &mailbox;
    seats_[number].peer = peer;
    return number;
}

void Hub::give_back(std::uint32_t number) {
    seats_[number] = {};
    free_.push_back(number);
}

void Hub::adopt(std::uint32_t number, std::unique_ptr<Link> link, std::shared_ptr<const Regions> regions) {
    Seat& seat = seats_[number];
    seat.mailbox = nullptr;
    seat.adopted = std::move(link);
    seat.regions = std::move(regions);
    adopted_.push_back(number);
    (void)seat.adopted->let_go();  // its end is said at once
}

void Hub::progress() {
    for (const Library::Ended& each : library_.test()) {
        const auto number = static_cast<std::uint32_t>(each.what >> 32U);
        if (number == 0 && (each.what & said_bit) != 0) {
            free_said_.push_back(each.what & ~said_bit);
        } else if (number == 0) {
            const Call call = heard_[each.what];
            const bool is_call = each.is_good && each.bytes == sizeof call && call.magic == Call::expected_magic &&
                                 call.from_rank < static_cast<std::uint32_t>(library_.size());
            listen(each.what);
            if (is_call) hear(call);
        } else if (Seat& seat = seats_[number]; seat.link != nullptr) {
            seat.link->ended(each);
            if (seat.mailbox != nullptr &&
                std::ranges::find(seat.mailbox->woken, seat.peer) == seat.mailbox->woken.end())
                seat.mailbox->woken.push_back(seat.peer);
        }
    }
    std::erase_if(adopted_, [&](std::uint32_t number) {
        if (!seats_[number].adopted->let_go()) return false;
        give_back(number);
        return true;
    });
}

void Hub::hear(const Call& call) {
    if (const auto found = mailboxes_.find(call.to_endpoint); found != mailboxes_.end()) {
        found->second->calls.push_back(call);
        return;
    }
    if (call.kind != CallKind::hello) return;
    say(static_cast<int>(call.from_rank), {.kind = CallKind::refuse,
                                           .verdict = Verdict::gone,
                                           .from = call.to,
                                           .to = call.from,
                                           .to_endpoint = call.from_endpoint,
                                           .dial = call.dial});
}

}  // namespace incast::transport::mpi
