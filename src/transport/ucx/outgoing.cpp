#include "transport/ucx/outgoing.h"

namespace incast::transport::ucx {

Outgoing::Outgoing(Endpoint* of, std::uint32_t peer, std::uint32_t depth, std::uint32_t most_records)
    : of_(of),
      peer_(peer),
      transfers_(depth),
      records_(most_records),
      flushes_(most_flushes),
      heads_(new std::byte[std::size_t{depth} * max_head_bytes]),
      buffers_(new std::byte[std::size_t{most_records} * rma::buffer_bytes]) {
    const auto fill = [this](const Ring& ring, Operation::Kind kind) {
        for (std::uint64_t number = 0; number <= ring.mask; ++number) {
            ring.at(number).owner = this;
            ring.at(number).kind = kind;
        }
    };
    fill(transfers_, Operation::Kind::transfer);
    fill(records_, Operation::Kind::record);
    fill(flushes_, Operation::Kind::flush);
}

Outgoing::Operation& Outgoing::make_transfer(std::uint32_t parts) {
    Operation& made = transfers_.at(transfers_.made++);
    made.token = 0;
    made.parts = parts;
    return made;
}

Outgoing::Operation& Outgoing::make_record(std::size_t bytes) {
    Operation& made = records_.at(records_.made++);
    made.position = transfers_.made;
    made.bytes = bytes;
    made.parts = 1;
    return made;
}

Outgoing::Operation* Outgoing::make_flush(bool also_for_records) {
    const bool is_needed = asked_ != transfers_.made || (also_for_records && asked_records_ != records_.posted);
    if (!is_needed || is_full()) return nullptr;
    Operation& made = flushes_.at(flushes_.made++);
    made.position = asked_ = transfers_.made;
    made.records = asked_records_ = records_.posted;
    made.parts = 1;
    return &made;
}

Outgoing::Operation* Outgoing::next_record() {
    if (records_.posted == records_.made || records_.at(records_.posted).position > shown_) return nullptr;
    return &records_.at(records_.posted++);
}

}  // namespace incast::transport::ucx
