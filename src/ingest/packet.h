// What a datagram of a board holds: an MFP, or a multi-event fragment (MEF), which becomes one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "wire/mef.h"
#include "wire/mfp.h"

namespace incast::ingest {

enum class Format : std::uint8_t { mfp, mef };

/// The largest datagram over IPv4.
inline constexpr std::size_t most_packet_bytes = 65507;

/// The id of which only the low 32 bits are known, as near to `near` as can be.
[[nodiscard]] std::uint64_t extend_id(std::uint32_t low, std::uint64_t near);

class PacketReader {
public:
    explicit PacketReader(Format format);

    /// The MFP in a datagram, or one made of the MEF there, in the reader's memory until the next call. `near(source)`:
    /// an event id that this source's are near to, as a MEF has the low half alone. Errors: it is damaged, more is
    /// behind it, or a MEF does not say whose it is: by the source id of its first bank.
    template <class Near>
    Result<wire::MfpView> read(Bytes bytes, Near&& near) {
        if (format_ == Format::mfp) return whole(bytes);
        const Result<wire::MefView> mef = whole_mef(bytes);
        if (!mef) return mef.error();
        const Result<std::uint16_t> source = source_of(*mef);
        if (!source) return source.error();
        return convert(*mef, *source, std::forward<Near>(near)(*source));
    }

private:
    static Result<wire::MfpView> whole(Bytes bytes);
    static Result<wire::MefView> whole_mef(Bytes bytes);
    static Result<std::uint16_t> source_of(const wire::MefView& mef);
    Result<wire::MfpView> convert(const wire::MefView& mef, std::uint16_t source, std::uint64_t near);

    Format format_;
    std::vector<std::byte> scratch_;
};

}  // namespace incast::ingest
