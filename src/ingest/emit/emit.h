// Boards of one process, and what they sent.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include <incast/result.h>

#include "datagram/address.h"
#include "ingest/emit/board.h"

namespace incast::ingest {

enum class Carrier : std::uint8_t { udp, tcp };

struct EmitSettings {
    BoardSettings boards;
    Carrier carrier = Carrier::udp;
    std::uint32_t boards_per_connection = 1;  // tcp
    std::uint32_t n_boards = 1;
    std::uint16_t first_id = 0;
    double rate_hz = 0;                 // events of each board; 0: as fast as can be
    std::vector<datagram::Address> to;  // the first boards send to the first of them, and so on
    std::string record;                 // not empty: a file with a line for each packet
};

/// Board `index` of `n_boards` sends to that one of `n_addresses`: as sources are shared out over readout units.
[[nodiscard]] std::uint32_t address_of_board(std::uint32_t index, std::uint32_t n_boards, std::uint32_t n_addresses);

struct Emitted {
    std::string json;   // what was sent
    std::string error;  // not empty: a connection ended before all was sent
};

/// Sends until all boards are done, or `stop` is not 0. Errors: settings that a packet cannot hold, addresses of two
/// kinds, nobody listens, a system call that fails.
Result<Emitted> emit(const EmitSettings& settings, const volatile std::sig_atomic_t& stop);

}  // namespace incast::ingest
