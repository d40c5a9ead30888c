// RapidIO packets: the logical layer of parts 1 (input and output) and 2 (messages) of the specification, the transport
// layer of part 3 (destination and source ids of 8 or 16 bits), and of the physical layer of part 6 what every packet
// begins and ends with: 16 bits with priority and format, and one CRC of 16 bits. What belongs to one link is not here:
// acknowledgement ids are 0, and there is no second CRC behind the first 80 bytes.
//
//   byte 0  0 | 1  priority (2 bits), size of ids (2), format type (4) | ids: destination, source | format | data | CRC
//
// All fields are big-endian. Addresses have 66 bits, of which the upper two are 0. Data is whole double words; of fewer
// than 8 bytes the lanes that their address says count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "softrio/wire/crc16.h"

namespace incast::softrio::wire {

inline constexpr std::size_t max_payload = 256;
inline constexpr std::size_t max_packet = 18 + max_payload;  // with ids of 16 bits, an address, and the CRC
inline constexpr std::size_t double_word = 8;

enum class Operation : std::uint8_t {
    nread,
    nwrite,
    nwrite_r,
    swrite,
    maintenance_read,
    maintenance_write,
    maintenance_read_response,
    maintenance_write_response,
    doorbell,
    message,
    response,
    response_with_data,
};

enum class Status : std::uint8_t { done = 0, retry = 3, error = 7 };

struct Packet {
    Operation operation = Operation::nwrite;
    bool has_small_ids = false;
    std::uint16_t destination = 0;
    std::uint16_t source = 0;
    std::uint8_t transaction = 0;  // of requests with a response, and of their responses
    Status status = Status::done;  // responses
    std::uint64_t address = 0;     // of the first byte; maintenance: offset of a register
    std::uint16_t bytes = 0;       // to read, or to write: of data
    std::uint16_t info = 0;        // doorbell
    std::uint8_t hop_count = 0;    // maintenance
    std::uint8_t mailbox = 0;      // message: 0..3
    std::uint8_t segment = 0;
    std::uint8_t last_segment = 0;
    /// Decoded: the bytes that count, in the packet. Responses to reads of fewer than 8 bytes carry a whole double
    /// word.
    std::span<const std::byte> data;
};

/// How many of the bytes at `address` one request moves: at most 256, as the sizes of the specification allow.
std::size_t piece(std::uint64_t address, std::size_t bytes, bool is_read);

/// Writes a packet, whose data is copied; `into` has room for max_packet. Returns its bytes.
std::size_t encode(const Packet& packet, std::byte* into);
/// False: it is no packet, or its CRC is wrong; then `packet` means nothing. (Not returned: copying what was just
/// written field by field makes the CPU wait.)
bool decode(std::span<const std::byte> bytes, Packet& packet);

/// Writes of 256 bytes that differ in address and data alone, as the packets of one transfer do: what they begin with
/// is made once.
class WriteRun {
public:
    /// `packet`: a write without a response of its own; its address, bytes and data do not matter.
    explicit WriteRun(Packet packet);

    [[nodiscard]] std::size_t packet_bytes() const { return head_bytes_ + max_payload + sizeof(std::uint16_t); }
    /// As encode() does; `address` is a multiple of 8, `data` 256 bytes.
    void encode(std::uint64_t address, const std::byte* data, std::byte* into) const;

private:
    std::array<std::byte, 16> head_{};  // the last 8 of its bytes are the address
    std::size_t head_bytes_ = 0;
    std::uint64_t low_bits_ = 0;  // below the address: the word pointer
    std::uint64_t crc_high_ = 0;  // what is before the address, as the CRC wants it
    const Crc16Method* crc_;
};

/// The other end of a run: packets that differ from the one before in data, and in an address 256 further on.
class RunReader {
public:
    /// `bytes` were decoded as `packet`, a write of 256 bytes: the next may continue it.
    void begin(std::span<const std::byte> bytes, const Packet& packet);
    void end() { packet_bytes_ = 0; }

    [[nodiscard]] std::size_t packet_bytes() const { return packet_bytes_; }  // 0: there is no run
    [[nodiscard]] std::size_t head_bytes() const { return head_bytes_; }
    [[nodiscard]] std::uint8_t transaction() const { return transaction_; }
    /// Of the next packet.
    [[nodiscard]] std::uint64_t next_address() const;
    /// True: `packet`, of packet_bytes(), is whole and continues the run; its data has been copied to `to`, unless that
    /// is nullptr.
    bool take(const std::byte* packet, std::byte* to);

private:
    // Numbers, not bytes: what was just stored in another size than it is loaded makes the CPU wait.
    std::uint64_t head_ = 0;  // what is before the address, as it is in memory
    std::uint64_t head_mask_ = 0;
    std::uint64_t crc_high_ = 0;  // the same, as the CRC wants it
    const Crc16Method* crc_ = nullptr;
    std::uint64_t last_ = 0;  // address and word pointer
    std::size_t head_bytes_ = 0;
    std::size_t packet_bytes_ = 0;
    std::uint8_t transaction_ = 0;
};

}  // namespace incast::softrio::wire
