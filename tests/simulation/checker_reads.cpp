// What builder units read (scheme pull-read): whose bytes, where to, and until when (EB-F1, EB-F3, EB-T1).
//
// A read of a MEP that was released meanwhile may find the bytes of a later one: what counts is what gets delivered.
#include "checker.h"
#include "sim/endpoint.h"

namespace incast::adversary {

using protocol::MepId;
using wire::ControlKind;
using wire::ControlView;

void Checker::offer_delivered(sim::EndpointId from, sim::EndpointId to, const ControlView& message) {
    answered(to, from, message.body<ControlKind::offer>().credit);
}

/// The MEP that the owner has in the place that is read: of those in its ring the newest one there.
std::optional<MepId> Checker::held_at(sim::EndpointId owner, const sim::Transfer& read) const {
    const std::uint32_t node = node_of(owner);
    const std::uint64_t cap = plan_.config.sources[reads_.at(read.number).source].cap_bytes;
    const std::uint64_t retention = plan_.config.retention_meps;
    const MepId below = produced_[node];
    if (read.offset % cap != 0 || read.offset / cap >= retention || below == 0) return {};
    const MepId newest = below - 1;
    const std::uint64_t behind = (newest + retention - read.offset / cap) % retention;
    return behind <= newest ? std::optional(newest - behind) : std::nullopt;
}

void Checker::read_posted(Time /*now*/, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& read) {
    const Builder* reader = builder_at(from);
    Read& record = reads_[read.number];
    record.reader = from;
    record.owner = to;
    record.slot = slots_;
    const std::uint32_t ru = node_of(to);
    // Which source's place it is for: the head belongs before it.
    for (std::uint32_t source = 0; reader != nullptr && source < plan_.config.sources.size(); ++source) {
        if (plan_.config.sources[source].ru != Peer{ru}) continue;
        for (std::uint32_t slot = 0; slot < slots_; ++slot) {
            const protocol::SlotLayout::Place place = layout_.at(slot, source);
            if (static_cast<std::uint16_t>(read.body.region) == place.region &&
                read.body.offset == place.offset + sizeof(wire::Head)) {
                record.slot = slot;
                record.source = source;
            }
        }
    }
    if (record.slot == slots_ || read.body.length > plan_.config.sources[record.source].cap_bytes) {
        violation("EB-S3", "node {} reads {} bytes of node {} to offset {}, which is no place for them", node_of(from),
                  read.body.length, ru, read.body.offset);
        return;
    }
    record.credit = is_em(reader->node) ? 0 : reader->open[record.slot];
}

void Checker::read_taken(Time /*now*/, sim::EndpointId /*from*/, sim::EndpointId to, const sim::Transfer& read,
                         std::uint8_t parts) {
    Read& record = reads_.at(read.number);
    const std::optional<MepId> held = held_at(to, read);
    if ((parts & sim::part_first_half) != 0) record.halves[0] = held;
    if ((parts & sim::part_second_half) != 0) record.halves[1] = held;
    judge_.mark(parts == sim::part_all ? "read whole" : "read in part");
}

/// A place into which something is read belongs to the read until it is over (EB-F3).
void Checker::read_landed(Time /*now*/, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& read,
                          std::uint8_t /*parts*/) {
    const Builder* reader = builder_at(from);
    const Read& record = reads_.at(read.number);
    if (reader == nullptr || is_em(reader->node) || record.slot == slots_) return;
    const std::uint32_t open = reader->open[record.slot];
    if (open == 0) judge_.mark("read into an unused slot");
    if (open != 0 && record.credit != 0 && open != record.credit) {
        violation("EB-F3",
                  "what node {}#{} reads of node {} for credit {} lands in slot {}, which is in use for credit {}",
                  reader->node, reader->incarnation, node_of(to), record.credit, record.slot, open);
    }
}

void Checker::read_completed(Time /*now*/, sim::EndpointId /*from*/, sim::EndpointId /*to*/, const sim::Transfer& read,
                             Status status) {
    reads_.at(read.number).over = true;
    if (status == Status::peer_lost) judge_.mark("read: owner lost");
    if (status == Status::cancelled) judge_.mark("read: cancelled");
    if (status == Status::remote_fault) {
        violation("EB-T8", "a read of node {} is outside of what it exposes", node_of(reads_.at(read.number).owner));
    }
}

void Checker::crashes(sim::EndpointId endpoint) {
    for (const auto& [number, read] : reads_) {
        if (read.over) continue;
        if (read.reader == endpoint) judge_.mark("fault: reader crash in mid-read");
        if (read.owner == endpoint) judge_.mark("fault: owner crash in mid-read");
    }
}

/// All bytes of a delivered body are those of its MEP, and came by one read that was over by then.
void Checker::check_read(const Builder& own, std::uint32_t node, const protocol::BuiltMep& mep, std::uint32_t source) {
    if (contribution_of(plan_, mep.mep, source).bytes == 0) return;
    const protocol::SlotLayout::Place place = layout_.at(mep.slot, source);
    for (std::uint32_t id = 0; id < builder_at_.size(); ++id) {
        if (builder_at(id) != &own || world_.find(id) == nullptr) continue;
        const sim::Area* area =
            world_.find(id)->area(static_cast<std::uint16_t>(place.region), place.offset + sizeof(wire::Head));
        const bool whole = area != nullptr && area->body_write[0] == area->body_write[1];
        const auto found = whole ? reads_.find(area->body_write[0]) : reads_.end();
        if (found == reads_.end() || !found->second.over || found->second.source != source) {
            violation("EB-T1", "node {}: MEP {} source {}: the body in the slot is not whole, or still being read",
                      node, mep.mep, source);
            continue;
        }
        for (const std::optional<MepId>& half : found->second.halves) {
            if (half == mep.mep) continue;
            violation("EB-F1", "node {}: MEP {} source {}: what was read is of MEP {}", node, mep.mep, source,
                      half ? fmt::format("{}", *half) : "none");
        }
        judge_.mark("read delivered");
    }
}

}  // namespace incast::adversary
