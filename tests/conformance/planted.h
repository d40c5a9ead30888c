// Violations of the contract, planted on purpose, one per clause: they prove that the suite sees. A program that is run
// with the variable INCAST_PLANT has one in every endpoint.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <incast/transport.h>

namespace incast::conformance {

struct Planted {
    std::string_view name;
    std::string_view clause;     // which it breaks, as the names of its tests begin
    std::string_view transport;  // with which that is looked at
};
std::span<const Planted> planted_violations();
/// nullptr: nothing is planted in this program.
const Planted* planted_here();
/// The transport with that violation in it.
std::unique_ptr<Transport> make_planted(std::unique_ptr<Transport> inner, const Planted& planted);

}  // namespace incast::conformance
