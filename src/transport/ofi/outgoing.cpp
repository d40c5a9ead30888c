#include "transport/ofi/outgoing.h"

#include <functional>

#include "transport/ofi/wire.h"

namespace incast::transport::ofi {

Outgoing::Outgoing(std::uint32_t peer, std::uint32_t depth, std::uint32_t most_records, std::byte* heads,
                   std::byte* buffers, void* descriptor, bool is_gated)
    : peer_(peer),
      transfers_(depth),
      records_(most_records),
      gate_(depth),
      heads_(heads),
      buffers_(buffers),
      descriptor_(descriptor),
      is_gated_(is_gated) {
    for (std::uint32_t number = 0; number < depth; ++number)
        transfers_.at(number).owner = this;
    for (std::uint32_t number = 0; number < most_records; ++number) {
        records_.at(number).owner = this;
        records_.at(number).is_record = true;
    }
}

bool Outgoing::owns(const void* context) const {
    const auto is_in = [&](const Ring& ring) {
        const void* const first = &ring.at(0);
        const void* const behind = ring.operations.get() + ring.mask + 1;
        return std::less_equal<>()(first, context) && std::less<>()(context, behind);
    };
    return is_in(transfers_) || is_in(records_);
}

Outgoing::Operation& Outgoing::make_transfer() {
    Operation& made = transfers_.at(transfers_.made++);
    made.waits_for = records_.made;
    made.count = 0;
    made.token = 0;
    made.is_read = made.notifies = made.is_back = false;
    gate_.enter(records_.made);
    return made;
}

Outgoing::Operation& Outgoing::make_record(std::size_t bytes) {
    std::byte* const buffer = buffers_ + (records_.made & records_.mask) * buffer_bytes;
    Operation& made = records_.at(records_.made++);
    made.waits_for = transfers_.made;
    made.parts[0] = {buffer, bytes};
    made.descriptors[0] = descriptor_;
    made.count = 1;
    made.is_fenced = made.is_back = false;
    return made;
}

Outgoing::Operation* Outgoing::next() {
    if (transfers_.posted != transfers_.made) {
        Operation& first = transfers_.at(transfers_.posted);
        if (!first.notifies || records_.posted >= first.waits_for) return &first;
    }
    if (records_.posted == records_.made || records_.posted >= gate_.open_until(records_.made)) return nullptr;
    Operation& first = records_.at(records_.posted);
    return !first.is_fenced || transfers_.ended >= first.waits_for ? &first : nullptr;
}

void Outgoing::left(const Operation& operation) {
    ++there_;
    if (operation.is_record) {
        ++records_.posted;
    } else {
        ++transfers_.posted;
        if (!is_gated_) gate_.leave();
    }
}

}  // namespace incast::transport::ofi
