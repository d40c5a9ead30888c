#include "protocol/readout_unit.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "protocol/builder_unit.h"

namespace incast::protocol {

using wire::ControlKind;
using wire::ControlView;

namespace {

// Generated before the node looks at the network again: writing 512 KiB takes some 50 us.
constexpr std::uint64_t produce_at_once_bytes = std::uint64_t{512} << 10;

std::uint64_t meps_at_once(const Config& config, std::uint32_t first_source, std::uint32_t sources) {
    std::uint64_t mep_bytes = 0;
    for (std::uint32_t source = first_source; source < first_source + sources; ++source) {
        mep_bytes += config.sources[source].cap_bytes;
    }
    return std::clamp<std::uint64_t>(produce_at_once_bytes / std::max<std::uint64_t>(mep_bytes, 1), 4, 64);
}

}  // namespace

ReadoutUnit::ReadoutUnit(Port& port, const Shape& shape, Source& source, BuilderUnit* own_builder)
    : port_(port),
      shape_(shape),
      source_(source),
      own_builder_(own_builder),
      keeps_credits_(assigns_ahead(port.config()) && shape.pushes(shape.ru_of_node[port.self_index()])),
      acks_contributions_(tells_placed(port.config()) && !port.config().ack_per_write),
      acks_writes_(port.config().ack_per_write),
      in_parts_(acks_writes_ || port.config().message_size > 0),
      has_turns_(has_barriers(port.config().schedule) || port.config().schedule == Schedule::barrel_time_slot),
      pulled_(!shape.pushes(shape.ru_of_node[port.self_index()])),
      parallel_sends_(port.config().parallel_sends),
      ru_(shape.ru_of_node[port.self_index()]),
      first_source_(shape.rus[ru_].first_source),
      sources_(shape.rus[ru_].sources),
      outstanding_writes_(port.config().outstanding_writes),
      message_size_(port.config().message_size == 0 ? ~std::uint32_t{0} : port.config().message_size),
      schedule_(port.config(), ru_, shape.rus.size(), shape.bus.size(), port.self() == port.config().em),
      produce_at_once_(meps_at_once(port.config(), first_source_, sources_)),
      credits_(keeps_credits_ ? shape.bus.size() : 0, shape.slots, shape.window, port.config().credits_before,
               port.config().plant) {
    const std::size_t bus = shape.bus.size();
    holds_of_.assign(std::bit_ceil(std::size_t{port.config().retention_meps}), 0);
    // Every credit of every BU may be assigned at once; those of a dead incarnation are dropped before those of its
    // successor come. Where the EM is ahead of credits, every MEP in its window may be.
    pool_ = base::Slab<Assignment>(bus * shape.slots + 1 + (keeps_credits_ ? shape.window : 0));
    links_.resize(bus);
    runnable_ = base::Bitmap(schedule_.queues());
    acks_ = Acks(bus * 2 * shape.slots);
    progress_.resize(bus);
    acks_of_.resize(bus);
    regions_per_bu_ = shape.layout.regions_of_ru(shape.slots, sources_);
    if (regions_per_bu_ > 1) {
        further_regions_.resize(bus * std::size_t{regions_per_bu_});
    }
    acks_due_ = base::Bitmap(bus);
    regions_due_ = base::Bitmap(bus);
    if (own_builder_ != nullptr) {
        BuilderLink& self = links_[shape.bu_of_node[static_cast<std::size_t>(port.self())]];
        self.up = true;
        self.ready = true;
        self.incarnation = port.incarnation();
    }
}

Result<Ok> ReadoutUnit::start() {
    if (const Result<Ok> attached = source_.attach(port_.transport(), port_.config(), first_source_, sources_);
        !attached || port_.config().scheme != Scheme::pull_read) {
        return attached;
    }
    for (const Local region : source_.regions()) {
        const Result<Blob> key = port_.transport().expose(region, {.write = false});
        if (!key) {
            return key.error();
        }
        region_keys_.push_back(*key);
    }
    return Ok{};
}

// --- connections and view
// -----------------------------------------------------------------------------------------------------------

void ReadoutUnit::on_connection_up(Peer peer, std::uint32_t incarnation) {
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(peer)];
    BuilderLink& link = links_[bu];
    link.up = true;
    link.ready = false;
    link.regions = 0;
    link.blocked = false;
    if (port_.config().scheme == Scheme::pull_read) {
        regions_due_.set(bu);
        chores_ = true;
    }
    link.incarnation = incarnation;
    if (keeps_credits_) {
        credits_.clear(bu, in_view_);
    }
}

void ReadoutUnit::on_connection_lost(Time now, Peer peer) {
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(peer)];
    BuilderLink& link = links_[bu];
    link.up = false;
    link.ready = false;
    link.blocked = false;
    unplaced_ -= progress_[bu].sent - progress_[bu].placed;
    progress_[bu] = {};
    acks_.clear(acks_of_[bu]);
    acks_due_.reset(bu);
    regions_due_.reset(bu);
    drop_assignments(bu);
    schedule_.placed(now, bu);
}

void ReadoutUnit::on_view(Time now, const wire::ViewEntry& entry) {
    if (Peer{entry.node} == port_.self() && entry.incarnation == port_.incarnation() &&
        entry.change == wire::Change::up) {
        in_view_ = true;
        first_mep_ = entry.from_mep;
        produced_below_ = reported_below_ = released_below_ = forgotten_below_ = entry.from_mep;
        source_.start(now, entry.from_mep, entry.from_event);
        produce_more_ = true;
        for (std::uint32_t bu = 0; keeps_credits_ && entry.from_mep == 0 && bu < links_.size(); ++bu) {
            credits_.start(bu);  // every one that has a MEP is announced from here on
        }
        impatient_ = awaits_close_ = fill_up_ = false;
        asked_others_ = ~MepId{0};
    }
    if (const std::uint32_t bu = shape_.bu_of_node[entry.node]; bu != no_index) {
        links_[bu].view_incarnation = entry.change == wire::Change::up ? entry.incarnation : 0;
        if (entry.change != wire::Change::up && port_.config().plant != Plant::stale_incarnation) {
            drop_assignments(bu);
        }
    }
}

void ReadoutUnit::on_region(Peer from, const ControlView& message) {
    const wire::RegionBody region = message.body<ControlKind::region>();
    const std::optional<Blob> key = wire::key_in<ControlKind::region>(message);
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(from)];
    BuilderLink& link = links_[bu];
    if (region.slot_bytes != shape_.layout.slot_bytes || region.slots != shape_.slots || link.ready ||
        region.index != link.regions || !key) {
        ++port_.counters().bad_messages;
        return;
    }
    const Result<Remote> remote = port_.transport().import_key(from, *key);
    if (!remote) {
        ++port_.counters().bad_messages;
        return;
    }
    if (link.regions == 0) {
        link.region = *remote;
    }
    if (!further_regions_.empty()) {
        further_regions_[std::size_t{bu} * regions_per_bu_ + link.regions] = *remote;
    }
    if (++link.regions == regions_per_bu_) {
        link.ready = true;
        update_runnable(queue_of(bu));
    }
}

Remote ReadoutUnit::further_region(std::uint32_t bu, std::uint32_t slot, std::uint32_t source) const {
    const std::uint32_t index = shape_.layout.index_of_ru(slot, source - first_source_, sources_);
    return further_regions_[std::size_t{bu} * regions_per_bu_ + index];
}

// --- assignments
// --------------------------------------------------------------------------------------------------------------------

void ReadoutUnit::on_announce(const ControlView& message) {
    const wire::AnnounceBody body = message.body<ControlKind::announce>();
    if (in_view_ && body.released_below > released_below_) {
        released_below_ = std::min(body.released_below, produced_below_);
        release();
    }
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::AnnounceEntry entry = message.entry<ControlKind::announce>(index);
        const std::uint32_t bu = entry.bu < shape_.bu_of_node.size() ? shape_.bu_of_node[entry.bu] : no_index;
        if (bu == no_index || (entry.slot >= shape_.slots && !keeps_credits_)) {
            ++port_.counters().bad_messages;
            continue;
        }
        // The EM means the BU incarnation of its view; a connection with another one must not be written to.
        const BuilderLink& link = links_[bu];
        if (link.up &&
            (link.incarnation == link.view_incarnation || port_.config().plant == Plant::stale_incarnation)) {
            if (keeps_credits_) {
                credits_.announced(bu, entry.credit);
            }
            enqueue(body.base + index, bu, entry.credit, entry.slot, static_cast<std::uint16_t>(body.attempt));
        }
    }
}

void ReadoutUnit::on_request(Peer from, const ControlView& message) {
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(from)];
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::AttemptEntry entry = message.entry<ControlKind::request>(index);
        // One for each of its slots: whoever asks for more would take the places of others.
        if (entry.slot >= shape_.slots || !pulled_ || links_[bu].requests >= shape_.slots) {
            ++port_.counters().bad_messages;
            continue;
        }
        if (enqueue(entry.mep, bu, entry.credit, entry.slot, entry.attempt)) {
            ++links_[bu].requests;
        }
    }
}

void ReadoutUnit::on_grant(Peer from, const ControlView& message) {
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(from)];
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        if (!credits_.add(bu, message.entry<ControlKind::grant>(index))) {
            ++port_.counters().bad_messages;
        }
    }
    update_runnable(queue_of(bu));
}

/// Source-credits: the BU granted the credit of that number, and so said which slot it is for. It cannot grant that
/// slot again while this RU owes it a contribution (EB-F3), so what is found stays right.
bool ReadoutUnit::find_credit(Assignment& work) {
    if (work.slot == wire::unknown_slot) {
        work.slot = credits_.slot_of(work.bu, work.credit);
    }
    return work.slot != wire::unknown_slot;
}

bool ReadoutUnit::enqueue(MepId mep, std::uint32_t bu, std::uint32_t credit, std::uint16_t slot,
                          std::uint16_t attempt) {
    if (!in_view_ || mep < released_below_) {
        return false;  // released or never held: another attempt was committed, or this RU came in later
    }
    const bool far_off = mep >= produced_below_ + 2 * std::uint64_t{port_.config().retention_meps};
    const std::uint32_t index = far_off ? no_index : pool_.take();
    if (index == no_index) {
        ++port_.counters().bad_messages;  // more assignments than credits, or a MEP far off: a lying peer
        return false;
    }
    pool_[index] = {
        .mep = mep, .credit = credit, .bu = static_cast<std::uint16_t>(bu), .slot = slot, .attempt = attempt};
    Queue& behind = queue(queue_of(bu));
    if (behind.first == no_index) {
        behind.first = index;
        behind.last = index;
        ++queues_filled_;
        update_runnable(queue_of(bu));
    } else {
        pool_[behind.last].next = index;
        behind.last = index;
    }
    return true;
}

/// An assignment that will not be carried out, or no further.
void ReadoutUnit::remove(std::uint32_t queue_index, std::uint32_t previous, std::uint32_t index) {
    if (pool_[index].begun) {
        let_go(pool_[index].mep);  // it was begun: see send_contribution
        if (forgotten_below_ < released_below_) {
            release();  // no completion may follow that would do it
        }
    }
    unlink(queue_index, previous, index);
}

void ReadoutUnit::unlink(std::uint32_t queue_index, std::uint32_t previous, std::uint32_t index) {
    if (previous == no_index) {
        pop(queue_index);
        return;
    }
    Queue& from = queue(queue_index);
    if (from.last == index) {
        from.last = previous;
    }
    pool_[previous].next = pool_[index].next;
    give_back(index);
}

void ReadoutUnit::on_abort(Peer from, const ControlView& message) {
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::AttemptEntry entry = message.entry<ControlKind::abort>(index);
        const std::uint32_t bu = entry.bu < shape_.bu_of_node.size() ? shape_.bu_of_node[entry.bu] : no_index;
        // A BU voids what it asked for itself; what is another's, only the EM.
        const bool theirs = from == Peer{entry.bu} && pulled_;
        if (bu == no_index || (from != port_.config().em && !theirs && port_.config().plant != Plant::believed_abort)) {
            ++port_.counters().bad_messages;
            continue;
        }
        if (links_[bu].up) {
            void_attempt(bu, entry);
        }
    }
}

/// After the acknowledgement this RU writes nothing for that credit (EB-F3). A contribution that was begun is finished
/// first, because only its notice, which arrives before the acknowledgement, says that all its bytes are placed.
void ReadoutUnit::void_attempt(std::uint32_t bu, const wire::AttemptEntry& entry) {
    const std::uint32_t from = queue_of(bu);
    std::uint32_t previous = no_index;
    bool acknowledge = true;
    for (std::uint32_t index = queue(from).first; index != no_index; previous = index, index = pool_[index].next) {
        Assignment& found = pool_[index];
        if (found.bu != bu || found.credit != entry.credit) {
            continue;
        }
        if (found.begun) {
            found.acknowledge = true;
            acknowledge = false;
        } else if (port_.config().plant != Plant::unordered_abort_ack) {
            remove(from, previous, index);
            if (queue(from).first == no_index) {
                schedule_.dropped(from, true);
            }
        }
        break;
    }
    if (acknowledge) {
        acknowledge_abort(bu, entry.credit, entry.slot);
    }
}

void ReadoutUnit::acknowledge_abort(std::uint32_t bu, std::uint32_t credit, std::uint16_t slot) {
    const bool room = acks_of_[bu].size < 2 * shape_.slots;  // a lying BU fills its own places only
    if (room) {
        acks_.must_push(acks_of_[bu], {credit, slot, 0});
        acks_due_.set(bu);
        chores_ = true;
    }
}

void ReadoutUnit::drop_assignments(std::uint32_t bu) {
    const std::uint32_t from = queue_of(bu);
    std::uint32_t previous = no_index;
    for (std::uint32_t index = queue(from).first; index != no_index;) {
        const std::uint32_t after = pool_[index].next;
        if (pool_[index].bu == bu) {
            remove(from, previous, index);
        } else {
            previous = index;
        }
        index = after;
    }
    update_runnable(from);
    const std::uint32_t first = queue(from).first;
    if (first == no_index || pool_[first].next_source == 0) {
        schedule_.dropped(from, first == no_index);
    }
}

void ReadoutUnit::on_placed(Time now, Peer from, const ControlView& message) {
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(from)];
    Progress& progress = progress_[bu];
    const std::uint64_t placed = message.body<ControlKind::placed>().contributions;
    if (placed > progress.sent || placed < progress.placed) {
        ++port_.counters().bad_messages;
        return;
    }
    unplaced_ -= placed - progress.placed;
    progress.placed = placed;
    if (acks_writes_) {
        update_runnable(queue_of(bu));
    }
    const std::uint32_t head = queue(queue_of(bu)).first;
    const bool begun = head != no_index && pool_[head].bu == bu && pool_[head].begun;
    if (is_placed(bu) && !begun) {
        schedule_.placed(now, bu);
    }
}

void ReadoutUnit::prefetch(unsigned level) const {
    if (level == 0) {
        runnable_.prefetch();
        base::prefetch(links_.data(), std::min(links_.size(), std::size_t{8}) * sizeof(BuilderLink));
        base::prefetch(&pool_[0], 128);
    } else if (const std::size_t next = runnable_.next_cyclic(schedule_.likely()); next < links_.size()) {
        __builtin_prefetch(&links_[next]);
    }
}

// --- sending
// -------------------------------------------------------------------------------------------------------------------

void ReadoutUnit::update_runnable(std::uint32_t queue_index) {
    const std::uint32_t first = queue(queue_index).first;
    runnable_.assign(queue_index, first != no_index && can_begin(pool_[first]));
}

void ReadoutUnit::on_room(Peer peer) {
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(peer)];
    links_[bu].blocked = false;
    update_runnable(queue_of(bu));
}

void ReadoutUnit::on_completed(Token token) {
    let_go(token - 1);
    if (forgotten_below_ < released_below_) {
        release();
    }
}

// --- retention
// -------------------------------------------------------------------------------------------------------------------

void ReadoutUnit::release() {
    const MepId before = forgotten_below_;
    if (holds_ == 0) {
        forgotten_below_ = released_below_;
    }
    while (forgotten_below_ < released_below_ && !is_held(forgotten_below_)) {
        ++forgotten_below_;
    }
    if (forgotten_below_ > before) {
        source_.release(forgotten_below_);
        produce_more_ = true;
    }
}

MepId ReadoutUnit::most_produced() const {
    return forgotten_below_ + port_.config().retention_meps;
}

void ReadoutUnit::produce(Time now) {
    if (!in_view_ || awaits_close_ || (!produce_more_ && now < next_ready_)) {
        return;
    }
    produce_more_ = false;
    next_ready_ = impatient_at_ = time_never;
    const MepId limit = most_produced();
    const MepId before = produced_below_;
    while (produced_below_ < limit) {
        if (produced_below_ - before == produce_at_once_) {
            produce_more_ = true;
            break;
        }
        if (!source_.produce(now, produced_below_)) {
            next_ready_ = source_.next_ready();
            impatient_at_ = fill_up_ ? time_never : source_.impatient_at();
            break;
        }
        fill_up_ = impatient_ = false;
        ++produced_below_;
        ++port_.counters().meps_produced;
    }
    if (produced_below_ > before && await_production_) {
        await_production_ = false;
        for (std::uint32_t each = 0; each < runnable_.size(); ++each) {
            if (queue(each).first != no_index) {
                update_runnable(each);
            }
        }
    }
}

/// Its first event has waited long enough for the others. The EM closes the MEP for all RUs alike (EB-C8); until it has
/// answered nothing is added to what was told.
void ReadoutUnit::ask_to_close(Time now) {
    impatient_ = true;
    impatient_at_ = time_never;
    open_events_ = produced_below_ < most_produced() ? source_.open_events(now) : 0;
    if (open_events_ == 0) {
        ask_others();
        return;
    }
    if (port_.config().plant == Plant::lone_close && produced_below_ % 4 == 1) {
        impatient_ = false;
        produce_more_ = true;
        source_.close(now, produced_below_, open_events_);
        return;
    }
    auto message = port_.message<ControlKind::open>();
    message.set_body({produced_below_, open_events_, 0});
    if (port_.send(port_.config().em, message)) {
        impatient_ = false;
        awaits_close_ = true;
        reported_below_ = produced_below_;  // the message says that, too
    }
}

/// Whether there is anything of the next MEP, of which the source has nothing. It goes on meanwhile: no event is told.
void ReadoutUnit::ask_others() {
    if (!source_.asks_others()) {
        return;
    }
    impatient_ = false;
    if (asked_others_ == produced_below_ || produced_below_ == most_produced()) {
        return;
    }
    auto message = port_.message<ControlKind::open>();
    message.set_body({produced_below_, 0, 0});
    if (port_.send(port_.config().em, message)) {
        asked_others_ = produced_below_;
        reported_below_ = produced_below_;
    } else {
        impatient_ = true;
    }
}

void ReadoutUnit::on_close(Time now, const ControlView& message) {
    const wire::CloseBody body = message.body<ControlKind::close>();
    if (!awaits_close_ && body.events == 0 && body.mep == asked_others_ && body.mep == produced_below_) {
        source_.give_up(now, body.mep);
        produce_more_ = true;
        return;
    }
    if (!awaits_close_ || body.mep != produced_below_ || body.events > open_events_) {
        // To be filled is an answer to others: this RU has not asked.
        port_.counters().bad_messages += body.events > 0 ? 1 : 0;
        return;
    }
    awaits_close_ = false;
    produce_more_ = true;
    if (body.events > 0) {
        source_.close(now, body.mep, body.events);
    } else {
        fill_up_ = true;
    }
}

void ReadoutUnit::flush_available(Time now, bool idle) {
    if (produced_below_ == reported_below_) {
        return;
    }
    const bool at_leisure = idle && now >= report_at_;
    if (!at_leisure && produced_below_ - reported_below_ < std::max(1U, port_.config().retention_meps / lazy_share)) {
        lazy_ = true;
        return;
    }
    auto message = port_.message<ControlKind::available>();
    message.set_body({produced_below_});
    if (port_.send(port_.config().em, message)) {
        reported_below_ = produced_below_;
        report_at_ = now + shape_.lazy_interval();
    }
}

void ReadoutUnit::flush_acks() {
    for (std::size_t bu = acks_due_.next(0); bu != base::Bitmap::none; bu = acks_due_.next(bu + 1)) {
        const std::uint32_t due = acks_of_[bu].size;
        if (port_.send_all<ControlKind::abort_ack>(shape_.bus[bu], acks_, acks_of_[bu])) {
            acks_due_.reset(bu);
        }
        port_.counters().aborts_acknowledged += due - acks_of_[bu].size;
    }
}

void ReadoutUnit::flush(Time now, bool idle) {
    lazy_ = false;
    if (chores_) {
        tell_regions();
    }
    produce(now);
    if (now >= impatient_at_ || impatient_) {
        ask_to_close(now);
        produce(now);
    }
    flush_available(now, idle);
    if (has_turns_) {
        ask_clock(now);
    }
    serve(now);
    if (has_turns_) {
        tell_phase_done();
    }
    if (chores_) {
        flush_acks();
        chores_ = acks_due_.any() || regions_due_.any();
    }
}

Time ReadoutUnit::next_deadline() const {
    if (produce_more_ && !awaits_close_) {
        return 0;
    }
    Time deadline = awaits_close_ ? turn_at_ : std::min({next_ready_, impatient_at_, turn_at_});
    if (lazy_) {
        deadline = std::min(deadline, report_at_);
    }
    if (!has_turns_) {
        return deadline;
    }
    if (em_time_.heard >= 0) {
        deadline = std::min(deadline, em_time_.heard + 1);
    } else if (em_time_.next_ask > 0 && em_time_.asked < 0) {
        deadline = std::min(deadline, em_time_.next_ask);
    }
    return deadline;
}

}  // namespace incast::protocol
