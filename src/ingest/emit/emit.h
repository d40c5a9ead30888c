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

struct EmitSettings {
    BoardSettings boards;
    std::uint32_t n_boards = 1;
    std::uint16_t first_id = 0;
    double rate_hz = 0;                 // events of each board; 0: as fast as can be
    std::vector<datagram::Address> to;  // the first boards send to the first of them, and so on
    std::string record;                 // not empty: a file with a line for each packet
};

/// Board `index` of `n_boards` sends to that one of `n_addresses`: as sources are shared out over readout units.
[[nodiscard]] std::uint32_t address_of_board(std::uint32_t index, std::uint32_t n_boards, std::uint32_t n_addresses);

/// Sends until all boards are done, or `stop` is not 0. Returns what was sent, as JSON. Errors: settings that a packet
/// cannot hold, addresses of two kinds, a system call that fails.
Result<std::string> emit(const EmitSettings& settings, const volatile std::sig_atomic_t& stop);

}  // namespace incast::ingest
