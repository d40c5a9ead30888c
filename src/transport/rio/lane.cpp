#include "transport/rio/lane.h"

#include <algorithm>
#include <cstring>

namespace incast::transport::rio {

bool LaneWriter::has_room(std::size_t payload, std::uint64_t read) const {
    const std::uint64_t bytes = record_bytes(payload);
    const std::uint64_t needed = to_end() < bytes ? to_end() + bytes : bytes;
    return written_ + needed - read <= capacity_;
}

void LaneWriter::push(Record record, Bytes message) {
    const std::uint64_t bytes = record_bytes(message.size());
    if (to_end() < bytes) {
        const Record skip{Record::Kind::skip, 0, static_cast<std::uint32_t>(to_end())};
        std::memcpy(ring_.get() + offset(written_), &skip, sizeof skip);
        written_ += to_end();
    }
    std::byte* place = ring_.get() + offset(written_);
    std::memcpy(place, &record, sizeof record);
    if (!message.empty()) std::memcpy(place + sizeof record, message.data(), message.size());
    written_ += bytes;
}

Bytes LaneWriter::bytes(std::uint64_t end) const {
    const std::size_t from = offset(sent_);
    return {ring_.get() + from, std::min<std::uint64_t>(end - sent_, capacity_ - from)};
}

Bytes LaneWriter::records(std::uint64_t end, std::size_t most, std::uint64_t& start) const {
    Record record;
    const auto look = [&](std::uint64_t position) {
        std::memcpy(&record, ring_.get() + offset(position), sizeof record);
        return record.kind == Record::Kind::message ? record_bytes(record.size) : sizeof record;
    };
    start = sent_;
    if (start < end) (void)look(start);
    if (start < end && record.kind == Record::Kind::skip) start += record.size;
    std::uint64_t at = start;
    while (at < end) {
        const std::uint64_t bytes = look(at);
        if (record.kind == Record::Kind::skip || at + bytes - start > most) break;
        at += bytes;
        if (offset(at) == 0) break;
    }
    return {ring_.get() + offset(start), at - start};
}

void LaneReader::start(std::uint64_t position) {
    read_ = position;
    taken_ = {};
}

LaneReader::Got LaneReader::parse(Bytes available, Record& record, Bytes& message) {
    if (available.size() < sizeof record) return Got::nonsense;
    std::memcpy(&record, available.data(), sizeof record);
    std::uint64_t bytes = sizeof record;
    if (record.kind == Record::Kind::message) {
        bytes = record_bytes(record.size);
        if (record.size == 0 || record.size > max_message_bytes || bytes > available.size()) return Got::nonsense;
        message = available.subspan(sizeof record, record.size);
    } else if (record.kind != Record::Kind::notice) {
        return Got::nonsense;
    }
    read_ += bytes;
    return Got::record;
}

LaneReader::Got LaneReader::next(const std::byte* ring, std::size_t capacity, std::uint64_t written, Record& record,
                                 Bytes& message) {
    if (written == read_) return Got::nothing;
    if (written - read_ > capacity || written % sizeof(Record) != 0) return Got::nonsense;
    const auto available = [&] {
        const std::size_t offset = read_ & (capacity - 1);
        return Bytes(ring + offset, std::min<std::uint64_t>(written - read_, capacity - offset));
    };
    Bytes here = available();
    std::memcpy(&record, here.data(), sizeof record);
    if (record.kind == Record::Kind::skip) {
        if (record.size != capacity - (read_ & (capacity - 1)) || record.size > here.size()) return Got::nonsense;
        read_ += record.size;
        if (written == read_) return Got::nothing;
        here = available();
    }
    return parse(here, record, message);
}

bool LaneReader::take(std::uint64_t position, Bytes records, std::size_t capacity) {
    // The rest of the ring may have been skipped.
    const std::uint64_t skipped = position - read_;
    if (records.empty() || skipped >= capacity || (skipped != 0 && position % capacity != 0)) return false;
    read_ = position;
    taken_ = records;
    return true;
}

LaneReader::Got LaneReader::next_taken(Record& record, Bytes& message) {
    if (taken_.empty()) return Got::nothing;
    const std::uint64_t before = read_;
    const Got got = parse(taken_, record, message);
    if (got == Got::record) taken_ = taken_.subspan(read_ - before);
    return got;
}

}  // namespace incast::transport::rio
