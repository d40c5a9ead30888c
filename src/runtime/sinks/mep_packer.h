// A built MEP as bytes in the layout of docs/formats.md: what file and command sinks have in common.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <incast/result.h>

#include "protocol/interfaces.h"
#include "runtime/sinks/sink.h"

namespace incast::sinks {

class MepPacker {
public:
    /// Error: two sources with one id, which a MEP cannot tell apart.
    static Result<MepPacker> make(const protocol::Config& config, Missing missing);

    struct Packed {
        std::span<const Bytes> segments;  // in order; good until the next call, and as long as the MEP's slot
        std::uint64_t bytes = 0;
    };
    /// Sources that are missing, damaged or others than they say become phantoms that say why. Error: what cannot be a
    /// MEP.
    Result<Packed> pack(const protocol::BuiltMep& mep);

    /// Of the MEP packed last: what its sources say or lack, as members of a JSON object.
    [[nodiscard]] const std::string& flags() const { return flags_; }
    /// Of the MEP packed last: the checksums that its MFPs were sent with (docs/formats.md), as members of a JSON
    /// object.
    [[nodiscard]] const std::string& checksums() const { return checksums_; }
    /// Of the MEP packed last: what should not be, one line each.
    [[nodiscard]] const std::vector<std::string>& wrong() const { return wrong_; }
    [[nodiscard]] std::size_t sources() const { return by_id_.size(); }

private:
    MepPacker(const protocol::Config& config, Missing missing);
    Result<Bytes> mfp_of(const protocol::BuiltMep& mep, std::uint32_t source);

    Missing missing_;
    protocol::Checksum checksum_;
    std::vector<std::uint16_t> ids_;           // by source of the config
    std::vector<std::uint32_t> by_id_;         // sources of the config, ascending by id
    std::vector<std::vector<std::byte>> own_;  // by source of the config: MFPs that are not written as they came
    std::vector<std::byte> header_;
    std::vector<Bytes> mfps_;
    std::vector<Bytes> segments_;
    std::string flags_;
    std::string checksums_;
    std::vector<std::string> wrong_;
};

}  // namespace incast::sinks
