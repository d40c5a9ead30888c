#include "softrio/wire/packet.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "softrio/wire/crc16.h"

namespace incast::softrio::wire {

namespace {

// Format types, and transaction types within them.
constexpr unsigned type_request = 2;
constexpr unsigned type_write = 5;
constexpr unsigned type_streaming = 6;
constexpr unsigned type_maintenance = 8;
constexpr unsigned type_doorbell = 10;
constexpr unsigned type_message = 11;
constexpr unsigned type_response = 13;
constexpr unsigned nread = 4;
constexpr unsigned nwrite = 4;
constexpr unsigned nwrite_r = 5;
constexpr unsigned response_done = 0;
constexpr unsigned response_data = 8;

constexpr std::size_t crc_bytes = 2;
constexpr unsigned segment_of_256 = 14;
constexpr unsigned word_size_code = 8;

/// Part 1, tables 4-3 and 4-4: size code and word pointer of what lies within one double word.
struct Lanes {
    std::uint8_t offset;
    std::uint8_t bytes;
};
constexpr std::array<Lanes, 22> lanes = {{{0, 1}, {4, 1}, {1, 1}, {5, 1}, {2, 1}, {6, 1}, {3, 1}, {7, 1},
                                          {0, 2}, {4, 2}, {0, 3}, {5, 3}, {2, 2}, {6, 2}, {0, 5}, {3, 5},
                                          {0, 4}, {4, 4}, {0, 6}, {2, 6}, {0, 7}, {1, 7}}};
/// Whole double words, from code 11 on: what a read gets, or the most a write has.
constexpr std::array<std::uint16_t, 10> sizes = {8, 16, 32, 64, 96, 128, 160, 192, 224, 256};
constexpr std::array<bool, 10> is_for_writes = {true, true, true, true, false, true, false, false, false, true};

/// Code and word pointer as one number: code * 2 + pointer.
unsigned size_code(std::uint64_t address, std::size_t bytes, bool is_read) {
    if (bytes == max_payload) return static_cast<unsigned>(lanes.size() + sizes.size()) - 1;
    const auto offset = static_cast<std::uint8_t>(address % double_word);
    if (bytes < double_word) {
        for (unsigned code = 0; code < lanes.size(); ++code) {
            if (lanes[code].offset == offset && lanes[code].bytes == bytes) return code;
        }
    }
    for (unsigned index = 0; index < sizes.size(); ++index) {
        if (sizes[index] >= bytes && (is_read || is_for_writes[index]))
            return static_cast<unsigned>(lanes.size()) + index;
    }
    return 0;  // never: callers ask for what piece() allows
}

static_assert(std::endian::native == std::endian::little);

std::uint16_t big_endian(std::uint16_t value) {
    return __builtin_bswap16(value);
}
std::uint32_t big_endian(std::uint32_t value) {
    return __builtin_bswap32(value);
}

std::uint64_t load(const std::byte* at) {
    std::uint64_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
}

/// Of the first `bytes` of a head, as they are in memory, the number that the CRC wants.
std::uint64_t crc_high_of(std::uint64_t head, std::size_t bytes) {
    return __builtin_bswap64(head) >> 8 * (sizeof head - bytes) ^ std::uint64_t{crc16_begin} << 8 * (bytes - 2);
}

class Writer {
public:
    explicit Writer(std::byte* at) : begin_(at), at_(at) {}
    void put8(unsigned value) { *at_++ = static_cast<std::byte>(value); }
    void put16(unsigned value) { put(big_endian(static_cast<std::uint16_t>(value))); }
    void put32(std::uint64_t value) { put(big_endian(static_cast<std::uint32_t>(value))); }
    void put(std::span<const std::byte> data) {
        if (!data.empty()) std::memcpy(at_, data.data(), data.size());
        at_ += data.size();
    }
    void zero(std::size_t bytes) {
        std::memset(at_, 0, bytes);
        at_ += bytes;
    }
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(at_ - begin_); }

private:
    template <class T>
    void put(T value) {
        std::memcpy(at_, &value, sizeof value);
        at_ += sizeof value;
    }

    std::byte* begin_;
    std::byte* at_;
};

class Reader {
public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    // 0 behind the end, which is_good() tells.
    std::uint8_t get8() { return get<std::uint8_t>(); }
    std::uint16_t get16() { return big_endian(get<std::uint16_t>()); }
    std::uint32_t get32() { return big_endian(get<std::uint32_t>()); }
    [[nodiscard]] bool is_good() const { return good_; }
    [[nodiscard]] std::span<const std::byte> rest() const { return bytes_; }

private:
    template <class T>
    T get() {
        T value = 0;
        if (sizeof value > bytes_.size()) {
            good_ = false;
            return value;
        }
        std::memcpy(&value, bytes_.data(), sizeof value);
        bytes_ = bytes_.subspan(sizeof value);
        return value;
    }

    std::span<const std::byte> bytes_;
    bool good_ = true;
};

unsigned format_of(Operation operation) {
    switch (operation) {
        case Operation::nread:
            return type_request;
        case Operation::nwrite:
        case Operation::nwrite_r:
            return type_write;
        case Operation::swrite:
            return type_streaming;
        case Operation::doorbell:
            return type_doorbell;
        case Operation::message:
            return type_message;
        case Operation::response:
        case Operation::response_with_data:
            return type_response;
        default:
            return type_maintenance;
    }
}

/// Data of fewer than 8 bytes goes into its lanes of a double word.
void put_data(Writer& writer, std::uint64_t address, std::span<const std::byte> data) {
    const std::size_t before = address % double_word;
    const std::size_t used = before + data.size();
    if (before != 0) writer.zero(before);
    writer.put(data);
    if (used % double_word != 0) writer.zero(double_word - used % double_word);
}

void put_address(Writer& writer, std::uint64_t address, unsigned word_pointer) {
    writer.put32(address >> 32);
    writer.put32((address & 0xFFFF'FFF8) | word_pointer << 2);
}

/// Address, bytes and data of a request to memory; false: it makes no sense.
bool get_memory(Reader& reader, unsigned code, bool is_read, Packet& packet) {
    const std::uint64_t high = reader.get32();
    const std::uint64_t low = reader.get32();
    if ((low & 3) != 0) return false;
    packet.address = high << 32 | (low & 0xFFFF'FFF8);
    code = code * 2 + static_cast<unsigned>(low >> 2 & 1);
    const auto rest = reader.rest();
    if (code < lanes.size()) {
        packet.address += lanes[code].offset;
        packet.bytes = lanes[code].bytes;
        if (is_read) return rest.empty();
        if (rest.size() != double_word) return false;
        packet.data = rest.subspan(lanes[code].offset, lanes[code].bytes);
        return true;
    }
    const std::size_t most = sizes[code - lanes.size()];
    packet.bytes = static_cast<std::uint16_t>(is_read ? most : rest.size());
    packet.data = rest;
    if (is_read) return rest.empty();
    return is_for_writes[code - lanes.size()] && !rest.empty() && rest.size() % double_word == 0 && rest.size() <= most;
}

bool get_maintenance(Reader& reader, Packet& packet) {
    const auto head = unsigned{reader.get8()};
    packet.transaction = reader.get8();
    packet.hop_count = reader.get8();
    const std::uint32_t upper = reader.get8();
    const std::uint32_t offset = upper << 16 | reader.get16();
    const unsigned type = head >> 4;
    if (type > 3) return false;  // port-writes among them, which nobody here sends
    packet.operation = static_cast<Operation>(static_cast<unsigned>(Operation::maintenance_read) + type);
    const bool has_data =
        packet.operation == Operation::maintenance_write || packet.operation == Operation::maintenance_read_response;
    const auto rest = reader.rest();
    if (rest.size() != (has_data ? double_word : 0)) return false;
    if (type <= 1) {
        if ((head & 15) != word_size_code || (offset & 3) != 0) return false;
        packet.address = offset;
        packet.bytes = 4;
    } else {
        packet.status = static_cast<Status>(head & 15);
    }
    if (has_data) packet.data = type == 1 ? rest.subspan(packet.address % double_word, 4) : rest;
    return true;
}

bool get_message(Reader& reader, Packet& packet) {
    const auto head = unsigned{reader.get8()};
    const auto place = unsigned{reader.get8()};
    packet.operation = Operation::message;
    packet.last_segment = static_cast<std::uint8_t>(head >> 4);
    packet.mailbox = place >> 4 & 3;
    packet.segment = place & 15;
    packet.data = reader.rest();
    const bool is_last = packet.segment == packet.last_segment;
    return (head & 15) == segment_of_256 && place >> 6 == 0 && packet.segment <= packet.last_segment &&
           packet.data.size() % double_word == 0 && !packet.data.empty() && packet.data.size() <= max_payload &&
           (is_last || packet.data.size() == max_payload);
}

bool get_response(Reader& reader, Packet& packet) {
    const auto head = unsigned{reader.get8()};
    packet.transaction = reader.get8();
    packet.status = static_cast<Status>(head & 15);
    packet.data = reader.rest();
    const unsigned type = head >> 4;
    packet.operation = type == response_done ? Operation::response : Operation::response_with_data;
    if (type == response_done) return packet.data.empty();
    return type == response_data && !packet.data.empty() && packet.data.size() % double_word == 0 &&
           packet.data.size() <= max_payload;
}

bool get_body(unsigned format, Reader& reader, Packet& packet) {
    switch (format) {
        case type_request:
        case type_write: {
            const auto head = unsigned{reader.get8()};
            packet.transaction = reader.get8();
            const unsigned type = head >> 4;
            if (format == type_request) {
                packet.operation = Operation::nread;
                return type == nread && get_memory(reader, head & 15, true, packet);
            }
            packet.operation = type == nwrite_r ? Operation::nwrite_r : Operation::nwrite;
            return (type == nwrite || type == nwrite_r) && get_memory(reader, head & 15, false, packet);
        }
        case type_streaming: {
            packet.operation = Operation::swrite;
            const std::uint64_t high = reader.get32();
            const std::uint64_t low = reader.get32();
            packet.address = high << 32 | low;
            packet.data = reader.rest();
            packet.bytes = static_cast<std::uint16_t>(packet.data.size());
            return low % double_word == 0 && !packet.data.empty() && packet.data.size() % double_word == 0 &&
                   packet.data.size() <= max_payload;
        }
        case type_maintenance:
            return get_maintenance(reader, packet);
        case type_doorbell:
            packet.operation = Operation::doorbell;
            if (reader.get8() != 0) return false;
            packet.transaction = reader.get8();
            packet.info = reader.get16();
            return reader.rest().empty();
        case type_message:
            return get_message(reader, packet);
        case type_response:
            return get_response(reader, packet);
        default:
            return false;
    }
}

}  // namespace

std::size_t piece(std::uint64_t address, std::size_t bytes, bool is_read) {
    const std::size_t offset = address % double_word;
    if (offset == 0 && bytes >= double_word) {
        if (!is_read) return std::min(bytes / double_word * double_word, max_payload);
        return *std::prev(std::ranges::upper_bound(sizes, std::min(bytes, max_payload)));
    }
    const std::size_t most = std::min(bytes, double_word - offset);
    std::size_t best = 1;
    for (const Lanes& each : lanes) {
        if (each.offset == offset && each.bytes <= most) best = std::max<std::size_t>(best, each.bytes);
    }
    return best;
}

std::size_t encode(const Packet& packet, std::byte* into) {
    Writer writer(into);
    const unsigned format = format_of(packet.operation);
    writer.put16((packet.has_small_ids ? 0U : 1U) << 4 | format);
    if (packet.has_small_ids) {
        writer.put8(packet.destination);
        writer.put8(packet.source);
    } else {
        writer.put16(packet.destination);
        writer.put16(packet.source);
    }
    const auto size = [&] { return size_code(packet.address, packet.bytes, packet.operation == Operation::nread); };
    switch (packet.operation) {
        case Operation::nread:
        case Operation::nwrite:
        case Operation::nwrite_r: {
            const unsigned code = size();
            writer.put8((packet.operation == Operation::nwrite_r ? nwrite_r : nwrite) << 4 | code / 2);
            writer.put8(packet.transaction);
            put_address(writer, packet.address, code % 2);
            if (packet.operation != Operation::nread) put_data(writer, packet.address, packet.data);
            break;
        }
        case Operation::swrite:
            put_address(writer, packet.address, 0);
            writer.put(packet.data);
            break;
        case Operation::maintenance_read:
        case Operation::maintenance_write:
        case Operation::maintenance_read_response:
        case Operation::maintenance_write_response: {
            const unsigned type =
                static_cast<unsigned>(packet.operation) - static_cast<unsigned>(Operation::maintenance_read);
            writer.put8(type << 4 | (type <= 1 ? word_size_code : static_cast<unsigned>(packet.status)));
            writer.put8(packet.transaction);
            writer.put8(packet.hop_count);
            writer.put8(static_cast<unsigned>(type <= 1 ? packet.address >> 16 : 0));
            writer.put16(static_cast<unsigned>(type <= 1 ? packet.address : 0));
            if (!packet.data.empty()) put_data(writer, packet.address, packet.data);
            break;
        }
        case Operation::doorbell:
            writer.put16(packet.transaction);
            writer.put16(packet.info);
            break;
        case Operation::message:
            writer.put8(static_cast<unsigned>(packet.last_segment) << 4 | segment_of_256);
            writer.put8(unsigned{packet.mailbox} << 4 | packet.segment);
            put_data(writer, 0, packet.data);
            break;
        case Operation::response:
        case Operation::response_with_data:
            writer.put8((packet.operation == Operation::response ? response_done : response_data) << 4 |
                        static_cast<unsigned>(packet.status));
            writer.put8(packet.transaction);
            writer.put(packet.data);
            break;
    }
    writer.put16(crc16({into, writer.size()}));
    return writer.size();
}

bool decode(std::span<const std::byte> bytes, Packet& packet) {
    if (bytes.size() < crc_bytes || bytes.size() > max_packet) return false;
    const auto content = bytes.first(bytes.size() - crc_bytes);
    Reader crc(bytes.last(crc_bytes));
    if (crc.get16() != crc16(content)) return false;
    Reader reader(content);
    packet = {};
    const bool is_for_no_link = reader.get8() == 0;
    const auto head = unsigned{reader.get8()};
    const unsigned id_size = head >> 4 & 3;
    packet.has_small_ids = id_size == 0;
    packet.destination = packet.has_small_ids ? reader.get8() : reader.get16();
    packet.source = packet.has_small_ids ? reader.get8() : reader.get16();
    return is_for_no_link && id_size <= 1 && get_body(head & 15, reader, packet) && reader.is_good();
}

WriteRun::WriteRun(Packet packet) : crc_(&crc16_methods().back()) {
    const std::array<std::byte, max_payload> nothing{};
    packet.address = 0;
    packet.bytes = max_payload;
    packet.data = nothing;
    std::array<std::byte, max_packet> first;
    head_bytes_ = wire::encode(packet, first.data()) - max_payload - crc_bytes;
    std::copy_n(first.begin(), head_bytes_, head_.begin());
    low_bits_ = static_cast<std::uint64_t>(head_[head_bytes_ - 1]);
    crc_high_ = crc_high_of(load(head_.data()), head_bytes_ - sizeof packet.address);
}

void WriteRun::encode(std::uint64_t address, const std::byte* data, std::byte* into) const {
    std::memcpy(into, head_.data(), head_.size());  // of a shorter one too much, which the data covers
    address |= low_bits_;
    const std::uint64_t turned = __builtin_bswap64(address);
    std::memcpy(into + head_bytes_ - sizeof turned, &turned, sizeof turned);
    const std::uint16_t crc = big_endian(crc_->copy(crc_high_, address, {data, max_payload}, into + head_bytes_));
    std::memcpy(into + head_bytes_ + max_payload, &crc, sizeof crc);
}

void RunReader::begin(std::span<const std::byte> bytes, const Packet& packet) {
    head_bytes_ = static_cast<std::size_t>(packet.data.data() - bytes.data());
    packet_bytes_ = bytes.size();
    transaction_ = packet.transaction;
    const std::size_t before = head_bytes_ - sizeof last_;
    crc_ = &crc16_methods().back();
    head_mask_ = ~std::uint64_t{0} >> 8 * (sizeof head_ - before);
    head_ = load(bytes.data()) & head_mask_;
    crc_high_ = crc_high_of(head_, before);
    last_ = __builtin_bswap64(load(bytes.data() + before));
}

std::uint64_t RunReader::next_address() const {
    return (last_ & ~std::uint64_t{double_word - 1}) + max_payload;
}

bool RunReader::take(const std::byte* packet, std::byte* to) {
    const std::uint64_t next = __builtin_bswap64(load(packet + head_bytes_ - sizeof last_));
    if (next - last_ != max_payload || (load(packet) & head_mask_) != head_) return false;
    std::uint16_t crc = 0;
    std::memcpy(&crc, packet + packet_bytes_ - crc_bytes, sizeof crc);
    if (!crc_->take(crc_high_, next, {packet + head_bytes_, max_payload}, big_endian(crc), to)) return false;
    last_ = next;
    return true;
}

}  // namespace incast::softrio::wire
